//! Writing records to one topic. Owns batching, partition choice and the resolution of lost answers.
//!
//! The producer is idempotent wherever the server allows it: each batch carries a producer id and a
//! sequence, so that a batch whose answer was lost is sent again as the same attempt and the server
//! answers with what became of the first (law CERTAIN). A server that gives out no producer ids is
//! written to once, and a lost answer is then reported as uncertain.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use thetis_kafka::records::Codec;
use thetis_kafka::wire::{
    ErrorCode, InitProducerIdRequest, ProducePartition, ProducePartitionResponse, ProduceRequest,
    ProduceTopic,
};
use thetis_types::Outcome;

use super::batches::{self, NewRecord, Stamp};
use super::partitioner::partition_of;
use super::topics::{Topic, wait_ms};
use super::{ATTEMPTS_MAX, Client, ClientError, PAUSE_FIRST, PAUSE_MAX};

/// Bytes of records gathered over all partitions before they are sent.
const REQUEST_BYTES_MAX: usize = 8 << 20;
/// How long the server may take to write.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// Highest version of Produce this client knows: later ones name topics by id.
const PRODUCE_VERSION_MAX: i16 = 11;
/// All replicas have it, at the topic's durability.
const ACKS_ALL: i16 = -1;

/// How to write.
pub(crate) struct ProducerOptions {
    /// Write everything to this partition instead of choosing by key.
    pub(crate) partition: Option<i32>,
    /// Bytes of keys and values in one batch; a single larger record is a batch of its own.
    pub(crate) batch_bytes: usize,
    /// How batches are compressed.
    pub(crate) compression: Codec,
}

/// What was written to one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// The partition.
    pub(crate) partition: i32,
    /// Records acknowledged.
    pub(crate) records: u64,
    /// Bytes of their keys and values.
    pub(crate) bytes: u64,
    /// Offset of the first, -1 when the server does not say.
    pub(crate) first_offset: i64,
    /// Offset of the last, -1 when the server does not say. Others may have written in between.
    pub(crate) last_offset: i64,
}

/// A writer to one topic.
pub(crate) struct Producer {
    client: Client,
    topic: Topic,
    options: ProducerOptions,
    stamp: Option<(i64, i16)>,
    lanes: BTreeMap<i32, Lane>,
    /// Partition that records without a key go to until its batch is sent.
    sticky: usize,
    buffered_bytes: usize,
}

/// What is under way to one partition.
struct Lane {
    sequence: i32,
    building: Vec<NewRecord>,
    building_bytes: usize,
    sealed: Option<Sealed>,
    written: Written,
}

/// A batch that is sent until its fate is known.
struct Sealed {
    bytes: Bytes,
    records: u32,
    content_bytes: u64,
    /// Set once an answer to it was lost: from then on it may have been written.
    doubt: bool,
}

impl Producer {
    /// A producer for `topic`, which a server that creates topics on first use may create.
    pub(crate) fn new(
        mut client: Client,
        topic: &str,
        options: ProducerOptions,
    ) -> Result<Producer, ClientError> {
        let topic = client.topic(topic, true)?;
        if let Some(partition) = options.partition {
            topic.partition(partition)?;
        }
        let stamp = client.producer_id()?;
        let lanes = topic.partitions.iter().map(|p| (p.index, Lane::new(p.index))).collect();
        Ok(Producer { client, topic, options, stamp, lanes, sticky: 0, buffered_bytes: 0 })
    }

    /// Takes a record; it is sent when its batch is full or by [`Producer::flush`].
    pub(crate) fn add(&mut self, record: NewRecord) -> Result<(), ClientError> {
        let partition = self.choose(&record);
        let bytes = record.content_bytes();
        let full = |lane: &Lane| {
            lane.building_bytes > 0 && lane.building_bytes + bytes > self.options.batch_bytes
        };
        let request_full = self.buffered_bytes + bytes > REQUEST_BYTES_MAX;
        if request_full || self.lanes.get(&partition).is_some_and(full) {
            self.flush()?;
        }
        if let Some(lane) = self.lanes.get_mut(&partition) {
            lane.building.push(record);
            lane.building_bytes += bytes;
            self.buffered_bytes += bytes;
        }
        Ok(())
    }

