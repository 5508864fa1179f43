//! Produce and InitProducerId. Batches are checked as a broker checks them, stored byte for byte,
//! and never expanded on the way, unless the topic's own configuration needs a look at records.

use bytes::{Bytes, BytesMut};
use thetis_catalog::{Format, Topic};
use thetis_stream::Appending;
use thetis_types::{Entry, EntryFormat};

use super::error;
use crate::broker::Broker;
use crate::partition::Placed;
use crate::records::{self, Batch, BatchError, BatchHeader, Codec};
use crate::session::SessionError;
use crate::wire::{
    ErrorCode, InitProducerIdRequest, InitProducerIdResponse, ProducePartition,
    ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse, RecordError,
    Response,
};

/// Bytes the records of one batch may expand to while a topic's configuration needs a look at them.
const EXPANDED_BYTES_MAX: usize = 256 << 20;

/// First version of Produce in which batches may be compressed with zstd.
const ZSTD_VERSION_MIN: i16 = 7;

/// A Produce request whose batches are with their streams.
pub(crate) struct PlacedProduce {
    acks: i16,
    topics: Vec<(String, Vec<PlacedPartition>)>,
}

struct PlacedPartition {
    index: i32,
    outcome: Result<PlacedBatch, Refused>,
    log_start_offset: i64,
}

enum PlacedBatch {
    New { appending: Appending, log_append_time_ms: i64 },
    Duplicate { base_offset: i64, log_append_time_ms: i64 },
}

struct Refused {
    code: ErrorCode,
    message: Option<String>,
    records: Vec<RecordError>,
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Refused {
        Refused { code, message: None, records: Vec::new() }
    }
}

impl From<BatchError> for Refused {
    fn from(fault: BatchError) -> Refused {
        let message = Some(fault.to_string());
        Refused { code: fault.error_code(), message, records: Vec::new() }
    }
}

/// Hands the batches of a request to their streams, in order.
pub(crate) fn place(broker: &Broker, request: ProduceRequest, version: i16) -> PlacedProduce {
    let acks = request.acks;
    let is_transactional = request.transactional_id.is_some();
    let topics = request.topic_data.into_iter().map(|topic| {
        let found = broker.catalog.get(&topic.name);
        let partitions = topic.partition_data.into_iter().map(|partition| {
            let index = partition.index;
            let stream = found.as_ref().and_then(|topic| topic.partition(index));
            let log_start_offset = stream.map_or(-1, |s| s.trim_offset().0.cast_signed());
            let outcome = if !matches!(acks, -1..=1) {
                Err(ErrorCode::InvalidRequiredAcks.into())
            } else if is_transactional {
                let message = Some("transactions are not served".to_owned());
                Err(Refused { code: ErrorCode::InvalidRequest, message, records: Vec::new() })
            } else {
                match &found {
                    Some(topic) => place_one(broker, topic, partition, version),
                    None => Err(ErrorCode::UnknownTopicOrPartition.into()),
                }
            };
            PlacedPartition { index, outcome, log_start_offset }
        });
        let partitions = partitions.collect();
        (topic.name, partitions)
    });
    PlacedProduce { acks, topics: topics.collect() }
}

