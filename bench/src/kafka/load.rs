//! What is asked of a broker: N connections, each producing prepared batches to a topic of its own with
//! several requests under way, then each consuming its topic and comparing every byte; and the same
//! batches written and flushed plainly. Batches are made before the clock starts.

use std::collections::VecDeque;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use thetis::SystemClock;
use thetis_kafka::records::{Attributes, BatchBuilder, BatchHeader, Codec, PATCHED_PREFIX_BYTES};
use thetis_kafka::wire::{
    CreatableTopic, CreateTopicsRequest, ErrorCode, FetchPartition, FetchRequest, FetchTopic,
    ProducePartition, ProduceRequest, ProduceTopic,
};
use thetis_types::clock::Clock as _;

use super::connection::Connection;
use crate::content::Source;
use crate::figures::{Watch, quantile};

/// Versions that both brokers speak and that name topics.
pub(crate) const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 12;
const CREATE_VERSION: i16 = 5;
/// Bytes of a value.
const RECORD_BYTES: usize = 1024;
/// All replicas have it: at our side, it is safe at the topic's durability.
const ACKS_ALL: i16 = -1;
const TIMEOUT_MS: i32 = 30_000;
/// Bytes a consumer asks for at once.
const FETCH_BYTES: i32 = 4 << 20;
/// How long a fetch waits for bytes.
const FETCH_WAIT_MS: i32 = 500;
/// How often a topic that was just made is tried, and the pause between.
const SETTLE_ATTEMPTS_MAX: usize = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// How much of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    /// Records of 1 KiB in one batch, which is one request.
    pub(crate) batch_records: usize,
    /// Requests under way on each connection.
    pub(crate) in_flight: usize,
    /// Batches that each connection sends.
    pub(crate) batches: usize,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) produce_mb_per_s: f64,
    pub(crate) records_per_s: f64,
    pub(crate) ack_p50_us: f64,
    pub(crate) ack_p99_us: f64,
    pub(crate) consume_mb_per_s: f64,
}

/// The batches of one connection.
type Batches = Vec<Bytes>;

impl Load {
    /// Makes the batches of all connections.
    pub(crate) fn prepare(&self) -> Result<Vec<Batches>> {
        // Not a made-up time: a broker deletes records that are old by their own time.
        let timestamp_ms = SystemClock::default().wall_ms();
        let batches = |connection| {
            let mut source = Source::new(connection, RECORD_BYTES);
            let one = |_| {
                let mut batch = BatchBuilder::new(Attributes::new(Codec::None));
                for _ in 0..self.batch_records {
                    batch.push(timestamp_ms, None, Some(source.next_record()), &[])?;
                }
                anyhow::Ok(batch.build()?)
            };
            (0..self.batches).map(one).collect()
        };
        (0..self.connections).map(batches).collect()
    }

    fn measured(&self, sides: &[Side], batches: &[Batches]) -> Measured {
        let bytes: usize = batches.iter().flatten().map(Bytes::len).sum();
        let seconds = span(sides);
        let records = self.connections * self.batches * self.batch_records;
        let micros: Vec<f64> = sides.iter().flat_map(|side| side.micros.iter().copied()).collect();
        Measured {
            produce_mb_per_s: bytes as f64 / 1e6 / seconds,
            records_per_s: records as f64 / seconds,
            ack_p50_us: quantile(&micros, 0.5),
            ack_p99_us: quantile(&micros, 0.99),
            consume_mb_per_s: 0.0,
        }
    }

    /// Produces to new topics named after `prefix`, then consumes and compares.
    pub(crate) fn broker(
        &self,
        address: SocketAddr,
        prefix: &str,
        batches: &[Batches],
    ) -> Result<Measured> {
        let topics: Vec<String> = (0..self.connections).map(|n| format!("{prefix}-{n}")).collect();
        create_topics(&mut Connection::open(address)?, &topics)?;
        let watch = Watch::default();
        let produced = together(self.connections, |connection, start| {
            let mut client = Connection::open(address)?;
            await_topic(&mut client, &topics[connection])?;
            start.wait();
            produce(&mut client, &topics[connection], &batches[connection], self.in_flight, watch)
        })?;
        let consumed = together(self.connections, |connection, start| {
            let mut client = Connection::open(address)?;
            start.wait();
            consume(&mut client, &topics[connection], &batches[connection], watch)
        })?;
        let bytes: usize = batches.iter().flatten().map(Bytes::len).sum();
        let consume_mb_per_s = bytes as f64 / 1e6 / span(&consumed);
        Ok(Measured { consume_mb_per_s, ..self.measured(&produced, batches) })
    }

