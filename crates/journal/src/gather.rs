//! Whether the next flush should wait for company. Threads that a flush has just served are likely
//! to append again at once; a flush begun before they do leaves them a group of their own, and more
//! groups than flushes may be in flight wait for one another.
//!
//! Pure: knows no locks and reads no clock. Who flushes and who sleeps is `flush`'s.

use std::time::Duration;

/// Least and most time that a flush is held back.
const HELD_MIN: Duration = Duration::from_micros(20);
const HELD_MAX: Duration = Duration::from_millis(1);
/// Threads that are worth a flush, whoever else may come.
const COMPANY: usize = 8;
/// A flush weighs one in so many in the mean.
const WEIGHT: u32 = 8;

/// What is known of those the last flush served.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Threads it served that have not come back.
    away: usize,
    /// When they were told.
    told_at: Duration,
    /// How long a flush takes, in the mean.
    flush: Duration,
    /// Somebody sleeps until the time is up, in case nobody comes.
    pub(crate) watched: bool,
}

impl Gather {
    /// A flush took `time`.
    pub(crate) fn flushed(&mut self, time: Duration) {
        self.flush = match self.flush.is_zero() {
            true => time,
            false => (self.flush * (WEIGHT - 1) + time) / WEIGHT,
        };
    }

    /// A flush served `threads`, its leader among them, and `left` wait on. Where those are more, or
    /// [`COMPANY`], they are company enough and have waited before.
    pub(crate) fn served(&mut self, threads: usize, left: usize, now: Duration) {
        if threads > 0 {
            self.away = if left <= threads && left < COMPANY { threads } else { 0 };
            self.told_at = now;
        }
    }

    /// Somebody came to wait for `disk`.
    pub(crate) fn came(&mut self) {
        self.away = self.away.saturating_sub(1);
    }

    /// How much longer the next flush should be held back; `None` when it should begin.
    pub(crate) fn held(&self, now: Duration) -> Option<Duration> {
        let most = (self.flush / 2).clamp(HELD_MIN, HELD_MAX);
        let left = most.checked_sub(now.saturating_sub(self.told_at));
        left.filter(|left| self.away > 0 && !left.is_zero())
    }

    /// Those who have not come back are not waited for.
    pub(crate) fn give_up(&mut self) {
        self.away = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_flush_waits_for_those_just_served_and_for_nobody_else() {
        let mut gather = Gather::default();
        gather.flushed(us(200));
        assert_eq!(gather.held(us(0)), None, "nobody was served");
        gather.served(3, 0, us(1_000));
        gather.came();
        assert_eq!(gather.held(us(1_010)), Some(us(90)));
        assert_eq!(gather.held(us(1_100)), None, "half a flush is long enough");
        gather.came();
        gather.came();
        assert_eq!(gather.held(us(1_010)), None, "all are back");
        gather.served(3, 4, us(2_000));
        assert_eq!(gather.held(us(2_000)), None, "more wait already");
        gather.served(30, COMPANY, us(2_000));
        assert_eq!(gather.held(us(2_000)), None, "enough wait already");
        gather.served(3, 2, us(3_000));
        gather.give_up();
        assert_eq!(gather.held(us(3_000)), None);
    }

    #[test]
    fn the_time_held_follows_the_device_within_bounds() {
        let mut gather = Gather::default();
        let held = |gather: &mut Gather, time| {
            (0..100).for_each(|_| gather.flushed(time));
            gather.served(2, 0, us(0));
            gather.held(us(0))
        };
        assert_eq!(held(&mut gather, us(1)), Some(HELD_MIN));
        assert!(held(&mut gather, us(400)).is_some_and(|left| left > us(190) && left <= us(200)));
        assert_eq!(held(&mut gather, us(80_000)), Some(HELD_MAX));
    }
}
