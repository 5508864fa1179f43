//! The Walrus engine. Its directory comes from the environment and its settings belong to the process,
//! so whoever opens it does so in a process of its own (`embedded/work.rs`).

use std::{io, thread};

use anyhow::Result;
use thetis_bench::work::engine::{Engine, Level, stream_name};
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus, disable_fd_backend};

/// Where the engine puts its files.
pub(crate) const DIR_ENV: &str = "WALRUS_DATA_DIR";
/// Unless this is set, it prints at every append.
pub(crate) const QUIET_ENV: &str = "WALRUS_QUIET";

/// Records that one read returns at most, and bytes that it keeps with each.
const READ_RECORDS_MAX: usize = 2_000;
const HEADER_BYTES: usize = 256;
/// It remembers the reader's place once in so many reads: as seldom as makes no difference here.
const PERSIST_EVERY: u32 = 1 << 20;

/// The engine and the names of its topics, made once.
pub(super) struct Rival {
    walrus: Walrus,
    names: Vec<String>,
    /// Bytes asked for in one read. SUBTLE: where a read is cut by bytes rather than by the number of
    /// records, version 0.2.0 skips what is left of the last full block. So this is never reached.
    read_bytes: usize,
}

impl Rival {
    pub(super) fn open(
        level: Level,
        streams: usize,
        record_bytes: usize,
        mapped: bool,
    ) -> Result<Rival> {
        if mapped {
            disable_fd_backend();
        }
        let schedule = match level {
            Level::Disk => FsyncSchedule::SyncEach,
            // It has nothing weaker.
            Level::Os | Level::Memory => FsyncSchedule::NoFsync,
        };
        let consistency = ReadConsistency::AtLeastOnce { persist_every: PERSIST_EVERY };
        let walrus = Walrus::with_consistency_and_schedule(consistency, schedule)?;
        let read_bytes = (READ_RECORDS_MAX + 1) * (record_bytes + HEADER_BYTES);
        Ok(Rival { walrus, names: (0..streams).map(stream_name).collect(), read_bytes })
    }
}

/// While a batch is written to a topic it refuses others instead of letting them wait, so its users ask
/// again.
fn again_while_refused(mut append: impl FnMut() -> io::Result<()>) -> Result<()> {
    loop {
        match append() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            done => return Ok(done?),
        }
    }
}

impl Engine for Rival {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        again_while_refused(|| self.walrus.append_for_topic(&self.names[stream], record))
    }

    fn append_batch(&self, stream: usize, records: &[&[u8]]) -> Result<()> {
        again_while_refused(|| self.walrus.batch_append_for_topic(&self.names[stream], records))
    }

    fn read(&self, stream: usize, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        loop {
            let entries =
                self.walrus.batch_read_for_topic(&self.names[stream], self.read_bytes, true)?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                see(&entry.data)?;
            }
        }
    }

    /// It has no way to wait, so this asks without pause. Batch reads are its quickest here: a single
    /// read at the tail writes and flushes its place each time.
    fn follow(
        &self,
        stream: usize,
        count: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let entries =
                self.walrus.batch_read_for_topic(&self.names[stream], self.read_bytes, true)?;
            for entry in &entries {
                see(&entry.data)?;
            }
            left = left.saturating_sub(entries.len() as u64);
            if entries.is_empty() {
                thread::yield_now();
            }
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
