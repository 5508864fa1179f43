//! Fetch: whole batches from each partition within all the limits, waiting for more if that is
//! asked for. Batches leave as slices of what is stored; only their first sixteen bytes are made
//! anew, with the base offset and leader epoch the checksum does not cover.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use event_listener::EventListener;
use thetis_catalog::Topic;
use thetis_stream::{Read, Stream};
use thetis_types::{EntryFormat, Epoch, Offset, StoredEntry};

use super::metadata::{topic_id, wire_epoch};
use super::{blocking, error};
use crate::broker::Broker;
use crate::records::{BatchHeader, PATCHED_PREFIX_BYTES};
use crate::wire::{
    DivergingEpoch, ErrorCode, FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse,
    FetchTopic, FetchTopicResponse, LeaderIdAndEpoch, Records, Uuid,
};

/// What a fetch in `read_committed` sees; there are no transactions, so the list is empty.
const READ_COMMITTED: i8 = 1;

/// The epoch of a full or first request of a fetch session; others continue one.
const SESSION_EPOCHS_WITHOUT: [i32; 2] = [-1, 0];

/// Longest wait of one request, whatever it asks for.
const WAIT_MAX: Duration = Duration::from_secs(300);

pub(super) async fn fetch(broker: &Broker, request: FetchRequest, version: i16) -> FetchResponse {
    // No sessions are handed out (id 0), so none can be continued.
    if !SESSION_EPOCHS_WITHOUT.contains(&request.session_epoch) || request.session_id != 0 {
        let error_code = ErrorCode::FetchSessionIdNotFound;
        return FetchResponse { error_code, ..FetchResponse::default() };
    }
    let wanted = Wanted::find(broker, &request, version);
    let wait = u64::try_from(request.max_wait_ms).map_or(Duration::ZERO, Duration::from_millis);
    let deadline = tokio::time::sleep(wait.min(WAIT_MAX));
    tokio::pin!(deadline);
    loop {
        // Listen before reading, so that nothing committed in between is slept over.
        let mut news = wanted.listen();
        let (responses, bytes, is_final) = blocking(|| wanted.read(broker, &request));
        let enough = usize::try_from(request.min_bytes).is_ok_and(|min| bytes >= min);
        if is_final || enough || wait.is_zero() || deadline.is_elapsed() || news.is_empty() {
            return FetchResponse { responses, ..FetchResponse::default() };
        }
        std::future::poll_fn(|context| {
            let moved = news.iter_mut().any(|news| Pin::new(news).poll(context).is_ready());
            let late = deadline.as_mut().poll(context).is_ready();
            if moved || late { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The partitions of a request, looked up.
struct Wanted {
    topics: Vec<WantedTopic>,
}

struct WantedTopic {
    name: String,
    id: Uuid,
    topic: Result<Arc<Topic>, ErrorCode>,
    partitions: Vec<FetchPartition>,
}

impl Wanted {
    fn find(broker: &Broker, request: &FetchRequest, version: i16) -> Wanted {
        let look_up = |topic: &FetchTopic| {
            let (found, missing) = if version >= 13 {
                let found = broker.catalog.get_by_id(topic_id(topic.topic_id));
                (found, ErrorCode::UnknownTopicId)
            } else {
                (broker.catalog.get(&topic.topic), ErrorCode::UnknownTopicOrPartition)
            };
            WantedTopic {
                name: topic.topic.clone(),
                id: topic.topic_id,
                topic: found.ok_or(missing),
                partitions: topic.partitions.clone(),
            }
        };
        Wanted { topics: request.topics.iter().map(look_up).collect() }
    }

    fn listen(&self) -> Vec<EventListener> {
        let mut news = Vec::new();
        for wanted in &self.topics {
            let Ok(topic) = &wanted.topic else { continue };
            let streams = wanted.partitions.iter().filter_map(|p| topic.partition(p.partition));
            news.extend(streams.map(Stream::listen));
        }
        news
    }

    /// Reads in the order of the request. Returns the answer, its bytes of records, and whether it
    /// must be sent as it is, because a partition has an error to tell.
    fn read(
        &self,
        broker: &Broker,
        request: &FetchRequest,
    ) -> (Vec<FetchTopicResponse>, usize, bool) {
        let asked = usize::try_from(request.max_bytes).unwrap_or(0);
        let mut budget = Budget { left: asked.min(broker.settings.fetch_bytes_max), read: 0 };
        let mut is_final = false;
        let mut responses = Vec::with_capacity(self.topics.len());
        for wanted in &self.topics {
            let mut partitions = Vec::with_capacity(wanted.partitions.len());
            for partition in &wanted.partitions {
                let read = wanted
                    .topic
                    .as_ref()
                    .map_err(|code| *code)
                    .and_then(|topic| {
                        let stream = topic.partition(partition.partition);
                        stream.ok_or(ErrorCode::UnknownTopicOrPartition)
                    })
                    .and_then(|stream| one(stream, partition, &mut budget));
                let mut response = read.unwrap_or_else(|error_code| FetchPartitionResponse {
                    error_code,
                    high_watermark: -1,
                    ..FetchPartitionResponse::default()
                });
                response.partition_index = partition.partition;
                let has_diverged = response.diverging_epoch != DivergingEpoch::default();
                is_final |= response.error_code != ErrorCode::None || has_diverged;
                if request.isolation_level == READ_COMMITTED {
                    response.aborted_transactions = Some(Vec::new());
                }
                if response.error_code == ErrorCode::NotLeaderOrFollower {
                    let leader_id = broker.settings.node_id;
                    response.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch: -1 };
                }
                partitions.push(response);
            }
            responses.push(FetchTopicResponse {
                topic: wanted.name.clone(),
                topic_id: wanted.id,
                partitions,
            });
        }
        (responses, budget.read, is_final)
    }
}

/// What may still be read for one answer.
struct Budget {
    left: usize,
    read: usize,
}

fn one(
    stream: &Stream,
    asked: &FetchPartition,
    budget: &mut Budget,
) -> Result<FetchPartitionResponse, ErrorCode> {
    check_epoch(stream, asked.current_leader_epoch)?;
    let from = u64::try_from(asked.fetch_offset).map_err(|_| ErrorCode::OffsetOutOfRange)?;
    let mut response = FetchPartitionResponse::default();
    if asked.last_fetched_epoch >= 0
        && let Some(diverging) = divergence(stream, asked)
    {
        response.diverging_epoch = diverging;
    }
    let partition_max = usize::try_from(asked.partition_max_bytes).unwrap_or(0);
    let bytes_max = partition_max.min(budget.left);
    let has_diverged = response.diverging_epoch != DivergingEpoch::default();
    // The first batch of the answer is given whatever its size (KIP-74); later ones must fit.
    if !has_diverged && (budget.read == 0 || bytes_max > 0) {
        match stream.read(Offset(from), bytes_max).map_err(|failed| damaged(stream, &failed))? {
            Read::Entries(entries) => {
                let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
                if budget.read == 0 || bytes <= bytes_max {
                    response.records = batches(stream, entries)?;
                    budget.left = budget.left.saturating_sub(bytes);
                    budget.read += bytes;
                }
            }
            Read::End(end) if from > end.0 => return Err(ErrorCode::OffsetOutOfRange),
            Read::End(_) => {}
            Read::Trimmed(_) => return Err(ErrorCode::OffsetOutOfRange),
        }
    }
    // After the read, so that what was read lies below.
    let end = stream.committed_end().0.cast_signed();
    response.high_watermark = end;
    response.last_stable_offset = end;
    response.log_start_offset = stream.trim_offset().0.cast_signed();
    Ok(response)
}

/// A client that knows another epoch than ours looks at another history.
pub(super) fn check_epoch(stream: &Stream, known: i32) -> Result<(), ErrorCode> {
    let current = wire_epoch(stream.epoch());
    match known {
        -1 => Ok(()),
        known if known < current => Err(ErrorCode::FencedLeaderEpoch),
        known if known > current => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// Where the reader's history parts from ours: it has read past the end of its last epoch.
fn divergence(stream: &Stream, asked: &FetchPartition) -> Option<DivergingEpoch> {
    let epoch = Epoch(u32::try_from(asked.last_fetched_epoch).unwrap_or(0));
    let (found, end) = stream.epoch_end(epoch)?;
    let (found, end_offset) = (wire_epoch(found), end.0.cast_signed());
    let parted = found < asked.last_fetched_epoch || end_offset < asked.fetch_offset;
    parted.then_some(DivergingEpoch { epoch: found, end_offset })
}

pub(super) fn damaged(stream: &Stream, failed: &thetis_stream::ReadError) -> ErrorCode {
    tracing::error!(stream = %stream.id(), error = %failed, "a read failed");
    error::of_read(failed)
}

fn batches(stream: &Stream, entries: Vec<StoredEntry>) -> Result<Records, ErrorCode> {
    let mut parts = Vec::with_capacity(2 * entries.len());
    for entry in entries {
        if entry.format != EntryFormat::KafkaBatch {
            // Topics of the library are read through the library.
            return Err(ErrorCode::UnsupportedForMessageFormat);
        }
        let header = BatchHeader::read(&entry.payload).map_err(|fault| {
            tracing::error!(stream = %stream.id(), offset = %entry.base_offset, error = %fault, "a stored batch cannot be read");
            ErrorCode::KafkaStorageError
        })?;
        let base_offset = entry.base_offset.0.cast_signed();
        let prefix = header.patched_prefix(base_offset, wire_epoch(entry.epoch));
        parts.push(Bytes::copy_from_slice(&prefix));
        parts.push(entry.payload.slice(PATCHED_PREFIX_BYTES..));
    }
    Ok(Records { parts })
}
