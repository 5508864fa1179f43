//! All streams of one process. Owns opening (putting WAL and metadata together), creation, look-up,
//! deletion, and what lanes share. What happens on one stream is `crate::lane`'s.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use thetis_meta::{
    Condition, Key, KeyRange, MetaError, MetaStore, PAGE_ITEMS_MAX, Resolved, Version, Write,
    WriteOutcome, resolve,
};
use thetis_types::clock::{Clock, Entropy};
use thetis_types::{Durability, Epoch, Head, Offset, Profile, StreamId};
use thetis_wal::{RecoveredStream, Wal};

use crate::error::{Refusal, StreamError};
use crate::lane::{Lane, Stream};
use crate::record::{INCARNATION, LABEL_BYTES_MAX, Lifecycle, NEXT_STREAM, StreamRecord};
use crate::state::StreamState;

/// Times an update of a record is tried while someone else changes it.
const UPDATE_TRIES_MAX: u32 = 16;

/// Streams in one [`Store::create`].
pub const CREATE_STREAMS_MAX: usize = 100_000;

/// What a store keeps to.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Durability of streams that do not choose their own.
    pub durability: Durability,
    /// Bytes of all streams that may wait for the WAL at once; one append is always let in.
    pub in_flight_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { durability: Durability::Disk, in_flight_bytes_max: 256 << 20 }
    }
}

/// What a new stream is to be.
#[derive(Clone, Debug, Default)]
pub struct StreamSpec {
    /// Where its bytes live.
    pub profile: Profile,
    /// What an acknowledged record survives; `None` takes the store's default.
    pub durability: Option<Durability>,
    /// Whose stream it is; at most [`LABEL_BYTES_MAX`] bytes, not read by the core.
    pub label: String,
}

/// What opening a store found.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// Streams that are not deleted.
    pub streams: usize,
    /// How often the store was opened before.
    pub incarnation: u32,
    /// Streams the WAL holds that metadata does not know. Kept, not served.
    pub unknown: Vec<StreamId>,
    /// Deleted streams whose bytes the WAL still holds.
    pub deleting: usize,
}

/// All streams of one process.
pub struct Store {
    shared: Arc<Shared>,
    streams: RwLock<HashMap<StreamId, Stream>>,
}

/// What lanes share.
pub(crate) struct Shared {
    pub(crate) wal: Arc<dyn Wal>,
    pub(crate) meta: Arc<dyn MetaStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) limits: Limits,
    incarnation: u32,
    in_flight_bytes: AtomicU64,
    /// Nothing more will be committed: nobody is to wait for it.
    is_ended: AtomicBool,
}

impl Shared {
    /// The epoch of a stream that `takeovers` sessions have taken.
    pub(crate) fn epoch(&self, takeovers: u32) -> Epoch {
        Epoch(self.incarnation.saturating_add(takeovers))
    }

    /// The least number of takeovers whose epoch is above `epoch`.
    pub(crate) fn takeovers_beyond(&self, epoch: Epoch) -> u32 {
        epoch.0.saturating_add(1).saturating_sub(self.incarnation)
    }

    /// Whether nothing more will be committed.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Counts `bytes` as in flight (law BOUNDED).
    pub(crate) fn take_off(&self, bytes: u64) -> Result<(), Refusal> {
        let max = self.limits.in_flight_bytes_max;
        let before = self.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before + bytes > max {
            self.landed(bytes);
            return Err(Refusal::InFlightBytes { bytes: before + bytes, max });
        }
        Ok(())
    }

