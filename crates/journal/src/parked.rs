//! A thread that sleeps until it is told what to do. Knows nothing of flushes; `tests/orderings.rs`
//! walks through every order of it.

use crate::primitive::{Arc, AtomicU8, Ordering, Thread, thread};

const SLEEP: u8 = 0;

/// What a sleeper is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Told {
    /// What it waits for is so.
    Reached = 1,
    /// Look again: lead a flush, or learn of a failure.
    Look = 2,
}

/// A thread that sleeps, or is about to.
pub(crate) struct Parked {
    thread: Thread,
    told: AtomicU8,
}

impl Parked {
    /// The calling thread, not told anything.
    pub(crate) fn here() -> Arc<Parked> {
        Arc::new(Parked { thread: thread::current(), told: AtomicU8::new(SLEEP) })
    }

    /// Tells the thread and wakes it. What was written before is seen by it.
    pub(crate) fn tell(&self, what: Told) {
        self.told.store(what as u8, Ordering::Release);
        self.thread.unpark();
    }

    /// Sleeps until told. Called by the thread itself.
    pub(crate) fn sleep(&self) -> Told {
        loop {
            match self.told.load(Ordering::Acquire) {
                SLEEP => thread::park(),
                reached if reached == Told::Reached as u8 => return Told::Reached,
                _ => return Told::Look,
            }
        }
    }
}
