//! What this front keeps beside a partition's stream: the state of its idempotent producers. The
//! rules of sequence numbers are [`crate::producers`]'; this is the shell that loads the state, asks
//! it in the same breath in which a batch gets its offsets, and saves it from time to time.
//!
//! The state is a snapshot in metadata (docs/formats/producer-snapshot.md) and a walk over the
//! batches behind it, done at the first append after a start.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thetis_meta::record::RecordKind;
use thetis_meta::{Key, MetaError, MetaStore, Write};
use thetis_stream::{Append, AppendError, Appending, Read, ReadError, Stream};
use thetis_types::{Entry, EntryFormat, Offset, StreamId};

use crate::producers::{BatchFacts, Producers, Refusal, Settings, Verdict};
use crate::records::BatchHeader;

/// The envelope of snapshots.
const PRODUCERS: RecordKind = RecordKind { kind: 0x0403, schema: 1 };

/// Producers remembered for one partition; their snapshot must fit a metadata value.
const PRODUCERS_MAX: usize = 4_000;

/// Batches after which the state is saved: the most that a load has to walk, about.
const SNAPSHOT_AFTER_BATCHES: u64 = 10_000;

/// Bytes of batches after which the state is saved, likewise.
const SNAPSHOT_AFTER_BYTES: u64 = 256 << 20;

/// Bytes of one read while the state is loaded.
const LOAD_READ_BYTES: usize = 4 << 20;

/// How long a batch waits for the one in flight that it may repeat.
const IN_FLIGHT_WAIT_MAX: Duration = Duration::from_secs(30);

/// A partition as this front sees it.
pub(crate) struct Partition {
    stream: Stream,
    settings: Settings,
    /// Absent until the first append after a start.
    state: Mutex<Option<State>>,
}

struct State {
    producers: Producers,
    /// Batches of idempotent producers that have their offsets and are not known to be committed.
    in_flight: VecDeque<(i64, Offset)>,
    batches_since_snapshot: u64,
    bytes_since_snapshot: u64,
}

/// What became of a batch.
pub(crate) enum Placed {
    /// It has its place.
    New(Appending),
    /// It is stored already.
    Duplicate { base_offset: i64, timestamp_ms: i64 },
}

/// Why a batch was not taken. It certainly was not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// By its sequence number.
    #[error(transparent)]
    Sequence(#[from] Refusal),
    /// By the stream.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The state of producers cannot be loaded.
    #[error("the state of the partition's producers cannot be loaded: {0}")]
    Load(String),
    /// The batch in flight that it may repeat does not settle.
    #[error(
        "an earlier batch of the producer is still in flight after {IN_FLIGHT_WAIT_MAX:?}; retry"
    )]
    InFlight,
}

impl Partition {
    pub(crate) fn new(stream: Stream, expiration: Duration) -> Partition {
        let settings = Settings { expiration, producers_max: PRODUCERS_MAX };
        Partition { stream, settings, state: Mutex::new(None) }
    }

    /// Hands a batch to the stream unless it is a repeat or out of order. Blocks while the state is
    /// loaded, and while a batch in flight decides.
    pub(crate) fn append(
        &self,
        header: &BatchHeader,
        entry: Entry,
        now_ms: i64,
        meta: &Arc<dyn MetaStore>,
    ) -> Result<Placed, Refused> {
        let facts = facts(header, entry.max_timestamp);
        let bytes = entry.payload.len() as u64;
        let append = Append::of(entry);
        loop {
            let mut slot = self.state.lock();
            let state = match &mut *slot {
                Some(state) => state,
                None => slot.insert(blocking(|| self.load(meta, now_ms))?),
            };
            state.confirm(self.stream.committed_end());
            let until = match state.producers.check(&facts) {
                Verdict::Refuse(refusal) => return Err(refusal.into()),
                Verdict::Duplicate { base_offset, timestamp_ms } => {
                    let base_offset = base_offset.0.cast_signed();
                    return Ok(Placed::Duplicate { base_offset, timestamp_ms });
                }
                Verdict::Append => {
                    let mut appending = self.stream.append(&append)?;
                    let base_offset = appending.range().start;
                    state.producers.appended(&facts, base_offset, now_ms);
                    if facts.producer_id >= 0 {
                        state.in_flight.push_back((facts.producer_id, base_offset));
                    }
                    state.batches_since_snapshot += 1;
                    state.bytes_since_snapshot += bytes;
                    if state.batches_since_snapshot >= SNAPSHOT_AFTER_BATCHES
                        || state.bytes_since_snapshot >= SNAPSHOT_AFTER_BYTES
                    {
                        let write = state.snapshot(&self.stream, now_ms);
                        save(meta.clone(), write);
                    }
                    drop(slot);
                    appending.start();
                    return Ok(Placed::New(appending));
                }
                Verdict::Wait { until } => until,
            };
            drop(slot);
            let end = blocking(|| self.stream.block_beyond(until, Some(IN_FLIGHT_WAIT_MAX)));
            if end <= until {
                return Err(Refused::InFlight);
            }
        }
    }

