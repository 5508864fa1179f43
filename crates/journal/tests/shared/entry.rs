//! The next entry of a stream, for tests that do not care which. Each test file has its own bytes.

use bytes::Bytes;
use thetis_journal::{Append, AppendError, Log, Position};
use thetis_types::{AttemptId, Entry, EntryFormat, Epoch};

/// Appends the bytes that `payload` makes of the offset they get, as one record.
pub(crate) fn append_next(
    log: &Log,
    payload: impl Fn(u64) -> Bytes,
) -> Result<Position, AppendError> {
    let head = log.head().unwrap_or_default();
    let entry = Entry {
        record_count: 1,
        max_timestamp: 5,
        format: EntryFormat::Record,
        payload: payload(head.end.0),
    };
    log.append(&[Append {
        epoch: Epoch(1),
        version: head.version.next(),
        base_offset: head.end,
        attempt: AttemptId::NONE,
        entry: &entry,
    }])
}
