//! Reading the records of a batch: slices of the expanded bytes, nothing copied.
//!
//! Lengths are signed variable-length integers; -1 is null. A record is length, attributes (one
//! byte, unused), timestamp delta, offset delta, key, value, then counted headers of key and value.

use bytes::Bytes;

use super::{BatchError, BatchHeader};
use crate::wire::read_varint;

/// Fewest bytes of a record: seven fields of one byte.
const RECORD_BYTES_MIN: usize = 7;
/// Fewest bytes of a header of a record: two lengths.
const HEADER_BYTES_MIN: usize = 2;

/// A header of a record. Keys may repeat; order and repetition are kept.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Header {
    /// Meant to be UTF-8; kept as it is.
    pub key: Bytes,
    /// Null and empty are different things.
    pub value: Option<Bytes>,
}

/// One record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Its offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970: the producer's, or the broker's under log append time.
    pub timestamp: i64,
    /// Null and empty are different things.
    pub key: Option<Bytes>,
    /// Null is a tombstone in a compacted topic.
    pub value: Option<Bytes>,
    /// In the order of the producer.
    pub headers: Vec<Header>,
}

/// The records of one batch, in order. A fault ends the iteration.
#[derive(Clone, Debug)]
pub struct RecordReader {
    header: BatchHeader,
    body: Bytes,
    at: usize,
    index: u32,
    count: u32,
}

type Field<T> = Result<T, &'static str>;

impl RecordReader {
    /// The records in `body`, which is expanded.
    pub(super) fn new(header: BatchHeader, body: Bytes) -> Result<RecordReader, BatchError> {
        let BatchHeader { record_count, last_offset_delta, .. } = header;
        let fault = BatchError::Count { count: record_count, last_offset_delta };
        let Ok(count) = u32::try_from(record_count) else { return Err(fault) };
        if count as usize > body.len() / RECORD_BYTES_MIN {
            return Err(fault);
        }
        Ok(RecordReader { header, body, at: 0, index: 0, count })
    }

    fn take(&mut self, length: usize, end: usize) -> Field<Bytes> {
        if length > end - self.at {
            return Err("a length reaches beyond the record");
        }
        let start = self.at;
        self.at += length;
        Ok(self.body.slice(start..self.at))
    }

    fn varlong(&mut self, end: usize) -> Field<i64> {
        let (raw, taken) = read_varint(&self.body[self.at..end], 10)
            .ok_or("a variable-length integer does not end")?;
        self.at += taken;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    fn varint(&mut self, end: usize) -> Field<i32> {
        let value = self.varlong(end)?;
        i32::try_from(value).map_err(|_too_large| "an integer does not fit 32 bits")
    }

    /// Bytes behind a length; -1 is null.
    fn nullable(&mut self, end: usize) -> Field<Option<Bytes>> {
        match self.varint(end)? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_negative| "a length is negative")?;
                self.take(length, end).map(Some)
            }
        }
    }

    fn record(&mut self) -> Field<Record> {
        let length = self.varint(self.body.len())?;
        let length =
            usize::try_from(length).map_err(|_negative| "the record's length is negative")?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.body.len());
        let end = end.ok_or("the record reaches beyond the batch")?;
        self.take(1, end)?;
        let timestamp_delta = self.varlong(end)?;
        let offset_delta = self.varint(end)?;
        let key = self.nullable(end)?;
        let value = self.nullable(end)?;
        let count =
            usize::try_from(self.varint(end)?).map_err(|_negative| "negative header count")?;
        if count > (end - self.at) / HEADER_BYTES_MIN {
            return Err("more headers than the record can hold");
        }
        let mut headers = Vec::with_capacity(count);
        for _ in 0..count {
            let key = self.nullable(end)?.ok_or("a header has no key")?;
            headers.push(Header { key, value: self.nullable(end)? });
        }
        if self.at != end {
            return Err("the record is longer than its fields");
        }
        let timestamp = if self.header.attributes.is_log_append_time() {
            self.header.max_timestamp
        } else {
            self.header.base_timestamp.wrapping_add(timestamp_delta)
        };
        let offset = self.header.base_offset.wrapping_add(i64::from(offset_delta));
        Ok(Record { offset, timestamp, key, value, headers })
    }
}

impl Iterator for RecordReader {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (index, at) = (self.index, self.at);
        let record = if index < self.count {
            self.record()
        } else if at < self.body.len() {
            Err("bytes are left after the last record")
        } else {
            return None;
        };
        self.index += 1;
        match record {
            Ok(record) => Some(Ok(record)),
            Err(what) => {
                let at = self.at;
                self.count = 0;
                self.at = self.body.len();
                Some(Err(BatchError::Record { index, at, what }))
            }
        }
    }
}