    /// Writes the same batches to a file for each connection and flushes after each; then reads and
    /// compares.
    pub(crate) fn device(&self, dir: &Path, batches: &[Batches]) -> Result<Measured> {
        let watch = Watch::default();
        let paths: Vec<_> = (0..self.connections).map(|n| dir.join(format!("plain-{n}"))).collect();
        let written = together(self.connections, |connection, start| {
            let file = File::create_new(&paths[connection])?;
            start.wait();
            write_plainly(&file, &batches[connection], watch)
        })?;
        let read = together(self.connections, |connection, start| {
            let file = File::open(&paths[connection])?;
            start.wait();
            read_plainly(&file, &batches[connection], watch)
        })?;
        for path in &paths {
            std::fs::remove_file(path)?;
        }
        let bytes: usize = batches.iter().flatten().map(Bytes::len).sum();
        let consume_mb_per_s = bytes as f64 / 1e6 / span(&read);
        Ok(Measured { consume_mb_per_s, ..self.measured(&written, batches) })
    }
}

/// What one connection saw.
#[derive(Default)]
struct Side {
    began: Duration,
    ended: Duration,
    micros: Vec<f64>,
}

fn span(sides: &[Side]) -> f64 {
    let began = sides.iter().map(|side| side.began).min().unwrap_or_default();
    let ended = sides.iter().map(|side| side.ended).max().unwrap_or_default();
    (ended - began).as_secs_f64()
}

/// Runs `act` on as many threads, which start their work together: `act` waits when it is prepared.
fn together(
    count: usize,
    act: impl Fn(usize, &Start<'_>) -> Result<Side> + Sync,
) -> Result<Vec<Side>> {
    let barrier = Barrier::new(count);
    let (barrier, act) = (&barrier, &act);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|n| {
                scope.spawn(move || {
                    let start = Start { barrier, passed: false.into() };
                    let side = act(n, &start);
                    start.wait();
                    side
                })
            })
            .collect();
        threads.into_iter().map(|one| one.join().expect("a connection does not panic")).collect()
    })
}

/// The common start of several threads; waiting twice is waiting once, so that a thread that failed
/// on the way there does not keep the others.
struct Start<'a> {
    barrier: &'a Barrier,
    passed: std::cell::Cell<bool>,
}

impl Start<'_> {
    fn wait(&self) {
        if !self.passed.replace(true) {
            self.barrier.wait();
        }
    }
}

/// Creates topics of one partition.
pub(crate) fn create_topics(client: &mut Connection, names: &[String]) -> Result<()> {
    let topic = |name: &String| CreatableTopic {
        name: name.clone(),
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: names.iter().map(topic).collect(),
        timeout_ms: TIMEOUT_MS,
        ..CreateTopicsRequest::default()
    };
    let answer = client.call(CREATE_VERSION, &request)?;
    for topic in answer.topics {
        accept(topic.error_code).with_context(|| format!("creating {}", topic.name))?;
    }
    Ok(())
}

/// A request that produces one batch to partition 0.
pub(crate) fn produce_request(topic: &str, batch: Bytes) -> ProduceRequest {
    ProduceRequest {
        acks: ACKS_ALL,
        timeout_ms: TIMEOUT_MS,
        topic_data: vec![ProduceTopic {
            name: topic.to_owned(),
            partition_data: vec![ProducePartition { index: 0, records: Some(batch) }],
        }],
        ..ProduceRequest::default()
    }
}

/// Waits until a topic that was just made can be used: it takes Apache Kafka a moment.
fn await_topic(client: &mut Connection, topic: &str) -> Result<()> {
    for _ in 0..SETTLE_ATTEMPTS_MAX {
        if fetch(client, topic, 0, 0).is_ok() {
            return Ok(());
        }
        thread::sleep(SETTLE_PAUSE);
    }
    bail!("{topic} does not come up")
}

