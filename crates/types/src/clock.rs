//! The ports through which time and randomness reach the code, so that a seed replays a history.

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
