//! Every order that memory and threads allow, of the pieces that work without the journal's lock.
//! They are compiled here from their sources, with a model checker's primitives.

#[path = "../src/marks.rs"]
#[expect(dead_code, reason = "a piece of the crate, not all of it used here")]
mod marks;
#[path = "../src/parked.rs"]
mod parked;

mod primitive {
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    pub(crate) use loom::thread::{self, Thread};

    /// A time that is over at any moment, also at once.
    pub(crate) fn park(most: Option<std::time::Duration>) {
        match most {
            None => thread::park(),
            Some(_) => thread::yield_now(),
        }
    }
}

mod worker {
    /// As the journal has it; `marks` gathers these.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Use {
        Disk,
        Weaker,
        Both,
    }
}

use loom::sync::Mutex;
use marks::Marks;
use parked::{Parked, Told};
use primitive::{Arc, AtomicU64, Ordering, thread};
use thetis_types::Durability;

/// Whoever sees a mark sees what was copied below it, with no lock.
#[test]
fn what_a_mark_says_was_done_is_seen() {
    for level in [Durability::Os, Durability::Disk] {
        loom::model(move || {
            let shared = Arc::new((Marks::default(), AtomicU64::new(0)));
            let writer = Arc::clone(&shared);
            let writer = thread::spawn(move || {
                writer.1.store(7, Ordering::Relaxed);
                match level {
                    Durability::Disk => writer.0.publish(1, 1),
                    _ => writer.0.publish(1, 0),
                }
            });
            let (marks, bytes) = &*shared;
            if marks.reached(1, level) {
                assert_eq!(bytes.load(Ordering::Relaxed), 7);
            }
            writer.join().expect("the writer ends");
        });
    }
}

/// Two threads move the marks under a lock; a third that looks twice never sees one go back.
#[test]
fn marks_only_grow() {
    loom::model(|| {
        let shared = Arc::new((Marks::default(), Mutex::new(0)));
        let publish = |shared: &(Marks, Mutex<u64>)| {
            let mut end = shared.1.lock().expect("nobody panics");
            *end += 1;
            shared.0.publish(*end, *end);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || publish(&shared))
            })
            .collect();
        let before = shared.0.reached(1, Durability::Disk);
        let after = shared.0.reached(1, Durability::Disk);
        assert!(after || !before);
        for thread in threads {
            thread.join().expect("the thread ends");
        }
        assert!(shared.0.reached(2, Durability::Disk));
    });
}

/// Of those who ask at once for the first time, one at least is told to wake the preparer, and
/// no wish is lost.
#[test]
fn a_first_wish_wakes_somebody() {
    loom::model(|| {
        let marks = Arc::new(Marks::default());
        let other = Arc::clone(&marks);
        let other = thread::spawn(move || other.ask(Durability::Disk));
        let mine = marks.ask(Durability::Os);
        let theirs = other.join().expect("the thread ends");
        assert!(mine || theirs);
        assert_eq!(marks.used(), Some(worker::Use::Both));
    });
}

/// A thread that sleeps for a time learns nothing or what it was told, and what it was told stays.
#[test]
fn a_time_that_is_over_loses_nothing_told() {
    loom::model(|| {
        let parked = Parked::here(true);
        let sleeper = Arc::clone(&parked);
        let teller = thread::spawn(move || sleeper.tell(Told::Look));
        let heard = parked.sleep(Some(std::time::Duration::ZERO));
        // Joined only when told: a model thread that is woken while it joins is an error.
        let told = heard.or_else(|| parked.sleep(None));
        assert!(told == Some(Told::Look) && parked.watches());
        teller.join().expect("the teller ends");
    });
}

/// A thread that is told before, while or after it goes to sleep wakes up. The order of what it then
/// sees is Miri's to check (`parked`): here a wake-up carries everything along.
#[test]
fn a_sleeper_is_never_left_asleep() {
    for what in [Told::Reached, Told::Look] {
        loom::model(move || {
            let parked = Parked::here(false);
            let sleeper = Arc::clone(&parked);
            let teller = thread::spawn(move || sleeper.tell(what));
            assert_eq!(parked.sleep(None), Some(what));
            teller.join().expect("the teller ends");
        });
    }
}
