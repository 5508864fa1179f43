//! One stream: the shell around its [`StreamState`]. Owns the lock under which the state is asked
//! and the entry handed to the WAL, so that order in the WAL is order in the stream; wakes those who
//! wait for the head. Decides nothing itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use event_listener::{Event, EventListener, Listener};
use parking_lot::Mutex;
use thetis_types::{
    AttemptId, Durability, Entry, Epoch, Head, Offset, OffsetRange, Receipt, StoredEntry, StreamId,
};
use thetis_wal::{Append as WalAppend, FlushError, Log, Position};

use crate::error::{AppendError, ReadError, Refusal, StreamError};
use crate::invariants;
use crate::record::{Lifecycle, StreamRecord};
use crate::state::{Held, Placement, Refused, Session, StreamState};
use crate::store::Shared;

/// Headers read at a time while the fate of an attempt is looked up.
const RECOVER_PAGE_ENTRIES: usize = 1_024;

/// One append.
#[derive(Clone, Debug)]
pub struct Append {
    /// What to append: committed whole or not at all.
    pub entry: Entry,
    /// Append only if the stream ends here: the public compare-and-set.
    pub expected: Option<Offset>,
    /// The session of the caller; needed while any session holds the stream.
    pub session: Option<Session>,
    /// Names the attempt; see [`Stream::attempt`].
    pub attempt: AttemptId,
}

impl Append {
    /// `entry` at whatever the end is, by an attempt nobody will ask about.
    #[must_use]
    pub fn of(entry: Entry) -> Append {
        Append { entry, expected: None, session: None, attempt: AttemptId::NONE }
    }
}

/// What a read gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Whole entries; the first covers the offset asked for.
    Entries(Vec<StoredEntry>),
    /// Nothing committed there yet; this is the committed end.
    End(Offset),
    /// Trimmed; reading goes on at this offset.
    Trimmed(Offset),
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It committed at these offsets.
    Committed(OffsetRange),
    /// It did not, and never will.
    NotCommitted,
    /// The offsets where it would be are trimmed.
    Trimmed(Offset),
}

/// A stream. Clones are the same stream.
#[derive(Clone)]
pub struct Stream {
    lane: Arc<Lane>,
}

pub(crate) struct Lane {
    id: StreamId,
    shared: Arc<Shared>,
    log: Arc<dyn Log>,
    state: Mutex<StreamState>,
    /// `state.head.end`, for readers that only want to know whether to wait.
    committed: AtomicU64,
    durability: AtomicU8,
    /// Notified when the head advances or the lifecycle moves on.
    moved: Event,
    /// Serialises the acts that write the stream's record.
    acts: Mutex<()>,
}

impl Lane {
    pub(crate) fn open(
        id: StreamId,
        shared: Arc<Shared>,
        state: StreamState,
        durability: Durability,
    ) -> Stream {
        let lane = Lane {
            id,
            log: shared.wal.log(id),
            shared,
            committed: AtomicU64::new(state.head.end.0),
            state: Mutex::new(state),
            durability: AtomicU8::new(durability as u8),
            moved: Event::new(),
            acts: Mutex::new(()),
        };
        Stream { lane: Arc::new(lane) }
    }

    /// Everything up to `at` is safe at `level`: the head advances, and those who wait are told.
    fn advance(&self, state: &mut StreamState, at: Position, level: Durability) {
        let before = state.head;
        if state.safe(at, level) {
            self.committed.store(state.head.end.0, Ordering::Release);
            self.shared.landed(state.head.bytes - before.bytes);
            self.moved.notify(usize::MAX);
        }
    }

    /// What the WAL said of `at`: the head advances, or the stream stops.
    fn settle(&self, at: Position, level: Durability, result: Result<&(), &FlushError>) -> Head {
        let mut state = self.state.lock();
        match result {
            Ok(&()) => self.advance(&mut state, at, level),
            Err(error) => {
                if !state.is_broken() {
                    state.wal_failed();
                    tracing::error!(stream = %self.id, %error, "the stream stops: its WAL failed");
                }
            }
        }
        state.head
    }
}

