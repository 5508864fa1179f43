//! What went wrong, split by the only question a writer cannot answer alone: did it happen?

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thetis_types::{ErrorKind, Outcome};

use crate::{
    BATCH_BYTES_MAX, BATCH_WRITES_MAX, KEY_BYTES_MAX, LEASE_TTL_MAX, LEASES_MAX, VALUE_BYTES_MAX,
    WATCHES_MAX,
};

/// The error underneath. Shared, since one failed flush answers many writers.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// A failed call. A condition that did not hold is not a failure but an outcome
/// ([`crate::WriteOutcome::Lost`]).
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetaError {
    /// Certainly nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The change may have happened, or may happen yet. Resolve the same write; never guess.
    #[error("a metadata write may or may not have happened; read it back before going on")]
    Unknown {
        /// What broke off the answer.
        #[source]
        cause: Cause,
    },
}

/// Why a call certainly changed nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// The root key names no value.
    #[error("the root key holds no value; add a component")]
    RootKey,
    /// The encoded key is longer than [`KEY_BYTES_MAX`].
    #[error(
        "a metadata key of {bytes} bytes is over the limit of {KEY_BYTES_MAX}; shorten its names"
    )]
    KeyTooLong {
        /// Length of the encoded key.
        bytes: usize,
    },
    /// The value is larger than [`VALUE_BYTES_MAX`].
    #[error("a metadata value of {bytes} bytes is over the limit of {VALUE_BYTES_MAX}; split it")]
    ValueTooLarge {
        /// Length of the value.
        bytes: usize,
    },
    /// The batch is beyond [`BATCH_WRITES_MAX`] or [`BATCH_BYTES_MAX`].
    #[error(
        "a batch of {writes} writes and {bytes} bytes is over the limit of {BATCH_WRITES_MAX} and \
         {BATCH_BYTES_MAX}; split it"
    )]
    BatchTooLarge {
        /// Writes in the batch.
        writes: usize,
        /// Bytes of its keys and values.
        bytes: usize,
    },
    /// A page of no items was asked for.
    #[error("a page of 0 items was asked for; ask for at least 1")]
    EmptyPage,
    /// A write without a token cannot be found again.
    #[error("a write without a token cannot be resolved; give it a random one when it is sent")]
    NoToken,
    /// The time to live is zero or over [`LEASE_TTL_MAX`].
    #[error(
        "a lease of {ttl:?} is outside the limit of {LEASE_TTL_MAX:?}; ask for less, above zero"
    )]
    BadTtl {
        /// What was asked for.
        ttl: Duration,
    },
    /// [`LEASES_MAX`] leases are alive.
    #[error("{LEASES_MAX} leases are alive, which is the limit; revoke some or wait for a lapse")]
    TooManyLeases,
    /// [`WATCHES_MAX`] watches are open.
    #[error("{WATCHES_MAX} watches are open, which is the limit; drop some")]
    TooManyWatches,
    /// Too many writes wait to be flushed.
    #[error("{waiting} metadata writes wait for the disk, which is the limit; retry later")]
    Busy {
        /// Writes waiting.
        waiting: usize,
    },
    /// The medium is full.
    #[error("the medium of the metadata store is full; free some space, then retry")]
    Full {
        /// What the medium said.
        #[source]
        cause: Cause,
    },
    /// The store cannot be reached or is out of order for now.
    #[error("the metadata store is unavailable; retry later")]
    Unavailable {
        /// What broke.
        #[source]
        cause: Cause,
    },
    /// A flush failed, so what is on the medium is no longer known (the operating system may have
    /// dropped the pages). Lasts until the store is opened again.
    #[error("a flush of the metadata store failed earlier; check the device, then restart")]
    FlushFailed,
    /// Another process, or another store in this one, has the file open.
    #[error("metadata file {} is in use by another process; stop that one first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The store was written by a newer release.
    #[error(
        "metadata store has format version {found}, this release reads up to {supported}; use the \
         release that wrote it or a later one"
    )]
    UnsupportedFormat {
        /// The version on the medium.
        found: u64,
        /// The highest version this release reads.
        supported: u64,
    },
    /// Stored bytes make no sense.
    #[error("metadata store is damaged: {what}; keep the file and restore from a copy")]
    Corrupt {
        /// What was found where.
        what: String,
    },
}

impl MetaError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            MetaError::Refused(refusal) => refusal.kind(),
            MetaError::Unknown { .. } => ErrorKind::Unavailable,
        }
    }

    /// Whether the change happened.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            MetaError::Refused(_) => Outcome::NotCommitted,
            MetaError::Unknown { .. } => Outcome::MayHaveCommitted,
        }
    }
}

impl Refusal {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Refusal::RootKey
            | Refusal::KeyTooLong { .. }
            | Refusal::ValueTooLarge { .. }
            | Refusal::BatchTooLarge { .. }
            | Refusal::EmptyPage
            | Refusal::NoToken
            | Refusal::BadTtl { .. }
            | Refusal::UnsupportedFormat { .. } => ErrorKind::Invalid,
            Refusal::TooManyLeases | Refusal::TooManyWatches | Refusal::Busy { .. } => {
                ErrorKind::Throttled
            }
            Refusal::Full { .. }
            | Refusal::Unavailable { .. }
            | Refusal::FlushFailed
            | Refusal::InUse { .. } => ErrorKind::Unavailable,
            Refusal::Corrupt { .. } => ErrorKind::Corrupt,
        }
    }
}