    /// The opposite of [`Shared::take_off`].
    pub(crate) fn landed(&self, bytes: u64) {
        self.in_flight_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Applies `change` to the record of `stream`, durably, whoever else changes it.
    pub(crate) fn update_record(
        &self,
        stream: StreamId,
        change: impl Fn(&mut StreamRecord),
    ) -> Result<StreamRecord, StreamError> {
        for _ in 0..UPDATE_TRIES_MAX {
            let (mut record, version) = self.record(stream)?;
            change(&mut record);
            let write = Write::put(stream_key(stream), record.encode())
                .only_if(Condition::Version(version))
                .with_token(self.entropy.next_u64() | 1);
            if self.write(write).map_err(|source| StreamError::Meta { stream, source })? {
                return Ok(record);
            }
        }
        Err(StreamError::Contended { stream, tries: UPDATE_TRIES_MAX })
    }

    fn record(&self, stream: StreamId) -> Result<(StreamRecord, Version), StreamError> {
        let stored = self
            .meta
            .get(&stream_key(stream))
            .map_err(|source| StreamError::Meta { stream, source })?
            .ok_or(StreamError::NotFound { stream })?;
        let record = StreamRecord::decode(&stored.value)
            .map_err(|error| StreamError::Record { stream, detail: error.to_string() })?;
        Ok((record, stored.version))
    }

    /// Whether `write` happened. A lost answer is resolved by reading back the write's token
    /// (law CERTAIN).
    fn write(&self, write: Write) -> Result<bool, MetaError> {
        match self.meta.write(write.clone()) {
            Ok(WriteOutcome::Done { .. }) => Ok(true),
            Ok(WriteOutcome::Lost { .. } | WriteOutcome::NoLease { .. }) => Ok(false),
            Err(MetaError::Unknown { cause }) => match resolve(&*self.meta, &write) {
                Ok(Resolved::Done { .. } | Resolved::Gone) => Ok(true),
                Ok(Resolved::Overtaken { .. }) => Ok(false),
                // That a read was refused says nothing of the write.
                Ok(Resolved::NotDone { .. }) | Err(_) => Err(MetaError::Unknown { cause }),
            },
            Err(refused) => Err(refused),
        }
    }
}

fn stream_key(stream: StreamId) -> Key {
    Key::of("stream").number(stream.0)
}

fn store_key(word: &'static str) -> Key {
    Key::of("store").word(word)
}

/// Why a store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Metadata failed.
    #[error("metadata: {0}")]
    Meta(#[from] MetaError),
    /// A record cannot be understood.
    #[error("the record of {what} cannot be read: {detail}")]
    Record {
        /// Whose.
        what: String,
        /// Why.
        detail: String,
    },
}

impl Store {
    /// Puts together what the WAL and the metadata store know. Appends nothing; writes one key, so
    /// that this opening has epochs of its own.
    ///
    /// # Errors
    /// Metadata failed or cannot be understood; nothing was changed but perhaps that one key.
    pub fn open(
        wal: Arc<dyn Wal>,
        meta: Arc<dyn MetaStore>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        limits: Limits,
    ) -> Result<(Store, OpenReport), OpenError> {
        let mut shared = Shared {
            wal,
            meta,
            clock,
            entropy,
            limits,
            incarnation: 0,
            in_flight_bytes: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
        };
        shared.incarnation = next_incarnation(&shared)?;
        let shared = Arc::new(shared);
        let mut report = OpenReport { incarnation: shared.incarnation, ..OpenReport::default() };
        let mut found: BTreeMap<StreamId, RecoveredStream> =
            shared.wal.recovered().into_iter().map(|found| (found.stream, found)).collect();
        let mut streams = HashMap::new();
        let mut range = Some(KeyRange::under(Key::of("stream")));
        while let Some(part) = range {
            let page = shared.meta.range(&part, PAGE_ITEMS_MAX)?;
            for item in page.items {
                let id = id_in(&item.key)?;
                let record = StreamRecord::decode(&item.stored.value).map_err(|error| {
                    OpenError::Record { what: id.to_string(), detail: error.to_string() }
                })?;
                let in_wal = found.remove(&id);
                if record.lifecycle == Lifecycle::Deleting {
                    match in_wal {
                        Some(_) => {
                            shared.wal.log(id).discard();
                            report.deleting += 1;
                        }
                        None => {
                            let gone = Condition::Version(item.stored.version);
                            let _ = shared.meta.delete_if(item.key, gone)?;
                        }
                    }
                    continue;
                }
                streams.insert(id, recover(&shared, id, &record, in_wal));
            }
            range = page.next;
        }
        report.unknown = found.into_keys().collect();
        report.streams = streams.len();
        Ok((Store { shared, streams: RwLock::new(streams) }, report))
    }