    fn choose(&self, record: &NewRecord) -> i32 {
        if let Some(partition) = self.options.partition {
            return partition;
        }
        let count = self.topic.partitions.len();
        let index = match &record.key {
            Some(key) => partition_of(key, count),
            None => self.sticky % count.max(1),
        };
        self.topic.partitions.get(index).map_or(0, |partition| partition.index)
    }

    /// Sends everything taken so far and waits until it is acknowledged.
    ///
    /// # Errors
    /// [`ClientError::Uncertain`] when the fate of a batch could not be found out. What was
    /// acknowledged before is in [`Producer::written`].
    pub(crate) fn flush(&mut self) -> Result<(), ClientError> {
        for lane in self.lanes.values_mut().filter(|lane| !lane.building.is_empty()) {
            lane.seal(self.stamp, self.options.compression)?;
        }
        self.buffered_bytes = 0;
        self.sticky = self.sticky.wrapping_add(1);
        let mut pause = PAUSE_FIRST;
        let mut attempt = 1;
        loop {
            let Some(error) = self.send_sealed()? else { return Ok(()) };
            let idempotent = self.stamp.is_some() || error.outcome() == Outcome::NotCommitted;
            if attempt == ATTEMPTS_MAX || !idempotent || !self.client.may_retry(&error) {
                return Err(self.give_up(error));
            }
            attempt += 1;
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            // The leaders may have moved; if nobody can say, the next attempt will tell.
            if let Ok(topic) = self.client.topic(&self.topic.name, false) {
                self.topic = topic;
            }
        }
    }

    /// What was acknowledged, by partition; partitions that got nothing are left out.
    pub(crate) fn written(&self) -> Vec<Written> {
        self.lanes.values().map(|lane| lane.written).filter(|written| written.records > 0).collect()
    }

    /// Sends each sealed batch to the leader of its partition, once. `Some` is the failure that
    /// keeps at least one batch sealed.
    fn send_sealed(&mut self) -> Result<Option<ClientError>, ClientError> {
        let sealed = self.lanes.iter().filter(|(_, lane)| lane.sealed.is_some());
        let waiting: Vec<i32> = sealed.map(|(partition, _)| *partition).collect();
        let mut failure = None;
        for (leader, partitions) in super::topics::by_leader(&self.topic, &waiting)? {
            let request = self.request(&partitions);
            match self.client.ask_node(leader, &request, PRODUCE_VERSION_MAX, WRITE_WAIT) {
                Ok(answer) => {
                    let results = answer.responses.into_iter().flat_map(|t| t.partition_responses);
                    for result in results {
                        if let Some(lane) = self.lanes.get_mut(&result.index)
                            && let Err(error) = lane.settle(&self.topic.name, &result)
                        {
                            failure = Some(error);
                        }
                    }
                }
                Err(error) => {
                    for partition in &partitions {
                        if let Some(lane) = self.lanes.get_mut(partition) {
                            lane.doubt(&error);
                        }
                    }
                    failure = Some(error);
                }
            }
        }
        Ok(failure)
    }

    fn request(&self, partitions: &[i32]) -> ProduceRequest {
        let batches = partitions.iter().filter_map(|partition| {
            let sealed = self.lanes.get(partition)?.sealed.as_ref()?;
            Some(ProducePartition { index: *partition, records: Some(sealed.bytes.clone()) })
        });
        ProduceRequest {
            acks: ACKS_ALL,
            timeout_ms: wait_ms(WRITE_WAIT),
            topic_data: vec![ProduceTopic {
                name: self.topic.name.clone(),
                partition_data: batches.collect(),
            }],
            ..ProduceRequest::default()
        }
    }

