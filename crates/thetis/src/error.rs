//! Everything that can go wrong, with its kind and, for an append, whether it happened.

use thetis_catalog::CatalogError;
use thetis_meta::MetaError;
use thetis_stream::{AppendError, OpenError, ReadError, StreamError};
use thetis_types::{BatchError, ErrorKind, Offset, Outcome, SplitError};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory cannot be made or used.
    #[error("cannot use the directory {path}: {source}")]
    Directory {
        /// The directory.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The journal does not open: in use, of a newer version, or the disk failed.
    #[error(transparent)]
    Journal(#[from] thetis_journal::OpenError),
    /// The metadata store does not open or has failed.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// Journal and metadata cannot be put together.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An act on a name was not done.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// An append has no receipt; see [`Error::outcome`].
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Stored bytes cannot be given.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Another act on a stream was not done.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A batch has at least one record.
    #[error("a batch of no records; append at least one")]
    EmptyBatch,
    /// A record is larger than a length can say.
    #[error("a record of {bytes} bytes is over the limit of 1 GiB")]
    RecordTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// More records than an entry can count.
    #[error("a batch of more than 2^31 - 1 records; append several")]
    TooManyRecords,
    /// The offset was trimmed.
    #[error("{at} is trimmed; the stream begins at {start}")]
    Trimmed {
        /// What was asked.
        at: Offset,
        /// Where reading goes on.
        start: Offset,
    },
    /// The records of an entry do not add up.
    #[error(
        "the records of the entry at {offset} do not add up: it was not written by this library"
    )]
    Framing {
        /// The entry.
        offset: Offset,
    },
    /// The stream is a topic of Kafka clients.
    #[error("the entry at {offset} is a Kafka record batch; read it with a Kafka client")]
    Foreign {
        /// The entry.
        offset: Offset,
    },
    /// The name belongs to a topic that Kafka clients write.
    #[error("{name:?} is a topic of Kafka clients, which write it alone; use one")]
    NotPlain {
        /// The name.
        name: String,
    },
    /// The name belongs to a topic with several partitions.
    #[error("{name:?} has {partitions} partitions, so it is not one stream")]
    Partitioned {
        /// The name.
        name: String,
        /// Its partitions.
        partitions: u32,
    },
    /// There is no reader of this name, or it was dropped.
    #[error("there is no reader {name:?}; it was dropped, or its stream deleted")]
    NoReader {
        /// The name.
        name: String,
    },
    /// No reader can have this name.
    #[error("{name:?} cannot be the name of a reader: {fault}")]
    ReaderName {
        /// The name.
        name: String,
        /// Why not.
        fault: &'static str,
    },
    /// The stream has its most readers.
    #[error("the stream has {max} readers, which is the limit; drop some")]
    TooManyReaders {
        /// The limit.
        max: usize,
    },
    /// A reader was sent past the end.
    #[error("{at} is past the end of the stream, {end}")]
    PastEnd {
        /// What was asked.
        at: Offset,
        /// The end.
        end: Offset,
    },
    /// A record of a reader, or of a [`crate::walrus::WalIndex`], cannot be understood.
    #[error("the record {key} cannot be read: {detail}")]
    ReaderRecord {
        /// Its key in metadata.
        key: String,
        /// Why.
        detail: String,
    },
    /// The thread that saves readers by time did not start.
    #[error("cannot start the thread that saves readers: {source}")]
    Thread {
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The key is too long to be a directory.
    #[error("the directory of key {key:?} would have a name of over {max} bytes; shorten the key")]
    Key {
        /// The key.
        key: String,
        /// The limit, bytes.
        max: usize,
    },
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Error {
        match error {
            BatchError::Empty => Error::EmptyBatch,
            BatchError::TooManyRecords => Error::TooManyRecords,
            BatchError::RecordTooLarge { bytes } => Error::RecordTooLarge { bytes },
        }
    }
}

impl From<SplitError> for Error {
    fn from(error: SplitError) -> Error {
        match error {
            SplitError::Framing { offset } => Error::Framing { offset },
            SplitError::Foreign { offset } => Error::Foreign { offset },
        }
    }
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Directory { .. } | Error::Thread { .. } => ErrorKind::Unavailable,
            Error::Journal(error) => error.kind(),
            Error::Meta(error) => error.kind(),
            Error::Open(OpenError::Meta(error)) => error.kind(),
            Error::Open(OpenError::Record { .. })
            | Error::Framing { .. }
            | Error::ReaderRecord { .. } => ErrorKind::Corrupt,
            Error::NoReader { .. } => ErrorKind::NotFound,
            Error::TooManyReaders { .. } => ErrorKind::Throttled,
            Error::Catalog(error) => error.kind(),
            Error::Append(error) => error.kind(),
            Error::Read(error) => error.kind(),
            Error::Stream(error) => error.kind(),
            Error::EmptyBatch
            | Error::RecordTooLarge { .. }
            | Error::TooManyRecords
            | Error::Foreign { .. }
            | Error::ReaderName { .. }
            | Error::PastEnd { .. }
            | Error::Key { .. }
            | Error::NotPlain { .. }
            | Error::Partitioned { .. } => ErrorKind::Invalid,
            Error::Trimmed { .. } => ErrorKind::Trimmed,
        }
    }

    /// Whether a failed append happened; `NotCommitted` for what never reached the stream.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Append(error) => error.outcome(),
            _ => Outcome::NotCommitted,
        }
    }
}
