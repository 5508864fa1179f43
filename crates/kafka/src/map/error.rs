//! The one table from the house's errors to Kafka's error codes.

use thetis_catalog::CatalogError;
use thetis_stream::{AppendError, ReadError, StreamError};
use thetis_types::ErrorKind;

use crate::wire::ErrorCode;

/// What a client is to be told about an error of this kind, where nothing more is known.
fn of_kind(kind: ErrorKind) -> ErrorCode {
    match kind {
        ErrorKind::Invalid => ErrorCode::InvalidRequest,
        ErrorKind::NotFound => ErrorCode::UnknownTopicOrPartition,
        ErrorKind::Exists => ErrorCode::TopicAlreadyExists,
        // Another owner, or a stream that is going away: ask where it is now.
        ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::Sealed => {
            ErrorCode::NotLeaderOrFollower
        }
        ErrorKind::Trimmed => ErrorCode::OffsetOutOfRange,
        ErrorKind::Throttled => ErrorCode::ThrottlingQuotaExceeded,
        // Retriable, and says that it is the storage.
        ErrorKind::Unavailable => ErrorCode::KafkaStorageError,
        ErrorKind::Corrupt => ErrorCode::KafkaStorageError,
        ErrorKind::Internal => ErrorCode::UnknownServerError,
    }
}

pub(super) fn of_append(error: &AppendError) -> ErrorCode {
    match error.kind() {
        // Too much in flight passes by itself, and producers only wait for codes they know.
        ErrorKind::Throttled => ErrorCode::NotLeaderOrFollower,
        ErrorKind::Invalid => ErrorCode::MessageTooLarge,
        kind => of_kind(kind),
    }
}

pub(super) fn of_read(error: &ReadError) -> ErrorCode {
    of_kind(error.kind())
}

pub(super) fn of_stream(error: &StreamError) -> ErrorCode {
    match error {
        StreamError::TrimPastEnd { .. } => ErrorCode::OffsetOutOfRange,
        other => of_kind(other.kind()),
    }
}

pub(super) fn of_catalog(error: &CatalogError) -> ErrorCode {
    match error {
        CatalogError::Name { .. } => ErrorCode::InvalidTopicException,
        CatalogError::PartitionCount { .. } | CatalogError::PartitionsNotMore { .. } => {
            ErrorCode::InvalidPartitions
        }
        CatalogError::UnknownConfig { .. } | CatalogError::ConfigValue { .. } => {
            ErrorCode::InvalidConfig
        }
        other => of_kind(other.kind()),
    }
}
