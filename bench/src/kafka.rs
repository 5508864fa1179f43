//! `bench kafka`: the server as a process, driven over the wire, beside the plain device and, where a
//! class path is given, Apache Kafka. Owns which loads are compared.
//!
//! Ours flushes before it answers (`disk`), and so does the device. Apache Kafka flushes nothing, which
//! is its default and how it is run; that comparison is of what each does as it comes.

pub(crate) mod broker;
pub(crate) mod connection;
pub(crate) mod load;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::report::{Better, Line, Subject};
use broker::Broker;
use load::{Load, Measured};

/// Arguments of `bench kafka`.
#[derive(Args, Debug)]
pub(crate) struct KafkaArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// How often each side carries each load.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// MiB that each load writes, of all connections; loads of small batches write less.
    #[arg(long, default_value_t = 128)]
    mib: usize,
    /// Compare with Apache Kafka as well: a file that holds its class path, as Maven's
    /// `dependency:build-classpath` writes it. Needs `java`.
    #[arg(long, value_name = "FILE")]
    kafka_classpath: Option<PathBuf>,
    /// Where to write; beside this program unless given. Its file system is what is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// It answers when the operating system has the bytes, while ours has flushed them.
const APACHE: &str = "apache-kafka(os)";
/// Batches of one load at most; the small ones would take too long otherwise.
const BATCHES_MAX: usize = 4_000;

/// A figure of a load.
struct View {
    what: &'static str,
    unit: &'static str,
    better: Better,
    figure: fn(&Measured) -> f64,
}

const VIEWS: [View; 5] = [
    View {
        what: "produce",
        unit: "MB/s",
        better: Better::More,
        figure: |measured| measured.produce_mb_per_s,
    },
    View {
        what: "produce",
        unit: "records/s",
        better: Better::More,
        figure: |measured| measured.records_per_s,
    },
    View {
        what: "ack p50",
        unit: "us",
        better: Better::Less,
        figure: |measured| measured.ack_p50_us,
    },
    View {
        what: "ack p99",
        unit: "us",
        better: Better::Less,
        figure: |measured| measured.ack_p99_us,
    },
    View {
        what: "consume",
        unit: "MB/s",
        better: Better::More,
        figure: |measured| measured.consume_mb_per_s,
    },
];

/// Runs all loads against brokers that live as long as the bench.
pub(crate) fn run(args: &KafkaArgs) -> Result<()> {
    let base = crate::base_dir(args.dir.as_deref())?;
    let temporary = |prefix| tempfile::Builder::new().prefix(prefix).tempdir_in(&base);
    let (our_dir, their_dir, plain_dir) =
        (temporary("ours-")?, temporary("kafka-")?, temporary("plain-")?);
    let ours = broker::ours(our_dir.path(), &[])?;
    let apache = match &args.kafka_classpath {
        Some(file) => Some(broker::apache(their_dir.path(), file)?),
        None => {
            eprintln!("without --kafka-classpath, Apache Kafka is not compared");
            None
        }
    };
    for load in loads(args.mib) {
        let name = name(&load);
        let batches = load.prepare()?;
        let (mut our, mut plain, mut their) = (Vec::new(), Vec::new(), Vec::new());
        // One round more than is counted, so that nobody is measured cold: a JVM compiles as it runs.
        for round in 0..=args.rounds {
            let Load { connections, batch_records, in_flight, .. } = load;
            let prefix = format!("c{connections}-b{batch_records}-f{in_flight}-r{round}");
            our.push(load.broker(ours.address, &prefix, &batches)?);
            plain.push(load.device(plain_dir.path(), &batches)?);
            if let Some(apache) = &apache {
                their.push(load.broker(apache.address, &prefix, &batches)?);
            }
        }
        for side in [&mut our, &mut plain, &mut their] {
            side.drain(..side.len().min(1));
        }
        for View { what, unit, better, figure } in &VIEWS {
            let work = format!("{name}, {what}");
            let subject = Subject { work: &work, durability: "disk", unit, better: *better };
            let figures = |side: &[Measured]| side.iter().map(figure).collect::<Vec<f64>>();
            Line::beside(&subject, &figures(&our), "device", &figures(&plain), None)
                .print(args.json)?;
            if !their.is_empty() {
                Line::beside(&subject, &figures(&our), APACHE, &figures(&their), None)
                    .print(args.json)?;
            }
        }
    }
    memory(&ours, apache.as_ref(), args.json)?;
    ours.process.stop()
}

fn memory(ours: &Broker, apache: Option<&Broker>, json: bool) -> Result<()> {
    let subject =
        Subject { work: "memory at its peak", durability: "", unit: "MB", better: Better::Less };
    let megabytes = |broker: &Broker| anyhow::Ok(broker.process.resident_peak_bytes()? / 1e6);
    let our = [megabytes(ours)?];
    match apache {
        Some(apache) => Line::beside(&subject, &our, APACHE, &[megabytes(apache)?], None),
        None => Line::alone(&subject, &our),
    }
    .print(json)
}

fn name(load: &Load) -> String {
    let Load { connections, batch_records, in_flight, .. } = load;
    let connections =
        if *connections == 1 { "1 client".to_owned() } else { format!("{connections} clients") };
    format!("{connections}, {batch_records} KiB batches, {in_flight} in flight")
}

fn loads(mib: usize) -> Vec<Load> {
    let load = |connections: usize, batch_records: usize, in_flight| {
        let batches = (mib << 10) / (connections * batch_records);
        let batches = batches.min(BATCHES_MAX / connections).max(1);
        Load { connections, batch_records, in_flight, batches }
    };
    vec![
        load(1, 1, 1),
        load(1, 16, 5),
        load(8, 16, 5),
        load(8, 128, 5),
        load(1, 1000, 5),
        load(4, 1000, 5),
    ]
}
