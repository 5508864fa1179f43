//! Who waits for appends that nobody blocks for, and what the WAL was asked to call back about. One
//! call answers for every append before its position, so appends in flight cost no call each.
//!
//! Owns order and bookkeeping; asking the WAL and moving the head are `appending`'s.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use thetis_types::{Durability, Offset};
use thetis_wal::{FlushError, Position};

/// Calls the WAL may owe one stream. As many as flushes run at once and one to come, so that the
/// next flush begins before the call for the last.
const OWED_MAX: usize = 3;

/// Places for those who wait that are kept while nobody does.
const WAITING_KEPT: usize = 64;

#[derive(Default)]
pub(super) struct Calls {
    /// Appends that end here or before are answered.
    answered: AtomicU64,
    inner: Mutex<Inner>,
}

/// What the WAL is to call back about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) at: Position,
    pub(super) level: Durability,
    /// Where the append that lies before `at` ends. Nothing behind it is answered with it: that
    /// has a call of its own, which may still hold the lane.
    pub(super) end: Offset,
}

#[derive(Default)]
struct Inner {
    owed: usize,
    /// The farthest position the WAL was asked about.
    asked: Position,
    /// The farthest that somebody wants to be told of.
    wanted: Option<Ask>,
    failed: Option<FlushError>,
    /// Whom to wake when the head passes the offset; sorted by it.
    waiting: VecDeque<(Offset, Waker)>,
}

impl Inner {
    fn ask(&mut self) -> Option<Ask> {
        let wanted = self.wanted.filter(|wanted| wanted.at > self.asked)?;
        if self.owed == OWED_MAX {
            return None;
        }
        self.owed += 1;
        self.asked = wanted.at;
        Some(wanted)
    }
}

impl Calls {
    /// An append is to be answered once it is safe. What the WAL is to be asked about now, if
    /// anything.
    pub(super) fn want(&self, ask: Ask) -> Option<Ask> {
        let mut inner = self.inner.lock();
        if inner.wanted.is_none_or(|before| ask.at > before.at) {
            inner.wanted = Some(ask);
        }
        inner.ask()
    }

    /// The WAL called back. What it is to be asked about next.
    pub(super) fn called(&self) -> Option<Ask> {
        let mut inner = self.inner.lock();
        inner.owed -= 1;
        inner.ask()
    }

    /// Appends up to `end` are committed; after a failure, no other will be.
    pub(super) fn answer(&self, end: Offset, failed: Option<FlushError>) {
        let mut inner = self.inner.lock();
        self.answered.fetch_max(end.0, Ordering::Release);
        if inner.failed.is_none() {
            inner.failed = failed;
        }
        let passed = match inner.failed {
            Some(_) => inner.waiting.len(),
            None => inner.waiting.partition_point(|(other, _)| *other <= end),
        };
        let woken: Vec<_> = inner.waiting.drain(..passed).collect();
        if inner.waiting.is_empty() {
            inner.waiting.shrink_to(WAITING_KEPT);
        }
        drop(inner);
        for (_, waker) in woken {
            waker.wake();
        }
    }

    /// What became of the append that ends at `end`; while that is not known, `waker` is woken
    /// when it is. One waker for each append.
    pub(super) fn poll(
        &self,
        end: Offset,
        waker: impl FnOnce() -> Waker,
    ) -> Option<Result<(), FlushError>> {
        let is_answered = || self.answered.load(Ordering::Acquire) >= end.0;
        if is_answered() {
            return Some(Ok(()));
        }
        let mut inner = self.inner.lock();
        if is_answered() {
            return Some(Ok(()));
        }
        if let Some(error) = &inner.failed {
            return Some(Err(error.clone()));
        }
        let place = inner.waiting.partition_point(|(other, _)| *other < end);
        match inner.waiting.get_mut(place) {
            Some((other, before)) if *other == end => *before = waker(),
            _ => inner.waiting.insert(place, (end, waker())),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn few_calls_answer_for_all_and_none_is_forgotten() {
        let calls = Calls::default();
        let ask = |at| Ask { at: Position(at), level: Durability::Disk, end: Offset(at) };
        let asked: Vec<_> = (1..=10).filter_map(|at| calls.want(ask(at))).collect();
        assert_eq!(asked, [ask(1), ask(2), ask(3)]);
        assert_eq!(calls.called(), Some(ask(10)));
        assert_eq!(calls.called(), None);
        assert_eq!(calls.want(ask(4)), None, "asked for with the tenth");
        assert_eq!(calls.called(), None);
        assert_eq!(calls.called(), None);
        assert_eq!(calls.want(ask(11)), Some(ask(11)));
    }

    #[test]
    fn those_the_head_passed_are_woken_and_a_failure_wakes_all() {
        let calls = Calls::default();
        let counts: Vec<_> = (0..4).map(|_| Arc::new(Count::default())).collect();
        let poll = |end: u64| {
            let count = &counts[usize::try_from(end).unwrap()];
            calls.poll(Offset(end), || Waker::from(count.clone()))
        };
        for end in [2, 1, 3, 2] {
            assert_eq!(poll(end), None);
        }
        let woken = || counts.iter().map(|it| it.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
        calls.answer(Offset(2), None);
        assert_eq!(woken(), [0, 1, 1, 0]);
        assert_eq!(poll(2), Some(Ok(())));
        assert_eq!(poll(3), None);
        let error = FlushError { detail: "gone".to_owned() };
        calls.answer(Offset(2), Some(error.clone()));
        assert_eq!(woken(), [0, 1, 1, 1]);
        assert_eq!(poll(3), Some(Err(error)));
        assert_eq!(poll(1), Some(Ok(())));
    }
}
