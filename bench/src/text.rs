//! `bench text`: the server as a process, driven in the text protocol, beside a Walrus node where its
//! binary is given. Owns which loads are compared.
//!
//! Both sides flush before they answer a PUT. A Walrus node answers in two pieces and leaves
//! small-packet delay on, so a plain client waits for its own system's delayed acknowledgement each
//! time; the second kind of client acknowledges at once, which takes that stall away.

mod client;
mod node;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Args;

use crate::content::{Check, Source};
use crate::figures::{Watch, quantile};
use crate::report::{Bar, Better, Line, Subject};
use client::{Acknowledge, Client, SOURCE_BYTES, from_digits, next_record};
use node::Node;

/// Arguments of `bench text`.
#[derive(Args, Debug)]
pub(crate) struct TextArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// How often each side carries each load.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each load.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Compare with a Walrus node: its binary.
    #[arg(long, value_name = "BINARY")]
    walrus_node: Option<PathBuf>,
    /// Where to write; beside this program unless given. Its file system is what is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Clients that PUT, each one request at a time, to topics they share evenly.
#[derive(Clone, Copy)]
struct Load {
    clients: usize,
    topics: usize,
    /// How many times the rate of a Walrus node is promised: with the stall, and without it.
    bars: [Option<f64>; 2],
}

const LOADS: [Load; 4] = [
    Load { clients: 1, topics: 1, bars: [Some(50.0), Some(2.0)] },
    Load { clients: 16, topics: 1, bars: [None, Some(5.0)] },
    Load { clients: 16, topics: 16, bars: [None, Some(5.0)] },
    Load { clients: 64, topics: 64, bars: [None, None] },
];

/// A kind of client, and how a Walrus node is called that it talks to.
const KINDS: [(Acknowledge, &str, &str); 2] = [
    (Acknowledge::AsItComes, "plain client", "walrus-node"),
    (Acknowledge::AtOnce, "no stall", "walrus-node"),
];

/// What one side did in one round.
#[derive(Clone, Copy, Default)]
struct Measured {
    puts_per_s: f64,
    put_p50_us: f64,
    put_p99_us: f64,
    gets_per_s: f64,
    /// Records a second by READ, which a Walrus node does not have.
    reads_per_s: Option<f64>,
}

/// A figure of a load.
struct View {
    what: &'static str,
    unit: &'static str,
    better: Better,
    figure: fn(&Measured) -> f64,
}

const PUTS: [View; 3] = [
    View { what: "PUT", unit: "/s", better: Better::More, figure: |m| m.puts_per_s },
    View { what: "PUT p50", unit: "us", better: Better::Less, figure: |m| m.put_p50_us },
    View { what: "PUT p99", unit: "us", better: Better::Less, figure: |m| m.put_p99_us },
];

/// Runs all loads against nodes that live as long as the bench.
pub(crate) fn run(args: &TextArgs) -> Result<()> {
    let base = crate::base_dir(args.dir.as_deref())?;
    let temporary = |prefix| tempfile::Builder::new().prefix(prefix).tempdir_in(&base);
    let (our_dir, their_dir) = (temporary("ours-")?, temporary("walrus-")?);
    let ours = node::ours(our_dir.path())?;
    let walrus = match &args.walrus_node {
        Some(binary) => Some(node::walrus(binary, their_dir.path())?),
        None => {
            eprintln!("without --walrus-node, a Walrus node is not compared");
            None
        }
    };
    for load in LOADS {
        let mut our = [Vec::new(), Vec::new()];
        let mut their = [Vec::new(), Vec::new()];
        for round in 0..args.rounds {
            for (kind, (acknowledge, ..)) in KINDS.iter().enumerate() {
                let prefix = format!("c{}-t{}-k{kind}-r{round}", load.clients, load.topics);
                let time = Duration::from_secs(args.seconds);
                let carry = |node: &Node, reads| {
                    load.carry(node.address, &prefix, *acknowledge, time, reads)
                };
                our[kind].push(carry(&ours, true).context("our node")?);
                if let Some(walrus) = &walrus {
                    their[kind].push(carry(walrus, false).context("the Walrus node")?);
                }
            }
        }
        for kind in 0..KINDS.len() {
            print(load, kind, &our[kind], &their[kind], args.json)?;
        }
    }
    if let Some(walrus) = walrus {
        // It ends with its first signal, but not with a code that says so.
        walrus.process.kill()?;
    }
    ours.process.stop()
}

/// The lines of one load and kind of client.
fn print(load: Load, kind: usize, our: &[Measured], their: &[Measured], json: bool) -> Result<()> {
    let (_, kind_name, rival) = KINDS[kind];
    let line = |what: &str, unit, better, figure: &dyn Fn(&Measured) -> f64, bar| {
        let work = format!("{load}, {kind_name}, {what}");
        let subject = Subject { work: &work, durability: "disk", unit, better };
        let our: Vec<f64> = our.iter().map(figure).collect();
        // What a Walrus node has no answer to is held against the nearest thing it does.
        let their: Vec<f64> =
            their.iter().map(|m| if what == "READ" { m.gets_per_s } else { figure(m) }).collect();
        match their.is_empty() {
            true => Line::alone(&subject, &our),
            false => Line::beside(&subject, &our, rival, &their, bar),
        }
        .print(json)
    };
    for View { what, unit, better, figure } in &PUTS {
        let bar = load.bars[kind].filter(|_| *what == "PUT").map(Bar::at_least);
        line(what, unit, *better, &figure, bar)?;
    }
    line("GET", "/s", Better::More, &|m| m.gets_per_s, None)?;
    line("READ", "records/s", Better::More, &|m| m.reads_per_s.unwrap_or_default(), None)
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |count: usize, one: &str| match count {
            1 => format!("1 {one}"),
            several => format!("{several} {one}s"),
        };
        write!(f, "{}, {}", plural(self.clients, "client"), plural(self.topics, "topic"))
    }
}