impl Stream {
    /// The stream's id.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.lane.id
    }

    /// The committed head.
    #[must_use]
    pub fn head(&self) -> Head {
        self.lane.state.lock().head
    }

    /// First offset that may be read.
    #[must_use]
    pub fn trim_offset(&self) -> Offset {
        self.lane.state.lock().trim
    }

    /// First offset not committed.
    #[must_use]
    pub fn committed_end(&self) -> Offset {
        Offset(self.lane.committed.load(Ordering::Acquire))
    }

    /// The epoch appends are made under.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.lane.state.lock().epoch
    }

    /// What the stream allows.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        self.lane.state.lock().lifecycle
    }

    /// What an acknowledged record survives.
    #[must_use]
    pub fn durability(&self) -> Durability {
        let ordinal = self.lane.durability.load(Ordering::Relaxed);
        Durability::ALL[usize::from(ordinal)]
    }

    /// Names an attempt to append, so that [`Stream::recover_append`] can tell its fate later, also
    /// after a crash.
    #[must_use]
    pub fn attempt(&self) -> AttemptId {
        let nonce = self.lane.shared.entropy.next_u64() | 1;
        AttemptId { since: self.committed_end(), nonce }
    }

    /// Hands an entry to the stream. It has its place, and is not committed, when this returns:
    /// wait for the [`Appending`]. Appends of one stream commit in the order of these calls.
    /// Blocks only where the WAL must open a new file, or a refusal must wait (REFUSE-DURABLE).
    ///
    /// # Errors
    /// Refused by the stream or by the WAL: certainly not committed.
    pub fn append(&self, append: &Append) -> Result<Appending, AppendError> {
        let lane = &self.lane;
        let bytes = append.entry.payload.len() as u64;
        let refuse = |why| AppendError::Refused { stream: lane.id, why };
        let mut state = lane.state.lock();
        let now = match append.session.is_some() || state.held.is_some() {
            true => lane.shared.clock.monotonic(),
            false => Duration::ZERO,
        };
        let placement = match state.place(&append.entry, append.expected, append.session, now) {
            Ok(placement) => placement,
            Err(Refused { why, after }) => {
                drop(state);
                if let Some((at, level)) = after {
                    // If the flush fails, what the refusal speaks of may not be so; and then the
                    // stream takes nothing more, which is a refusal that needs no waiting.
                    if lane.shared.wal.wait(at, level).is_err() {
                        return Err(refuse(Refusal::Broken));
                    }
                }
                return Err(refuse(why));
            }
        };
        lane.shared.take_off(bytes).map_err(refuse)?;
        let wal_append = WalAppend {
            epoch: placement.head.epoch,
            version: placement.head.version,
            base_offset: placement.base_offset,
            attempt: append.attempt,
            entry: &append.entry,
        };
        let at = match lane.log.append(&[wal_append]) {
            Ok(at) => at,
            Err(source) => {
                lane.shared.landed(bytes);
                return Err(AppendError::Wal { stream: lane.id, source });
            }
        };
        let asked = self.durability();
        let level = state.placed(placement, at, asked);
        let step = if lane.shared.wal.reached(at, level) {
            // Safe by being copied: committed under the lock that is held anyway.
            lane.advance(&mut state, at, level);
            Step::Safe(state.head)
        } else {
            Step::Placed
        };
        drop(state);
        Ok(Appending { lane: lane.clone(), placement, at, level, asked, step })
    }

    /// Whole entries from `from` on, the first covering it: at most `bytes_max` bytes of payload,
    /// but never fewer than one entry.
    ///
    /// # Errors
    /// Stored bytes that are damaged or missing.
    pub fn read(&self, from: Offset, bytes_max: usize) -> Result<Read, ReadError> {
        loop {
            let (trim, end) = self.bounds();
            if from < trim {
                return Ok(Read::Trimmed(trim));
            }
            if from >= end {
                return Ok(Read::End(end));
            }
            match self.lane.log.read(from, end, bytes_max) {
                Ok(entries) => return Ok(Read::Entries(entries)),
                // A trim may have passed while the bytes were fetched; then, and only then, look
                // again.
                Err(_) if self.trim_offset() > from => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn bounds(&self) -> (Offset, Offset) {
        let state = self.lane.state.lock();
        (state.trim, state.head.end)
    }

    /// A listener that fires when the stream changes after this call: more is committed, or the
    /// stream is sealed or deleted. Create it, look at [`Stream::committed_end`], then await it.
    /// Cancel safe.
    #[must_use]
    pub fn listen(&self) -> EventListener {
        self.lane.moved.listen()
    }

    /// Waits until something at or above `offset` is committed, or the stream takes no more.
    /// Returns the committed end. Cancel safe.
    pub async fn wait_beyond(&self, offset: Offset) -> Offset {
        loop {
            let listener = self.listen();
            match self.settled_beyond(offset) {
                Some(end) => return end,
                None => listener.await,
            }
        }
    }

    /// [`Stream::wait_beyond`] for threads, with an optional limit on the wait.
    #[must_use]
    pub fn block_beyond(&self, offset: Offset, timeout: Option<Duration>) -> Offset {
        let deadline = timeout.map(|timeout| self.lane.shared.clock.monotonic() + timeout);
        loop {
            let listener = self.listen();
            if let Some(end) = self.settled_beyond(offset) {
                return end;
            }
            let Some(deadline) = deadline else {
                listener.wait();
                continue;
            };
            let left = deadline.saturating_sub(self.lane.shared.clock.monotonic());
            if left.is_zero() || listener.wait_timeout(left).is_none() {
                return self.committed_end();
            }
        }
    }

    fn settled_beyond(&self, offset: Offset) -> Option<Offset> {
        let state = self.lane.state.lock();
        let done = state.head.end > offset || state.lifecycle != Lifecycle::Active;
        done.then_some(state.head.end)
    }

    /// Base offset of the first readable entry whose largest timestamp is at least `timestamp`.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn first_at_time(&self, timestamp: i64) -> Result<Option<Offset>, ReadError> {
        let (trim, end) = self.bounds();
        self.lane.log.first_at_time(trim, end, timestamp)
    }

    /// Base offset and timestamp of the earliest readable entry with the largest timestamp.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn max_time(&self) -> Result<Option<(Offset, i64)>, ReadError> {
        let (trim, end) = self.bounds();
        self.lane.log.max_time(trim, end)
    }

    /// The largest epoch not above `epoch` that has readable entries, and the offset after its
    /// last one. For the current epoch that is the committed end.
    #[must_use]
    pub fn epoch_end(&self, epoch: Epoch) -> Option<(Epoch, Offset)> {
        let (trim, end, current) = {
            let state = self.lane.state.lock();
            (state.trim, state.head.end, state.epoch)
        };
        if epoch == current {
            return Some((current, end));
        }
        self.lane.log.epoch_end(epoch, trim, end)
    }

    /// Frame headers from `from` on, at most `entries_max`.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn headers(
        &self,
        from: Offset,
        entries_max: usize,
    ) -> Result<Vec<thetis_wal::EntryHeader>, ReadError> {
        let (trim, end) = self.bounds();
        self.lane.log.headers(from.max(trim), end, entries_max)
    }

    /// Bytes of payload that may be read, to the precision of whole entries.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn readable_bytes(&self) -> Result<u64, ReadError> {
        let (trim, end) = self.bounds();
        self.lane.log.bytes_between(trim, end)
    }

    /// What became of `attempt`, certainly: waits for what is in flight, then looks from the
    /// attempt's own lower bound on.
    ///
    /// # Errors
    /// The stored bytes cannot be read, or the WAL has failed: ask again after reopening.
    pub fn recover_append(&self, attempt: AttemptId) -> Result<Fate, StreamError> {
        self.drain()?;
        let (trim, end) = self.bounds();
        let mut from = attempt.since.max(trim);
        while from < end {
            let headers = self.lane.log.headers(from, end, RECOVER_PAGE_ENTRIES)?;
            let Some(last) = headers.last() else { break };
            let next = last.base_offset.plus(u64::from(last.record_count));
            if let Some(found) = headers.iter().find(|header| header.attempt == attempt) {
                let count = u64::from(found.record_count);
                return Ok(Fate::Committed(OffsetRange::at(found.base_offset, count)));
            }
            from = next;
        }
        Ok(if attempt.since < trim { Fate::Trimmed(trim) } else { Fate::NotCommitted })
    }

    /// Waits until nothing placed before this call is in flight.
    fn drain(&self) -> Result<(), StreamError> {
        let lane = &self.lane;
        let last = {
            let state = lane.state.lock();
            if state.is_broken() {
                return Err(StreamError::Refused { stream: lane.id, why: Refusal::Broken });
            }
            state.last_in_flight()
        };
        let Some((at, level)) = last else { return Ok(()) };
        let result = lane.shared.wal.wait(at, level);
        lane.settle(at, level, result.as_ref());
        result.map_err(|source| StreamError::Flush { stream: lane.id, source })
    }

    /// Everything below `before` may no longer be read, for ever. Durable when it returns;
    /// idempotent; never moves back. Returns the trim offset.
    ///
    /// # Errors
    /// Past the committed end, or metadata failed; after a lost answer, simply call again.
    pub fn trim(&self, before: Offset) -> Result<Offset, StreamError> {
        let lane = &self.lane;
        let _act = lane.acts.lock();
        let (trim, head) = {
            let state = lane.state.lock();
            (state.trim, state.head)
        };
        if before > head.end {
            return Err(StreamError::TrimPastEnd { stream: lane.id, at: before, end: head.end });
        }
        if before <= trim {
            return Ok(trim);
        }
        let record = self.update(|record| {
            record.trim = record.trim.max(before);
            record.checkpoint = head;
        })?;
        lane.state.lock().trimmed(record.trim);
        lane.log.trim(record.trim);
        Ok(record.trim)
    }

    /// The stream takes no more, for ever; what is in flight commits first. Returns its final end.
    /// Idempotent.
    ///
    /// # Errors
    /// Metadata or the WAL failed; the stream is as it was, call again.
    pub fn seal(&self) -> Result<Offset, StreamError> {
        let _act = self.lane.acts.lock();
        if self.lifecycle() == Lifecycle::Sealed {
            return Ok(self.head().end);
        }
        self.move_to(Lifecycle::Sealed)?;
        Ok(self.head().end)
    }

    /// Deletes the stream: durable when it returns; its bytes are given back later.
    ///
    /// # Errors
    /// Metadata failed; the stream is as it was, call again.
    pub(crate) fn delete(&self) -> Result<(), StreamError> {
        let _act = self.lane.acts.lock();
        self.move_to(Lifecycle::Deleting)?;
        self.lane.log.discard();
        Ok(())
    }

    /// Pauses appends, lets what is in flight settle, and makes `next` durable before anyone is
    /// refused on account of it (law REFUSE-DURABLE).
    fn move_to(&self, next: Lifecycle) -> Result<(), StreamError> {
        let lane = &self.lane;
        let paused = Pause::of(lane)?;
        match self.drain() {
            // A broken WAL must not keep a stream from being deleted.
            Err(_) if next == Lifecycle::Deleting => {}
            settled => settled?,
        }
        let head = self.head();
        self.update(|record| {
            record.lifecycle = next;
            record.checkpoint = head;
        })?;
        lane.state.lock().moved_to(next);
        drop(paused);
        lane.moved.notify(usize::MAX);
        Ok(())
    }

    /// From now on an acknowledged record survives what `durability` says; `None` takes the
    /// store's default.
    ///
    /// # Errors
    /// Metadata failed; call again.
    pub fn set_durability(&self, durability: Option<Durability>) -> Result<(), StreamError> {
        let _act = self.lane.acts.lock();
        self.update(|record| record.durability = durability)?;
        let level = durability.unwrap_or(self.lane.shared.limits.durability);
        self.lane.durability.store(level as u8, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the exclusive right to append, for `lease` unless renewed. A session held by someone
    /// else is taken over: its holder appends nothing more (law FENCE).
    ///
    /// # Errors
    /// The stream takes no appends, or metadata or the WAL failed; call again.
    pub fn acquire(&self, lease: Duration) -> Result<Session, StreamError> {
        let lane = &self.lane;
        let _act = lane.acts.lock();
        match self.lifecycle() {
            Lifecycle::Active => {}
            Lifecycle::Sealed => {
                let why = Refusal::Sealed { end: self.head().end };
                return Err(StreamError::Refused { stream: lane.id, why });
            }
            Lifecycle::Deleting => return Err(StreamError::NotFound { stream: lane.id }),
        }
        let paused = Pause::of(lane)?;
        self.drain()?;
        let record = self.update(|record| record.takeovers += 1)?;
        let session = Session {
            epoch: lane.shared.epoch(record.takeovers),
            token: lane.shared.entropy.next_u64(),
        };
        let lapses_at = lane.shared.clock.monotonic() + lease;
        lane.state.lock().taken_over(session.epoch, Some(Held { session, lapses_at }));
        drop(paused);
        Ok(session)
    }

    /// Holds `session` for `lease` from now.
    ///
    /// # Errors
    /// It was taken over, released or has lapsed.
    pub fn renew(&self, session: Session, lease: Duration) -> Result<(), StreamError> {
        let now = self.lane.shared.clock.monotonic();
        self.with_session(session, |held| held.lapses_at = now + lease)
    }

    /// Lets go of `session`: anyone may append again.
    ///
    /// # Errors
    /// It was taken over, released or has lapsed.
    pub fn release(&self, session: Session) -> Result<(), StreamError> {
        self.with_session(session, |held| held.lapses_at = Duration::ZERO)
    }

    fn with_session(&self, session: Session, act: impl Fn(&mut Held)) -> Result<(), StreamError> {
        let now = self.lane.shared.clock.monotonic();
        let mut state = self.lane.state.lock();
        let current = state.epoch;
        match &mut state.held {
            Some(held) if held.session == session && now < held.lapses_at => {
                act(held);
                Ok(())
            }
            _ => {
                let why = Refusal::Fenced { epoch: session.epoch, current };
                Err(StreamError::Refused { stream: self.lane.id, why })
            }
        }
    }

    fn update(&self, change: impl Fn(&mut StreamRecord)) -> Result<StreamRecord, StreamError> {
        self.lane.shared.update_record(self.lane.id, change)
    }
}

/// While it lives, appends to the lane are told to come back.
struct Pause<'a>(&'a Lane);

