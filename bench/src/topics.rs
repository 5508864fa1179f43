//! `bench topics`: what many topics cost that are hardly used: memory, time to start, the latency of
//! the one that is used, and CPU while nothing happens.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use clap::Args;
use thetis_kafka::wire::{ErrorCode, ProduceRequest};

use crate::figures::{Watch, quantile};
use crate::kafka::broker::{self, Broker};
use crate::kafka::connection::Connection;
use crate::kafka::load::{Load, PRODUCE_VERSION, create_topics, produce_request, send_all};
use crate::report::{Better, Line, Subject};

/// Topics made, or written to, by one request.
const TOPICS_AT_ONCE: usize = 500;
/// Appends whose latency is measured, one in flight, and how often the two servers take turns.
const APPENDS: usize = 5_000;
const ROUNDS: usize = 10;
/// After its last request a server may still tidy up; idleness is measured after that.
const REST: Duration = Duration::from_secs(3);

/// Arguments of `bench topics`.
#[derive(Args, Debug)]
pub(crate) struct TopicsArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// How many topics of one partition.
    #[arg(long, default_value_t = 10_000)]
    topics: usize,
    /// Seconds over which the idle server is watched.
    #[arg(long, default_value_t = 10)]
    idle_seconds: u64,
    /// Where to write; beside this program unless given. Its file system is what is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Runs it: a server with many topics, beside one that has a single topic.
pub(crate) fn run(args: &TopicsArgs) -> Result<()> {
    let base = crate::base_dir(args.dir.as_deref())?;
    let temporary = |prefix| tempfile::Builder::new().prefix(prefix).tempdir_in(&base);
    let (dir, single_dir) = (temporary("topics-")?, temporary("single-")?);
    let report = Report { json: args.json, topics: args.topics };
    let batches = one_record_each(APPENDS)?;

    let server = broker::ours(dir.path(), &[])?;
    report.alone("start, empty", "ms", millis(server.process.start))?;
    let mut many = Used::create(&server)?;
    let before = server.process.resident_bytes()?;
    let watch = Watch::default();
    let names = names(args.topics);
    for names in names.chunks(TOPICS_AT_ONCE) {
        create_topics(&mut many.client, names)?;
    }
    report.alone("creating one topic", "us", watch.micros() / args.topics as f64)?;
    report.memory(&server, before, "created")?;
    touch(&mut many.client, &names)?;
    report.memory(&server, before, "with a record")?;

    let single_server = broker::ours(single_dir.path(), &[])?;
    let mut single = Used::create(&single_server)?;
    let (mut micros, mut micros_single) = (Vec::new(), Vec::new());
    for batches in batches.chunks(APPENDS / ROUNDS) {
        micros.extend(many.produce(batches)?);
        micros_single.extend(single.produce(batches)?);
    }
    single_server.process.stop()?;
    report.beside("produce p50, 1 KiB", "us", &micros, &micros_single, 0.5)?;
    report.beside("produce p99, 1 KiB", "us", &micros, &micros_single, 0.99)?;
    report.idle(&server, args.idle_seconds, "CPU time per idle second")?;

    server.process.stop()?;
    let server = broker::ours(dir.path(), &[])?;
    report.alone("start after a stop", "ms", millis(server.process.start))?;
    let held = server.process.resident_bytes()?;
    report.alone("memory after that start", "MB", held / 1e6)?;
    many.reconnect(&server)?.produce(&batches)?;
    server.process.kill()?;
    let server = broker::ours(dir.path(), &[])?;
    report.alone("start after a kill", "ms", millis(server.process.start))?;
    // Everything acknowledged is there: the next append lands where the last one ended.
    many.reconnect(&server)?.produce(&batches)?;
    report.idle(&server, args.idle_seconds, "CPU time per idle second, then")?;
    server.process.stop()
}

/// Batches of one record of 1 KiB.
fn one_record_each(count: usize) -> Result<Vec<Bytes>> {
    let load = Load { connections: 1, batch_records: 1, in_flight: 1, batches: count };
    Ok(load.prepare()?.remove(0))
}

/// Appends one record to each of the topics.
fn touch(client: &mut Connection, names: &[String]) -> Result<()> {
    let batch = one_record_each(1)?.remove(0);
    for names in names.chunks(TOPICS_AT_ONCE) {
        let one = |name: &String| produce_request(name, batch.clone()).topic_data;
        let request = ProduceRequest {
            topic_data: names.iter().flat_map(one).collect(),
            ..produce_request("", Bytes::new())
        };
        let answer = client.call(PRODUCE_VERSION, &request)?;
        let mut partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        if !partitions.all(|partition| partition.error_code == ErrorCode::None) {
            bail!("a topic took no record");
        }
    }
    Ok(())
}

/// The one topic of a server that is used.
struct Used {
    client: Connection,
    end: i64,
}

impl Used {
    const NAME: &str = "used";

    fn create(server: &Broker) -> Result<Used> {
        let mut client = Connection::open(server.address)?;
        create_topics(&mut client, &[Used::NAME.to_owned()])?;
        Ok(Used { client, end: 0 })
    }

    fn reconnect(&mut self, server: &Broker) -> Result<&mut Used> {
        self.client = Connection::open(server.address)?;
        Ok(self)
    }

    /// Appends batches of one record, one in flight; how long each took.
    fn produce(&mut self, batches: &[Bytes]) -> Result<Vec<f64>> {
        let watch = Watch::default();
        let micros = send_all(&mut self.client, Used::NAME, batches, 1, watch, self.end)?;
        self.end += i64::try_from(batches.len())?;
        Ok(micros)
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("idle-{n}")).collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

struct Report {
    json: bool,
    topics: usize,
}

impl Report {
    fn subject<'a>(work: &'a str, unit: &'a str) -> Subject<'a> {
        Subject { work, durability: "disk", unit, better: Better::Less }
    }

    fn name(&self, what: &str) -> String {
        format!("{} topics, {what}", self.topics)
    }

    fn alone(&self, what: &str, unit: &str, figure: f64) -> Result<()> {
        Line::alone(&Report::subject(&self.name(what), unit), &[figure]).print(self.json)
    }

    /// With many topics beside the same server when it had one.
    fn beside(&self, what: &str, unit: &str, few: &[f64], many: &[f64], share: f64) -> Result<()> {
        let (few, many) = (quantile(few, share), quantile(many, share));
        let name = self.name(what);
        Line::beside(&Report::subject(&name, unit), &[many], "with 1 topic", &[few], None)
            .print(self.json)
    }

    fn memory(&self, server: &Broker, before: f64, state: &str) -> Result<()> {
        let held = server.process.resident_bytes()?;
        self.alone(&format!("memory, {state}"), "MB", held / 1e6)?;
        let each = (held - before) / self.topics as f64;
        self.alone(&format!("memory of each, {state}"), "B", each)
    }

    /// CPU time used while nothing is asked, to 1/100 s over the whole time.
    fn idle(&self, server: &Broker, seconds: u64, what: &str) -> Result<()> {
        thread::sleep(REST);
        let before = server.process.cpu_seconds()?;
        thread::sleep(Duration::from_secs(seconds));
        let used = server.process.cpu_seconds()? - before;
        self.alone(what, "us", used * 1e6 / seconds as f64)
    }
}
