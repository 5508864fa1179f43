//! Where to read: ListOffsets and OffsetForLeaderEpoch.

use thetis_stream::{Read, Stream};
use thetis_types::{EntryFormat, Epoch, Offset, StoredEntry};

use super::fetch::{check_epoch, damaged};
use super::metadata::{leader_epoch, wire_epoch};
use crate::broker::Broker;
use crate::records::{BatchError, Batches};
use crate::wire::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, EpochEndOffset, ErrorCode,
    LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsPartitionResponse,
    ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse, MAX_TIMESTAMP,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
};

/// Bytes the records of one batch may expand to while one of them is looked for.
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// An offset as ListOffsets gives it: with its timestamp and epoch, -1 where there is none.
#[derive(Clone, Copy)]
struct Found {
    offset: i64,
    timestamp: i64,
    leader_epoch: i32,
}

impl Found {
    const NONE: Found = Found { offset: -1, timestamp: -1, leader_epoch: -1 };

    fn bare(stream: &Stream, offset: Offset) -> Found {
        let leader_epoch = leader_epoch(stream);
        Found { offset: offset.0.cast_signed(), timestamp: -1, leader_epoch }
    }
}

pub(super) fn list(broker: &Broker, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let topics = request.topics.into_iter().map(|asked| {
        let topic = broker.catalog.get(&asked.name);
        let partitions = asked.partitions.into_iter().map(|partition| {
            let stream = topic.as_ref().and_then(|t| t.partition(partition.partition_index));
            let found = stream
                .ok_or(ErrorCode::UnknownTopicOrPartition)
                .and_then(|stream| look_up(stream, &partition));
            let (error_code, found) = match found {
                Ok(found) => (ErrorCode::None, found),
                Err(code) => (code, Found::NONE),
            };
            ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                error_code,
                timestamp: found.timestamp,
                offset: found.offset,
                leader_epoch: found.leader_epoch,
            }
        });
        ListOffsetsTopicResponse { partitions: partitions.collect(), name: asked.name }
    });
    ListOffsetsResponse { topics: topics.collect(), ..ListOffsetsResponse::default() }
}

fn look_up(stream: &Stream, asked: &ListOffsetsPartition) -> Result<Found, ErrorCode> {
    check_epoch(stream, asked.current_leader_epoch)?;
    match asked.timestamp {
        LATEST_TIMESTAMP => Ok(Found::bare(stream, stream.committed_end())),
        EARLIEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP => {
            Ok(Found::bare(stream, stream.trim_offset()))
        }
        // Nothing is tiered.
        LATEST_TIERED_TIMESTAMP => Ok(Found::NONE),
        MAX_TIMESTAMP => {
            let max = stream.max_time().map_err(|failed| damaged(stream, &failed))?;
            max.map_or(Ok(Found::NONE), |(_, timestamp)| first_at(stream, timestamp))
        }
        timestamp if timestamp >= 0 => first_at(stream, timestamp),
        _ => Err(ErrorCode::UnsupportedVersion),
    }
}

/// The first readable record, in offset order, whose own timestamp is at least `timestamp`.
fn first_at(stream: &Stream, timestamp: i64) -> Result<Found, ErrorCode> {
    let first = stream.first_at_time(timestamp).map_err(|failed| damaged(stream, &failed))?;
    let Some(mut at) = first else { return Ok(Found::NONE) };
    let trim = stream.trim_offset();
    // The entry that covers the trim offset may have its only such record below it; then the next
    // entries are asked.
    loop {
        let at_or_after = at.max(trim);
        let read = stream.read(at_or_after, 1).map_err(|failed| damaged(stream, &failed))?;
        let entries = match read {
            Read::Entries(entries) => entries,
            Read::End(_) => return Ok(Found::NONE),
            Read::Trimmed(_) => return first_at(stream, timestamp),
        };
        for entry in entries {
            at = entry.range().end;
            if entry.max_timestamp < timestamp {
                continue;
            }
            let found = in_entry(&entry, at_or_after, timestamp).map_err(|fault| {
                tracing::error!(stream = %stream.id(), offset = %entry.base_offset, error = %fault, "a stored batch cannot be searched");
                ErrorCode::KafkaStorageError
            })?;
            if let Some((offset, timestamp)) = found {
                return Ok(Found { offset, timestamp, leader_epoch: wire_epoch(entry.epoch) });
            }
        }
    }
}

fn in_entry(
    entry: &StoredEntry,
    from: Offset,
    timestamp: i64,
) -> Result<Option<(i64, i64)>, BatchError> {
    let base = entry.base_offset.0.cast_signed();
    if entry.format != EntryFormat::KafkaBatch {
        let offset = from.max(entry.base_offset).0.cast_signed();
        return Ok(Some((offset, entry.max_timestamp)));
    }
    for batch in Batches::new(entry.payload.clone()) {
        let batch = batch?;
        // The batch is stored as its producer sent it, counting from its own base offset.
        let shift = base - batch.header.base_offset;
        for record in batch.records(EXPANDED_BYTES_MAX)? {
            let record = record?;
            let offset = record.offset + shift;
            if record.timestamp >= timestamp && offset >= from.0.cast_signed() {
                return Ok(Some((offset, record.timestamp)));
            }
        }
    }
    Ok(None)
}

pub(super) fn for_leader_epoch(
    broker: &Broker,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|asked| {
        let topic = broker.catalog.get(&asked.topic);
        let partitions = asked.partitions.into_iter().map(|partition| {
            let stream = topic.as_ref().and_then(|t| t.partition(partition.partition));
            let found = stream
                .ok_or(ErrorCode::UnknownTopicOrPartition)
                .and_then(|stream| end_of_epoch(stream, &partition));
            let (error_code, (leader_epoch, end_offset)) = match found {
                Ok(found) => (ErrorCode::None, found),
                Err(code) => (code, (-1, -1)),
            };
            EpochEndOffset { error_code, partition: partition.partition, leader_epoch, end_offset }
        });
        OffsetForLeaderTopicResult { partitions: partitions.collect(), topic: asked.topic }
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
}

fn end_of_epoch(
    stream: &Stream,
    asked: &OffsetForLeaderPartition,
) -> Result<(i32, i64), ErrorCode> {
    check_epoch(stream, asked.current_leader_epoch)?;
    let Ok(epoch) = u32::try_from(asked.leader_epoch) else { return Ok((-1, -1)) };
    if Epoch(epoch) > stream.epoch() {
        return Ok((-1, -1));
    }
    let found = stream.epoch_end(Epoch(epoch));
    // Where nothing of that epoch or a lower one is left, what is left is of higher ones.
    let (epoch, end) = found.unwrap_or((Epoch(epoch), stream.trim_offset()));
    Ok((wire_epoch(epoch), end.0.cast_signed()))
}
