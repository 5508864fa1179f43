//! One thread that appends to many streams in turn: what a stream costs, and what having many does to an
//! append.

use std::time::Duration;

use anyhow::Result;

use super::cost::{Memory, cpu_time};
use super::engine::Engine;
use super::{Measured, Work, grown};
use crate::content::{Check, Source};
use crate::figures::{Watch, quantile};

pub(super) fn run(work: &Work, open: impl Fn() -> Result<Box<dyn Engine>>) -> Result<Measured> {
    let mut sources: Vec<Source> =
        (0..work.writers).map(|stream| Source::new(stream, work.record_bytes)).collect();
    let before = Memory::now()?;
    let watch = Watch::default();
    let engine = open()?;
    for (stream, source) in sources.iter_mut().enumerate() {
        engine.append(stream, source.next_record())?;
    }
    let created = watch.elapsed();

    let (mut micros, cpu_before) = (Vec::new(), cpu_time());
    let until = created + Duration::from_secs_f64(work.seconds);
    let records_max = work.bytes_max / work.record_bytes as u64;
    let mut streams = (0..work.writers).cycle();
    let mut at = created;
    while at < until && (micros.len() as u64) < records_max {
        let Some(stream) = streams.next() else { break };
        engine.append(stream, sources[stream].next_record())?;
        let now = watch.elapsed();
        micros.push((now - at).as_secs_f64() * 1e6);
        at = now;
    }
    let cpu = (cpu_time() - cpu_before).as_secs_f64();
    let after = Memory::now()?;
    let bytes = micros.len() as f64 * work.record_bytes as f64;
    let (memory_peak_mb, memory_own_mb) = grown(before, after, after.anonymous);

    let mut check = Check::new(work.writers, work.record_bytes);
    for stream in 0..work.writers {
        engine.read(stream, &mut |record| check.see(record))?;
    }
    check.finish(&sources.iter().map(Source::count).collect::<Vec<_>>())?;
    engine.close()?;
    Ok(Measured {
        create_us: created.as_secs_f64() * 1e6 / work.writers as f64,
        records_per_s: micros.len() as f64 / (at - created).as_secs_f64(),
        append_p50_us: quantile(&micros, 0.5),
        append_p99_us: quantile(&micros, 0.99),
        memory_peak_mb,
        memory_own_mb,
        cpu_s_per_gb: cpu / (bytes / 1e9),
        ..Measured::default()
    })
}
