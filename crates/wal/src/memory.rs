//! The model of a WAL: obviously right, slow, in memory. For tests and simulation, where it can be
//! made to crash (what was not safe is gone) and to fail its next flush.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use thetis_types::{Durability, Epoch, Head, Offset, StoredEntry, StreamId};

use crate::{
    Append, AppendError, EntryHeader, FlushError, Log, Position, ReadError, Reclaimed,
    RecoveredStream, Then, Wal,
};

/// A WAL in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryWal {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    streams: BTreeMap<StreamId, Vec<Stored>>,
    end: u64,
    /// Positions safe at each level, by its ordinal.
    safe: [u64; 3],
    /// The level an append reaches by being taken.
    at_once: Option<Durability>,
    fail_next_flush: bool,
    poisoned: bool,
    closed: bool,
    full: bool,
}

#[derive(Clone)]
struct Stored {
    at: u64,
    entry: StoredEntry,
}

impl MemoryWal {
    /// Power is lost: what was not safe at `survives` is gone; the WAL can be used again.
    pub fn crash(&self, survives: Durability) {
        let mut inner = self.inner.lock();
        let safe = inner.safe[survives as usize];
        for entries in inner.streams.values_mut() {
            entries.retain(|stored| stored.at <= safe);
        }
        inner.end = safe;
        inner.safe = [safe; 3];
        inner.poisoned = false;
        inner.closed = false;
        inner.fail_next_flush = false;
    }

    /// The next flush fails, and poisons the WAL.
    pub fn fail_next_flush(&self) {
        self.inner.lock().fail_next_flush = true;
    }

    /// An append is safe at `level` when it is taken, as with an engine that needs no flush for it;
    /// with `None`, which is so at first, only once somebody waits.
    pub fn set_at_once(&self, level: Option<Durability>) {
        self.inner.lock().at_once = level;
    }

    /// Appends are refused for want of room while `full`.
    pub fn set_full(&self, full: bool) {
        self.inner.lock().full = full;
    }
}

impl Inner {
    fn reach(&mut self, at: Position, level: Durability) -> Result<(), FlushError> {
        let failed = || FlushError { detail: "the flush was made to fail".into() };
        assert!(at.0 <= self.end, "waiting for a position that was never handed out");
        if self.safe[level as usize] >= at.0 {
            return Ok(());
        }
        if self.poisoned {
            return Err(failed());
        }
        if level == Durability::Disk && std::mem::take(&mut self.fail_next_flush) {
            self.poisoned = true;
            return Err(failed());
        }
        for weaker in Durability::ALL.into_iter().filter(|other| *other <= level) {
            self.safe[weaker as usize] = self.end;
        }
        Ok(())
    }
}

impl Wal for MemoryWal {
    fn recovered(&self) -> Vec<RecoveredStream> {
        let inner = self.inner.lock();
        let found = inner.streams.iter().filter_map(|(stream, entries)| {
            let (first, last) = (entries.first()?, entries.last()?);
            Some(RecoveredStream {
                stream: *stream,
                start: first.entry.base_offset,
                head: Head {
                    version: last.entry.version,
                    epoch: last.entry.epoch,
                    end: last.entry.range().end,
                    bytes: entries.iter().map(|stored| stored.entry.payload.len() as u64).sum(),
                },
            })
        });
        found.collect()
    }

    fn log(&self, stream: StreamId) -> Arc<dyn Log> {
        Arc::new(MemoryLog { wal: self.clone(), stream })
    }

    fn wait(&self, at: Position, level: Durability) -> Result<(), FlushError> {
        self.inner.lock().reach(at, level)
    }

    fn reached(&self, at: Position, level: Durability) -> bool {
        self.inner.lock().safe[level as usize] >= at.0
    }

    fn when(&self, at: Position, level: Durability, then: Then) {
        let result = self.inner.lock().reach(at, level);
        then(result);
    }

    fn reclaim(&self) -> Result<Reclaimed, AppendError> {
        Ok(Reclaimed::default())
    }

    fn close(&self) -> Result<(), FlushError> {
        let mut inner = self.inner.lock();
        let end = Position(inner.end);
        inner.reach(end, Durability::Disk)?;
        inner.closed = true;
        Ok(())
    }
}

struct MemoryLog {
    wal: MemoryWal,
    stream: StreamId,
}

