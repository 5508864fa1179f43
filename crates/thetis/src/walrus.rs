//! The store in the words of the Walrus engine's documented API, so that a program moves over by
//! changing its import: `use thetis::walrus::{Walrus, ReadConsistency, FsyncSchedule};`.
//!
//! Owns the shape of that API and what each of its words means here; every rule is a stream's or a
//! named reader's. Data files of the engine are not read: a program drains them before it moves.
//!
//! What differs throughout:
//!
//! - Appends and batches to one topic wait for each other; none is answered `WouldBlock`.
//! - A batch is all there after a crash or not at all, and is flushed as the schedule says.
//! - Damaged bytes are an error, never an early end.
//! - A directory is held by one instance at a time, in one process or several; opening it again
//!   is an error until the first is dropped.
//! - A topic's name is 1 to 249 bytes without control characters. One that is not allowed is
//!   refused (`InvalidInput`) and leaves nothing behind.
//! - An instance has few threads, which end when it is dropped. It prints nothing, so
//!   `WALRUS_QUIET` has no effect.
//!
//! ```
//! use thetis::walrus::{FsyncSchedule, ReadConsistency, Walrus};
//! # fn main() -> std::io::Result<()> {
//! # let dir = tempfile::tempdir()?;
//! let wal = Walrus::builder()
//!     .data_dir(dir.path().into())
//!     .consistency(ReadConsistency::AtLeastOnce { persist_every: 100 })
//!     .fsync_schedule(FsyncSchedule::SyncEach)
//!     .build()?;
//! wal.append_for_topic("orders", b"a coffee")?;
//! let entry = wal.read_next("orders", true)?.unwrap();
//! assert_eq!(entry.data, b"a coffee");
//! # Ok(())
//! # }
//! ```

mod clean;
mod index;
mod place;
mod settings;
mod topic;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use thetis_types::ErrorKind;
use thetis_types::limits::ENTRY_BYTES_MAX;

pub use index::{BlockPos, WalIndex};
pub use place::PREFIX_META_SIZE;
pub use settings::{FsyncSchedule, ReadConsistency, WalrusBuilder};
use topic::Topic;

use crate::error::Error;
use crate::open::Thetis;
use crate::records::Record;

/// Entries of one batch read, as in the engine.
const BATCH_READ_ENTRIES_MAX: usize = 2_000;
/// Bytes consumed after which dead files are looked for: a file's worth.
const RECLAIM_AFTER_BYTES: u64 = 64 << 20;

/// An entry as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What was appended.
    pub data: Vec<u8>,
}

/// A set of topics, each with one durable cursor. See the module for what differs from the engine.
pub struct Walrus {
    thetis: Thetis,
    consistency: ReadConsistency,
    topics: RwLock<HashMap<String, Arc<Topic>>>,
    consumed_bytes: AtomicU64,
}

impl Walrus {
    /// Opens the directory `WALRUS_DATA_DIR`, or `./wal_files`, with `StrictlyAtOnce` and a flush
    /// every 200 ms; `WALRUS_INSTANCE_KEY` names the instance in it.
    ///
    /// # Errors
    /// The directory cannot be used or is in use.
    pub fn new() -> io::Result<Walrus> {
        Walrus::builder().build()
    }

    /// [`Walrus::new`] with another consistency of reads.
    ///
    /// # Errors
    /// As [`Walrus::new`].
    pub fn with_consistency(mode: ReadConsistency) -> io::Result<Walrus> {
        Walrus::builder().consistency(mode).build()
    }

    /// [`Walrus::new`] with another consistency of reads and another schedule. The schedule is this
    /// instance's own.
    ///
    /// # Errors
    /// As [`Walrus::new`].
    pub fn with_consistency_and_schedule(
        mode: ReadConsistency,
        fsync_schedule: FsyncSchedule,
    ) -> io::Result<Walrus> {
        Walrus::builder().consistency(mode).fsync_schedule(fsync_schedule).build()
    }

    /// [`Walrus::new`] for the instance of `key`. Different keys never share a directory and none
    /// leaves the data directory; see [`crate::keyed_dir`].
    ///
    /// # Errors
    /// As [`Walrus::new`]; also for a key that is too long.
    pub fn new_for_key(key: &str) -> io::Result<Walrus> {
        Walrus::builder().key(key).build()
    }

    /// [`Walrus::new_for_key`] with another consistency of reads.
    ///
    /// # Errors
    /// As [`Walrus::new_for_key`].
    pub fn with_consistency_for_key(key: &str, mode: ReadConsistency) -> io::Result<Walrus> {
        Walrus::builder().key(key).consistency(mode).build()
    }

