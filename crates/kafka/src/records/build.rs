//! Making batches: for the producer of the command line, for internal topics and for tests.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    ATTRIBUTES_AT, Attributes, BATCH_HEADER_BYTES, BatchError, CRC_AT, Header, LENGTH_END,
};
use super::{MAGIC, compression};
use crate::wire::write_varint;

/// Bytes of records in one batch before compression. Far above what any broker takes, and small
/// enough for every length in a batch to fit its field.
const RECORDS_BYTES_MAX: usize = 1 << 30;

/// Collects records into one batch.
#[derive(Debug)]
pub struct BatchBuilder {
    attributes: Attributes,
    producer: (i64, i16, i32),
    records: BytesMut,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// An empty batch.
    #[must_use]
    pub fn new(attributes: Attributes) -> BatchBuilder {
        BatchBuilder {
            attributes,
            producer: (-1, -1, -1),
            records: BytesMut::new(),
            count: 0,
            base_timestamp: -1,
            max_timestamp: -1,
        }
    }

    /// Names the producer and the sequence of the first record.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> BatchBuilder {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// Records so far.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.count
    }

    /// Bytes of records so far, before compression.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.records.len()
    }

    /// Adds a record. `timestamp` is in milliseconds since 1970.
    ///
    /// # Errors
    /// [`BatchError::TooLarge`] when the records would take more than 1 GiB; the batch is then as
    /// before.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) -> Result<(), BatchError> {
        let base_timestamp = if self.count == 0 { timestamp } else { self.base_timestamp };
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let payload: usize = length(key)
            + length(value)
            + headers
                .iter()
                .map(|header| header.key.len() + length(header.value.as_deref()))
                .sum::<usize>();
        // Each header adds two lengths of at most five bytes, the record itself less than fifty.
        let room = payload.saturating_add(headers.len().saturating_mul(10)).saturating_add(50);
        if room > RECORDS_BYTES_MAX - self.records.len().min(RECORDS_BYTES_MAX) {
            return Err(BatchError::TooLarge { limit: RECORDS_BYTES_MAX });
        }
        let mut record = BytesMut::with_capacity(room);
        record.put_i8(0);
        put_varlong(&mut record, timestamp.wrapping_sub(base_timestamp));
        put_varlong(&mut record, i64::from(self.count));
        put_nullable(&mut record, key);
        put_nullable(&mut record, value);
        put_length(&mut record, headers.len());
        for header in headers {
            put_nullable(&mut record, Some(&header.key));
            put_nullable(&mut record, header.value.as_deref());
        }
        put_length(&mut self.records, record.len());
        self.records.put_slice(&record);
        self.max_timestamp =
            if self.count == 0 { timestamp } else { self.max_timestamp.max(timestamp) };
        self.base_timestamp = base_timestamp;
        self.count += 1;
        Ok(())
    }

    /// The batch, with base offset 0 and leader epoch -1 as a producer sends it.
    ///
    /// # Errors
    /// [`BatchError::Count`] without records, and those of the codec.
    pub fn build(self) -> Result<Bytes, BatchError> {
        let last_offset_delta = self.count - 1;
        if self.count == 0 {
            return Err(BatchError::Count { count: 0, last_offset_delta });
        }
        let records = compression::compress(self.attributes.codec()?, self.records.freeze())?;
        let total = BATCH_HEADER_BYTES + records.len();
        let length = i32::try_from(total - LENGTH_END)
            .map_err(|_too_large| BatchError::TooLarge { limit: RECORDS_BYTES_MAX })?;
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        let mut batch = BytesMut::with_capacity(total);
        batch.put_i64(0);
        batch.put_i32(length);
        batch.put_i32(-1);
        batch.put_i8(MAGIC);
        batch.put_u32(0);
        batch.put_i16(self.attributes.0);
        batch.put_i32(last_offset_delta);
        batch.put_i64(self.base_timestamp);
        batch.put_i64(self.max_timestamp);
        batch.put_i64(producer_id);
        batch.put_i16(producer_epoch);
        batch.put_i32(base_sequence);
        batch.put_i32(self.count);
        batch.put_slice(&records);
        let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
        batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
        Ok(batch.freeze())
    }
}

fn put_varlong(buffer: &mut BytesMut, value: i64) {
    write_varint(buffer, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

fn put_length(buffer: &mut BytesMut, length: usize) {
    put_varlong(buffer, i64::try_from(length).expect("bounded by RECORDS_BYTES_MAX"));
}

fn put_nullable(buffer: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_length(buffer, bytes.len());
            buffer.put_slice(bytes);
        }
        None => put_varlong(buffer, -1),
    }
}
