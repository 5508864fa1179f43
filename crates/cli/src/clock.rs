//! The machine's clock behind the port. The one file of this crate that asks the system for time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thetis_types::clock::Clock;

/// Wall and monotonic time of this machine.
pub(crate) struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins here.
    #[expect(clippy::disallowed_methods, reason = "this is the port's engine")]
    pub(crate) fn new() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the port's engine")]
    fn wall_ms(&self) -> i64 {
        // Before 1970 or after the year 292 million the clock is wrong, and zero says so best.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|since| i64::try_from(since.as_millis()).ok())
            .unwrap_or(0)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}
