//! Named readers: durable places in a stream, each its own, shared by the threads of the process.
//!
//! Owns the face of a reader; the order of saving and handing out is `cursor`'s, what all readers
//! of a stream have passed is `set`'s. A reader appends nothing and keeps no record from being
//! trimmed but where [`Stream::trim_when_read`](crate::Stream::trim_when_read) says so.

mod cursor;
pub(crate) mod record;
mod saver;
mod set;

use std::sync::Arc;
use std::time::Duration;

use thetis_meta::{MetaError, Resolved, Write, resolve};
use thetis_stream::Store;
use thetis_types::Offset;

pub use cursor::READER_BATCH_RECORDS_MAX;
use cursor::{Cursor, Taken, Want};
pub(crate) use saver::Readers;
pub use set::{READER_NAME_BYTES_MAX, READERS_MAX};
pub(crate) use set::{ReaderSet, Registry};

use crate::error::Error;
use crate::records::Record;

/// When a reader's position becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Saves {
    /// Before each call that advances returns: after a crash nothing that was handed out is seen
    /// again. What was handed out and not worked through is not seen again either.
    #[default]
    Each,
    /// Now and then, and never beyond what earlier calls handed out: after a crash some records
    /// are seen again, none is skipped.
    Every {
        /// At most this many records are seen again, or the last batch if that is larger. Zero
        /// counts as one.
        records: u32,
        /// If set, what was handed out longer ago than this is not seen again, to the precision
        /// of half of it; a thread of the directory sees to it.
        interval: Option<Duration>,
    },
}

/// A reader as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReaderInfo {
    /// Its name.
    pub name: String,
    /// The offset it hands out next.
    pub position: Offset,
    /// Where it begins after a crash; at most `position`.
    pub saved: Offset,
    /// Records it has not handed out.
    pub unread: u64,
}

/// A named reader of one stream. Clones, and readers of the same name, share one position: each
/// record is handed out once among them, in order. Threads take turns; a strict advance holds the
/// turn for one metadata flush.
#[derive(Clone)]
pub struct Reader {
    set: Arc<ReaderSet>,
    cursor: Arc<Cursor>,
    saves: Saves,
    /// Keeps the thread that saves alive, and the directory open.
    _readers: Arc<Readers>,
}

impl Reader {
    pub(crate) fn open(
        readers: &Arc<Readers>,
        stream: &thetis_stream::Stream,
        name: &str,
        saves: Saves,
    ) -> Result<Reader, Error> {
        let set = readers.registry().of(stream);
        let cursor = set.open(name)?;
        if let Saves::Every { interval: Some(interval), .. } = saves {
            readers.look_within(interval)?;
            cursor.save_within(interval);
        }
        Ok(Reader { set, cursor, saves, _readers: readers.clone() })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.cursor.name()
    }

    /// The next record; `None` at the end of the stream. Does not wait.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the stream was trimmed beyond this reader: [`Reader::seek`]. Damaged
    /// bytes, or metadata failed. The reader has not moved; call again.
    pub fn read_next(&self) -> Result<Option<Record>, Error> {
        Ok(self.take(Want::ONE)?.pop())
    }

    /// The next records, of at most `bytes_max` bytes of values in all, but at least one if there
    /// is one, and at most [`READER_BATCH_RECORDS_MAX`]. Empty at the end of the stream.
    ///
    /// # Errors
    /// As [`Reader::read_next`]. Records before damaged bytes are handed out first.
    pub fn read_batch(&self, bytes_max: usize) -> Result<Vec<Record>, Error> {
        self.read_batch_of(bytes_max, READER_BATCH_RECORDS_MAX)
    }

    pub(crate) fn read_batch_of(
        &self,
        bytes_max: usize,
        records_max: usize,
    ) -> Result<Vec<Record>, Error> {
        self.take(Want { bytes_max, records_max })
    }

    /// What [`Reader::read_next`] would give. Does not move.
    ///
    /// # Errors
    /// As [`Reader::read_next`].
    pub fn peek(&self) -> Result<Option<Record>, Error> {
        Ok(self.cursor.peek(Want::ONE)?.pop())
    }

    /// What [`Reader::read_batch`] would give. Does not move.
    ///
    /// # Errors
    /// As [`Reader::read_batch`].
    pub fn peek_batch(&self, bytes_max: usize) -> Result<Vec<Record>, Error> {
        self.peek_batch_of(bytes_max, READER_BATCH_RECORDS_MAX)
    }

    pub(crate) fn peek_batch_of(
        &self,
        bytes_max: usize,
        records_max: usize,
    ) -> Result<Vec<Record>, Error> {
        self.cursor.peek(Want { bytes_max, records_max })
    }

    /// Goes to `to`, forwards or back, durably.
    ///
    /// # Errors
    /// [`Error::Trimmed`] below the start, [`Error::PastEnd`] past the end, or metadata failed: the
    /// reader has not moved.
    pub fn seek(&self, to: Offset) -> Result<(), Error> {
        self.set.seek(&self.cursor, to)
    }

    /// Makes the position durable now. Needed by relaxed readers only.
    ///
    /// # Errors
    /// Metadata failed: call again.
    pub fn save(&self) -> Result<(), Error> {
        self.cursor.save()
    }

    /// The offset handed out next.
    #[must_use]
    pub fn position(&self) -> Offset {
        self.cursor.next()
    }

    /// Where this reader begins after a crash; at most [`Reader::position`].
    #[must_use]
    pub fn saved(&self) -> Offset {
        self.cursor.saved()
    }

    /// Records committed and not handed out: its lag.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.cursor.unread()
    }

    fn take(&self, want: Want) -> Result<Vec<Record>, Error> {
        let Taken { records, wants_trim } = self.cursor.take(want, self.saves)?;
        if wants_trim {
            // The records in hand matter more than the space: a later trim goes on.
            let _ = self.set.trim_passed();
        }
        Ok(records)
    }
}

/// Makes one unconditional write. A lost answer is resolved by reading back (law CERTAIN).
pub(crate) fn write(store: &Store, write: Write) -> Result<(), MetaError> {
    let write = write.with_token(store.entropy().next_u64() | 1);
    match store.meta().write(write.clone()) {
        Ok(_) => Ok(()),
        Err(MetaError::Unknown { cause }) => match resolve(&**store.meta(), &write) {
            Ok(Resolved::Done { .. } | Resolved::Gone) => Ok(()),
            // That a read was refused says nothing of the write.
            Ok(Resolved::NotDone { .. } | Resolved::Overtaken { .. }) | Err(_) => {
                Err(MetaError::Unknown { cause })
            }
        },
        Err(refused) => Err(refused),
    }
}
