//! What can go wrong, as facts. Each error says what kind it is; those of mutations also say
//! whether the mutation happened.

use std::io;
use std::sync::Arc;

use thetis_types::{ErrorKind, HeadVersion, Offset, Outcome, StreamId};

use crate::format::Flaw;

/// Why the journal could not be opened. Nothing was changed that the next open would miss.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another journal in this one, holds the directory.
    #[error(
        "the journal directory is in use by another process; stop it or choose another directory"
    )]
    Locked,
    /// A file was written by a newer release.
    #[error("journal file {file} has {flaw}; open it with the release that wrote it")]
    Unsupported {
        /// The file.
        file: String,
        /// Versions found and known.
        flaw: Flaw,
    },
    /// The disk failed.
    #[error("could not open the journal: {doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The failure.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> OpenError {
        move |source| OpenError::Io { doing, source }
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            OpenError::Locked => ErrorKind::Conflict,
            OpenError::Unsupported { .. } => ErrorKind::Invalid,
            OpenError::Io { .. } => ErrorKind::Unavailable,
        }
    }
}

/// Why an append was refused. It certainly did not happen.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// No entries, an entry without records, or one past the largest offset.
    #[error("could not append to {stream}: {why}")]
    Invalid {
        /// The stream.
        stream: StreamId,
        /// What is wrong with the request.
        why: &'static str,
    },
    /// The entries are larger than an entry may be.
    #[error("could not append {bytes} bytes to {stream}: at most {max} are allowed")]
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// Payload bytes asked for.
        bytes: u64,
        /// Payload bytes allowed.
        max: u64,
    },
    /// The entry does not continue the stream: a fault of the caller.
    #[error("could not append to {stream} at {offset}, {version}: it continues at {end}, {next}")]
    OutOfOrder {
        /// The stream.
        stream: StreamId,
        /// Offset asked for.
        offset: Offset,
        /// Version asked for.
        version: HeadVersion,
        /// Where the stream ends.
        end: Offset,
        /// Its next version.
        next: HeadVersion,
    },
    /// There is no room for another file. Appends succeed again once there is.
    #[error("the disk is full: {reason}; free space or trim streams, then retry")]
    Full {
        /// What the disk said.
        reason: Arc<str>,
    },
    /// Another file could not be made, though there is room. Appends succeed again once one can.
    #[error(
        "no journal file could be made: {reason}; see that the directory is there and writable, \
         then retry"
    )]
    NoFile {
        /// What the disk said.
        reason: Arc<str>,
    },
    /// A write or flush failed before; the journal takes no more until it is opened again.
    #[error("the journal stopped after a failed flush: {reason}; reopen it")]
    Poisoned {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The journal is closed.
    #[error("the journal is closed")]
    Closed,
}

impl AppendError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            AppendError::Invalid { .. } | AppendError::TooLarge { .. } => ErrorKind::Invalid,
            AppendError::OutOfOrder { .. } => ErrorKind::Internal,
            AppendError::Full { .. }
            | AppendError::NoFile { .. }
            | AppendError::Poisoned { .. }
            | AppendError::Closed => ErrorKind::Unavailable,
        }
    }

    /// Always `NotCommitted`: an append is refused before a byte of it is in the buffer.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::NotCommitted
    }
}

/// Why a durability was not reached.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FlushError {
    /// A write or flush failed. The bytes may be on disk or not; only the next open tells.
    #[error("could not flush the journal: {reason}; reopen it")]
    Poisoned {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The journal was closed or dropped before.
    #[error("the journal was closed before the flush")]
    Closed,
}

impl FlushError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }

    /// Always `MayHaveCommitted`.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::MayHaveCommitted
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes of an entry are damaged. They are kept; they are never served.
    #[error("{stream} is damaged at {offset}: {why} (file {file}, byte {at})")]
    Damaged {
        /// The stream.
        stream: StreamId,
        /// First offset of the damaged entry.
        offset: Offset,
        /// First offset after it.
        end: Offset,
        /// The file.
        file: String,
        /// Byte of the file.
        at: u64,
        /// What contradicts.
        why: String,
    },
    /// No frame holds the offset, although the caller says it is committed.
    #[error("{stream} has nothing at {offset}; the next entry is at {next:?}")]
    Missing {
        /// The stream.
        stream: StreamId,
        /// The offset asked for.
        offset: Offset,
        /// Where entries go on, if anywhere.
        next: Option<Offset>,
    },
    /// The disk failed.
    #[error("could not read {stream} from file {file}")]
    Io {
        /// The stream.
        stream: StreamId,
        /// The file.
        file: String,
        /// The failure.
        #[source]
        source: io::Error,
    },
}

impl ReadError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReadError::Damaged { .. } | ReadError::Missing { .. } => ErrorKind::Corrupt,
            ReadError::Io { .. } => ErrorKind::Unavailable,
        }
    }
}

/// Why space was not reclaimed. Nothing live was lost; what was deleted before stays deleted.
#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    /// Live entries could not be copied.
    #[error("could not copy live entries out of file {file}")]
    Append {
        /// The file being evacuated.
        file: String,
        /// The refusal.
        #[source]
        source: AppendError,
    },
    /// The copies could not be made durable.
    #[error("could not make relocated entries durable")]
    Flush(#[source] FlushError),
    /// The file could not be removed.
    #[error("could not remove file {file}")]
    Remove {
        /// The file.
        file: String,
        /// The failure.
        #[source]
        source: io::Error,
    },
}

impl ReclaimError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReclaimError::Append { source, .. } => source.kind(),
            ReclaimError::Flush(source) => source.kind(),
            ReclaimError::Remove { .. } => ErrorKind::Unavailable,
        }
    }
}
