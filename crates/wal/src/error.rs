//! Errors of the WAL port. Each says whether the thing happened.

use thetis_types::{ErrorKind, Offset, Outcome, StreamId};

/// An append that was not taken into the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// The device has no room for another file.
    #[error("could not append: the device of the WAL is full ({detail}); free space, then retry")]
    Full {
        /// What the device said.
        detail: String,
    },
    /// An entry is larger than the engine takes.
    #[error("could not append: an entry of {bytes} bytes is over the limit of {max} bytes")]
    TooLarge {
        /// The entry's size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// An earlier flush failed; what it covered is unknown, so nothing is taken on top of it.
    #[error(
        "could not append: the WAL stopped after a failed flush ({detail}); restart to recover"
    )]
    Poisoned {
        /// What failed.
        detail: String,
    },
    /// The WAL was closed.
    #[error("could not append: the WAL is closed")]
    Closed,
    /// The device refused.
    #[error("could not append: {detail}")]
    Io {
        /// What the device said.
        detail: String,
    },
}

impl AppendError {
    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            AppendError::TooLarge { .. } => ErrorKind::Invalid,
            AppendError::Full { .. }
            | AppendError::Poisoned { .. }
            | AppendError::Closed
            | AppendError::Io { .. } => ErrorKind::Unavailable,
        }
    }

    /// Whether it happened: never.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::NotCommitted
    }
}

/// A flush failed. Whether what it covered will be there after a restart is unknown: the device
/// may have kept some of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a flush of the WAL failed ({detail}); what it covered may have been kept; restart to recover"
)]
pub struct FlushError {
    /// What failed.
    pub detail: String,
}

impl FlushError {
    /// Whether it happened: perhaps.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::MayHaveCommitted
    }
}

/// A read that cannot give the bytes. Never means "end of stream".
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are there and wrong.
    #[error("stored bytes of {stream} at {offset} are damaged: {detail}")]
    Damaged {
        /// The stream.
        stream: StreamId,
        /// First offset that cannot be read.
        offset: Offset,
        /// Place and reason.
        detail: String,
    },
    /// The bytes should be there and are not.
    #[error("stored bytes of {stream} at {offset} are missing")]
    Missing {
        /// The stream.
        stream: StreamId,
        /// First offset that cannot be read.
        offset: Offset,
    },
    /// The device refused.
    #[error("could not read {stream} at {offset}: {detail}")]
    Io {
        /// The stream.
        stream: StreamId,
        /// First offset asked for.
        offset: Offset,
        /// What the device said.
        detail: String,
    },
}

impl ReadError {
    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReadError::Damaged { .. } | ReadError::Missing { .. } => ErrorKind::Corrupt,
            ReadError::Io { .. } => ErrorKind::Unavailable,
        }
    }
}
