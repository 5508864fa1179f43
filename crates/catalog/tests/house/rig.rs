//! A catalog over the models of WAL and metadata, opened as often as a test likes, with faults that
//! strike the records of one layer.
#![allow(dead_code, reason = "each test crate uses a part")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use thetis_catalog::{Catalog, Defaults, Format, TopicSpec};
use thetis_meta::{
    Cause, Change, Key, KeyRange, LeaseId, MemoryStore, MetaError, MetaStore, Page, Refusal,
    Renewal, Versioned, Watch, Write, WriteOutcome,
};
use thetis_stream::{Append, Limits, Store, Stream};
use thetis_types::clock::{ManualClock, SeededEntropy};
use thetis_types::{Entry, EntryFormat, Receipt};
use thetis_wal::memory::MemoryWal;

pub(crate) struct Rig {
    wal: MemoryWal,
    pub(crate) meta: Arc<FaultyMeta>,
    pub(crate) clock: Arc<ManualClock>,
    opened: Mutex<u64>,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone());
        let meta = Arc::new(FaultyMeta {
            store,
            fault: Mutex::new(None),
            is_down: AtomicBool::new(false),
        });
        Rig { wal: MemoryWal::default(), meta, clock, opened: Mutex::new(0) }
    }

    /// Opens it, as after a restart.
    pub(crate) fn open(&self) -> Catalog {
        let mut opened = self.opened.lock();
        *opened += 1;
        let entropy = Arc::new(SeededEntropy::new(*opened));
        let (wal, meta) = (Arc::new(self.wal.clone()), self.meta.clone());
        let store =
            Store::open(wal, meta, self.clock.clone(), entropy, Limits::default()).unwrap().0;
        Catalog::open(Arc::new(store), Defaults::default()).unwrap()
    }
}

pub(crate) fn spec(name: &str, partitions: u32) -> TopicSpec {
    TopicSpec { name: name.into(), partitions, format: Format::Kafka, configs: [].into() }
}

/// Appends one record with this timestamp; `what` makes its bytes differ from others.
pub(crate) fn append(stream: &Stream, timestamp: i64, what: u8) -> Receipt {
    append_payload(stream, timestamp, Bytes::copy_from_slice(&[what]))
}

/// Appends one record of so many bytes.
pub(crate) fn append_bytes(stream: &Stream, timestamp: i64, bytes: usize) -> Receipt {
    append_payload(stream, timestamp, vec![b'x'; bytes].into())
}

fn append_payload(stream: &Stream, max_timestamp: i64, payload: Bytes) -> Receipt {
    let entry = Entry { record_count: 1, max_timestamp, format: EntryFormat::Record, payload };
    stream.append(&Append::of(entry)).unwrap().wait().unwrap()
}

#[derive(Clone, Copy)]
enum Fault {
    RefusePuts,
    /// From the first put that is struck on, every put is refused, whatever its key.
    RefusePutsFromThen,
    /// Writes are performed and their answers lost; the reads that would tell are refused.
    LoseAnswers,
}

/// The model of metadata, with one fault that strikes keys under one word.
pub(crate) struct FaultyMeta {
    store: MemoryStore,
    fault: Mutex<Option<(&'static str, Fault)>>,
    is_down: AtomicBool,
}

impl FaultyMeta {
    pub(crate) fn refuse_puts_under(&self, word: &'static str) {
        *self.fault.lock() = Some((word, Fault::RefusePuts));
    }

    pub(crate) fn refuse_all_puts_from(&self, word: &'static str) {
        *self.fault.lock() = Some((word, Fault::RefusePutsFromThen));
    }

    pub(crate) fn lose_answers_under(&self, word: &'static str) {
        *self.fault.lock() = Some((word, Fault::LoseAnswers));
    }

    pub(crate) fn heal(&self) {
        *self.fault.lock() = None;
        self.is_down.store(false, Ordering::Relaxed);
    }

    fn strikes(&self, key: &Key) -> Option<Fault> {
        let fault = *self.fault.lock();
        fault.filter(|(word, _)| key.is_under(&Key::of(word))).map(|(_, fault)| fault)
    }
}

fn cause() -> Cause {
    Arc::new(io::Error::other("injected fault"))
}

impl MetaStore for FaultyMeta {
    fn get(&self, key: &Key) -> Result<Option<Versioned>, MetaError> {
        match self.strikes(key) {
            Some(Fault::LoseAnswers) => Err(Refusal::Unavailable { cause: cause() }.into()),
            _ => self.store.get(key),
        }
    }

    fn range(&self, range: &KeyRange, limit: usize) -> Result<Page, MetaError> {
        self.store.range(range, limit)
    }

    fn batch(&self, writes: Vec<Write>) -> Result<Vec<WriteOutcome>, MetaError> {
        let puts = || writes.iter().any(|write| matches!(write.change, Change::Put { .. }));
        if self.is_down.load(Ordering::Relaxed) && puts() {
            return Err(Refusal::Unavailable { cause: cause() }.into());
        }
        let struck = writes.iter().find_map(|write| Some((write, self.strikes(&write.key)?)));
        match struck {
            Some((write, Fault::RefusePuts)) if matches!(write.change, Change::Put { .. }) => {
                Err(Refusal::Unavailable { cause: cause() }.into())
            }
            Some((_, Fault::RefusePutsFromThen)) if puts() => {
                self.is_down.store(true, Ordering::Relaxed);
                Err(Refusal::Unavailable { cause: cause() }.into())
            }
            Some((_, Fault::LoseAnswers)) => {
                self.store.batch(writes)?;
                Err(MetaError::Unknown { cause: cause() })
            }
            _ => self.store.batch(writes),
        }
    }

    fn watch(&self, prefix: &Key) -> Result<Watch, MetaError> {
        self.store.watch(prefix)
    }

    fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, MetaError> {
        self.store.grant_lease(ttl)
    }

    fn renew_lease(&self, lease: LeaseId) -> Result<Renewal, MetaError> {
        self.store.renew_lease(lease)
    }

    fn revoke_lease(&self, lease: LeaseId) -> Result<(), MetaError> {
        self.store.revoke_lease(lease)
    }

    fn sweep(&self) -> Result<u64, MetaError> {
        self.store.sweep()
    }
}
