//! Reading records from the partitions of one topic, without a group. Owns positions: where to
//! start, where to go on, where to end.

use std::collections::BTreeMap;
use std::time::Duration;

use thetis_kafka::records::Record;
use thetis_kafka::wire::{
    EARLIEST_TIMESTAMP, ErrorCode, FetchPartition, FetchPartitionResponse, FetchRequest,
    FetchTopic, LATEST_TIMESTAMP,
};

use super::batches::{self, Unreadable};
use super::topics::{Topic, by_leader, wait_ms};
use super::{Client, ClientError};

/// How long a server may hold a fetch that finds nothing. A new record ends the wait at once.
const FETCH_WAIT: Duration = Duration::from_secs(5);
/// Bytes of one answer, unless its first batch is larger.
const FETCH_BYTES_MAX: i32 = 16 << 20;
/// Bytes of one partition in an answer, unless its first batch is larger.
const PARTITION_BYTES_MAX: i32 = 1 << 20;
/// Highest version of Fetch this client knows: later ones name topics by id.
const FETCH_VERSION_MAX: i16 = 12;

/// Where to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// At the first record there is.
    Beginning,
    /// After the last record there is.
    End,
    /// This many records before the end of each partition, or at its beginning.
    BeforeEnd(i64),
    /// At this offset of each partition.
    Offset(i64),
    /// At the first record with this timestamp or a later one, in milliseconds since 1970.
    Time(i64),
}

/// What to read.
pub(crate) struct ConsumerOptions {
    /// Read this partition alone.
    pub(crate) partition: Option<i32>,
    /// Where to start.
    pub(crate) start: Start,
    /// Go on when the end that was seen at the start is reached.
    pub(crate) follow: bool,
}

/// Place of a reader in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Position {
    /// Offset of the next record to read.
    next: i64,
    /// Offset to stop before; the end that was seen at the start.
    end: i64,
}

/// A record and the partition it was read from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The partition.
    pub(crate) partition: i32,
    /// The record.
    pub(crate) record: Record,
}

/// A reader of one topic.
pub(crate) struct Consumer {
    client: Client,
    topic: Topic,
    follow: bool,
    positions: BTreeMap<i32, Position>,
}

impl Consumer {
    /// Finds the topic and the offsets to start from.
    pub(crate) fn new(
        mut client: Client,
        topic: &str,
        options: &ConsumerOptions,
    ) -> Result<Consumer, ClientError> {
        let topic = client.topic(topic, false)?;
        let wanted = match options.partition {
            Some(partition) => vec![topic.partition(partition)?.index],
            None => topic.partitions.iter().map(|partition| partition.index).collect(),
        };
        let starts = client.offsets_at(&topic, &wanted, EARLIEST_TIMESTAMP)?;
        let ends = client.offsets_at(&topic, &wanted, LATEST_TIMESTAMP)?;
        let timed = match options.start {
            Start::Time(time) => client.offsets_at(&topic, &wanted, time)?,
            _ => BTreeMap::new(),
        };
        let mut positions = BTreeMap::new();
        for partition in wanted {
            let start = starts.get(&partition).copied().unwrap_or(0);
            let end = ends.get(&partition).copied().unwrap_or(0);
            let next = match options.start {
                Start::Beginning => start,
                Start::End => end,
                Start::BeforeEnd(count) => end.saturating_sub(count).max(start),
                // Nothing that late yet: start with what comes.
                Start::Time(_) => timed.get(&partition).copied().filter(|o| *o >= 0).unwrap_or(end),
                Start::Offset(offset) if (start..=end).contains(&offset) => offset,
                Start::Offset(offset) => {
                    let topic = topic.name.clone();
                    return Err(ClientError::OffsetOutOfRange {
                        topic,
                        partition,
                        offset,
                        start,
                        end,
                    });
                }
            };
            positions.insert(partition, Position { next, end });
        }
        Ok(Consumer { client, topic, follow: options.follow, positions })
    }

    /// The next records, in offset order within each partition. `None` when the end is reached and
    /// nobody asked to follow; an empty list when nothing has come for a while.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Fetched>>, ClientError> {
        let unfinished = self.positions.iter().filter(|(_, p)| self.follow || p.next < p.end);
        let wanted: Vec<i32> = unfinished.map(|(partition, _)| *partition).collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let leaders = by_leader(&self.topic, &wanted)?;
        // With several leaders no one of them may hold the others up.
        let wait = if leaders.len() == 1 { FETCH_WAIT } else { FETCH_WAIT / 10 };
        let mut records = Vec::new();
        for (leader, partitions) in leaders {
            let request = self.request(&partitions, wait);
            let name = self.topic.name.clone();
            let found = self.client.retrying(|client| {
                let answer = client.ask_node(leader, &request, FETCH_VERSION_MAX, wait)?;
                let what = || format!("read {name}");
                ClientError::check(answer.error_code, None, what)?;
                let found: Vec<FetchPartitionResponse> =
                    answer.responses.into_iter().flat_map(|topic| topic.partitions).collect();
                for partition in &found {
                    if partition.error_code.retriable() {
                        let what = || format!("read {name}/{}", partition.partition_index);
                        ClientError::check(partition.error_code, None, what)?;
                    }
                }
                Ok(found)
            })?;
            for partition in found {
                self.take(&partition, &mut records)?;
            }
        }
        Ok(Some(records))
    }

    fn request(&self, partitions: &[i32], wait: Duration) -> FetchRequest {
        let wanted = partitions.iter().filter_map(|partition| {
            Some(FetchPartition {
                partition: *partition,
                fetch_offset: self.positions.get(partition)?.next,
                partition_max_bytes: PARTITION_BYTES_MAX,
                ..FetchPartition::default()
            })
        });
        FetchRequest {
            max_wait_ms: wait_ms(wait),
            min_bytes: 1,
            max_bytes: FETCH_BYTES_MAX,
            topics: vec![FetchTopic {
                topic: self.topic.name.clone(),
                partitions: wanted.collect(),
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        }
    }

    /// Takes the records of one partition out of an answer and moves its position.
    fn take(
        &mut self,
        found: &FetchPartitionResponse,
        records: &mut Vec<Fetched>,
    ) -> Result<(), ClientError> {
        let partition = found.partition_index;
        let Some(position) = self.positions.get_mut(&partition) else { return Ok(()) };
        if found.error_code == ErrorCode::OffsetOutOfRange {
            return Err(ClientError::OffsetOutOfRange {
                topic: self.topic.name.clone(),
                partition,
                offset: position.next,
                start: found.log_start_offset,
                end: found.high_watermark,
            });
        }
        ClientError::check(found.error_code, None, || {
            format!("read {}/{partition}", self.topic.name)
        })?;
        let opened = batches::open(&found.records).map_err(|Unreadable { offset, error }| {
            ClientError::Records { topic: self.topic.name.clone(), partition, offset, error }
        })?;
        // A batch is returned whole also when its middle was asked for, and may reach past the end
        // that was seen at the start.
        let (from, until) = (position.next, if self.follow { i64::MAX } else { position.end });
        let wanted = opened.records.into_iter().filter(|r| (from..until).contains(&r.offset));
        records.extend(wanted.map(|record| Fetched { partition, record }));
        position.next = position.next.max(opened.next_offset.unwrap_or(position.next));
        Ok(())
    }
}
