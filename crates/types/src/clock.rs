//! The ports through which time and randomness reach the code, so that a seed replays a history.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time. Wall time may jump; monotonic time does not.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970 by the wall clock.
    fn wall_ms(&self) -> i64;
    /// Time since an arbitrary fixed point.
    fn monotonic(&self) -> Duration;
}

/// Randomness.
pub trait Entropy: Send + Sync {
    /// A uniformly random number. Unpredictable in production.
    fn next_u64(&self) -> u64;
}

/// A clock that stands still until it is moved, for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    elapsed_ms: AtomicU64,
}

impl ManualClock {
    /// Wall time at which every such clock starts, milliseconds since 1970.
    pub const START_MS: i64 = 1_700_000_000_000;

    /// Moves time on.
    pub fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).expect("tests do not last for ever");
        self.elapsed_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        Self::START_MS.saturating_add_unsigned(self.elapsed_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms.load(Ordering::Relaxed))
    }
}

/// The same numbers for the same seed (splitmix64), for tests and simulation.
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// Numbers of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> SeededEntropy {
        SeededEntropy { state: AtomicU64::new(seed) }
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
