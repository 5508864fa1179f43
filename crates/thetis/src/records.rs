//! Records as the library gives and takes them. How they lie in entries is `thetis_types`'.

use bytes::Bytes;
use thetis_types::{Entry, Offset, StoredEntry};

use crate::error::Error;

/// One record as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the stream, for ever.
    pub offset: Offset,
    /// When it was appended, milliseconds since 1970 by the writer's clock.
    pub timestamp_ms: i64,
    /// What was appended.
    pub value: Bytes,
}

/// An entry of one record.
pub(crate) fn single(value: Bytes, timestamp_ms: i64) -> Entry {
    Entry::of_record(value, timestamp_ms)
}

/// An entry of several records, committed whole or not at all.
pub(crate) fn batch<T: AsRef<[u8]>>(
    values: impl IntoIterator<Item = T>,
    timestamp_ms: i64,
) -> Result<Entry, Error> {
    Ok(Entry::of_records(values, timestamp_ms)?)
}

/// The records of an entry from `from` on, as slices of it.
pub(crate) fn of_entry(entry: StoredEntry, from: Offset) -> Result<Vec<Record>, Error> {
    let timestamp_ms = entry.max_timestamp;
    let mut records = Vec::new();
    for record in entry.records()? {
        let (offset, value) = record?;
        if offset >= from {
            records.push(Record { offset, timestamp_ms, value });
        }
    }
    Ok(records)
}
