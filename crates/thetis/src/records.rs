//! Records as the library gives and takes them. How they lie in entries is `thetis_types`'.

use std::collections::VecDeque;

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

/// Puts the records of an entry from `from` on behind `records`, as slices of it; none of them when
/// there is an error.
pub(crate) fn of_entry(
    entry: StoredEntry,
    from: Offset,
    records: &mut VecDeque<Record>,
) -> Result<(), Error> {
    let timestamp_ms = entry.max_timestamp;
    let before = records.len();
    for record in entry.records()? {
        match record {
            Ok((offset, value)) if offset >= from => {
                records.push_back(Record { offset, timestamp_ms, value });
            }
            Ok(_) => {}
            Err(damage) => {
                records.truncate(before);
                return Err(damage.into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use thetis_types::{AttemptId, Epoch, HeadVersion};

    use super::*;

    fn stored(entry: Entry) -> StoredEntry {
        StoredEntry {
            base_offset: Offset(7),
            record_count: entry.record_count,
            epoch: Epoch(0),
            version: HeadVersion(1),
            max_timestamp: entry.max_timestamp,
            attempt: AttemptId::NONE,
            format: entry.format,
            payload: entry.payload,
        }
    }

    #[test]
    fn a_damaged_entry_gives_none_of_its_records() {
        let entry = stored(batch(["a", "bb", "ccc"], 5).unwrap());
        let mut records = VecDeque::new();
        of_entry(entry.clone(), Offset(8), &mut records).unwrap();
        let offsets: Vec<_> = records.iter().map(|record| record.offset).collect();
        assert_eq!(offsets, [Offset(8), Offset(9)]);
        for cut in 0..entry.payload.len() {
            let cut = StoredEntry { payload: entry.payload.slice(..cut), ..entry.clone() };
            assert!(matches!(of_entry(cut, Offset(7), &mut records), Err(Error::Framing { .. })));
            assert_eq!(records.len(), 2, "what was there before stays, nothing is added");
        }
    }
}
