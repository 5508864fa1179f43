//! `thetis inspect`: what lies in a journal, file by file or frame by frame. Owns the printing;
//! reads through the journal's offline view, which takes no lock and changes nothing.

use std::path::Path;

use clap::Args;
use serde::Serialize;
use thetis_journal::OsDisk;
use thetis_journal::inspect::{FileInfo, FrameInfo, files, frames};

use crate::data::DataArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};

/// Arguments of `thetis inspect`.
#[derive(Args, Debug)]
#[command(after_help = "\
Lists the files of the journal; with --file the frames of one. Reads and changes nothing, and takes
no lock. Exits with 3 when something it shows is damaged.")]
pub(crate) struct InspectArgs {
    /// Show the frames of the file with this sequence number.
    #[arg(long, short, value_name = "SEQUENCE")]
    file: Option<u64>,
    /// Show only the frames of this stream (its number).
    #[arg(long, value_name = "NUMBER", requires = "file")]
    stream: Option<u64>,
    /// Print each file or frame as one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// A file under `--json`. Fields are only added.
#[derive(Serialize)]
struct FileLine<'a> {
    sequence: u64,
    name: &'a str,
    bytes: u64,
    base: Option<u64>,
    sealed: bool,
    streams: usize,
    entries: u64,
    live_bytes: u64,
    fences: usize,
    flaw: Option<String>,
}

/// A frame under `--json`. Fields are only added.
#[derive(Serialize)]
struct FrameLine<'a> {
    at: u64,
    bytes: u64,
    kind: Option<String>,
    stream: Option<u64>,
    epoch: Option<u32>,
    version: Option<u64>,
    offset: Option<u64>,
    records: Option<u32>,
    payload_bytes: Option<u32>,
    max_timestamp: Option<i64>,
    flaw: Option<&'a str>,
}

/// Shows a journal.
pub(crate) fn run(config: Option<&Path>, args: &InspectArgs) -> Result<Exit, Failure> {
    let disk = args.data.journal(config)?;
    match args.file {
        Some(sequence) => show_frames(&disk, sequence, args),
        None => show_files(&disk, args),
    }
}

fn show_files(disk: &OsDisk, args: &InspectArgs) -> Result<Exit, Failure> {
    let files = files(disk).map_err(|error| unreadable("the journal", &error))?;
    let lines: Vec<FileLine<'_>> = files.iter().map(file_line).collect();
    let damaged = lines.iter().any(|line| line.flaw.is_some());
    if args.json {
        output::json(lines)?;
    } else {
        let mut table = Table::new(&[
            "SEQUENCE", "FILE", "SIZE", "STATE", "STREAMS", "ENTRIES", "PAYLOAD", "FLAW",
        ]);
        for line in lines {
            table.row([
                line.sequence.to_string(),
                line.name.to_owned(),
                output::bytes(line.bytes),
                if line.sealed { "sealed" } else { "open" }.to_owned(),
                line.streams.to_string(),
                line.entries.to_string(),
                output::bytes(line.live_bytes),
                line.flaw.unwrap_or_default(),
            ]);
        }
        output::text(&table.text())?;
    }
    Ok(if damaged { Exit::Damaged } else { Exit::Done })
}

/// An open file has no footer yet, so its missing footer is no flaw.
fn file_line(file: &FileInfo) -> FileLine<'_> {
    let footer = file.footer.as_ref().ok();
    let runs = footer.map(|footer| footer.runs.as_slice()).unwrap_or_default();
    let mut streams: Vec<u64> = runs.iter().map(|run| run.stream.0).collect();
    streams.sort_unstable();
    streams.dedup();
    FileLine {
        sequence: file.sequence,
        name: &file.name,
        bytes: file.bytes,
        base: file.base,
        sealed: footer.is_some(),
        streams: streams.len(),
        entries: runs.iter().map(|run| u64::from(run.entries)).sum(),
        live_bytes: runs.iter().map(|run| run.bytes).sum(),
        fences: footer.map_or(0, |footer| footer.fences.len()),
        flaw: file.header_flaw.as_ref().map(|flaw| format!("header: {flaw}")),
    }
}

fn show_frames(disk: &OsDisk, sequence: u64, args: &InspectArgs) -> Result<Exit, Failure> {
    let what = format!("journal file {sequence}");
    let frames = frames(disk, sequence).map_err(|error| unreadable(&what, &error))?;
    let wanted = |frame: &&FrameInfo| {
        args.stream.is_none_or(|stream| frame.header.is_some_and(|it| it.stream.0 == stream))
    };
    let lines: Vec<FrameLine<'_>> = frames.iter().filter(wanted).map(frame_line).collect();
    let damaged = lines.iter().any(|line| line.flaw.is_some());
    if args.json {
        output::json(lines)?;
    } else {
        let mut table = Table::new(&[
            "BYTE", "LENGTH", "KIND", "STREAM", "EPOCH", "VERSION", "OFFSET", "RECORDS", "PAYLOAD",
            "FLAW",
        ]);
        let shown = |number: Option<u64>| number.map_or("-".to_owned(), |it| it.to_string());
        for line in lines {
            table.row([
                line.at.to_string(),
                line.bytes.to_string(),
                line.kind.unwrap_or_else(|| "-".to_owned()),
                shown(line.stream),
                shown(line.epoch.map(u64::from)),
                shown(line.version),
                shown(line.offset),
                shown(line.records.map(u64::from)),
                shown(line.payload_bytes.map(u64::from)),
                line.flaw.unwrap_or_default().to_owned(),
            ]);
        }
        output::text(&table.text())?;
    }
    Ok(if damaged { Exit::Damaged } else { Exit::Done })
}

fn frame_line(frame: &FrameInfo) -> FrameLine<'_> {
    let header = frame.header.as_ref();
    FrameLine {
        at: frame.at,
        bytes: frame.bytes,
        kind: header.map(|header| format!("{:?}", header.kind).to_ascii_lowercase()),
        stream: header.map(|header| header.stream.0),
        epoch: header.map(|header| header.epoch.0),
        version: header.map(|header| header.version.0),
        offset: header.map(|header| header.base_offset.0),
        records: header.map(|header| header.record_count),
        payload_bytes: header.map(|header| header.payload_bytes),
        max_timestamp: header.map(|header| header.max_timestamp),
        flaw: frame.why,
    }
}

fn unreadable(what: &str, error: &std::io::Error) -> Failure {
    let failure = Failure::new(Exit::Failed, format!("could not read {what}: {error}"));
    match error.kind() {
        std::io::ErrorKind::NotFound => failure.hint("`thetis inspect` lists the files there are"),
        std::io::ErrorKind::InvalidData => failure.hint("`thetis verify` says more"),
        _ => failure,
    }
}
