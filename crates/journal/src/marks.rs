//! What an append may know without the journal's lock: how far things are safe, and what was asked
//! for since the next file was last prepared. Written under the lock, but for the asking.

use thetis_types::Durability;

use crate::primitive::{AtomicBool, AtomicU64, Ordering};
use crate::worker::Use;

/// Marks that only grow, and wishes.
#[derive(Default)]
pub(crate) struct Marks {
    /// Everything before survives the process.
    handed: AtomicU64,
    /// Everything before survives loss of power.
    durable: AtomicU64,
    /// Somebody asked for `disk`.
    disk: AtomicBool,
    /// Somebody asked for less, or nobody asked.
    weaker: AtomicBool,
}

impl Marks {
    pub(crate) fn publish(&self, handed: u64, durable: u64) {
        self.handed.store(handed, Ordering::Release);
        self.durable.store(durable, Ordering::Release);
    }

    /// Everything before survives loss of power.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Whether everything before `at` is safe at `level`. `at` was appended: `memory` is reached.
    pub(crate) fn reached(&self, at: u64, level: Durability) -> bool {
        match level {
            Durability::Memory => true,
            Durability::Os => at <= self.handed.load(Ordering::Acquire),
            Durability::Disk => at <= self.durable(),
        }
    }

    /// Notes what was asked for; true when it is the first since [`Marks::forget_use`].
    pub(crate) fn ask(&self, level: Durability) -> bool {
        let wish = if level == Durability::Disk { &self.disk } else { &self.weaker };
        // Looked at first: the line stays shared between those who append.
        !wish.load(Ordering::Relaxed) && {
            let first = self.used().is_none();
            wish.store(true, Ordering::Relaxed);
            first
        }
    }

    /// What was asked for; `None` when nothing was.
    pub(crate) fn used(&self) -> Option<Use> {
        match (self.disk.load(Ordering::Relaxed), self.weaker.load(Ordering::Relaxed)) {
            (true, false) => Some(Use::Disk),
            (false, true) => Some(Use::Weaker),
            (true, true) => Some(Use::Both),
            (false, false) => None,
        }
    }

    /// Begins to gather wishes anew.
    pub(crate) fn forget_use(&self) {
        self.disk.store(false, Ordering::Relaxed);
        self.weaker.store(false, Ordering::Relaxed);
    }
}
