//! An append under way: waiting for the WAL, as a thread or as a future, and the receipt.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};

use thetis_types::{Durability, Head, OffsetRange, Receipt};
use thetis_wal::{FlushError, Position};

use super::Lane;
use super::calls::{Ask, Calls};
use crate::error::AppendError;
use crate::invariants;
use crate::state::Placement;

/// An append that has its place and is not yet known to be committed. Wait for it as a future or
/// with [`Appending::wait`]. Dropping it undoes nothing: the append commits all the same.
#[must_use = "the append is not acknowledged before this is waited for"]
pub struct Appending {
    lane: Arc<Lane>,
    placement: Placement,
    at: Position,
    /// The level to wait for; at least `asked`.
    level: Durability,
    asked: Durability,
    step: Step,
}

enum Step {
    /// Nobody waits for the WAL yet.
    Placed,
    /// Safe when it was placed; the head after that.
    Safe(Head),
    /// The WAL will call back about it, or about a later one.
    Called,
    /// The answer was taken.
    Done,
}

/// Wakes a thread that blocks.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Lane {
    fn calls(&self) -> &Arc<Calls> {
        self.calls.get_or_init(Arc::default)
    }

    /// Has the WAL call back.
    fn call(self: &Arc<Self>, ask: Ask) {
        let lane = self.clone();
        let then = move |result| Lane::called(lane, ask, result);
        self.shared.wal.when(ask.at, ask.level, Box::new(then));
    }

    fn called(lane: Arc<Lane>, ask: Ask, result: Result<(), FlushError>) {
        let (head, advances) = lane.settle_quietly(ask.at, ask.level, result.as_ref());
        let (calls, moved) = (lane.calls().clone(), lane.moved.clone());
        // Also when that is safe already: the WAL calls in order, so whoever is answered is
        // answered by the last call that holds the lane for it.
        if let Some(next) = calls.called() {
            lane.call(next);
        }
        // Before anyone is told, who waits for the answer or follows the stream: they may drop the
        // last handle of the store and open its directory again, which this one would still hold.
        drop(lane);
        calls.answer(head.end.min(ask.end), result.err());
        if advances {
            moved.notify(usize::MAX);
        }
    }
}

impl Appending {
    pub(super) fn placed(
        lane: Arc<Lane>,
        placement: Placement,
        at: Position,
        level: Durability,
        asked: Durability,
        safe: Option<Head>,
    ) -> Appending {
        let step = safe.map_or(Step::Placed, Step::Safe);
        Appending { lane, placement, at, level, asked, step }
    }

    /// The offsets the records get if the append commits.
    #[must_use]
    pub fn range(&self) -> OffsetRange {
        OffsetRange::new(self.placement.base_offset, self.placement.head.end)
    }

    /// Blocks until the append is committed and safe. The caller may be made to flush for others.
    ///
    /// # Errors
    /// The WAL failed: it may or may not have committed.
    pub fn wait(mut self) -> Result<Receipt, AppendError> {
        match std::mem::replace(&mut self.step, Step::Done) {
            Step::Safe(head) => Ok(self.receipt(head)),
            Step::Called => loop {
                let waker = || Waker::from(Arc::new(Unpark(thread::current())));
                match self.lane.calls().poll(self.placement.head.end, waker) {
                    Some(result) => break self.answer(result),
                    None => thread::park(),
                }
            },
            Step::Placed | Step::Done => {
                let result = self.lane.shared.wal.wait(self.at, self.level);
                self.lane.settle(self.at, self.level, result.as_ref());
                self.answer(result)
            }
        }
    }

    fn answer(&self, result: Result<(), FlushError>) -> Result<Receipt, AppendError> {
        let Lane { id: stream, shared, .. } = &*self.lane;
        match result {
            // The failure may have been a later append's.
            Err(_) if shared.wal.reached(self.at, self.level) => {
                Ok(self.receipt(self.lane.settle(self.at, self.level, Ok(&()))))
            }
            Err(source) => Err(AppendError::Unknown { stream: *stream, source }),
            Ok(()) => Ok(self.receipt(self.lane.state.lock().head)),
        }
    }

    fn receipt(&self, head: Head) -> Receipt {
        let made = self.placement.head;
        assert!(invariants::ack_durable(&head, &made, self.level, self.asked), "ACK-DURABLE");
        Receipt {
            stream: self.lane.id,
            range: self.range(),
            version: made.version,
            epoch: made.epoch,
            durability: self.level,
        }
    }