impl Pause<'_> {
    fn of(lane: &Lane) -> Result<Pause<'_>, StreamError> {
        let mut state = lane.state.lock();
        if state.lifecycle == Lifecycle::Deleting {
            return Err(StreamError::NotFound { stream: lane.id });
        }
        state.pause(true);
        Ok(Pause(lane))
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.state.lock().pause(false);
    }
}

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
    /// The WAL will call back and leave its answer here.
    Called(Arc<Slot>),
    /// The answer was taken.
    Done,
}

#[derive(Default)]
struct Slot {
    answer: Mutex<Option<Result<(), FlushError>>>,
    answered: Event,
}

impl Appending {
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
            Step::Called(slot) => loop {
                let listener = slot.answered.listen();
                if let Some(result) = slot.answer.lock().take() {
                    break self.answer(result);
                }
                listener.wait();
            },
            Step::Placed | Step::Done => {
                let result = self.lane.shared.wal.wait(self.at, self.level);
                self.lane.settle(self.at, self.level, result.as_ref());
                self.answer(result)
            }
        }
    }

    fn answer(&self, result: Result<(), FlushError>) -> Result<Receipt, AppendError> {
        let stream = self.lane.id;
        match result {
            Err(source) => Err(AppendError::Unknown { stream, source }),
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
            self.call();
        }
    }

    /// Has the WAL call back.
    fn call(&mut self) -> Arc<Slot> {
        if let Step::Called(slot) = &self.step {
            return slot.clone();
        }
        let slot = Arc::new(Slot::default());
        self.step = Step::Called(slot.clone());
        let (lane, at, level, answer_to) = (self.lane.clone(), self.at, self.level, slot.clone());
        let then = move |result: Result<(), FlushError>| {
            lane.settle(at, level, result.as_ref());
            *answer_to.answer.lock() = Some(result);
            answer_to.answered.notify(usize::MAX);
        };
        self.lane.shared.wal.when(self.at, self.level, Box::new(then));
        slot
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
        let slot = self.call();
        loop {
            let listener = slot.answered.listen();
            let answer = slot.answer.lock().take();
            if let Some(result) = answer {
                self.step = Step::Done;
                return self.answer(result);
            }
            listener.await;
        }
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
