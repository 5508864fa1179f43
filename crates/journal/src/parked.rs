//! A thread that sleeps until it is told what to do, or for a time. Knows nothing of flushes; `tests/orderings.rs`
//! walks through every order of it.

use std::time::Duration;

use crate::primitive::{Arc, AtomicU8, Ordering, Thread, park, thread};

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
    /// Sleeps for a time only.
    watches: bool,
}

impl Parked {
    /// The calling thread, not told anything.
    pub(crate) fn here(watches: bool) -> Arc<Parked> {
        Arc::new(Parked { thread: thread::current(), told: AtomicU8::new(SLEEP), watches })
    }

    pub(crate) fn watches(&self) -> bool {
        self.watches
    }

    /// Tells the thread and wakes it. What was written before is seen by it.
    pub(crate) fn tell(&self, what: Told) {
        self.told.store(what as u8, Ordering::Release);
        self.thread.unpark();
    }

    /// Sleeps until told, or for `most`; then it was told nothing, unless in that very moment.
    /// Called by the thread itself.
    pub(crate) fn sleep(&self, most: Option<Duration>) -> Option<Told> {
        let mut is_over = false;
        loop {
            match self.told.load(Ordering::Acquire) {
                SLEEP if is_over => return None,
                SLEEP => park(most),
                reached if reached == Told::Reached as u8 => return Some(Told::Reached),
                _ => return Some(Told::Look),
            }
            // Awake too early is as right: a time is the longest.
            is_over = most.is_some();
        }
    }
}
