//! Byte positions in a topic, as the engine counts them: an entry takes its bytes and a header's
//! beside them. Owns how a position is found again; which records there are is the stream's.
//!
//! Positions are counted from the first entry ever appended, so that of an entry never changes. They
//! are not kept: the head counts all bytes and all entries, the journal's index the bytes behind any
//! entry, and both are exact because everything appended here carries its length.

use std::io;

use thetis_types::{Head, Offset};

use super::to_io;
use crate::error::Error;
use crate::records::Record;
use crate::stream::Stream;

/// Bytes of an entry's header: what an entry takes in a topic beside its own bytes. Nothing of this
/// size is stored here; positions and sizes are told in it.
pub const PREFIX_META_SIZE: usize = 256;
/// What an entry takes beside what is stored of it, which begins with its length.
const BESIDE_STORED: u64 = PREFIX_META_SIZE as u64 - size_of::<u32>() as u64;

/// Bytes that `entries` entries take, `stored` bytes being stored of them.
pub(super) fn measure(stored: u64, entries: u64) -> u64 {
    stored.saturating_add(entries.saturating_mul(BESIDE_STORED))
}

fn taken_by(record: &Record) -> u64 {
    (PREFIX_META_SIZE + record.value.len()) as u64
}

/// The entry that has the byte at `position`; `None` at the end and past it. Zero is the first entry
/// that is kept.
pub(super) fn entry_at(stream: &Stream, position: u64) -> io::Result<Option<Offset>> {
    if position == 0 {
        return Ok(Some(stream.start()));
    }
    let head = stream.inner().head();
    if position >= measure(head.bytes, head.end.0) {
        return Ok(None);
    }
    // The batch with that byte, by halves; at each step `low <= it < high`.
    let (mut low, mut high) = (stream.start(), head.end);
    let mut begins_at = measure(head.bytes, head.end.0);
    while low < high {
        let middle = Offset(low.0 + (high.0 - low.0) / 2);
        let headers = stream.inner().headers(middle, 1).map_err(|error| to_io(error.into()))?;
        let Some(header) = headers.first() else { break };
        let first = header.base_offset;
        let next = first.plus(header.record_count.into());
        begins_at = begins(stream, first, head)?;
        if position < begins_at {
            // A trim may have moved on meanwhile, and the header with it.
            high = first.min(middle);
        } else if position >= begins(stream, next, head)? {
            low = next;
        } else {
            return in_batch(stream, first..next, head, position);
        }
    }
    Err(given_back(position, begins_at))
}

/// The position of the batch that begins at `first`.
fn begins(stream: &Stream, first: Offset, head: Head) -> io::Result<u64> {
    let stored = stream.inner().bytes_between(first, head.end);
    let stored = stored.map_err(|error| to_io(error.into()))?;
    let behind = measure(stored, head.end.since(first));
    Ok(measure(head.bytes, head.end.0).saturating_sub(behind))
}

/// The entry of a batch that has the byte at `position`. Counted from the batch's end, because its
/// first entries may be trimmed.
fn in_batch(
    stream: &Stream,
    batch: std::ops::Range<Offset>,
    head: Head,
    position: u64,
) -> io::Result<Option<Offset>> {
    let from = batch.start.max(stream.start());
    let count = usize::try_from(batch.end.since(from)).unwrap_or(usize::MAX);
    let records = stream.read(from).map_err(to_io)?.take(count);
    let records: Vec<Record> = records.collect::<Result<_, Error>>().map_err(to_io)?;
    let kept: u64 = records.iter().map(taken_by).sum();
    let mut at = begins(stream, batch.end, head)?.saturating_sub(kept);
    if position < at {
        return Err(given_back(position, at));
    }
    for record in records {
        at += taken_by(&record);
        if position < at {
            return Ok(Some(record.offset));
        }
    }
    Ok(None)
}

fn given_back(position: u64, start: u64) -> io::Error {
    let what = format!(
        "the entry at byte {position} was given back after it was consumed; read from 0, or from \
         {start} on"
    );
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
