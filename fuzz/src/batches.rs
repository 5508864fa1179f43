//! Record batches: cut, checked, expanded and iterated as a broker and a consumer do.

use bytes::Bytes;
use thetis_kafka::records::{
    Attributes, BATCH_HEADER_BYTES, Batch, BatchBuilder, Batches, Codec, Record, stamp_append_time,
    validate,
};

use crate::input::Input;

/// Bytes a batch may expand to here: enough for every path, little enough for many runs.
const EXPANDED_BYTES_MAX: usize = 1 << 20;
/// Where length and checksum of a batch stand, and where what the checksum covers begins.
const LENGTH_AT: usize = 8;
const CRC_AT: usize = 17;
const COVERED_AT: usize = 21;

/// One byte saying whether checksums are to be made right, then a blob of batches.
pub fn record_batches(data: &[u8]) {
    let mut input = Input::new(data);
    let repairs = input.byte() & 1 == 1;
    let mut blob = input.rest().to_vec();
    if repairs {
        repair(&mut blob);
    }
    for batch in Batches::new(blob.into()) {
        let Ok(batch) = batch else { return };
        let accepted = validate(&batch.bytes).is_ok();
        if accepted {
            batch.verify().expect("an accepted batch has the right checksum");
        }
        if let Some(records) = read(&batch) {
            build_again(&records);
        }
        let mut stamped = batch.bytes.to_vec();
        stamp_append_time(&mut stamped, 7).expect("exactly one batch");
        let header = match validate(&stamped) {
            Ok(header) => header,
            Err(error) if accepted => panic!("a stamped batch is refused: {error}"),
            Err(_) => continue,
        };
        assert!(header.attributes.is_log_append_time() && header.max_timestamp == 7);
        let again = read(&Batch { header, bytes: stamped.into() });
        if let Some(records) = again {
            assert!(records.iter().all(|record| record.timestamp == 7));
        }
    }
}

/// The records, if all of them can be read.
fn read(batch: &Batch) -> Option<Vec<Record>> {
    let reader = batch.records(EXPANDED_BYTES_MAX).ok()?;
    let mut records = Vec::new();
    for record in reader {
        records.push(record.ok()?);
    }
    assert_eq!(i64::try_from(records.len()), Ok(i64::from(batch.header.record_count.max(0))));
    let bytes: usize =
        records.iter().map(|record| record.value.as_ref().map_or(0, Bytes::len)).sum();
    assert!(bytes <= EXPANDED_BYTES_MAX.max(batch.bytes.len()), "more than was allowed");
    Some(records)
}

/// Records make a batch that reads as the same records, whatever the codec.
fn build_again(records: &[Record]) {
    if records.is_empty() {
        return;
    }
    for codec in Codec::ALL {
        let mut builder = BatchBuilder::new(Attributes::new(codec));
        for Record { timestamp, key, value, headers, .. } in records {
            builder
                .push(*timestamp, key.as_deref(), value.as_deref(), headers)
                .expect("records of a small batch");
        }
        let bytes = builder.build().expect("a batch with records");
        let header = validate(&bytes).expect("a batch just built");
        let again = read(&Batch { header, bytes }).expect("records just written");
        for (index, (again, record)) in again.iter().zip(records).enumerate() {
            assert_eq!(Ok(again.offset), i64::try_from(index));
            assert_eq!(Record { offset: record.offset, ..again.clone() }, *record);
        }
    }
}

/// Makes the checksum of every batch right, so that what is behind it is reached.
fn repair(blob: &mut [u8]) {
    let mut rest = blob;
    while rest.len() >= BATCH_HEADER_BYTES {
        let length = &rest[LENGTH_AT..LENGTH_AT + 4];
        let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
        let total = usize::try_from(length).unwrap_or(0).saturating_add(LENGTH_AT + 4);
        if total < BATCH_HEADER_BYTES || total > rest.len() {
            return;
        }
        let (batch, after) = rest.split_at_mut(total);
        let crc = crc32c::crc32c(&batch[COVERED_AT..]);
        batch[CRC_AT..COVERED_AT].copy_from_slice(&crc.to_be_bytes());
        rest = after;
    }
}