    /// [`Walrus::new_for_key`] with another consistency of reads and another schedule.
    ///
    /// # Errors
    /// As [`Walrus::new_for_key`].
    pub fn with_consistency_and_schedule_for_key(
        key: &str,
        mode: ReadConsistency,
        fsync_schedule: FsyncSchedule,
    ) -> io::Result<Walrus> {
        Walrus::builder().key(key).consistency(mode).fsync_schedule(fsync_schedule).build()
    }

    /// Settings to open an instance with.
    #[must_use]
    pub fn builder() -> WalrusBuilder {
        WalrusBuilder::default()
    }

    /// Appends one entry; it is read from then on. Creates the topic.
    ///
    /// # Errors
    /// `InvalidInput` for a name that is not allowed or an entry over 1 GiB, 4 bytes counted beside
    /// it: nothing was appended.
    /// Otherwise the disk failed or is full; the error within ([`crate::Error::outcome`]) says
    /// whether the entry may be there.
    pub fn append_for_topic(&self, topic: &str, raw_bytes: &[u8]) -> io::Result<()> {
        // With its length, like those of a batch: `place` counts on it.
        self.batch_append_for_topic(topic, &[raw_bytes])
    }

    /// Appends several entries, all or none of which are read, after a crash too. An empty batch
    /// does nothing.
    ///
    /// Differs: there is no limit of 2000 entries; a batch takes at most 1 GiB (10 GiB there), 4
    /// bytes counted beside each entry.
    ///
    /// # Errors
    /// As [`Walrus::append_for_topic`].
    pub fn batch_append_for_topic(&self, topic: &str, batch: &[&[u8]]) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let beside = size_of::<u32>();
        check_size(
            batch.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len() + beside)),
        )?;
        self.made(topic)?.stream.append_batch(batch).map_err(to_io)?;
        Ok(())
    }

    /// The next entry of a topic; with `checkpoint` the topic's cursor moves past it, without it
    /// the call is a peek. `None` at the end, and for a topic that does not exist. Threads may
    /// share a topic: each entry is consumed once.
    ///
    /// # Errors
    /// `InvalidData` for damaged bytes (`None` there), or the disk failed. The cursor has not moved.
    pub fn read_next(&self, topic: &str, checkpoint: bool) -> io::Result<Option<Entry>> {
        Ok(self.read(topic, 0, 1, checkpoint)?.pop())
    }

    /// The next entries of a topic, of at most `max_bytes` bytes in all, but at least one if there
    /// is one, and at most 2000. With `checkpoint` the cursor moves past them.
    ///
    /// With `start_offset` the cursor is neither asked nor moved. It is a byte position in the
    /// topic, [`PREFIX_META_SIZE`] counted beside each entry, and reading begins with the entry that
    /// has that byte, whole. One at or past the end gives nothing, 0 begins at the first entry that
    /// is kept, consumed or not. Differs: positions are counted from the first entry ever appended, so that of an
    /// entry never changes, also when others are given back and after a restart; the first entry is
    /// never cut off, and small ones are not passed over.
    ///
    /// # Errors
    /// As [`Walrus::read_next`]; also `InvalidInput` for a `start_offset` above 0 whose entry was
    /// given back after it was consumed.
    pub fn batch_read_for_topic(
        &self,
        topic: &str,
        max_bytes: usize,
        checkpoint: bool,
        start_offset: Option<u64>,
    ) -> io::Result<Vec<Entry>> {
        let Some(at) = start_offset else {
            return self.read(topic, max_bytes, BATCH_READ_ENTRIES_MAX, checkpoint);
        };
        let Some(topic) = self.found(topic)? else { return Ok(Vec::new()) };
        let Some(from) = place::entry_at(&topic.stream, at)? else { return Ok(Vec::new()) };
        let mut entries = Vec::new();
        let mut left = max_bytes;
        for record in topic.stream.read(from).map_err(to_io)?.take(BATCH_READ_ENTRIES_MAX) {
            let record = record.map_err(to_io)?;
            if !entries.is_empty() && record.value.len() > left {
                break;
            }
            left = left.saturating_sub(record.value.len());
            entries.push(entry(record));
        }
        Ok(entries)
    }

    /// Entries of a topic that were not consumed.
    #[must_use]
    pub fn get_topic_entry_count(&self, topic: &str) -> u64 {
        self.found(topic).ok().flatten().map_or(0, |topic| topic.unread())
    }

    /// [`Walrus::get_topic_entry_count`] of every topic.
    #[must_use]
    pub fn get_topic_entry_counts(&self) -> HashMap<String, u64> {
        let names = self.list_topics().into_iter();
        names.map(|name| (name.clone(), self.get_topic_entry_count(&name))).collect()
    }

    /// Bytes a topic keeps, [`PREFIX_META_SIZE`] counted beside each entry, to the precision of
    /// whole batches. Zero if it cannot be told.
    #[must_use]
    pub fn get_topic_size(&self, topic: &str) -> u64 {
        let kept = |topic: Arc<Topic>| {
            let entries = topic.stream.end().since(topic.stream.start());
            Some(place::measure(topic.stream.size_bytes().ok()?, entries))
        };
        self.found(topic).ok().flatten().and_then(kept).unwrap_or(0)
    }

    /// All topics, in order. Not in the engine.
    #[must_use]
    pub fn list_topics(&self) -> Vec<String> {
        self.thetis.names()
    }

    /// Deletes a topic with its cursor; its space is given back. Not in the engine.
    ///
    /// # Errors
    /// `NotFound`, or the disk failed: call again.
    pub fn delete_topic(&self, topic: &str) -> io::Result<()> {
        let mut topics = self.topics.write();
        self.thetis.delete(topic).map_err(to_io)?;
        topics.remove(topic);
        drop(topics);
        self.thetis.reclaim().map_err(to_io)?;
        Ok(())
    }

    /// The store beneath: its streams are the topics.
    #[must_use]
    pub fn thetis(&self) -> &Thetis {
        &self.thetis
    }

    fn read(
        &self,
        name: &str,
        bytes_max: usize,
        entries_max: usize,
        checkpoint: bool,
    ) -> io::Result<Vec<Entry>> {
        let Some(topic) = self.found(name)? else { return Ok(Vec::new()) };
        let reader = topic.reader(self.consistency).map_err(to_io)?;
        if !checkpoint {
            let records = reader.peek_batch_of(bytes_max, entries_max).map_err(to_io)?;
            return Ok(records.into_iter().map(entry).collect());
        }
        let records = reader.read_batch_of(bytes_max, entries_max).map_err(to_io)?;
        let entries: Vec<Entry> = records.into_iter().map(entry).collect();
        self.consumed(entries.iter().map(|entry| entry.data.len() as u64).sum());
        Ok(entries)
    }

    /// Looks for dead files once a file's worth was consumed.
    fn consumed(&self, bytes: u64) {
        let before = self.consumed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before / RECLAIM_AFTER_BYTES != (before + bytes) / RECLAIM_AFTER_BYTES {
            // The entries in hand matter more than the space: a later call goes on.
            let _ = self.thetis.reclaim();
        }
    }

    /// The topic, if it exists.
    fn found(&self, name: &str) -> io::Result<Option<Arc<Topic>>> {
        if let Some(topic) = self.topics.read().get(name) {
            return Ok(Some(topic.clone()));
        }
        // Whoever polls a topic that does not exist must not hold up those that do.
        if self.thetis.find(name).map_err(to_io)?.is_none() {
            return Ok(None);
        }
        // Under the lock, so that a topic deleted meanwhile is not remembered.
        let mut topics = self.topics.write();
        let Some(stream) = self.thetis.find(name).map_err(to_io)? else { return Ok(None) };
        let new = || Arc::new(Topic::new(stream));
        Ok(Some(topics.entry(name.into()).or_insert_with(new).clone()))
    }

    /// The topic, made if it does not exist.
    fn made(&self, name: &str) -> io::Result<Arc<Topic>> {
        if let Some(topic) = self.topics.read().get(name) {
            return Ok(topic.clone());
        }
        let mut topics = self.topics.write();
        let stream = self.thetis.stream(name).map_err(to_io)?;
        Ok(topics.entry(name.into()).or_insert_with(|| Arc::new(Topic::new(stream))).clone())
    }
}

