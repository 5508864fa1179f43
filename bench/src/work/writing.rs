//! Threads that append as fast as it goes, one append, one batch or a window of appends at a time; then
//! everything is read.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::cost::{Memory, cpu_time};
use super::engine::{Engine, Level, Pending};
use super::{Kind, Measured, Work, grown};
use crate::content::{Check, Source};
use crate::figures::{Sample, Watch, each_second, quantile};

/// One append in so many is timed where asking for the time would cost a share of the append.
const SAMPLE: u64 = 16;
/// How often it is looked whether the writers are done...
const LOOK: Duration = Duration::from_millis(1);
/// ...how much memory they use...
const LOOK_MEMORY: Duration = Duration::from_millis(20);
/// ...and, in a sustained work, whether something can be given back.
const GIVE_BACK: Duration = Duration::from_millis(500);

/// A thread that appends, with all its own memory in place.
struct Writer {
    number: usize,
    source: Source,
    batch: Vec<Vec<u8>>,
}

/// What one writer did.
struct Written {
    /// Records, one before the measurement began included.
    records: u64,
    began: Duration,
    ended: Duration,
    samples: Vec<Sample>,
}

/// What the writers did, and what it took.
struct Writing {
    written: Vec<Written>,
    /// Pages of its own at their most, bytes.
    own_peak: f64,
    cpu: Duration,
    /// First records of each stream that are given back.
    gone: Vec<u64>,
}

pub(super) fn run(work: &Work, open: impl Fn() -> Result<Box<dyn Engine>>) -> Result<Measured> {
    let writers: Vec<Writer> = (0..work.writers).map(|number| Writer::new(number, work)).collect();
    let before = Memory::now()?;
    let engine = open()?;
    let watch = Watch::default();
    let writing = write(&*engine, work, writers, watch)?;
    let (memory_peak_mb, memory_own_mb) = grown(before, Memory::now()?, writing.own_peak);

    let written = &writing.written;
    let began = written.iter().map(|one| one.began).min().unwrap_or_default();
    let ended = written.iter().map(|one| one.ended).max().unwrap_or_default();
    let records: u64 = written.iter().map(|one| one.records - 1).sum();
    let samples: Vec<Sample> = written.iter().flat_map(|one| one.samples.clone()).collect();
    let micros: Vec<f64> = samples.iter().map(|sample| sample.micros).collect();
    let mut check = Check::new(work.writers, work.record_bytes);
    for (writer, gone) in writing.gone.iter().enumerate() {
        check.skip(writer, *gone);
    }
    let read_began = watch.elapsed();
    for stream in 0..work.streams() {
        engine.read(stream, &mut |record| check.see(record))?;
    }
    let read_seconds = (watch.elapsed() - read_began).as_secs_f64();
    check.finish(&written.iter().map(|one| one.records).collect::<Vec<_>>())?;
    engine.close()?;
    let is_sustained = matches!(work.kind, Kind::Sustained { .. });
    let gigabytes = records as f64 * work.record_bytes as f64 / 1e9;
    Ok(Measured {
        records_per_s: records as f64 / (ended - began).as_secs_f64(),
        append_p50_us: quantile(&micros, 0.5),
        append_p99_us: quantile(&micros, 0.99),
        read_mb_per_s: check.bytes() as f64 / 1e6 / read_seconds,
        memory_peak_mb,
        memory_own_mb,
        cpu_s_per_gb: writing.cpu.as_secs_f64() / gigabytes,
        seconds: if is_sustained { each_second(&samples, began, ended) } else { Vec::new() },
        ..Measured::default()
    })
}

