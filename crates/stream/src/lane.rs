//! One stream: the shell around its [`StreamState`]. Owns the lock under which the state is asked
//! and the entry handed to the WAL, so that order in the WAL is order in the stream; wakes those who
//! wait for the head. Decides nothing itself. A process holds its directory by a lock, and a stream
//! has one lane, so there is one place that advances its head (law ONE-AUTHORITY).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use event_listener::{Event, EventListener, Listener};
use parking_lot::Mutex;
use thetis_types::{
    AttemptId, Durability, Entry, Epoch, Head, Offset, OffsetRange, StoredEntry, StreamId,
};
use thetis_wal::{Append as WalAppend, FlushError, Log, Position};

use crate::error::{AppendError, ReadError, Refusal, StreamError};
use crate::record::Lifecycle;
use crate::state::{Refused, Session, StreamState};
use crate::store::Shared;

mod acts;
mod appending;
mod calls;

pub use appending::Appending;
use calls::Calls;

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
    /// Notified when the head advances or the lifecycle moves on. Shared, so that whoever notifies
    /// may let go of the lane first.
    moved: Arc<Event>,
    /// Serialises the acts that write the stream's record.
    acts: Mutex<()>,
    /// Appends that nobody blocks for; made with the first, since most streams are idle.
    calls: OnceLock<Arc<Calls>>,
}

impl Lane {
    pub(crate) fn start(
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
            moved: Arc::default(),
            acts: Mutex::new(()),
            calls: OnceLock::new(),
        };
        Stream { lane: Arc::new(lane) }
    }

    /// Everything up to `at` is safe at `level`: the head advances. Says whether it did; then those
    /// who wait are to be told.
    fn advance(&self, state: &mut StreamState, at: Position, level: Durability) -> bool {
        let before = state.head;
        let advances = state.safe(at, level);
        if advances {
            self.committed.store(state.head.end.0, Ordering::Release);
            self.shared.landed(state.head.bytes - before.bytes);
        }
        advances
    }

    /// What the WAL said of `at`: the head advances, or the stream stops. Those who wait are told.
    fn settle(&self, at: Position, level: Durability, result: Result<&(), &FlushError>) -> Head {
        let (head, advances) = self.settle_quietly(at, level, result);
        if advances {
            self.moved.notify(usize::MAX);
        }
        head
    }

    /// [`Lane::settle`], but for telling those who wait; says whether there is something to tell.
    fn settle_quietly(
        &self,
        at: Position,
        level: Durability,
        result: Result<&(), &FlushError>,
    ) -> (Head, bool) {
        let mut state = self.state.lock();
        let mut advances = false;
        match result {
            Ok(&()) => advances = self.advance(&mut state, at, level),
            Err(error) => {
                if !state.is_broken() {
                    state.wal_failed();
                    tracing::error!(stream = %self.id, %error, "the stream stops: its WAL failed");
                }
            }
        }
        (state.head, advances)
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
                    let safe = lane.shared.wal.wait(at, level);
                    // Whoever is told of an end may read up to it: the head advances first.
                    lane.settle(at, level, safe.as_ref());
                    if safe.is_err() {
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
        // Safe by being copied: committed under the lock that is held anyway.
        let mut advances = false;
        let safe = lane.shared.wal.reached(at, level).then(|| {
            advances = lane.advance(&mut state, at, level);
            state.head
        });
        drop(state);
        if advances {
            lane.moved.notify(usize::MAX);
        }
        Ok(Appending::placed(lane.clone(), placement, at, level, asked, safe))
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

    /// Waits until something at or above `offset` is committed, or the stream takes no more, or the
    /// store ends ([`crate::Store::end_waits`]). Returns the committed end. Cancel safe.
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
        let deadline =
            timeout.map(|timeout| self.lane.shared.clock.monotonic().saturating_add(timeout));
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

    /// Tells those who wait to look.
    pub(crate) fn tell(&self) {
        self.lane.moved.notify(usize::MAX);
    }

    fn settled_beyond(&self, offset: Offset) -> Option<Offset> {
        let state = self.lane.state.lock();
        let ended = state.lifecycle != Lifecycle::Active || self.lane.shared.is_ended();
        let done = state.head.end > offset || ended;
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

    /// Bytes of payload of the entries that touch `[from, until)` and may be read.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn bytes_between(&self, from: Offset, until: Offset) -> Result<u64, ReadError> {
        let (trim, end) = self.bounds();
        self.lane.log.bytes_between(from.max(trim), until.min(end))
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
}
