//! The time from before an append to a reader's having the record.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::engine::Engine;
use super::{Measured, Work};
use crate::content::{Check, Source};
use crate::figures::{Watch, quantile};

/// Pause between the records whose way is timed: both sides are at rest before each.
const PAUSE: Duration = Duration::from_micros(300);
/// Most records whose way is timed; a work of little time takes fewer.
const RECORDS_MAX: u32 = 2_000;
/// Of those, how many for each second of the work.
const RECORDS_PER_S: f64 = 2_000.0;

pub(super) fn run(work: &Work, open: impl Fn() -> Result<Box<dyn Engine>>) -> Result<Measured> {
    let engine = open()?;
    let records = (0..RECORDS_MAX).take_while(|one| f64::from(*one) < work.seconds * RECORDS_PER_S);
    let sent: Vec<AtomicU64> = records.map(|_| AtomicU64::new(0)).collect();
    let mut micros = Vec::new();
    let watch = Watch::default();
    thread::scope(|scope| {
        let engine = &*engine;
        let writer = scope.spawn(|| -> Result<u64> {
            let mut source = Source::new(0, work.record_bytes);
            for sent in &sent {
                thread::sleep(PAUSE);
                let record = source.next_record();
                sent.store(nanos(watch.elapsed()), Ordering::Release);
                engine.append(0, record)?;
            }
            Ok(source.count())
        });
        let mut check = Check::new(1, work.record_bytes);
        let mut number = 0;
        engine.follow(0, sent.len() as u64, &mut |record| {
            let came = nanos(watch.elapsed());
            micros.push(came.saturating_sub(sent[number].load(Ordering::Acquire)) as f64 / 1e3);
            number += 1;
            check.see(record)
        })?;
        check.finish(&[writer.join().expect("the writer does not panic")?])
    })?;
    engine.close()?;
    Ok(Measured {
        tail_p50_us: quantile(&micros, 0.5),
        tail_p99_us: quantile(&micros, 0.99),
        ..Measured::default()
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
