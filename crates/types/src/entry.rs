//! Entries: the indivisible unit of append and read.

use bytes::Bytes;

use crate::{AttemptId, Epoch, HeadVersion, Offset, OffsetRange};

/// What the bytes of an entry mean. The core stores the ordinal and never looks inside.
/// Ordinals are on disk: explicit, never reused, zero reserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum EntryFormat {
    /// The record itself; such an entry covers one offset.
    Record = 1,
    /// Plain records, framed as [`Entry::of_records`] does: for each, length (u32, little-endian) and
    /// bytes.
    Records = 2,
    /// One Kafka RecordBatch, magic 2, as received.
    KafkaBatch = 3,
}

impl EntryFormat {
    /// The format with this ordinal.
    #[must_use]
    pub const fn from_ordinal(ordinal: u8) -> Option<EntryFormat> {
        match ordinal {
            1 => Some(EntryFormat::Record),
            2 => Some(EntryFormat::Records),
            3 => Some(EntryFormat::KafkaBatch),
            _ => None,
        }
    }
}

/// Indivisible bytes in a protocol's own format, covering `record_count` offsets. Committed whole
/// or not at all, across a crash too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Offsets covered; at least one.
    pub record_count: u32,
    /// Largest timestamp of its records, milliseconds since 1970; negative when they have none.
    pub max_timestamp: i64,
    /// What the bytes mean.
    pub format: EntryFormat,
    /// The bytes.
    pub payload: Bytes,
}

/// A committed entry as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offsets covered; at least one.
    pub record_count: u32,
    /// Epoch it was committed under.
    pub epoch: Epoch,
    /// The head's version after its commit.
    pub version: HeadVersion,
    /// Largest timestamp of its records, milliseconds since 1970; negative when they have none.
    pub max_timestamp: i64,
    /// The attempt that appended it.
    pub attempt: AttemptId,
    /// What the bytes mean.
    pub format: EntryFormat,
    /// The bytes, as appended. A slice of the written buffer for a recent entry.
    pub payload: Bytes,
}

impl StoredEntry {
    /// The offsets covered.
    #[must_use]
    pub fn range(&self) -> OffsetRange {
        OffsetRange::at(self.base_offset, u64::from(self.record_count))
    }
}
