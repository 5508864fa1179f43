//! Tells the log how far a long recovery is. Owns no decision: whoever recovers counts here.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A recovery that takes longer than this tells so, and again each time as much has passed.
const EVERY: Duration = Duration::from_secs(1);

/// How far a recovery is.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) files: AtomicUsize,
    pub(crate) files_total: AtomicUsize,
    /// Bytes of files without a footer, which are read whole.
    pub(crate) scanned_bytes: AtomicU64,
}

/// Set when the work ends, by a panic too.
#[derive(Default)]
struct Done(Mutex<bool>, Condvar);

struct Ends<'a>(&'a Done);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

/// Does `work`, and tells the log every second how far it is. `tell` does the telling.
pub(crate) fn telling<T>(
    tell: impl Fn(&Progress) + Sync,
    every: Duration,
    work: impl FnOnce(&Progress) -> T,
) -> T {
    let progress = Progress::default();
    let done = Done::default();
    thread::scope(|scope| {
        let _ends = Ends(&done);
        let teller = || {
            let mut ended = done.0.lock();
            while !*ended {
                if done.1.wait_for(&mut ended, every).timed_out() && !*ended {
                    tell(&progress);
                }
            }
        };
        // Without a thread to tell, nobody is told.
        let _ = thread::Builder::new().name("journal-progress".into()).spawn_scoped(scope, teller);
        work(&progress)
    })
}

/// [`telling`] the log.
pub(crate) fn logging<T>(work: impl FnOnce(&Progress) -> T) -> T {
    let tell = |progress: &Progress| {
        let files = progress.files.load(Ordering::Relaxed);
        let files_total = progress.files_total.load(Ordering::Relaxed);
        let scanned_bytes = progress.scanned_bytes.load(Ordering::Relaxed);
        tracing::info!(files, files_total, scanned_bytes, "opening the journal");
    };
    telling(tell, EVERY, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_is_told_of_until_it_ends() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let tell = move |progress: &Progress| {
            sender.send(progress.files.load(Ordering::Relaxed)).unwrap();
        };
        let told = telling(tell, Duration::from_millis(1), |progress| {
            progress.files.store(3, Ordering::Relaxed);
            let first = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
            let second = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
            (first, second, receiver)
        });
        assert!(told.0 <= 3 && told.1 == 3, "{} {}", told.0, told.1);
        // What tells is gone with the work, so the channel ends.
        assert!(told.2.iter().all(|files| files == 3));
    }
}
