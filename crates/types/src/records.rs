//! Plain records in entries: how several are framed in one, and how any plain entry comes apart
//! again. The one place that knows the framing (docs/formats/journal.md, entry formats).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{Entry, EntryFormat, Offset, StoredEntry};

/// Bytes in front of each record of a batch: its length, u32, little-endian.
const LENGTH_BYTES: usize = 4;

/// Records that do not make an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// There is none.
    #[error("a batch needs at least one record")]
    Empty,
    /// There are more than offsets in one entry.
    #[error("a batch of more than {} records; split it", u32::MAX)]
    TooManyRecords,
    /// One does not fit its length.
    #[error("a record of {bytes} bytes; 4 GiB - 1 is the most there can be")]
    RecordTooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// An entry that does not come apart into plain records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SplitError {
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

impl Entry {
    /// An entry of one plain record.
    #[must_use]
    pub const fn of_record(value: Bytes, timestamp_ms: i64) -> Entry {
        Entry {
            record_count: 1,
            max_timestamp: timestamp_ms,
            format: EntryFormat::Record,
            payload: value,
        }
    }

    /// An entry of several plain records, which are copied.
    ///
    /// # Errors
    /// There is none, or more or larger ones than an entry holds.
    pub fn of_records<T: AsRef<[u8]>>(
        values: impl IntoIterator<Item = T>,
        timestamp_ms: i64,
    ) -> Result<Entry, BatchError> {
        // Measured first: one allocation, and nothing is copied twice.
        let values: Vec<T> = values.into_iter().collect();
        let bytes = values.iter().map(|value| LENGTH_BYTES + value.as_ref().len()).sum();
        let mut payload = BytesMut::with_capacity(bytes);
        let mut record_count = 0_u32;
        for value in &values {
            let value = value.as_ref();
            let length = u32::try_from(value.len())
                .map_err(|_| BatchError::RecordTooLarge { bytes: value.len() })?;
            payload.put_u32_le(length);
            payload.put_slice(value);
            record_count = record_count.checked_add(1).ok_or(BatchError::TooManyRecords)?;
        }
        if record_count == 0 {
            return Err(BatchError::Empty);
        }
        let payload = payload.freeze();
        Ok(Entry {
            record_count,
            max_timestamp: timestamp_ms,
            format: EntryFormat::Records,
            payload,
        })
    }
}

impl StoredEntry {
    /// Its plain records and their offsets, as slices of it.
    ///
    /// # Errors
    /// The entry is another protocol's. Damage is met on the way.
    pub fn records(&self) -> Result<Records, SplitError> {
        match self.format {
            EntryFormat::KafkaBatch => Err(SplitError::Foreign { offset: self.base_offset }),
            EntryFormat::Record | EntryFormat::Records => Ok(Records {
                base: self.base_offset,
                rest: self.payload.clone(),
                is_framed: self.format == EntryFormat::Records,
                next: 0,
                count: self.record_count,
            }),
        }
    }
}

/// The plain records of an entry in their order; after an error nothing more comes. An entry is read
/// whole only if all came without one.
#[derive(Clone, Debug)]
pub struct Records {
    base: Offset,
    rest: Bytes,
    is_framed: bool,
    /// Index of the next record, and of the first that does not exist.
    next: u32,
    count: u32,
}

impl Records {
    /// The next record's bytes; `None` for lengths that do not add up.
    fn cut(&mut self) -> Option<Bytes> {
        let length = if !self.is_framed {
            self.rest.len()
        } else if self.rest.len() >= LENGTH_BYTES {
            self.rest.get_u32_le() as usize
        } else {
            return None;
        };
        let is_last = self.next + 1 == self.count;
        let adds_up = if is_last { length == self.rest.len() } else { length <= self.rest.len() };
        adds_up.then(|| self.rest.split_to(length))
    }
}

impl Iterator for Records {
    type Item = Result<(Offset, Bytes), SplitError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.count {
            return None;
        }
        let offset = self.base.plus(u64::from(self.next));
        match self.cut() {
            Some(value) => {
                self.next += 1;
                Some(Ok((offset, value)))
            }
            None => {
                self.next = self.count;
                Some(Err(SplitError::Framing { offset: self.base }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttemptId, Epoch, HeadVersion};

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

    fn split(entry: &StoredEntry) -> Result<Vec<(Offset, Bytes)>, SplitError> {
        entry.records()?.collect()
    }

    #[test]
    fn records_come_back_with_their_offsets() {
        let batch = stored(Entry::of_records(["a", "", "ccc"], 5).unwrap());
        let expected = [(7, "a"), (8, ""), (9, "ccc")];
        let expected = expected.map(|(offset, value)| (Offset(offset), Bytes::from(value)));
        assert_eq!(split(&batch).unwrap(), expected);
        let one = stored(Entry::of_record(Bytes::from_static(b"one"), 5));
        assert_eq!(split(&one).unwrap(), [(Offset(7), Bytes::from_static(b"one"))]);
        assert_eq!(Entry::of_records(Vec::<&[u8]>::new(), 0), Err(BatchError::Empty));
    }

    #[test]
    fn wrong_framing_is_an_error_at_every_cut_and_beyond_the_end() {
        let damaged = Err(SplitError::Framing { offset: Offset(7) });
        let batch = stored(Entry::of_records(["a", "bb"], 5).unwrap());
        for cut in 0..batch.payload.len() {
            let cut = StoredEntry { payload: batch.payload.slice(..cut), ..batch.clone() };
            assert_eq!(split(&cut), damaged);
        }
        let mut longer = batch.payload.to_vec();
        longer.push(0);
        assert_eq!(split(&StoredEntry { payload: longer.into(), ..batch.clone() }), damaged);
        let foreign = StoredEntry { format: EntryFormat::KafkaBatch, ..batch };
        assert_eq!(split(&foreign), Err(SplitError::Foreign { offset: Offset(7) }));
    }
}
