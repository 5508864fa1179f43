//! `bench recovery`: what it costs to open a directory again whose process was killed, and what many
//! idle streams hold in memory. A process of its own fills the directory and is killed, another
//! one opens it and looks whether everything acknowledged is there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use thetis::{Flush, Offset, Options, Stream, Thetis};
use thetis_catalog::{Format, TopicSpec};
use thetis_journal::{Journal, OsDisk};

use crate::figures::Watch;
use crate::report::{Better, Line, Subject};

/// Streams made at once; appends that wait for one flush together.
const STREAMS_AT_ONCE: usize = 1_000;
/// Streams that take the bulk of the bytes in turn, records of one append, and bytes of a record.
const BUSY_STREAMS: usize = 16;
const BATCH_RECORDS: usize = 16;
const RECORD_BYTES: usize = 1024;

/// Arguments of `bench recovery`.
#[derive(Args, Debug)]
pub(crate) struct RecoveryArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Bytes appended before the kill, GiB.
    #[arg(long, default_value_t = 1.0)]
    gib: f64,
    /// Streams with one record each beside those that take the bytes.
    #[arg(long, default_value_t = 0)]
    streams: usize,
    /// Drop the directory from the page cache before it is opened again, as after a reboot.
    #[arg(long)]
    cold: bool,
    /// Where to write; beside this program unless given. Its file system is what is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// What this process is to do for the bench that started it.
    #[arg(long, hide = true)]
    part: Option<Part>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    Fill,
    Reopen,
}

/// What the process that fills found.
#[derive(Serialize, Deserialize)]
struct Filled {
    /// Memory of a stream that was made, and of one with a record, bytes.
    made_bytes: f64,
    used_bytes: f64,
    /// CPU time while nothing was asked of it, microseconds a second.
    idle_micros: f64,
    /// Journal bytes on disk, and those in files without a footer.
    journal_bytes: u64,
}

/// What the process that opened again found.
#[derive(Serialize, Deserialize)]
struct Reopened {
    journal_micros: f64,
    rest_micros: f64,
    files: usize,
    scanned_files: usize,
    scanned_bytes: u64,
    resident_bytes: f64,
}

/// Runs it.
pub(crate) fn run(args: &RecoveryArgs) -> Result<()> {
    let base = crate::base_dir(args.dir.as_deref())?;
    match args.part {
        Some(Part::Fill) => return fill(args, &base),
        Some(Part::Reopen) => return reopen(args, &base),
        None => {}
    }
    let dir = tempfile::Builder::new().prefix("recovery-").tempdir_in(&base)?;
    let (mut child, filled): (Child, Filled) = start(args, dir.path(), "fill")?;
    child.kill()?;
    child.wait()?;
    if args.cold {
        forget(&dir.path().join("journal"))?;
        forget(dir.path())?;
    }
    let (mut child, found): (Child, Reopened) = start(args, dir.path(), "reopen")?;
    ensure!(child.wait()?.success(), "the reopened directory lacks something");
    let state = if args.cold { "cold" } else { "warm" };
    let name = format!("{} GiB, {} streams, {state}", args.gib, args.streams);
    let line = |what: &str, unit: &str, figure: f64| {
        let work = format!("{name}: {what}");
        let subject = Subject { work: &work, durability: "os", unit, better: Better::Less };
        Line::alone(&subject, &[figure]).print(args.json)
    };
    line("journal open", "ms", found.journal_micros / 1e3)?;
    line("the rest of the open", "ms", found.rest_micros / 1e3)?;
    line("journal on disk", "MB", filled.journal_bytes as f64 / 1e6)?;
    line("files", "files", found.files as f64)?;
    line("files scanned", "files", found.scanned_files as f64)?;
    line("bytes scanned", "MB", found.scanned_bytes as f64 / 1e6)?;
    line("memory after the open", "MB", found.resident_bytes / 1e6)?;
    if args.streams > 0 {
        line("memory of a stream without records", "B", filled.made_bytes)?;
        line("memory of a stream with one", "B", filled.used_bytes)?;
        line("CPU time per idle second", "us", filled.idle_micros)?;
    }
    Ok(())
}

