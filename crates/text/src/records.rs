//! Plain records in entries, in the library's framing (docs/formats/journal.md, entry formats):
//! one record is an entry by itself, several are framed by their lengths.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thetis_types::{Entry, EntryFormat, Offset, StoredEntry};

/// Bytes in front of each record of a batch.
const LENGTH_BYTES: usize = 4;

/// An entry that does not come apart into plain records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SplitError {
    /// Lengths and bytes do not agree.
    #[error("the batch at {offset} is damaged: its lengths do not add up")]
    Framing {
        /// Its base offset.
        offset: Offset,
    },
    /// The entry is another protocol's.
    #[error("the entry at {offset} is not plain records; read it through its own protocol")]
    Foreign {
        /// Its base offset.
        offset: Offset,
    },
}

/// An entry of these records, at least one, committed whole or not at all.
pub(crate) fn entry(values: &[Bytes], timestamp_ms: i64) -> Entry {
    let record_count = u32::try_from(values.len()).expect("a request names far fewer records");
    let (format, payload) = match values {
        [only] => (EntryFormat::Record, only.clone()),
        several => {
            let bytes = several.iter().map(|value| LENGTH_BYTES + value.len()).sum();
            let mut payload = BytesMut::with_capacity(bytes);
            for value in several {
                payload.put_u32_le(u32::try_from(value.len()).expect("a part of a request"));
                payload.put_slice(value);
            }
            (EntryFormat::Records, payload.freeze())
        }
    };
    Entry { record_count, max_timestamp: timestamp_ms, format, payload }
}

/// The records of an entry, the first at its base offset, as slices of it.
pub(crate) fn split(entry: &StoredEntry) -> Result<Vec<Bytes>, SplitError> {
    match entry.format {
        EntryFormat::Record => Ok(vec![entry.payload.clone()]),
        EntryFormat::KafkaBatch => Err(SplitError::Foreign { offset: entry.base_offset }),
        EntryFormat::Records => {
            let damaged = SplitError::Framing { offset: entry.base_offset };
            let mut rest = entry.payload.clone();
            let mut records = Vec::new();
            for _ in 0..entry.record_count {
                if rest.len() < LENGTH_BYTES {
                    return Err(damaged);
                }
                let length = rest.get_u32_le() as usize;
                if rest.len() < length {
                    return Err(damaged);
                }
                records.push(rest.split_to(length));
            }
            if rest.is_empty() { Ok(records) } else { Err(damaged) }
        }
    }
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
    fn records_come_back_and_every_cut_is_an_error() {
        let values = ["a", "", "ccc"].map(Bytes::from);
        let batch = stored(entry(&values, 5));
        assert_eq!(split(&batch).unwrap(), values);
        for cut in 0..batch.payload.len() {
            let cut = StoredEntry { payload: batch.payload.slice(..cut), ..batch.clone() };
            assert_eq!(split(&cut), Err(SplitError::Framing { offset: Offset(7) }));
        }
        let one = stored(entry(&values[2..], 5));
        assert_eq!((one.format, split(&one).unwrap()), (EntryFormat::Record, values[2..].to_vec()));
    }
}
