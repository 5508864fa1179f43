//! `thetis produce`: records from stdin or a file into a topic. Owns how bytes become records
//! (`produce/input.rs`) and the summary; batching and certainty are the client's.

mod input;

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use thetis_kafka::records::Codec;
use thetis_types::clock::Clock;

use crate::client::{NewRecord, Producer, ProducerOptions, Written};
use crate::config::value::{ByteSize, Value, ValueError};
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};
use crate::server::ServerArgs;
use input::{Input, Split};
use thetis::SystemClock;

/// Bytes read from the input at once. What is read at once is sent before more is waited for.
const READ_BYTES: usize = 256 << 10;

/// Arguments of `thetis produce`.
#[derive(Args, Debug)]
#[command(after_help = "\
Every record is acknowledged before the summary is printed. Batches carry a producer id and a
sequence, so that one whose answer was lost is resolved and never written twice.

Examples:
  echo hello | thetis produce greetings
  thetis produce access --file access.log --compression zstd
  printf 'k1\\tv1\\nk2\\tv2\\n' | thetis produce pairs --key-separator '\\t'
  thetis consume a --length-prefixed | thetis produce b --length-prefixed")]
pub(crate) struct ProduceArgs {
    /// Name of the topic.
    topic: String,
    /// Read this file instead of stdin.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Split each line into key and value at the first SEPARATOR; \t is a tab.
    #[arg(long, short = 'K', value_name = "SEPARATOR", value_parser = input::separator)]
    #[arg(conflicts_with_all = ["length_prefixed", "whole", "key"])]
    key_separator: Option<Bytes>,
    /// Give every record this key.
    #[arg(long, short, value_name = "KEY")]
    key: Option<String>,
    /// Read records as a length (four bytes, big-endian) and that many bytes, instead of lines.
    #[arg(long)]
    length_prefixed: bool,
    /// Make the whole input one record.
    #[arg(long, conflicts_with = "length_prefixed")]
    whole: bool,
    /// Write to this partition; otherwise equal keys share one, and keyless batches take turns.
    #[arg(long, short, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Compress batches: none, gzip, snappy, lz4 or zstd.
    #[arg(long, short = 'z', value_name = "CODEC", default_value = "none")]
    compression: Codec,
    /// Largest batch, before compression; a larger record is a batch of its own.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = size)]
    batch_bytes: ByteSize,
    /// Print the summary as one line of JSON for each partition.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// A line of the summary under `--json`. Fields are only added.
#[derive(Serialize)]
struct SummaryLine<'a> {
    topic: &'a str,
    partition: i32,
    records: u64,
    bytes: u64,
    /// Null when the server does not say.
    first_offset: Option<i64>,
    last_offset: Option<i64>,
}

/// Writes every record of the input, then prints what went where.
pub(crate) fn run(config: Option<&Path>, args: &ProduceArgs) -> Result<Exit, Failure> {
    let source = open(args)?;
    let client = args.server.connect(config)?;
    let mut producer = Producer::new(
        client,
        &args.topic,
        ProducerOptions {
            partition: args.partition,
            batch_bytes: usize::try_from(args.batch_bytes.0).unwrap_or(usize::MAX),
            compression: args.compression,
        },
    )?;
    let sent = send(source, args, &mut producer);
    // What was acknowledged is told also when something failed after it.
    let told = summary(args, &producer.written());
    sent?;
    told?;
    Ok(Exit::Done)
}

fn open(args: &ProduceArgs) -> Result<Box<dyn BufRead>, Failure> {
    let Some(path) = &args.file else {
        if io::stdin().is_terminal() {
            eprintln!("reading records from the terminal, one a line; end with ctrl-d");
        }
        return Ok(Box::new(BufReader::with_capacity(READ_BYTES, io::stdin())));
    };
    let file = File::open(path).map_err(|error| unreadable(args, &error))?;
    Ok(Box::new(BufReader::with_capacity(READ_BYTES, file)))
}

fn unreadable(args: &ProduceArgs, error: &io::Error) -> Failure {
    let name = args.file.as_ref().map_or("stdin".to_owned(), |path| path.display().to_string());
    Failure::new(Exit::Failed, format!("could not read {name}: {error}"))
}

fn send(
    source: Box<dyn BufRead>,
    args: &ProduceArgs,
    producer: &mut Producer,
) -> Result<(), Failure> {
    let split = match (&args.key_separator, args.length_prefixed, args.whole) {
        (Some(separator), ..) => Split::KeyedLines(separator.clone()),
        (None, true, _) => Split::LengthPrefixed,
        (None, false, true) => Split::Whole,
        (None, false, false) => Split::Lines,
    };
    let clock = SystemClock::default();
    let fixed_key = args.key.as_ref().map(|key| Bytes::from(key.clone()));
    let mut input = Input::new(source, split);
    while let Some(item) = input.next()? {
        producer.add(NewRecord {
            key: item.key.or_else(|| fixed_key.clone()),
            value: item.value,
            timestamp: clock.wall_ms(),
        })?;
        // The next read may wait for someone to type: what is here goes first.
        if input.would_wait() {
            producer.flush()?;
        }
    }
    producer.flush()?;
    Ok(())
}

fn summary(args: &ProduceArgs, written: &[Written]) -> Result<(), Failure> {
    let known = |offset: i64| Some(offset).filter(|offset| *offset >= 0);
    if args.json {
        return Ok(output::json(written.iter().map(|written| SummaryLine {
            topic: &args.topic,
            partition: written.partition,
            records: written.records,
            bytes: written.bytes,
            first_offset: known(written.first_offset),
            last_offset: known(written.last_offset),
        }))?);
    }
    if written.is_empty() {
        eprintln!("nothing was written to {}", args.topic);
        return Ok(());
    }
    let text = |offset: i64| known(offset).map_or("-".to_owned(), |offset| offset.to_string());
    let mut table = Table::new(&["TOPIC", "PARTITION", "RECORDS", "BYTES", "FIRST", "LAST"]);
    for written in written {
        table.row([
            args.topic.clone(),
            written.partition.to_string(),
            written.records.to_string(),
            output::bytes(written.bytes),
            text(written.first_offset),
            text(written.last_offset),
        ]);
    }
    Ok(output::text(&table.text())?)
}

fn size(text: &str) -> Result<ByteSize, ValueError> {
    ByteSize::parse(text)
}
