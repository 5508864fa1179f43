//! Records to batches and back, on top of the codec. Owns the limit on what one batch may expand to
//! and the rule that every checksum is compared before a record is shown.

use bytes::{Bytes, BytesMut};
use thetis_kafka::records::{Attributes, BatchBuilder, BatchError, Batches, Codec, Record};
use thetis_kafka::wire::Records;

/// Bytes one batch may expand to; what is larger is refused rather than held.
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// A record to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewRecord {
    /// Null and empty are different things.
    pub(crate) key: Option<Bytes>,
    /// The record itself.
    pub(crate) value: Bytes,
    /// Milliseconds since 1970.
    pub(crate) timestamp: i64,
}

impl NewRecord {
    /// Bytes of key and value.
    pub(super) fn content_bytes(&self) -> usize {
        self.key.as_ref().map_or(0, Bytes::len) + self.value.len()
    }
}

/// Who writes a batch, so that the server knows it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    /// The producer.
    pub(super) id: i64,
    /// Its epoch.
    pub(super) epoch: i16,
    /// Sequence of the first record.
    pub(super) sequence: i32,
}

/// One batch of these records.
pub(super) fn seal(
    records: &[NewRecord],
    stamp: Option<Stamp>,
    codec: Codec,
) -> Result<Bytes, BatchError> {
    let mut builder = BatchBuilder::new(Attributes::new(codec));
    if let Some(Stamp { id, epoch, sequence }) = stamp {
        builder = builder.producer(id, epoch, sequence);
    }
    for record in records {
        builder.push(record.timestamp, record.key.as_deref(), Some(&record.value), &[])?;
    }
    builder.build()
}

/// What a partition's share of an answer holds.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// Its records, markers of transactions left out.
    pub(super) records: Vec<Record>,
    /// Offset after its last whole batch; `None` when there is none.
    pub(super) next_offset: Option<i64>,
}

/// A batch that cannot be read, and where it begins (-1 when that cannot be read either).
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) offset: i64,
    pub(super) error: BatchError,
}

/// Takes the batches of an answer apart. A last batch that the server cut short is left for the
/// next request.
pub(super) fn open(records: &Records) -> Result<Opened, Unreadable> {
    let blob = match records.parts.as_slice() {
        [] => return Ok(Opened::default()),
        [one] => one.clone(),
        many => many
            .iter()
            .fold(BytesMut::new(), |mut all, part| {
                all.extend_from_slice(part);
                all
            })
            .freeze(),
    };
    let mut opened = Opened::default();
    for batch in Batches::new(blob) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(BatchError::Truncated { .. }) if opened.next_offset.is_some() => break,
            Err(error) => {
                return Err(Unreadable { offset: opened.next_offset.unwrap_or(-1), error });
            }
        };
        let offset = batch.header.base_offset;
        let unreadable = |error| Unreadable { offset, error };
        batch.verify().map_err(unreadable)?;
        if !batch.header.attributes.is_control() {
            for record in batch.records(EXPANDED_BYTES_MAX).map_err(unreadable)? {
                opened.records.push(record.map_err(unreadable)?);
            }
        }
        opened.next_offset = Some(batch.header.last_offset().saturating_add(1));
    }
    Ok(opened)
}