/// Starts this program again for `part` and reads the one line that it prints.
fn start<T: for<'a> Deserialize<'a>>(
    args: &RecoveryArgs,
    dir: &Path,
    part: &str,
) -> Result<(Child, T)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["recovery", "--part", part, "--dir"]).arg(dir);
    command.args(["--gib", &args.gib.to_string(), "--streams", &args.streams.to_string()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("the output is piped")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let found = serde_json::from_str(&line);
    Ok((child, found.with_context(|| format!("the part {part} failed"))?))
}

fn options() -> Options {
    Options::default().flush(Flush::Every(std::time::Duration::from_millis(10)))
}

fn idle_name(number: usize) -> String {
    format!("idle-{number}")
}

/// Fills the directory, tells, and waits to be killed.
fn fill(args: &RecoveryArgs, dir: &Path) -> Result<()> {
    let (thetis, _) = Thetis::open_with(dir, options())?;
    let before = resident_bytes()?;
    let names: Vec<String> = (0..args.streams).map(idle_name).collect();
    for names in names.chunks(STREAMS_AT_ONCE) {
        let spec = |name: &String| TopicSpec {
            name: name.clone(),
            partitions: 1,
            format: Format::Plain,
            configs: BTreeMap::new(),
        };
        for made in thetis.catalog().create_all(names.iter().map(spec).collect()) {
            made?;
        }
    }
    let made = resident_bytes()?;
    for names in names.chunks(STREAMS_AT_ONCE) {
        for name in names {
            thetis.stream(name)?.append(name)?;
        }
    }
    let each = args.streams.max(1) as f64;
    let (made_bytes, used_bytes) = ((made - before) / each, (resident_bytes()? - before) / each);
    let busy = busy_streams(&thetis)?;
    let batch = vec![[b'r'; RECORD_BYTES]; BATCH_RECORDS];
    for number in 0..batches(args) {
        busy[number % BUSY_STREAMS].append_batch(&batch)?;
    }
    let idle_micros = idle_micros()?;
    let journal_bytes = thetis.journal().stats().file_bytes;
    let filled = Filled { made_bytes, used_bytes, idle_micros, journal_bytes };
    println!("{}", serde_json::to_string(&filled)?);
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

/// Opens the directory again, tells what that took, and looks whether everything is there.
fn reopen(args: &RecoveryArgs, dir: &Path) -> Result<()> {
    let watch = Watch::default();
    let disk = Arc::new(OsDisk::existing(dir.join("journal"))?);
    let (journal, recovery) = Journal::open(disk, options().journal)?;
    let journal_micros = watch.micros();
    // As a crash would: what was recovered is sealed, the rest of the open is measured alone.
    drop(journal);
    let watch = Watch::default();
    let (thetis, again) = Thetis::open_with(dir, options())?;
    let rest_micros = watch.micros();
    ensure!(again.recovery.damage.is_empty() && recovery.damage.is_empty(), "damage");
    let found = Reopened {
        journal_micros,
        rest_micros,
        files: recovery.files,
        scanned_files: recovery.scanned_files,
        scanned_bytes: recovery.scanned_bytes,
        resident_bytes: resident_bytes()?,
    };
    println!("{}", serde_json::to_string(&found)?);
    for number in 0..args.streams {
        let stream = thetis.stream(&idle_name(number))?;
        let record = stream.read(Offset(0))?.next().context("an idle stream is empty")??;
        ensure!(record.value == idle_name(number).as_bytes(), "another record");
    }
    let records: u64 = busy_streams(&thetis)?.iter().map(|stream| stream.end().0).sum();
    let expected = (batches(args) * BATCH_RECORDS) as u64;
    if records != expected {
        bail!("{records} of {expected} records are there");
    }
    Ok(())
}

fn busy_streams(thetis: &Thetis) -> Result<Vec<Stream>> {
    (0..BUSY_STREAMS).map(|number| Ok(thetis.stream(&format!("busy-{number}"))?)).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size asked for on the command line; too large a one fills the disk first"
)]
fn batches(args: &RecoveryArgs) -> usize {
    (args.gib * f64::from(1 << 30)) as usize / (BATCH_RECORDS * RECORD_BYTES)
}

/// Memory of its own that this process holds, bytes. Mapped journal files are left out: they are page
/// cache, bounded by the options, and no stream's.
fn resident_bytes() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.context("no RssAnon in the status")? * 1024.0)
}

/// CPU time used while nothing happens, microseconds a second.
fn idle_micros() -> Result<f64> {
    const SECONDS: u64 = 3;
    let used = || -> Result<f64> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let after = stat.rsplit(')').next().unwrap_or_default();
        let ticks = after.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.sum::<Result<f64, _>>()? / rustix::param::clock_ticks_per_second() as f64)
    };
    // What is still being flushed, sealed and given back is no idleness.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let before = used()?;
    std::thread::sleep(std::time::Duration::from_secs(SECONDS));
    Ok((used()? - before) * 1e6 / SECONDS as f64)
}

/// Takes the files of a directory out of the page cache.
fn forget(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_file() {
            let file = fs::File::open(&path)?;
            // Only clean pages are given back.
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}