    /// Creates streams, all or, after an error, perhaps some that nobody is told of; those are
    /// found again by their label.
    ///
    /// # Errors
    /// Metadata failed.
    ///
    /// # Panics
    /// For more than [`CREATE_STREAMS_MAX`] streams or a label that is too long.
    pub fn create(&self, specs: &[StreamSpec]) -> Result<Vec<Stream>, MetaError> {
        assert!(specs.len() <= CREATE_STREAMS_MAX, "too many streams in one call");
        if specs.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.reserve_ids(specs.len() as u64)?;
        let mut made = Vec::with_capacity(specs.len());
        for (index, chunk) in specs.chunks(thetis_meta::BATCH_WRITES_MAX).enumerate() {
            let start = first + (index * thetis_meta::BATCH_WRITES_MAX) as u64;
            let record = |spec: &StreamSpec| {
                assert!(spec.label.len() <= LABEL_BYTES_MAX, "label too long");
                StreamRecord {
                    lifecycle: Lifecycle::Active,
                    profile: spec.profile,
                    durability: spec.durability,
                    takeovers: 0,
                    trim: Offset(0),
                    checkpoint: Head::default(),
                    label: spec.label.clone(),
                }
            };
            let records: Vec<(StreamId, StreamRecord)> =
                (start..).map(StreamId).zip(chunk.iter().map(record)).collect();
            let put = |(id, record): &(StreamId, StreamRecord)| {
                Write::put(stream_key(*id), record.encode())
            };
            let outcomes = match self.shared.meta.batch(records.iter().map(put).collect()) {
                Ok(outcomes) => outcomes,
                Err(error) => {
                    // What fails here is found by its label.
                    made.iter().for_each(|stream: &Stream| drop(stream.delete()));
                    return Err(error);
                }
            };
            for outcome in outcomes {
                assert!(outcome.done().is_some(), "an unconditional put was not done");
            }
            made.extend(
                records.iter().map(|(id, record)| recover(&self.shared, *id, record, None)),
            );
        }
        let mut streams = self.streams.write();
        streams.extend(made.iter().map(|stream| (stream.id(), stream.clone())));
        Ok(made)
    }

    /// The first of `count` ids that nobody else gets.
    fn reserve_ids(&self, count: u64) -> Result<u64, MetaError> {
        let key = store_key("next-stream");
        loop {
            let stored = self.shared.meta.get(&key)?;
            let (next, condition) = match &stored {
                None => (1, Condition::Absent),
                Some(stored) => {
                    let next = NEXT_STREAM.open(&stored.value).ok().and_then(|(_, payload)| {
                        Some(u64::from_le_bytes(payload[..].try_into().ok()?))
                    });
                    let next = next.ok_or_else(|| thetis_meta::Refusal::Corrupt {
                        what: "the record store/next-stream is not a number".into(),
                    })?;
                    (next, Condition::Version(stored.version))
                }
            };
            let Some(after) = next.checked_add(count).filter(|_| next > 0) else {
                let what = format!("the record store/next-stream holds {next}");
                return Err(thetis_meta::Refusal::Corrupt { what }.into());
            };
            let value = NEXT_STREAM.seal(&after.to_le_bytes());
            let token = self.shared.entropy.next_u64() | 1;
            let write = Write::put(key.clone(), value).only_if(condition).with_token(token);
            if self.shared.write(write)? {
                return Ok(next);
            }
        }
    }

    /// The stream, unless it does not exist or is deleted.
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<Stream> {
        self.streams.read().get(&id).cloned()
    }