/// [`Walrus::get_topic_entry_count`].
#[must_use]
pub fn topic_entry_count(walrus: &Walrus, topic: &str) -> u64 {
    walrus.get_topic_entry_count(topic)
}

/// [`Walrus::get_topic_entry_counts`].
#[must_use]
pub fn topic_entry_counts(walrus: &Walrus) -> HashMap<String, u64> {
    walrus.get_topic_entry_counts()
}

/// Does nothing: there is one way to the disk here, and it is the best the system has.
pub fn enable_fd_backend() {}

/// Does nothing; see [`enable_fd_backend`].
pub fn disable_fd_backend() {}

fn entry(record: Record) -> Entry {
    Entry { data: record.value.into() }
}

fn check_size(bytes: usize) -> io::Result<()> {
    match bytes > ENTRY_BYTES_MAX {
        true => Err(to_io(Error::RecordTooLarge { bytes })),
        false => Ok(()),
    }
}

/// The error as `io::Error`; the one within is [`crate::Error`].
fn to_io(error: Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::Invalid | ErrorKind::Trimmed => io::ErrorKind::InvalidInput,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::Exists => io::ErrorKind::AlreadyExists,
        ErrorKind::Corrupt => io::ErrorKind::InvalidData,
        ErrorKind::Throttled => io::ErrorKind::WouldBlock,
        ErrorKind::Conflict
        | ErrorKind::Fenced
        | ErrorKind::Sealed
        | ErrorKind::Unavailable
        | ErrorKind::Internal => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
