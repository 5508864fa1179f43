//! One engine doing one work, in a process of its own: engines keep settings for a whole process, leave
//! threads behind and warm caches that the next one would profit from. What was written is read back
//! and compared, and only then is there a result.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::engine::{self, Engine, Level, Name};
use crate::content::{Check, Source};
use crate::figures::{Watch, quantile};

/// One append in so many is timed at `os`, where asking for the time would cost a share of the append.
const SAMPLE_OS: u64 = 16;
/// How often it is looked whether the writers are done.
const LOOK: Duration = Duration::from_millis(1);
/// Pause between the records whose way to a reader is timed: both sides are at rest before each.
const TAIL_PAUSE: Duration = Duration::from_micros(300);
/// Records whose way to a reader is timed.
const TAIL_RECORDS: u64 = 2_000;

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) engine: Name,
    pub(crate) level: Level,
    pub(crate) kind: Kind,
    pub(crate) writers: usize,
    /// All writers on one stream, instead of each on its own.
    pub(crate) one_stream: bool,
    pub(crate) record_bytes: usize,
    /// Records appended together; 1 for single appends.
    pub(crate) batch: usize,
    /// Writing stops after so long...
    pub(crate) seconds: f64,
    /// ...or when this much was written, of all writers.
    pub(crate) bytes_max: u64,
}

/// Which side is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Write as fast as it goes, then read everything.
    Write,
    /// One writer that pauses, one reader that follows it.
    Tail,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) records_per_s: f64,
    pub(crate) append_p50_us: f64,
    pub(crate) append_p99_us: f64,
    pub(crate) read_mb_per_s: f64,
    pub(crate) tail_p50_us: f64,
    pub(crate) tail_p99_us: f64,
}

