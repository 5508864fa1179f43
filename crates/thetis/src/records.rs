//! Records in entries: how the library frames a batch, and how any plain entry comes apart again.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thetis_types::{Entry, EntryFormat, Offset, StoredEntry};

use crate::error::Error;

/// Bytes in front of each record of a batch: its length, u32, little-endian.
const LENGTH_BYTES: usize = 4;

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
    Entry {
        record_count: 1,
        max_timestamp: timestamp_ms,
        format: EntryFormat::Record,
        payload: value,
    }
}

/// An entry of several records, committed whole or not at all.
pub(crate) fn batch<T: AsRef<[u8]>>(
    values: impl IntoIterator<Item = T>,
    timestamp_ms: i64,
) -> Result<Entry, Error> {
    let values: Vec<T> = values.into_iter().collect();
    let bytes: usize = values.iter().map(|value| LENGTH_BYTES + value.as_ref().len()).sum();
    let mut payload = BytesMut::with_capacity(bytes);
    let mut record_count = 0_u32;
    for value in &values {
        let value = value.as_ref();
        let length =
            u32::try_from(value.len()).map_err(|_| Error::RecordTooLarge { bytes: value.len() })?;
        payload.put_u32_le(length);
        payload.put_slice(value);
        record_count = record_count.checked_add(1).ok_or(Error::TooManyRecords)?;
    }
    if record_count == 0 {
        return Err(Error::EmptyBatch);
    }
    Ok(Entry {
        record_count,
        max_timestamp: timestamp_ms,
        format: EntryFormat::Records,
        payload: payload.freeze(),
    })
}

/// Puts the records of an entry from `from` on behind `records`, as slices of it; none of them when
/// there is an error.
pub(crate) fn of_entry(
    entry: StoredEntry,
    from: Offset,
    records: &mut VecDeque<Record>,
) -> Result<(), Error> {
    let timestamp_ms = entry.max_timestamp;
    match entry.format {
        EntryFormat::Record => {
            let offset = entry.base_offset;
            records.push_back(Record { offset, timestamp_ms, value: entry.payload });
            Ok(())
        }
        EntryFormat::Records => {
            let before = records.len();
            let whole = split(&entry, |index, value| {
                let offset = entry.base_offset.plus(index);
                if offset >= from {
                    records.push_back(Record { offset, timestamp_ms, value });
                }
            });
            whole.ok_or_else(|| {
                records.truncate(before);
                Error::Framing { offset: entry.base_offset }
            })
        }
        EntryFormat::KafkaBatch => Err(Error::Foreign { offset: entry.base_offset }),
    }
}

/// Shows the values of a batch in order; `None` where its framing is wrong.
fn split(entry: &StoredEntry, mut see: impl FnMut(u64, Bytes)) -> Option<()> {
    let mut rest = entry.payload.clone();
    for index in 0..u64::from(entry.record_count) {
        if rest.len() < LENGTH_BYTES {
            return None;
        }
        let length = rest.get_u32_le() as usize;
        if rest.len() < length {
            return None;
        }
        see(index, rest.split_to(length));
    }
    rest.is_empty().then_some(())
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
    fn a_batch_comes_apart_from_any_record_on() {
        let entry = stored(batch(["a", "", "ccc"], 5).unwrap());
        let mut all = VecDeque::new();
        of_entry(entry.clone(), Offset(7), &mut all).unwrap();
        let values: Vec<&[u8]> = all.iter().map(|record| &record.value[..]).collect();
        assert_eq!(values, [&b"a"[..], b"", b"ccc"]);
        let mut rest = VecDeque::new();
        of_entry(entry, Offset(9), &mut rest).unwrap();
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].offset, Offset(9));
    }

    #[test]
    fn wrong_framing_is_an_error_at_every_cut() {
        let entry = stored(batch(["a", "bb"], 5).unwrap());
        for cut in 0..entry.payload.len() {
            let cut = StoredEntry { payload: entry.payload.slice(..cut), ..entry.clone() };
            let mut none = VecDeque::new();
            let refused = of_entry(cut, Offset(7), &mut none);
            assert!(matches!(refused, Err(Error::Framing { .. })) && none.is_empty());
        }
        assert!(matches!(batch(Vec::<&[u8]>::new(), 0), Err(Error::EmptyBatch)));
    }
}
