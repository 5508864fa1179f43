//! The log of TiKV's Raft groups. A stream is a group, whose entries are appended by one thread at a
//! time, as its memory tables ask; several writers of a stream take turns.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use protobuf::descriptor::UninterpretedOption;
use raft_engine::env::DefaultFileSystem;
use raft_engine::{Config, Engine as RaftEngine, LogBatch, MessageExt, ReadableSize};
use thetis_bench::work::engine::{Engine, Level};

/// Bytes and entries fetched at once.
const READ_BYTES: usize = 1 << 20;
const READ_ENTRIES: u64 = 4096;

/// The engine, and the index that the next entry of each group gets.
pub(crate) struct Rival {
    engine: RaftEngine<DefaultFileSystem>,
    next: Vec<Mutex<u64>>,
    sync: bool,
}

/// An entry has to be a message: this one has a number and bytes, and writes nothing else.
struct Entries;

impl MessageExt for Entries {
    type Entry = UninterpretedOption;

    fn index(entry: &UninterpretedOption) -> u64 {
        entry.get_positive_int_value()
    }
}

impl Rival {
    pub(crate) fn open(dir: &Path, level: Level, streams: usize) -> Result<Rival> {
        let config = Config {
            dir: dir.display().to_string(),
            // The records of a writer are alike, which is no merit of whoever compresses them.
            batch_compression_threshold: ReadableSize(0),
            ..Config::default()
        };
        let next = (0..streams).map(|_| Mutex::new(1)).collect();
        // Unsynced is handed to the operating system; it has nothing weaker.
        Ok(Rival { engine: RaftEngine::open(config)?, next, sync: level == Level::Disk })
    }

    fn end(&self, stream: usize) -> u64 {
        *self.next[stream].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the entries from `index` on; returns the index after them.
    fn read_from(
        &self,
        stream: usize,
        mut index: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let end = self.end(stream);
        let mut entries = Vec::new();
        while index < end {
            let (until, most) = (end.min(index + READ_ENTRIES), Some(READ_BYTES));
            let group = group(stream);
            self.engine.fetch_entries_to::<Entries>(group, index, until, most, &mut entries)?;
            index += entries.len() as u64;
            for entry in entries.drain(..) {
                see(entry.get_string_value())?;
            }
        }
        Ok(index)
    }
}

fn group(stream: usize) -> u64 {
    stream as u64 + 1
}

impl Engine for Rival {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.append_batch(stream, &[record])
    }

    fn append_batch(&self, stream: usize, records: &[&[u8]]) -> Result<()> {
        let mut next = self.next[stream].lock().unwrap_or_else(PoisonError::into_inner);
        let entry = |(index, record): (u64, &&[u8])| {
            let mut entry = UninterpretedOption::new();
            entry.set_positive_int_value(index);
            entry.set_string_value(record.to_vec());
            entry
        };
        let entries: Vec<UninterpretedOption> = (*next..).zip(records).map(entry).collect();
        let mut batch = LogBatch::default();
        batch.add_entries::<Entries>(group(stream), &entries)?;
        self.engine.write(&mut batch, self.sync)?;
        *next += records.len() as u64;
        Ok(())
    }

    fn read(&self, stream: usize, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.read_from(stream, 1, see)?;
        Ok(())
    }

    /// It has no way to wait, so this asks without pause.
    fn follow(
        &self,
        stream: usize,
        count: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut index = 1;
        while index <= count {
            index = self.read_from(stream, index, see)?;
            thread::yield_now();
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