impl Work {
    /// Does it in a process of its own, on a directory under `base` that is gone afterwards.
    pub(crate) fn measure(&self, base: &Path) -> Result<Measured> {
        let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(base)?;
        let work = serde_json::to_string(self)?;
        let mut child = Command::new(std::env::current_exe()?);
        child.arg("work").arg(&work).arg(dir.path());
        child.env(engine::WALRUS_DIR_ENV, dir.path()).env(engine::WALRUS_QUIET_ENV, "1");
        child.env("RUST_BACKTRACE", "0");
        let output = child.output().context("could not start this program again")?;
        // Neither side pays for what the other left to be written.
        dir.close()?;
        rustix::fs::sync();
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            bail!("{work} ended with {}\n{complaint}", output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let result = text.lines().last().unwrap_or_default();
        serde_json::from_str(result).with_context(|| format!("{work} printed {result:?}"))
    }

    fn streams(&self) -> usize {
        if self.one_stream { 1 } else { self.writers }
    }

    fn stream_of(&self, writer: usize) -> usize {
        if self.one_stream { 0 } else { writer }
    }
}

/// The other side of [`Work::measure`].
pub(crate) fn run(work: &str, dir: &Path) -> Result<()> {
    let work: Work = serde_json::from_str(work).context("this command is for the bench itself")?;
    fs::create_dir_all(dir)?;
    let streams = work.streams();
    let engine = engine::open(work.engine, dir, work.level, streams, work.record_bytes)?;
    let measured = match work.kind {
        Kind::Write => write_and_read(&*engine, &work)?,
        Kind::Tail => tail(&*engine, &work)?,
    };
    engine.close()?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// What one writer did.
struct Written {
    /// Records, one before the measurement began included.
    records: u64,
    measured: u64,
    began: Duration,
    ended: Duration,
    micros: Vec<f64>,
}

fn write_and_read(engine: &dyn Engine, work: &Work) -> Result<Measured> {
    let watch = Watch::default();
    let written = write(engine, work, watch)?;
    let began = written.iter().map(|one| one.began).min().unwrap_or_default();
    let ended = written.iter().map(|one| one.ended).max().unwrap_or_default();
    let records: u64 = written.iter().map(|one| one.measured).sum();
    let micros: Vec<f64> = written.iter().flat_map(|one| one.micros.iter().copied()).collect();

    let mut check = Check::new(work.writers, work.record_bytes);
    let read_began = watch.elapsed();
    for stream in 0..work.streams() {
        engine.read(stream, &mut |record| check.see(record))?;
    }
    let read_seconds = (watch.elapsed() - read_began).as_secs_f64();
    let counts: Vec<u64> = written.iter().map(|one| one.records).collect();
    check.finish(&counts)?;
    Ok(Measured {
        records_per_s: records as f64 / (ended - began).as_secs_f64(),
        append_p50_us: quantile(&micros, 0.5),
        append_p99_us: quantile(&micros, 0.99),
        read_mb_per_s: check.bytes() as f64 / 1e6 / read_seconds,
        ..Measured::default()
    })
}

fn write(engine: &dyn Engine, work: &Work, watch: Watch) -> Result<Vec<Written>> {
    let start = Barrier::new(work.writers + 1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (start, stop) = (&start, &stop);
        let writers: Vec<_> = (0..work.writers)
            .map(|writer| scope.spawn(move || write_one(engine, work, writer, watch, start, stop)))
            .collect();
        start.wait();
        let until = watch.elapsed() + Duration::from_secs_f64(work.seconds);
        while watch.elapsed() < until && !writers.iter().all(|one| one.is_finished()) {
            thread::sleep(LOOK);
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|one| one.join().expect("a writer does not panic")).collect()
    })
}

fn write_one(
    engine: &dyn Engine,
    work: &Work,
    writer: usize,
    watch: Watch,
    start: &Barrier,
    stop: &AtomicBool,
) -> Result<Written> {
    let stream = work.stream_of(writer);
    let mut source = Source::new(writer, work.record_bytes);
    // What happens once, at the first append, is not what is measured.
    let first = engine.append(stream, source.next_record());
    start.wait();
    first?;
    let records_max = work.bytes_max / (work.writers * work.record_bytes) as u64;
    let sample = if work.level == Level::Disk || work.batch > 1 { 1 } else { SAMPLE_OS };
    let mut batch = vec![Vec::with_capacity(work.record_bytes); work.batch];
    let mut micros = Vec::new();
    let (mut appends, began) = (0_u64, watch.elapsed());
    while source.count() < records_max && !stop.load(Ordering::Relaxed) {
        let timed = appends.is_multiple_of(sample).then(|| watch.micros());
        if work.batch == 1 {
            engine.append(stream, source.next_record())?;
        } else {
            for record in &mut batch {
                record.clear();
                record.extend_from_slice(source.next_record());
            }
            let records: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
            engine.append_batch(stream, &records)?;
        }
        appends += 1;
        if let Some(from) = timed {
            micros.push(watch.micros() - from);
        }
    }
    let ended = watch.elapsed();
    Ok(Written { records: source.count(), measured: source.count() - 1, began, ended, micros })
}

/// The time from before an append to a reader's having the record.
fn tail(engine: &dyn Engine, work: &Work) -> Result<Measured> {
    let watch = Watch::default();
    let sent: Vec<AtomicU64> = (0..TAIL_RECORDS).map(|_| AtomicU64::new(0)).collect();
    let mut micros = Vec::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<u64> {
            let mut source = Source::new(0, work.record_bytes);
            for sent in &sent {
                thread::sleep(TAIL_PAUSE);
                let record = source.next_record();
                sent.store(nanos(watch.elapsed()), Ordering::Release);
                engine.append(0, record)?;
            }
            Ok(source.count())
        });
        let mut check = Check::new(1, work.record_bytes);
        let mut number = 0;
        engine.follow(0, TAIL_RECORDS, &mut |record| {
            let came = nanos(watch.elapsed());
            micros.push(came.saturating_sub(sent[number].load(Ordering::Acquire)) as f64 / 1e3);
            number += 1;
            check.see(record)
        })?;
        check.finish(&[writer.join().expect("the writer does not panic")?])
    })?;
    Ok(Measured {
        tail_p50_us: quantile(&micros, 0.5),
        tail_p99_us: quantile(&micros, 0.99),
        ..Measured::default()
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
