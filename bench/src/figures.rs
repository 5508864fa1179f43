//! Numbers out of many measurements: medians, quantiles, and the pauses between them. Owns nothing of
//! what is measured.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A clock that began when it was made: the kernel's own, the same for every engine.
#[derive(Clone, Copy)]
pub struct Watch {
    began: Duration,
}

impl Watch {
    /// Time since it began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        monotonic().saturating_sub(self.began)
    }

    /// The same in microseconds.
    #[must_use]
    pub fn micros(&self) -> f64 {
        self.elapsed().as_secs_f64() * 1e6
    }
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { began: monotonic() }
    }
}

fn monotonic() -> Duration {
    // The clock of a running machine is not before its start.
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// The middle value, or what lies between the two in the middle; 0 of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let Some(upper) = sorted.get(middle) else { return 0.0 };
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], *upper) } else { *upper }
}

/// The value below which `share` of all lie; 0 of none.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> f64 {
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

/// One append that was timed.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When it was safe.
    pub ended: Duration,
    /// How long it took.
    pub micros: f64,
    /// Records it appended.
    pub records: f64,
}

/// One second out of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Records appended in it.
    pub records_per_s: f64,
    /// Of the appends that ended in it; 0 of none.
    pub p50_us: f64,
    /// The same.
    pub p99_us: f64,
}

/// The whole seconds between `began` and `ended`, from samples of all appends.
#[must_use]
pub fn each_second(samples: &[Sample], began: Duration, ended: Duration) -> Vec<Second> {
    let whole = ended.saturating_sub(began).as_secs();
    let mut seconds = vec![(0.0, Vec::new()); usize::try_from(whole).unwrap_or(usize::MAX)];
    for sample in samples {
        let at = usize::try_from(sample.ended.saturating_sub(began).as_secs()).ok();
        // What came after the last whole second belongs to none.
        if let Some((records, micros)) = at.and_then(|at| seconds.get_mut(at)) {
            *records += sample.records;
            micros.push(sample.micros);
        }
    }
    let of = |(records_per_s, micros): &(f64, Vec<f64>)| Second {
        records_per_s: *records_per_s,
        p50_us: quantile(micros, 0.5),
        p99_us: quantile(micros, 0.99),
    };
    seconds.iter().map(of).collect()
}

/// How even the rate was: the slowest second of the median second; 0 of none.
#[must_use]
pub fn flatness(seconds: &[Second]) -> f64 {
    let rates: Vec<f64> = seconds.iter().map(|second| second.records_per_s).collect();
    let middle = median(&rates);
    if middle > 0.0 { quantile(&rates, 0.0) / middle } else { 0.0 }
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

    #[test]
    fn seconds_hold_what_ended_in_them() {
        let sample = |ms, micros| Sample { ended: Duration::from_millis(ms), micros, records: 2.0 };
        let samples =
            [sample(1_000, 1.0), sample(1_999, 3.0), sample(3_000, 5.0), sample(4_100, 9.0)];
        let seconds = each_second(&samples, Duration::from_secs(1), Duration::from_millis(4_500));
        let rates: Vec<f64> = seconds.iter().map(|second| second.records_per_s).collect();
        assert_eq!(rates, [4.0, 0.0, 2.0], "the half second at the end is left out");
        assert_eq!((seconds[0].p50_us, seconds[0].p99_us), (3.0, 3.0));
        assert_eq!(seconds[1], Second::default());
        assert_eq!(flatness(&seconds), 0.0, "a second of silence");
        assert_eq!(flatness(&[seconds[0], seconds[2]]), 2.0 / 3.0);
        assert_eq!(flatness(&[]), 0.0);
    }
}
