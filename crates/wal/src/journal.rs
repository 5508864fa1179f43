//! The journal as a WAL engine: nothing but the port's words on one side and the journal's on the
//! other. What a file looks like and when it is flushed is the journal's.

use std::sync::Arc;

use thetis_journal::{Disk, Journal, OpenError, Options, Recovery};
use thetis_types::{Durability, Epoch, Offset, StoredEntry, StreamId};

use crate::{
    Append, AppendError, EntryHeader, FlushError, Log, Position, ReadError, Reclaimed,
    RecoveredStream, Then, Wal,
};

/// A WAL on the journal.
pub struct JournalWal {
    journal: Journal,
    recovered: Vec<RecoveredStream>,
}

impl JournalWal {
    /// Opens the journal on `disk`; returns what it recovered too.
    ///
    /// # Errors
    /// The directory is in use, of a newer version, or the disk failed.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
    ) -> Result<(JournalWal, Recovery), OpenError> {
        let (journal, recovery) = Journal::open(disk, options)?;
        let recovered = recovery.streams.iter().map(|found| RecoveredStream {
            stream: found.stream,
            start: found.start,
            head: found.head,
        });
        Ok((JournalWal { journal, recovered: recovered.collect() }, recovery))
    }

    /// The journal beneath, for its figures.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

impl Wal for JournalWal {
    fn recovered(&self) -> Vec<RecoveredStream> {
        self.recovered.clone()
    }

    fn log(&self, stream: StreamId) -> Arc<dyn Log> {
        Arc::new(JournalLog { log: self.journal.log(stream) })
    }

    fn wait(&self, at: Position, level: Durability) -> Result<(), FlushError> {
        self.journal.wait(at, level).map_err(flush_error)
    }

    fn reached(&self, at: Position, level: Durability) -> bool {
        self.journal.reached(at, level)
    }

    fn when(&self, at: Position, level: Durability, then: Then) {
        self.journal.when(at, level, Box::new(|result| then(result.map_err(flush_error))));
    }

    fn reclaim(&self) -> Result<Reclaimed, AppendError> {
        let report = self
            .journal
            .reclaim()
            .map_err(|error| AppendError::Io { detail: error.to_string() })?;
        Ok(Reclaimed { files: report.removed_files as u64, bytes: report.freed_bytes })
    }

    fn close(&self) -> Result<(), FlushError> {
        self.journal.close().map_err(flush_error)
    }
}

struct JournalLog {
    log: thetis_journal::Log,
}

impl Log for JournalLog {
    fn append(&self, entries: &[Append<'_>]) -> Result<Position, AppendError> {
        self.log.append(entries).map_err(append_error)
    }

    fn read(
        &self,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<StoredEntry>, ReadError> {
        self.log.read(from, until, bytes_max).map_err(|error| self.read_error(from, error))
    }

    fn headers(
        &self,
        from: Offset,
        until: Offset,
        entries_max: usize,
    ) -> Result<Vec<EntryHeader>, ReadError> {
        self.log.headers(from, until, entries_max).map_err(|error| self.read_error(from, error))
    }

    fn first_at_time(
        &self,
        from: Offset,
        until: Offset,
        timestamp: i64,
    ) -> Result<Option<Offset>, ReadError> {
        let found = self.log.first_at_time(from, until, timestamp);
        found.map_err(|error| self.read_error(from, error))
    }

    fn max_time(&self, from: Offset, until: Offset) -> Result<Option<(Offset, i64)>, ReadError> {
        self.log.max_time(from, until).map_err(|error| self.read_error(from, error))
    }

    fn epoch_end(&self, epoch: Epoch, from: Offset, until: Offset) -> Option<(Epoch, Offset)> {
        self.log.epoch_end(epoch, from, until)
    }

    fn bytes_between(&self, from: Offset, until: Offset) -> Result<u64, ReadError> {
        self.log.bytes_between(from, until).map_err(|error| self.read_error(from, error))
    }

    fn trim(&self, before: Offset) {
        self.log.trim(before);
    }

    fn discard(&self) {
        self.log.discard();
    }
}

impl JournalLog {
    fn read_error(&self, from: Offset, error: thetis_journal::ReadError) -> ReadError {
        let stream = self.log.stream();
        let detail = error.to_string();
        match error {
            thetis_journal::ReadError::Damaged { offset, .. } => {
                ReadError::Damaged { stream, offset, detail }
            }
            thetis_journal::ReadError::Missing { offset, .. } => {
                ReadError::Missing { stream, offset }
            }
            thetis_journal::ReadError::Io { source, .. } => {
                ReadError::Io { stream, offset: from, detail: format!("{detail}: {source}") }
            }
        }
    }
}

fn append_error(error: thetis_journal::AppendError) -> AppendError {
    use thetis_journal::AppendError as Journal;
    match error {
        Journal::TooLarge { bytes, max, .. } => AppendError::TooLarge { bytes, max },
        Journal::Full { reason } => AppendError::Full { detail: reason.to_string() },
        Journal::NoFile { reason } => AppendError::Io { detail: reason.to_string() },
        Journal::Poisoned { reason } => AppendError::Poisoned { detail: reason.to_string() },
        Journal::Closed => AppendError::Closed,
        fault @ (Journal::Invalid { .. } | Journal::OutOfOrder { .. }) => {
            AppendError::Io { detail: fault.to_string() }
        }
    }
}

fn flush_error(error: thetis_journal::FlushError) -> FlushError {
    FlushError { detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_conforms() {
        crate::conformance::suite(|| {
            let disk = Arc::new(thetis_journal::sim::SimDisk::new(1));
            let options = Options { file_bytes: 1 << 20, ..Options::default() };
            Box::new(JournalWal::open(disk, options).unwrap().0)
        });
    }
}
