//! RocksDB's write-ahead log. It cannot be had without the memory table behind it, so the table is made
//! so large that nothing is ever flushed or compacted: an append is the log and one insert. Reads come
//! from that table; they prove that everything arrived and are no figure of a log.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Result, bail};
use rocksdb::{DB, DBCompressionType, Direction, IteratorMode, Options, WriteBatch, WriteOptions};
use thetis_bench::work::engine::{Engine, Level};

/// More than any work writes, keys and nodes of the table included; so much is set aside for the log too.
const TABLE_BYTES: usize = 4 << 30;
/// A key: the stream and the number of the record in it, big-endian, so that they sort.
const KEY_BYTES: usize = 12;

/// A database with one table.
pub(crate) struct Rival {
    db: DB,
    /// Next number of each stream.
    next: Vec<AtomicU64>,
    write: WriteOptions,
}

impl Rival {
    pub(crate) fn open(dir: &Path, level: Level, streams: usize) -> Result<Rival> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(TABLE_BYTES);
        options.set_compression_type(DBCompressionType::None);
        // Otherwise every put hands the log to the operating system.
        options.set_manual_wal_flush(level == Level::Memory);
        let mut write = WriteOptions::default();
        write.set_sync(level == Level::Disk);
        let next = (0..streams).map(|_| AtomicU64::new(0)).collect();
        Ok(Rival { db: DB::open(&options, dir)?, next, write })
    }

    /// Shows what stands from `from` on without a gap; returns the number after it.
    fn read_from(
        &self,
        stream: usize,
        from: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let mut number = from;
        let first = key(stream, from);
        for pair in self.db.iterator(IteratorMode::From(&first, Direction::Forward)) {
            let (found, record) = pair?;
            if *found != key(stream, number) {
                break;
            }
            see(&record)?;
            number += 1;
        }
        Ok(number)
    }
}

fn key(stream: usize, number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(&u32::try_from(stream).unwrap_or(u32::MAX).to_be_bytes());
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

impl Engine for Rival {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        let number = self.next[stream].fetch_add(1, Ordering::Relaxed);
        Ok(self.db.put_opt(key(stream, number), record, &self.write)?)
    }

    fn append_batch(&self, stream: usize, records: &[&[u8]]) -> Result<()> {
        let first = self.next[stream].fetch_add(records.len() as u64, Ordering::Relaxed);
        let mut batch = WriteBatch::default();
        for (number, record) in (first..).zip(records) {
            batch.put(key(stream, number), record);
        }
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn read(&self, stream: usize, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let end = self.read_from(stream, 0, see)?;
        let appended = self.next[stream].load(Ordering::Relaxed);
        if end != appended {
            bail!("record {end} of {appended} is not there");
        }
        Ok(())
    }

    /// It has no way to wait, so this asks without pause.
    fn follow(
        &self,
        stream: usize,
        count: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut number = 0;
        while number < count {
            number = self.read_from(stream, number, see)?;
            thread::yield_now();
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