    /// The state as a snapshot and the batches behind it say.
    fn load(&self, meta: &Arc<dyn MetaStore>, now_ms: i64) -> Result<State, Refused> {
        let fault = |fault: &dyn std::fmt::Display| Refused::Load(fault.to_string());
        let mut producers = Producers::new(self.settings.clone());
        let mut at = self.stream.trim_offset();
        let stored = meta.get(&key(self.stream.id())).map_err(|error| fault(&error))?;
        if let Some(stored) = stored {
            let (_, payload) = PRODUCERS.open(&stored.value).map_err(|error| fault(&error))?;
            match Producers::decode(&payload, self.settings.clone()) {
                Ok((found, covered)) if covered <= self.stream.committed_end() => {
                    producers = found;
                    at = at.max(covered);
                }
                // The log lost what the snapshot knew: records of a level that did not survive.
                Ok(_) => {}
                Err(error @ crate::producers::SnapshotError::Unsupported { .. }) => {
                    return Err(fault(&error));
                }
                Err(error) => {
                    tracing::warn!(stream = %self.stream.id(), %error, "a damaged snapshot of producers is passed over; the log is walked");
                }
            }
        }
        let mut walked = Walked::default();
        walk(&self.stream, at, |facts, base_offset, bytes| {
            producers.replay(&facts, base_offset, now_ms);
            walked.batches += 1;
            walked.bytes += bytes;
        })
        .map_err(|error| fault(&error))?;
        Ok(State {
            producers,
            in_flight: VecDeque::new(),
            batches_since_snapshot: walked.batches,
            bytes_since_snapshot: walked.bytes,
        })
    }

    /// What saves the state, if anything has changed since it was last saved.
    pub(crate) fn snapshot(&self, now_ms: i64) -> Option<Write> {
        let mut slot = self.state.lock();
        let state = slot.as_mut().filter(|state| state.batches_since_snapshot > 0)?;
        Some(state.snapshot(&self.stream, now_ms))
    }

    /// What removes the saved state of a stream that is deleted.
    pub(crate) fn removal(stream: StreamId) -> Write {
        Write::delete(key(stream))
    }
}

#[derive(Default)]
struct Walked {
    batches: u64,
    bytes: u64,
}

impl State {
    /// Everything below `end` is committed: streams commit in order.
    fn confirm(&mut self, end: Offset) {
        while let Some((producer_id, base_offset)) = self.in_flight.front().copied() {
            if base_offset >= end {
                break;
            }
            self.in_flight.pop_front();
            let confirmed = self.producers.confirmed(producer_id, base_offset);
            debug_assert!(confirmed, "a batch in flight was not the producer's oldest");
        }
    }

    fn snapshot(&mut self, stream: &Stream, now_ms: i64) -> Write {
        let covered = stream.committed_end();
        self.confirm(covered);
        self.producers.expire(now_ms);
        self.batches_since_snapshot = 0;
        self.bytes_since_snapshot = 0;
        Write::put(key(stream.id()), PRODUCERS.seal(&self.producers.encode(covered)))
    }
}

fn key(stream: StreamId) -> Key {
    Key::of("kafka").word("producers").number(stream.0)
}

fn facts(header: &BatchHeader, timestamp_ms: i64) -> BatchFacts {
    BatchFacts {
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        record_count: u32::try_from(header.record_count).unwrap_or(0),
        timestamp_ms,
    }
}

/// Shows every batch from `at` to the committed end.
fn walk(
    stream: &Stream,
    mut at: Offset,
    mut show: impl FnMut(BatchFacts, Offset, u64),
) -> Result<(), ReadError> {
    loop {
        match stream.read(at, LOAD_READ_BYTES)? {
            Read::End(_) => return Ok(()),
            Read::Trimmed(start) => at = start,
            Read::Entries(entries) => {
                for entry in entries {
                    at = entry.range().end;
                    if entry.format == EntryFormat::KafkaBatch
                        && let Ok(header) = BatchHeader::read(&entry.payload)
                    {
                        let facts = facts(&header, entry.max_timestamp);
                        show(facts, entry.base_offset, entry.payload.len() as u64);
                    }
                }
            }
        }
    }
}

/// Saves a snapshot without making anybody wait. Losing one costs a longer walk.
fn save(meta: Arc<dyn MetaStore>, write: Write) {
    tokio::task::spawn_blocking(move || {
        let saved: Result<_, MetaError> = meta.write(write);
        if let Err(error) = saved {
            tracing::warn!(%error, "a snapshot of producers was not saved");
        }
    });
}

/// Runs what may wait for a disk without holding up other connections.
fn blocking<T>(act: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(act)
}