fn place_one(
    broker: &Broker,
    topic: &Topic,
    partition: ProducePartition,
    version: i16,
) -> Result<PlacedBatch, Refused> {
    let stream = topic.partition(partition.index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if topic.format != Format::Kafka {
        let message = Some("the topic is written by the library, not by Kafka clients".to_owned());
        return Err(Refused { code: ErrorCode::InvalidRequest, message, records: Vec::new() });
    }
    let bytes = partition.records.unwrap_or_default();
    let header = records::validate(&bytes)?;
    if header.attributes.is_transactional() {
        let message = Some("transactions are not served".to_owned());
        return Err(Refused { code: ErrorCode::InvalidRequest, message, records: Vec::new() });
    }
    if header.attributes.codec()? == Codec::Zstd && version < ZSTD_VERSION_MIN {
        return Err(ErrorCode::UnsupportedCompressionType.into());
    }
    let now_ms = broker.catalog.store().clock().wall_ms();
    check_topic_rules(topic, &header, &bytes, now_ms)?;
    let (payload, max_timestamp, log_append_time_ms) = stamp(topic, &header, bytes, now_ms)?;
    let entry = Entry {
        record_count: header.record_count.cast_unsigned(),
        max_timestamp,
        format: EntryFormat::KafkaBatch,
        payload,
    };
    let partition = broker.partition(stream);
    let placed = partition.append(&header, entry, now_ms, broker.catalog.store().meta());
    match placed.map_err(|refused| Refused::from_partition(&refused))? {
        Placed::New(appending) => Ok(PlacedBatch::New { appending, log_append_time_ms }),
        Placed::Duplicate { base_offset, timestamp_ms } => Ok(PlacedBatch::Duplicate {
            base_offset,
            log_append_time_ms: if log_append_time_ms < 0 { -1 } else { timestamp_ms },
        }),
    }
}

impl Refused {
    fn from_partition(refused: &crate::partition::Refused) -> Refused {
        use crate::partition::Refused as Partition;
        let code = match refused {
            Partition::Sequence(refusal) => {
                ErrorCode::from_code(refusal.number()).unwrap_or(ErrorCode::UnknownServerError)
            }
            Partition::Append(failed) => error::of_append(failed),
            Partition::Load(_) => ErrorCode::KafkaStorageError,
            Partition::InFlight => ErrorCode::RequestTimedOut,
        };
        Refused { code, message: Some(refused.to_string()), records: Vec::new() }
    }
}

/// What the topic's configuration demands of a batch.
fn check_topic_rules(
    topic: &Topic,
    header: &BatchHeader,
    bytes: &Bytes,
    now_ms: i64,
) -> Result<(), Refused> {
    let configs = topic.configs();
    let max = configs.number("max.message.bytes");
    if i64::try_from(bytes.len()).unwrap_or(i64::MAX) > max {
        let message = Some(format!(
            "a batch of {} bytes is over the topic's max.message.bytes of {max}",
            bytes.len()
        ));
        return Err(Refused { code: ErrorCode::MessageTooLarge, message, records: Vec::new() });
    }
    if configs.get("message.timestamp.type") == "CreateTime" && header.max_timestamp >= 0 {
        let after = header.max_timestamp.saturating_sub(now_ms);
        let before = now_ms.saturating_sub(header.base_timestamp);
        if after > configs.number("message.timestamp.after.max.ms")
            || before > configs.number("message.timestamp.before.max.ms")
        {
            let message = Some(format!(
                "timestamps up to {} are outside what the topic allows around {now_ms}",
                header.max_timestamp
            ));
            return Err(Refused {
                code: ErrorCode::InvalidTimestamp,
                message,
                records: Vec::new(),
            });
        }
    }
    if configs.get("cleanup.policy").split(',').any(|policy| policy.trim() == "compact") {
        check_keys(header, bytes)?;
    }
    Ok(())
}

/// A compacted topic is nothing without keys. Every record at fault is named, so that a producer can
/// tell it from the ones that only shared its batch.
fn check_keys(header: &BatchHeader, bytes: &Bytes) -> Result<(), Refused> {
    let why = "a record of a compacted topic needs a key".to_owned();
    let batch = Batch { header: *header, bytes: bytes.clone() };
    let mut records = Vec::new();
    for (batch_index, record) in (0..).zip(batch.records(EXPANDED_BYTES_MAX)?) {
        if record?.key.is_none() {
            let batch_index_error_message = Some(why.clone());
            records.push(RecordError { batch_index, batch_index_error_message });
        }
    }
    match records.is_empty() {
        true => Ok(()),
        false => Err(Refused { code: ErrorCode::InvalidRecord, message: Some(why), records }),
    }
}

/// The bytes to store, their largest timestamp, and the time of the append where the topic's
/// configuration makes that the time of the records (else -1).
fn stamp(
    topic: &Topic,
    header: &BatchHeader,
    bytes: Bytes,
    now_ms: i64,
) -> Result<(Bytes, i64, i64), Refused> {
    if topic.configs().get("message.timestamp.type") != "LogAppendTime" {
        return Ok((bytes, header.max_timestamp, -1));
    }
    let mut stamped = BytesMut::from(&bytes[..]);
    records::stamp_append_time(&mut stamped, now_ms)?;
    Ok((stamped.freeze(), now_ms, now_ms))
}

impl PlacedProduce {
    /// Waits until all batches are committed, or known not to be.
    pub(crate) async fn answer(self) -> Result<Option<Response>, SessionError> {
        let mut responses = Vec::with_capacity(self.topics.len());
        let mut all_done = true;
        for (name, partitions) in self.topics {
            let mut partition_responses = Vec::with_capacity(partitions.len());
            for partition in partitions {
                // Also with acks=0: nobody waits for the answer, but a request that comes later on
                // the same connection sees what this one stored.
                let response =
                    settle(partition.index, partition.outcome, partition.log_start_offset).await;
                all_done &= response.error_code == ErrorCode::None;
                partition_responses.push(response);
            }
            responses.push(ProduceTopicResponse { name, partition_responses });
        }
        match self.acks {
            0 if all_done => Ok(None),
            0 => Err(SessionError::SilentProduce),
            _ => Ok(Some(ProduceResponse { responses, ..ProduceResponse::default() }.into())),
        }
    }
}

async fn settle(
    index: i32,
    outcome: Result<PlacedBatch, Refused>,
    log_start_offset: i64,
) -> ProducePartitionResponse {
    let done = |base_offset: i64, log_append_time_ms: i64| ProducePartitionResponse {
        index,
        base_offset,
        log_append_time_ms,
        log_start_offset,
        ..ProducePartitionResponse::default()
    };
    let refused = |refused: Refused| ProducePartitionResponse {
        index,
        error_code: refused.code,
        base_offset: -1,
        log_start_offset,
        record_errors: refused.records,
        error_message: refused.message,
        ..ProducePartitionResponse::default()
    };
    match outcome {
        Ok(PlacedBatch::Duplicate { base_offset, log_append_time_ms }) => {
            done(base_offset, log_append_time_ms)
        }
        Ok(PlacedBatch::New { appending, log_append_time_ms }) => match appending.await {
            Ok(receipt) => done(receipt.range.start.0.cast_signed(), log_append_time_ms),
            Err(failed) => refused(Refused {
                code: error::of_append(&failed),
                message: Some(failed.to_string()),
                records: Vec::new(),
            }),
        },
        Err(fault) => refused(fault),
    }
}

pub(super) fn init_producer_id(
    broker: &Broker,
    request: &InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |error_code| InitProducerIdResponse {
        error_code,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    };
    if request.transactional_id.is_some() {
        return refused(ErrorCode::InvalidRequest);
    }
    match broker.next_producer_id() {
        Ok(producer_id) => InitProducerIdResponse { producer_id, ..Default::default() },
        Err(failed) => {
            tracing::warn!(error = %failed, "no producer id could be reserved");
            refused(ErrorCode::CoordinatorNotAvailable)
        }
    }
}