fn write(engine: &dyn Engine, work: &Work, writers: Vec<Writer>, watch: Watch) -> Result<Writing> {
    let start = Barrier::new(work.writers + 1);
    let stop = AtomicBool::new(false);
    let mut gone = vec![0; work.writers];
    thread::scope(|scope| {
        let (start, stop) = (&start, &stop);
        let writers: Vec<_> = writers
            .into_iter()
            .map(|writer| {
                let run = Run { engine, work, watch, start, stop };
                scope.spawn(move || run.write(writer))
            })
            .collect();
        start.wait();
        let cpu_before = cpu_time();
        let began = watch.elapsed();
        let until = began + Duration::from_secs_f64(work.seconds);
        let (mut own_peak, mut looked, mut gave_back) = (0.0_f64, Duration::ZERO, began);
        let mut failure = Ok(());
        while watch.elapsed() < until && !writers.iter().all(|one| one.is_finished()) {
            thread::sleep(LOOK);
            let now = watch.elapsed();
            if now - looked >= LOOK_MEMORY {
                own_peak = own_peak.max(own_memory());
                looked = now;
            }
            if let Kind::Sustained { records } = work.kind
                && now - gave_back >= GIVE_BACK
                && failure.is_ok()
            {
                failure = give_back(engine, records, &mut gone);
                gave_back = now;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let written = writers.into_iter().map(|one| one.join().expect("a writer does not panic"));
        let written = written.collect::<Result<Vec<_>>>()?;
        failure?;
        let own_peak = own_peak.max(own_memory());
        Ok(Writing { written, own_peak, cpu: cpu_time() - cpu_before, gone })
    })
}

/// Lets every stream keep its newest records only.
fn give_back(engine: &dyn Engine, records: u64, gone: &mut [u64]) -> Result<()> {
    for (stream, gone) in gone.iter_mut().enumerate() {
        *gone = engine.keep_newest(stream, records)?;
    }
    Ok(())
}

/// Pages of its own; what cannot be asked for is no peak.
fn own_memory() -> f64 {
    Memory::now().unwrap_or_default().anonymous
}

impl Writer {
    fn new(number: usize, work: &Work) -> Writer {
        let source = Source::new(number, work.record_bytes);
        let batch = if work.batch == 1 { 0 } else { work.batch };
        Writer { number, source, batch: vec![vec![0xff; work.record_bytes]; batch] }
    }

    /// One append, or one batch.
    fn append(&mut self, engine: &dyn Engine, stream: usize) -> Result<()> {
        if self.batch.is_empty() {
            return engine.append(stream, self.source.next_record());
        }
        for record in &mut self.batch {
            record.clear();
            record.extend_from_slice(self.source.next_record());
        }
        let records: Vec<&[u8]> = self.batch.iter().map(Vec::as_slice).collect();
        engine.append_batch(stream, &records)
    }
}

/// What all writers share.
#[derive(Clone, Copy)]
struct Run<'a> {
    engine: &'a dyn Engine,
    work: &'a Work,
    watch: Watch,
    start: &'a Barrier,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    fn write(self, mut writer: Writer) -> Result<Written> {
        // What happens once, at the first append, is not what is measured.
        let first = self.engine.append(self.stream_of(&writer), writer.source.next_record());
        self.start.wait();
        first?;
        let began = self.watch.elapsed();
        let samples = match self.work.kind {
            Kind::Window { appends } => self.write_window(&mut writer, appends)?,
            _ => self.write_blocking(&mut writer)?,
        };
        Ok(Written { records: writer.source.count(), began, ended: self.watch.elapsed(), samples })
    }

    fn stream_of(&self, writer: &Writer) -> usize {
        self.work.stream_of(writer.number)
    }

    fn goes_on(&self, writer: &Writer) -> bool {
        let bytes = writer.source.count() * self.work.record_bytes as u64;
        bytes < self.work.bytes_max / self.work.writers as u64 && !self.stop.load(Ordering::Relaxed)
    }

    fn write_blocking(&self, writer: &mut Writer) -> Result<Vec<Sample>> {
        let all = self.work.level == Level::Disk
            || self.work.batch > 1
            || matches!(self.work.kind, Kind::Sustained { .. });
        let every = if all { 1 } else { SAMPLE };
        let stream = self.stream_of(writer);
        let mut samples = Vec::new();
        let mut appends = 0_u64;
        while self.goes_on(writer) {
            let timed = appends.is_multiple_of(every).then(|| self.watch.elapsed());
            writer.append(self.engine, stream)?;
            appends += 1;
            samples.extend(timed.map(|from| self.sample(from)));
        }
        Ok(samples)
    }

    /// Waits for the oldest append whenever as many are under way as may be.
    fn write_window(&self, writer: &mut Writer, appends: usize) -> Result<Vec<Sample>> {
        let stream = self.stream_of(writer);
        let mut under_way: VecDeque<(Pending<'_>, Option<Duration>)> =
            VecDeque::with_capacity(appends);
        let mut samples = Vec::new();
        loop {
            let goes_on = self.goes_on(writer);
            if under_way.len() == appends || !goes_on {
                let Some((pending, timed)) = under_way.pop_front() else { return Ok(samples) };
                pending()?;
                samples.extend(timed.map(|from| self.sample(from)));
            }
            if goes_on {
                let timed = writer.source.count().is_multiple_of(SAMPLE);
                let timed = timed.then(|| self.watch.elapsed());
                let pending = self.engine.start(stream, writer.source.next_record())?;
                under_way.push_back((pending, timed));
            }
        }
    }

    fn sample(&self, from: Duration) -> Sample {
        let ended = self.watch.elapsed();
        let micros = (ended - from).as_secs_f64() * 1e6;
        Sample { ended, micros, records: self.work.batch as f64 }
    }
}