impl MemoryLog {
    /// The entries that overlap `[from, until)`.
    fn between(&self, from: Offset, until: Offset) -> Vec<StoredEntry> {
        let inner = self.wal.inner.lock();
        let all = inner.streams.get(&self.stream).map(Vec::as_slice).unwrap_or_default();
        all.iter()
            .map(|stored| &stored.entry)
            .filter(|entry| entry.range().end > from && entry.base_offset < until)
            .cloned()
            .collect()
    }
}

impl Log for MemoryLog {
    fn append(&self, entries: &[Append<'_>]) -> Result<Position, AppendError> {
        let mut inner = self.wal.inner.lock();
        if inner.closed {
            return Err(AppendError::Closed);
        }
        if inner.poisoned {
            return Err(AppendError::Poisoned { detail: "the flush was made to fail".into() });
        }
        if inner.full {
            return Err(AppendError::Full { detail: "made to be full".into() });
        }
        for append in entries {
            inner.end += 1;
            let stored = Stored {
                at: inner.end,
                entry: StoredEntry {
                    base_offset: append.base_offset,
                    record_count: append.entry.record_count,
                    epoch: append.epoch,
                    version: append.version,
                    max_timestamp: append.entry.max_timestamp,
                    attempt: append.attempt,
                    format: append.entry.format,
                    payload: Bytes::copy_from_slice(&append.entry.payload),
                },
            };
            inner.streams.entry(self.stream).or_default().push(stored);
        }
        let end = inner.end;
        for level in Durability::ALL {
            if inner.at_once >= Some(level) {
                inner.safe[level as usize] = end;
            }
        }
        Ok(Position(end))
    }

    fn read(
        &self,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<StoredEntry>, ReadError> {
        let mut left = bytes_max;
        let mut out = Vec::new();
        for entry in self.between(from, until) {
            if !out.is_empty() && entry.payload.len() > left {
                break;
            }
            left = left.saturating_sub(entry.payload.len());
            out.push(entry);
        }
        if from < until && out.first().is_none_or(|entry| entry.base_offset > from) {
            return Err(ReadError::Missing { stream: self.stream, offset: from });
        }
        Ok(out)
    }

    fn headers(
        &self,
        from: Offset,
        until: Offset,
        entries_max: usize,
    ) -> Result<Vec<EntryHeader>, ReadError> {
        let headers = self.between(from, until).into_iter().take(entries_max).map(|entry| {
            let payload_bytes =
                u32::try_from(entry.payload.len()).expect("entries are under 4 GiB");
            EntryHeader {
                base_offset: entry.base_offset,
                record_count: entry.record_count,
                epoch: entry.epoch,
                version: entry.version,
                attempt: entry.attempt,
                max_timestamp: entry.max_timestamp,
                payload_bytes,
            }
        });
        Ok(headers.collect())
    }

    fn first_at_time(
        &self,
        from: Offset,
        until: Offset,
        timestamp: i64,
    ) -> Result<Option<Offset>, ReadError> {
        let entries = self.between(from, until);
        Ok(entries.iter().find(|e| e.max_timestamp >= timestamp).map(|e| e.base_offset))
    }

    fn max_time(&self, from: Offset, until: Offset) -> Result<Option<(Offset, i64)>, ReadError> {
        let mut best: Option<(Offset, i64)> = None;
        for entry in self.between(from, until) {
            if best.is_none_or(|(_, timestamp)| entry.max_timestamp > timestamp) {
                best = Some((entry.base_offset, entry.max_timestamp));
            }
        }
        Ok(best)
    }

    fn epoch_end(&self, epoch: Epoch, from: Offset, until: Offset) -> Option<(Epoch, Offset)> {
        let entries = self.between(from, until);
        let last = entries.iter().rev().find(|entry| entry.epoch <= epoch);
        last.map(|entry| (entry.epoch, entry.range().end))
    }

    fn bytes_between(&self, from: Offset, until: Offset) -> Result<u64, ReadError> {
        Ok(self.between(from, until).iter().map(|entry| entry.payload.len() as u64).sum())
    }

    fn trim(&self, before: Offset) {
        let mut inner = self.wal.inner.lock();
        if let Some(entries) = inner.streams.get_mut(&self.stream) {
            entries.retain(|stored| stored.entry.range().end > before);
        }
    }

    fn discard(&self) {
        self.wal.inner.lock().streams.remove(&self.stream);
    }
}