    /// Every stream with its label, as metadata has it.
    ///
    /// # Errors
    /// Metadata failed.
    pub fn labels(&self) -> Result<Vec<(StreamId, String)>, OpenError> {
        let mut labels = Vec::new();
        let mut range = Some(KeyRange::under(Key::of("stream")));
        while let Some(part) = range {
            let page = self.shared.meta.range(&part, PAGE_ITEMS_MAX)?;
            for item in page.items {
                let id = id_in(&item.key)?;
                if let (Ok(record), true) = (
                    StreamRecord::decode(&item.stored.value),
                    self.streams.read().contains_key(&id),
                ) {
                    labels.push((id, record.label));
                }
            }
            range = page.next;
        }
        Ok(labels)
    }

    /// Deletes a stream. Durable when it returns; its bytes are given back later.
    ///
    /// # Errors
    /// No such stream, or metadata failed: call again.
    pub fn delete(&self, id: StreamId) -> Result<(), StreamError> {
        let stream = self.get(id).ok_or(StreamError::NotFound { stream: id })?;
        stream.delete()?;
        self.streams.write().remove(&id);
        Ok(())
    }

    /// Ends every wait for more, now and later: the WAL was closed, so nothing more is committed.
    pub fn end_waits(&self) {
        self.shared.is_ended.store(true, Ordering::Release);
        // Whoever made a listener and looked before that is told now.
        self.streams.read().values().for_each(Stream::tell);
    }

    /// Streams that are not deleted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.read().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The limits it keeps to.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The metadata store, for the layers that keep names and configurations there.
    #[must_use]
    pub fn meta(&self) -> &Arc<dyn MetaStore> {
        &self.shared.meta
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// The source of randomness.
    #[must_use]
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.shared.entropy
    }

    /// The WAL.
    #[must_use]
    pub fn wal(&self) -> &Arc<dyn Wal> {
        &self.shared.wal
    }
}

/// The number of times the store was opened before, made durable as one more.
fn next_incarnation(shared: &Shared) -> Result<u32, OpenError> {
    let key = store_key("incarnation");
    let before = match shared.meta.get(&key)? {
        None => 0,
        Some(stored) => {
            let broken = |detail: String| OpenError::Record { what: "the store".into(), detail };
            let (_, payload) =
                INCARNATION.open(&stored.value).map_err(|error| broken(error.to_string()))?;
            let bytes = payload[..].try_into().map_err(|_| broken("not a number".into()))?;
            u32::from_le_bytes(bytes)
        }
    };
    let value = INCARNATION.seal(&before.saturating_add(1).to_le_bytes());
    let write = Write::put(key, value).with_token(shared.entropy.next_u64() | 1);
    shared.write(write)?;
    Ok(before)
}

fn id_in(key: &Key) -> Result<StreamId, OpenError> {
    match key.components().last() {
        Some(thetis_meta::Component::Number(id)) => Ok(StreamId(*id)),
        _ => Err(OpenError::Record {
            what: format!("{key:?}"),
            detail: "a stream's key ends with its number".into(),
        }),
    }
}

/// The rows @A and @B of the crash table in docs/formats/stream-record.md.
fn recover(
    shared: &Arc<Shared>,
    id: StreamId,
    record: &StreamRecord,
    in_wal: Option<RecoveredStream>,
) -> Stream {
    let held = in_wal.map(|found| found.head).unwrap_or_default();
    let head = if held.end >= record.trim && in_wal.is_some() {
        held
    } else {
        Head {
            version: held.version.max(record.checkpoint.version),
            epoch: held.epoch.max(record.checkpoint.epoch),
            end: record.trim,
            bytes: held.bytes.max(record.checkpoint.bytes),
        }
    };
    let epoch = shared.epoch(record.takeovers).max(head.epoch);
    let state = StreamState::recovered(record.lifecycle, epoch, record.trim, head);
    let durability = record.durability.unwrap_or(shared.limits.durability);
    let stream = Lane::start(id, shared.clone(), state, durability);
    if record.trim > Offset(0) {
        shared.wal.log(id).trim(record.trim);
    }
    stream
}