/// What the writers of one topic did.
struct Written {
    micros: Vec<f64>,
    records: u64,
    ended: Duration,
}

impl Load {
    /// PUTs for `time`, then takes everything back and compares: for as long again with the same kind
    /// of client, which is measured, and the rest without stalls.
    fn carry(
        &self,
        address: SocketAddr,
        prefix: &str,
        acknowledge: Acknowledge,
        time: Duration,
        has_read: bool,
    ) -> Result<Measured> {
        let topics: Vec<String> = (0..self.topics).map(|n| format!("{prefix}-{n}")).collect();
        let mut control = Client::open(address, Acknowledge::AtOnce)?;
        for topic in &topics {
            control.must(&[b"REGISTER ", topic.as_bytes()])?;
        }
        let open = |_| Client::open(address, acknowledge);
        let clients = (0..self.clients).map(open).collect::<Result<Vec<Client>>>()?;
        let watch = Watch::default();
        let written = together(clients, |writer, client| {
            put(client, &topics[writer % self.topics], writer, watch, time)
        })?;
        let puts: u64 = written.iter().map(|one| one.records).sum();
        let ended = written.iter().map(|one| one.ended).max().unwrap_or_default();
        let micros: Vec<f64> = written.iter().flat_map(|one| one.micros.iter().copied()).collect();

        let counts: Vec<u64> = written.iter().map(|one| one.records).collect();
        let reads_per_s = match has_read {
            true => Some(read_all(&mut control, &topics, &counts)?),
            false => None,
        };
        let open = |_| Client::open(address, acknowledge);
        let takers = (0..self.topics).map(open).collect::<Result<Vec<Client>>>()?;
        let watch = Watch::default();
        let taken = together(takers, |topic, client| {
            let mut rest = Client::open(address, Acknowledge::AtOnce)?;
            let written = self.of_topic(topic, &counts);
            take(client, &mut rest, &topics[topic], &written, watch, time)
        })?;
        let slowest = taken.iter().map(|(_, ended)| *ended).max().unwrap_or_default();
        let gets: u64 = taken.iter().map(|(records, _)| records).sum();
        Ok(Measured {
            puts_per_s: puts as f64 / ended.as_secs_f64(),
            put_p50_us: quantile(&micros, 0.5),
            put_p99_us: quantile(&micros, 0.99),
            gets_per_s: gets as f64 / slowest.as_secs_f64(),
            reads_per_s,
        })
    }

    /// Of all writers, what those of one topic wrote; the others wrote nothing there.
    fn of_topic(&self, topic: usize, counts: &[u64]) -> Vec<u64> {
        let of =
            |(writer, count): (usize, &u64)| if writer % self.topics == topic { *count } else { 0 };
        counts.iter().enumerate().map(of).collect()
    }
}

/// Runs `act` with each client on a thread of its own.
fn together<T: Send>(
    clients: Vec<Client>,
    act: impl Fn(usize, Client) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let act = &act;
    thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(n, client)| scope.spawn(move || act(n, client)))
            .collect();
        threads.into_iter().map(|one| one.join().expect("a client does not panic")).collect()
    })
}

fn put(
    mut client: Client,
    topic: &str,
    writer: usize,
    watch: Watch,
    time: Duration,
) -> Result<Written> {
    let (mut source, mut text) = (Source::new(writer, SOURCE_BYTES), Vec::new());
    let mut micros = Vec::new();
    while watch.elapsed() < time {
        next_record(&mut source, &mut text);
        let began = watch.micros();
        client.must(&[b"PUT ", topic.as_bytes(), b" ", &text])?;
        micros.push(watch.micros() - began);
    }
    Ok(Written { micros, records: source.count(), ended: watch.elapsed() })
}

/// Takes the records of one topic and compares them all. Returns how many were taken by the first
/// client, and when it had done.
fn take(
    mut client: Client,
    rest: &mut Client,
    topic: &str,
    written: &[u64],
    watch: Watch,
    time: Duration,
) -> Result<(u64, Duration)> {
    let mut check = Check::new(written.len(), SOURCE_BYTES);
    let mut records = 0;
    while watch.elapsed() < time && client.get(topic, &mut check)? {
        records += 1;
    }
    let ended = watch.elapsed();
    while rest.get(topic, &mut check)? {}
    check.finish(written).with_context(|| format!("topic {topic}"))?;
    Ok((records, ended))
}

/// Reads all topics by offset and compares; returns records a second.
fn read_all(client: &mut Client, topics: &[String], written: &[u64]) -> Result<f64> {
    let watch = Watch::default();
    let mut check = Check::new(written.len(), SOURCE_BYTES);
    for topic in topics {
        let mut next = 0;
        loop {
            let reply = client.ask(&[b"READ ", topic.as_bytes(), format!(" {next}").as_bytes()])?;
            if reply.starts_with(b"EMPTY") {
                break;
            }
            let end = reply.iter().position(|byte| *byte == b'\n').context("no header")?;
            let words = std::str::from_utf8(&reply[..end])?.split(' ').map(str::to_owned);
            let words: Vec<String> = words.collect();
            let mut rest = Bytes::copy_from_slice(&reply[end + 1..]);
            next = words.get(2).context("no next offset")?.parse::<u64>()?;
            for length in &words[3..] {
                check.see(&from_digits(&rest.split_to(length.parse()?))?)?;
            }
        }
    }
    check.finish(written)?;
    Ok(written.iter().sum::<u64>() as f64 / watch.elapsed().as_secs_f64())
}
