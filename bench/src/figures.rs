//! Numbers out of many measurements: medians, quantiles, and the pauses between them. Owns nothing of
//! what is measured.

use std::time::Duration;

use thetis::SystemClock;
use thetis_types::clock::Clock as _;

/// A clock that began when it was made.
#[derive(Clone, Copy, Default)]
pub(crate) struct Watch {
    clock: SystemClock,
}

impl Watch {
    /// Time since it began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The same in microseconds.
    pub(crate) fn micros(&self) -> f64 {
        self.elapsed().as_secs_f64() * 1e6
    }
}

/// The middle value, or what lies between the two in the middle; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let Some(upper) = sorted.get(middle) else { return 0.0 };
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], *upper) } else { *upper }
}

/// The value below which `share` of all lie; 0 of none.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is an index, and an index past the end is cut below"
    )]
    let at = (last as f64 * share).round() as usize;
    sorted.get(at.min(last)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [4.0, 1.0, 3.0, 2.0, 5.0];
        assert_eq!(median(&values), 3.0);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 0.99), 5.0);
        assert_eq!(quantile(&values, 1.0), 5.0);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), 3.0);
    }
}
