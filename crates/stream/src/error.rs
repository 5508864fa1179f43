//! Refusals and failures of the stream core. Each says of what kind it is and whether the thing
//! happened.

use thetis_meta::MetaError;
use thetis_types::limits::{ENTRY_BYTES_MAX, ENTRY_RECORDS_MAX};
use thetis_types::{Epoch, ErrorKind, Offset, Outcome, StreamId};

/// Why a stream did not take an append. It certainly did not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The end of the stream is not where the caller expected it.
    #[error("the stream ends at {actual}, not at the expected {expected}")]
    ExpectedOffset {
        /// What the caller expected.
        expected: Offset,
        /// Where the next record goes.
        actual: Offset,
    },
    /// The session was taken over, released or has lapsed.
    #[error("the session of {epoch} is fenced; the stream is at {current}: take a new session")]
    Fenced {
        /// Epoch of the caller's session.
        epoch: Epoch,
        /// Epoch of the stream.
        current: Epoch,
    },
    /// Someone holds the stream exclusively.
    #[error("a session taken at {epoch} holds the stream; only its holder may append")]
    SessionHeld {
        /// Epoch of the session.
        epoch: Epoch,
    },
    /// The stream is sealed.
    #[error("the stream is sealed at {end}")]
    Sealed {
        /// Its final end.
        end: Offset,
    },
    /// The stream is deleted.
    #[error("the stream is deleted")]
    Deleted,
    /// An earlier append of this stream was caught in a failed flush.
    #[error("the WAL failed under an earlier append; restart to recover the stream")]
    Broken,
    /// A seal, a deletion or a takeover is on its way.
    #[error("the stream is being sealed, deleted or taken over; retry")]
    Paused,
    /// An entry covers at least one record, and not too many.
    #[error("an entry of {count} records; it takes 1 to {ENTRY_RECORDS_MAX}")]
    RecordCount {
        /// Its count.
        count: u32,
    },
    /// The entry is too large.
    #[error("an entry of {bytes} bytes is over the limit of {ENTRY_BYTES_MAX} bytes")]
    EntryTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Too many appends of this stream wait for the WAL.
    #[error("{max} appends of the stream are in flight; wait for some, then retry")]
    InFlight {
        /// The limit.
        max: usize,
    },
    /// Too many bytes of all streams wait for the WAL.
    #[error("{bytes} bytes are in flight, over the limit of {max}; wait for some, then retry")]
    InFlightBytes {
        /// Bytes in flight with this append.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The stream has used up its offsets.
    #[error("the stream ends at {end}; there are no offsets left")]
    StreamFull {
        /// Its end.
        end: Offset,
    },
}

impl Refusal {
    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Refusal::ExpectedOffset { .. } => ErrorKind::Conflict,
            Refusal::Fenced { .. } | Refusal::SessionHeld { .. } => ErrorKind::Fenced,
            Refusal::Sealed { .. } => ErrorKind::Sealed,
            Refusal::Deleted => ErrorKind::NotFound,
            Refusal::Broken => ErrorKind::Unavailable,
            Refusal::RecordCount { .. }
            | Refusal::EntryTooLarge { .. }
            | Refusal::StreamFull { .. } => ErrorKind::Invalid,
            Refusal::Paused | Refusal::InFlight { .. } | Refusal::InFlightBytes { .. } => {
                ErrorKind::Throttled
            }
        }
    }
}

/// An append that has no receipt.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// The stream refused it.
    #[error("could not append to {stream}: {why}")]
    Refused {
        /// The stream.
        stream: StreamId,
        /// The reason.
        why: Refusal,
    },
    /// The WAL did not take it.
    #[error("could not append to {stream}: {source}")]
    Wal {
        /// The stream.
        stream: StreamId,
        /// The reason.
        source: thetis_wal::AppendError,
    },
    /// The WAL took it and could not make it safe.
    #[error("an append to {stream} may or may not have been kept: {source}")]
    Unknown {
        /// The stream.
        stream: StreamId,
        /// The reason.
        source: thetis_wal::FlushError,
    },
}

impl AppendError {
    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            AppendError::Refused { why, .. } => why.kind(),
            AppendError::Wal { source, .. } => source.kind(),
            AppendError::Unknown { .. } => ErrorKind::Unavailable,
        }
    }

    /// Whether it happened.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            AppendError::Refused { .. } => Outcome::NotCommitted,
            AppendError::Wal { source, .. } => source.outcome(),
            AppendError::Unknown { source, .. } => source.outcome(),
        }
    }
}

pub use thetis_wal::ReadError;

/// An act on a stream other than append and read: create, trim, seal, delete, sessions, recovery.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StreamError {
    /// No such stream, or it is deleted.
    #[error("{stream} does not exist")]
    NotFound {
        /// The stream.
        stream: StreamId,
    },
    /// A trim beyond the committed end.
    #[error("cannot trim {stream} at {at}: it ends at {end}")]
    TrimPastEnd {
        /// The stream.
        stream: StreamId,
        /// What was asked.
        at: Offset,
        /// Its committed end.
        end: Offset,
    },
    /// The stream does not allow it.
    #[error("{stream}: {why}")]
    Refused {
        /// The stream.
        stream: StreamId,
        /// The reason.
        why: Refusal,
    },
    /// The metadata store did not do it, or its answer was lost.
    #[error("metadata of {stream}: {source}")]
    Meta {
        /// The stream.
        stream: StreamId,
        /// The reason.
        source: MetaError,
    },
    /// Someone else keeps changing the stream's record.
    #[error("the record of {stream} changed {tries} times while it was to be updated; retry")]
    Contended {
        /// The stream.
        stream: StreamId,
        /// Tries made.
        tries: u32,
    },
    /// The stream's record cannot be understood.
    #[error("the record of {stream} is damaged: {detail}")]
    Record {
        /// The stream.
        stream: StreamId,
        /// What is wrong with it.
        detail: String,
    },
    /// The WAL did not do it.
    #[error("{stream}: {source}")]
    Flush {
        /// The stream.
        stream: StreamId,
        /// The reason.
        source: thetis_wal::FlushError,
    },
    /// The WAL cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl StreamError {
    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            StreamError::NotFound { .. } => ErrorKind::NotFound,
            StreamError::TrimPastEnd { .. } => ErrorKind::Invalid,
            StreamError::Refused { why, .. } => why.kind(),
            StreamError::Meta { .. } | StreamError::Flush { .. } => ErrorKind::Unavailable,
            StreamError::Contended { .. } => ErrorKind::Conflict,
            StreamError::Record { .. } => ErrorKind::Corrupt,
            StreamError::Read(source) => source.kind(),
        }
    }
}