/// Produces all batches, `in_flight` at a time; each must land where the one before ended.
pub(crate) fn send_all(
    client: &mut Connection,
    topic: &str,
    batches: &[Bytes],
    in_flight: usize,
    watch: Watch,
    from: i64,
) -> Result<Vec<f64>> {
    let mut micros = Vec::with_capacity(batches.len());
    let mut sent = VecDeque::with_capacity(in_flight);
    let (mut unsent, mut expected) = (batches.iter(), from);
    loop {
        while sent.len() < in_flight
            && let Some(batch) = unsent.next()
        {
            sent.push_back((watch.micros(), i64::from(BatchHeader::read(batch)?.record_count)));
            client.send(PRODUCE_VERSION, &produce_request(topic, batch.clone()))?;
        }
        let Some((sent_at, records)) = sent.pop_front() else { return Ok(micros) };
        let answer = client.receive::<ProduceRequest>(PRODUCE_VERSION)?;
        micros.push(watch.micros() - sent_at);
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        let partition = partitions.into_iter().next().context("an answer about nothing")?;
        accept(partition.error_code)?;
        if partition.base_offset != expected {
            bail!("a batch of {topic} is at {}, expected at {expected}", partition.base_offset);
        }
        expected += records;
    }
}

fn produce(
    client: &mut Connection,
    topic: &str,
    batches: &[Bytes],
    in_flight: usize,
    watch: Watch,
) -> Result<Side> {
    let began = watch.elapsed();
    let micros = send_all(client, topic, batches, in_flight, watch, 0)?;
    Ok(Side { began, ended: watch.elapsed(), micros })
}

/// Whole and cut batches from `offset` on.
fn fetch(client: &mut Connection, topic: &str, offset: i64, wait_ms: i32) -> Result<Bytes> {
    let partition = FetchPartition {
        partition: 0,
        fetch_offset: offset,
        partition_max_bytes: FETCH_BYTES,
        ..FetchPartition::default()
    };
    let request = FetchRequest {
        max_wait_ms: wait_ms,
        min_bytes: 1,
        max_bytes: FETCH_BYTES,
        topics: vec![FetchTopic {
            topic: topic.to_owned(),
            partitions: vec![partition],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let answer = client.call(FETCH_VERSION, &request)?;
    accept(answer.error_code)?;
    let mut partitions = answer.responses.into_iter().flat_map(|topic| topic.partitions);
    let partition = partitions.next().context("an answer about nothing")?;
    accept(partition.error_code)?;
    Ok(partition.records.parts.into_iter().next().unwrap_or_default())
}

/// Reads all batches back. A broker sets the first bytes of a batch, its offset among them; all
/// others must be as they were sent.
fn consume(client: &mut Connection, topic: &str, batches: &[Bytes], watch: Watch) -> Result<Side> {
    let began = watch.elapsed();
    let (mut offset, mut blob) = (0, Bytes::new());
    for batch in batches {
        if blob.len() < batch.len() {
            // What was cut off comes again whole.
            blob = fetch(client, topic, offset, FETCH_WAIT_MS)?;
        }
        if blob.len() < batch.len() {
            bail!("{topic} at {offset}: {} bytes came, {} were written", blob.len(), batch.len());
        }
        let came = blob.split_to(batch.len());
        let header = BatchHeader::read(&came)?;
        let sent_part = batch.slice(PATCHED_PREFIX_BYTES..);
        if header.base_offset != offset || came.slice(PATCHED_PREFIX_BYTES..) != sent_part {
            bail!("{topic} at {offset}: what was read is not what was written");
        }
        offset = header.last_offset() + 1;
    }
    Ok(Side { began, ended: watch.elapsed(), ..Side::default() })
}

fn write_plainly(file: &File, batches: &[Bytes], watch: Watch) -> Result<Side> {
    let (began, mut at) = (watch.elapsed(), 0);
    let mut micros = Vec::with_capacity(batches.len());
    for batch in batches {
        let from = watch.micros();
        file.write_all_at(batch, at)?;
        file.sync_data()?;
        at += batch.len() as u64;
        micros.push(watch.micros() - from);
    }
    Ok(Side { began, ended: watch.elapsed(), micros })
}

fn read_plainly(file: &File, batches: &[Bytes], watch: Watch) -> Result<Side> {
    let (began, mut at) = (watch.elapsed(), 0);
    let mut buffer = Vec::new();
    for batch in batches {
        buffer.resize(batch.len(), 0);
        file.read_exact_at(&mut buffer, at)?;
        if buffer != *batch {
            bail!("the device gave other bytes than were written");
        }
        at += batch.len() as u64;
    }
    Ok(Side { began, ended: watch.elapsed(), ..Side::default() })
}

fn accept(code: ErrorCode) -> Result<()> {
    if code != ErrorCode::None {
        bail!("the broker refused: {code}");
    }
    Ok(())
}