    /// Has the WAL make the append safe and the head advance, whether anyone waits or not. A caller
    /// that waits later, or in another order, starts its appends first. Idempotent.
    pub fn start(&mut self) {
        if matches!(self.step, Step::Placed) {
            self.step = Step::Called;
            let end = self.placement.head.end;
            let ask = Ask { at: self.at, level: self.level, end };
            if let Some(ask) = self.lane.calls().want(ask) {
                self.lane.call(ask);
            }
        }
    }

    /// Waits until the append is committed and safe.
    ///
    /// Cancel safety: dropping the future leaves the append to commit on its own.
    ///
    /// # Errors
    /// The WAL failed: it may or may not have committed.
    pub async fn committed(mut self) -> Result<Receipt, AppendError> {
        if let Step::Safe(head) = self.step {
            return Ok(self.receipt(head));
        }
        self.start();
        let (calls, end) = (self.lane.calls().clone(), self.placement.head.end);
        let result = poll_fn(|context| {
            calls.poll(end, || context.waker().clone()).map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        self.step = Step::Done;
        self.answer(result)
    }
}

impl IntoFuture for Appending {
    type Output = Result<Receipt, AppendError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.committed())
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        self.start();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{OnceLock, Weak};
    use std::task::Context;

    use bytes::Bytes;
    use parking_lot::Mutex;
    use thetis_meta::MemoryStore;
    use thetis_types::clock::{ManualClock, SeededEntropy};
    use thetis_types::{Entry, EntryFormat, Offset, StreamId};
    use thetis_wal::memory::MemoryWal;
    use thetis_wal::{AppendError, Log, Reclaimed, RecoveredStream, Then, Wal};

    use super::*;
    use crate::{Append, Limits, Store, StreamSpec};

    /// The model, which calls back when it is told to.
    #[derive(Default)]
    struct LateWal {
        model: MemoryWal,
        late: Mutex<Option<Then>>,
    }

    impl Wal for LateWal {
        fn recovered(&self) -> Vec<RecoveredStream> {
            self.model.recovered()
        }
        fn log(&self, stream: StreamId) -> Arc<dyn Log> {
            self.model.log(stream)
        }
        fn wait(&self, at: Position, level: Durability) -> Result<(), FlushError> {
            self.model.wait(at, level)
        }
        fn reached(&self, _at: Position, _level: Durability) -> bool {
            false
        }
        fn when(&self, _at: Position, _level: Durability, then: Then) {
            *self.late.lock() = Some(then);
        }
        fn reclaim(&self) -> Result<Reclaimed, AppendError> {
            self.model.reclaim()
        }
        fn close(&self) -> Result<(), FlushError> {
            self.model.close()
        }
    }

    /// Notes, when it is woken, how many handles the lane has.
    #[derive(Default)]
    struct Count {
        lane: OnceLock<Weak<Lane>>,
        seen: AtomicUsize,
    }

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            let lane = self.lane.get().expect("set before the poll");
            self.seen.store(lane.strong_count(), Ordering::Release);
        }
    }

    /// Whoever waits for the answer, and whoever follows the stream.
    #[test]
    fn whoever_is_told_holds_the_last_handle() {
        let wal = Arc::new(LateWal::default());
        let clock = Arc::new(ManualClock::default());
        let meta = Arc::new(MemoryStore::new(clock.clone()));
        let entropy = Arc::new(SeededEntropy::new(1));
        let (store, _) =
            Store::open(wal.clone(), meta, clock, entropy, Limits::default()).expect("opens");
        let stream = store.create(&[StreamSpec::default()]).expect("creates").remove(0);
        let payload = Bytes::from_static(b"record");
        let entry =
            Entry { record_count: 1, max_timestamp: -1, format: EntryFormat::Record, payload };
        let (count, followed) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let appending = stream.append(&Append::of(entry)).expect("is placed");
        let held = Arc::strong_count(&appending.lane);
        for count in [&count, &followed] {
            count.lane.set(Arc::downgrade(&appending.lane)).expect("set once");
        }
        let mut following = Box::pin(stream.wait_beyond(Offset(0)));
        let waker = Waker::from(followed.clone());
        assert!(following.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let mut committed = appending.into_future();
        let waker = Waker::from(count.clone());
        assert!(committed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let then = wal.late.lock().take().expect("asked to call back");
        thread::spawn(move || then(Ok(()))).join().expect("the callback runs");
        for count in [count, followed] {
            let seen = count.seen.load(Ordering::Acquire);
            assert_eq!(seen, held, "the callback let go before it told");
        }
    }
}