    /// The error to end with: a batch in doubt makes it uncertain.
    fn give_up(&self, error: ClientError) -> ClientError {
        let doubtful = self.lanes.iter().find_map(|(partition, lane)| {
            let sealed = lane.sealed.as_ref().filter(|sealed| sealed.doubt)?;
            Some((*partition, sealed.records))
        });
        match doubtful {
            Some((partition, records)) => ClientError::Uncertain {
                topic: self.topic.name.clone(),
                partition,
                records,
                cause: Box::new(error),
            },
            None => error,
        }
    }
}

impl Lane {
    fn new(partition: i32) -> Lane {
        let (records, bytes, first_offset, last_offset) = (0, 0, -1, -1);
        Lane {
            sequence: 0,
            building: Vec::new(),
            building_bytes: 0,
            sealed: None,
            written: Written { partition, records, bytes, first_offset, last_offset },
        }
    }

    /// Turns what was gathered into the one batch under way.
    fn seal(&mut self, stamp: Option<(i64, i16)>, compression: Codec) -> Result<(), ClientError> {
        let records = std::mem::take(&mut self.building);
        let content_bytes = std::mem::take(&mut self.building_bytes);
        let stamp = stamp.map(|(id, epoch)| Stamp { id, epoch, sequence: self.sequence });
        let bytes = batches::seal(&records, stamp, compression)
            .map_err(|error| ClientError::Unsealed { error })?;
        let count = i32::try_from(records.len()).unwrap_or(i32::MAX);
        // Sequences wrap from the largest to zero, as the protocol has it.
        self.sequence = self
            .sequence
            .checked_add(count)
            .unwrap_or_else(|| self.sequence.wrapping_add(count) & i32::MAX);
        self.sealed = Some(Sealed {
            bytes,
            records: count.unsigned_abs(),
            content_bytes: u64::try_from(content_bytes).unwrap_or(u64::MAX),
            doubt: false,
        });
        Ok(())
    }

    /// Takes the server's word on the batch under way.
    fn settle(
        &mut self,
        topic: &str,
        result: &ProducePartitionResponse,
    ) -> Result<(), ClientError> {
        match result.error_code {
            // The second says that it was written before, too long ago to say where.
            ErrorCode::None | ErrorCode::DuplicateSequenceNumber => {
                if let Some(sealed) = self.sealed.take() {
                    self.written.add(&sealed, result.base_offset);
                }
                Ok(())
            }
            code => {
                let words = result.error_message.as_deref();
                let what = || format!("write to {topic}/{}", result.index);
                let refused = ClientError::check(code, words, what);
                if let Err(error) = &refused {
                    self.doubt(error);
                }
                refused
            }
        }
    }

    fn doubt(&mut self, error: &ClientError) {
        if let Some(sealed) = &mut self.sealed {
            sealed.doubt |= error.outcome() == Outcome::MayHaveCommitted;
        }
    }
}

impl Written {
    fn add(&mut self, sealed: &Sealed, base_offset: i64) {
        self.records += u64::from(sealed.records);
        self.bytes += sealed.content_bytes;
        if base_offset >= 0 {
            if self.first_offset < 0 {
                self.first_offset = base_offset;
            }
            self.last_offset = base_offset + i64::from(sealed.records) - 1;
        }
    }
}

impl Client {
    /// A producer id and epoch; `None` when the server gives none out.
    fn producer_id(&mut self) -> Result<Option<(i64, i16)>, ClientError> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: wait_ms(WRITE_WAIT),
            ..InitProducerIdRequest::default()
        };
        let answer = self.retrying(|client| {
            let answer = client.ask(&request)?;
            ClientError::check(answer.error_code, None, || "get a producer id".to_owned())?;
            Ok(answer)
        });
        match answer {
            Ok(answer) => Ok(Some((answer.producer_id, answer.producer_epoch))),
            Err(ClientError::Version { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
