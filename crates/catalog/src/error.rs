//! Errors of the catalog.

use thetis_meta::MetaError;
use thetis_stream::{OpenError, StreamError};
use thetis_types::{ErrorKind, StreamId};

/// An act on topics that was not done, or of which that is not known.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CatalogError {
    /// No such topic.
    #[error("topic {name:?} does not exist")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("topic {name:?} already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// The name is not allowed.
    #[error("{name:?} cannot be a topic's name: {fault}")]
    Name {
        /// The name.
        name: String,
        /// Why not.
        fault: &'static str,
    },
    /// A topic has at least one partition, and not too many.
    #[error("a topic of {count} partitions; it takes 1 to {max}")]
    PartitionCount {
        /// What was asked.
        count: u32,
        /// The limit.
        max: u32,
    },
    /// Partitions only become more.
    #[error("topic {name:?} has {have} partitions; {asked} would not be more")]
    PartitionsNotMore {
        /// The topic.
        name: String,
        /// Its partitions.
        have: u32,
        /// What was asked.
        asked: u32,
    },
    /// There is no such configuration key.
    #[error("unknown topic configuration {key:?}{}", nearest.map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
    UnknownConfig {
        /// The key.
        key: String,
        /// A known key that is spelt much like it.
        nearest: Option<&'static str>,
    },
    /// The value does not suit the key.
    #[error("{value:?} is not a value of {key}: {fault}")]
    ConfigValue {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Why not.
        fault: String,
    },
    /// Someone else changed the topic at the same time.
    #[error("topic {name:?} was changed by someone else meanwhile; look again, then retry")]
    Contended {
        /// The topic.
        name: String,
    },
    /// A stream of the topic is not there.
    #[error("topic {name:?} names {stream}, which does not exist: metadata is damaged")]
    MissingStream {
        /// The topic.
        name: String,
        /// The stream.
        stream: StreamId,
    },
    /// A topic's record cannot be understood.
    #[error("a topic record cannot be read: {detail}")]
    Record {
        /// Why.
        detail: String,
    },
    /// Metadata failed.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A stream failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl CatalogError {
    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            CatalogError::NotFound { .. } => ErrorKind::NotFound,
            CatalogError::Exists { .. } => ErrorKind::Exists,
            CatalogError::Name { .. }
            | CatalogError::PartitionCount { .. }
            | CatalogError::PartitionsNotMore { .. }
            | CatalogError::UnknownConfig { .. }
            | CatalogError::ConfigValue { .. } => ErrorKind::Invalid,
            CatalogError::Contended { .. } => ErrorKind::Conflict,
            CatalogError::MissingStream { .. } | CatalogError::Record { .. } => ErrorKind::Corrupt,
            CatalogError::Meta(error) => error.kind(),
            CatalogError::Stream(error) => error.kind(),
        }
    }
}

impl From<OpenError> for CatalogError {
    fn from(error: OpenError) -> CatalogError {
        match error {
            OpenError::Meta(error) => CatalogError::Meta(error),
            record @ OpenError::Record { .. } => {
                CatalogError::Record { detail: record.to_string() }
            }
        }
    }
}
