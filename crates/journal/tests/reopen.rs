//! The power fails again while a crashed journal is being opened, at every call of the open: what
//! the second open finds is a beginning of what was appended, never one with a hole.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thetis_journal::sim::SimDisk;
use thetis_journal::verify::verify;
use thetis_journal::{Append, Journal, Log, Options, Recovery};
use thetis_types::{
    AttemptId, Durability, Entry, EntryFormat, Epoch, HeadVersion, Offset, StreamId,
};

const STREAMS: u64 = 3;

fn options() -> Options {
    // Nothing is flushed unless a test asks for it: whole files are at stake in a crash.
    let os_flush_interval = Duration::from_secs(3600);
    Options { file_bytes: 16 << 10, os_flush_interval, ..Options::default() }
}

fn open(disk: &SimDisk) -> (Journal, Recovery) {
    Journal::open(Arc::new(disk.clone()), options()).unwrap()
}

fn payload(n: u64) -> Bytes {
    (0..900_u64).map(|i| u8::try_from((n * 7 + i) % 250).unwrap() + 1).collect()
}

fn append(log: &Log, n: u64) -> thetis_journal::Position {
    let entry = Entry {
        record_count: 1,
        max_timestamp: 0,
        format: EntryFormat::Record,
        payload: payload(n),
    };
    log.append(&[Append {
        epoch: Epoch(1),
        version: HeadVersion(n + 1),
        base_offset: Offset(n),
        attempt: AttemptId::NONE,
        entry: &entry,
    }])
    .unwrap()
}

/// Entries of all streams, in turn: what survives must be the first so many of this order.
fn check(journal: &Journal, context: &str) -> u64 {
    let mut ends = Vec::new();
    for id in 0..STREAMS {
        let log = journal.log(StreamId(id));
        let end = log.head().map_or(0, |head| head.end.0);
        for n in 0..end {
            let read = log.read(Offset(n), Offset(n + 1), 1);
            let read = read.unwrap_or_else(|error| panic!("{context} s{id}: {error}"));
            assert!(read[0].payload == payload(n), "{context} s{id}: other bytes at {n}");
        }
        ends.push(end);
    }
    let all: u64 = ends.iter().sum();
    for (id, end) in (0..STREAMS).zip(&ends) {
        assert_eq!(*end, (all + STREAMS - 1 - id) / STREAMS, "{context}: a hole before {ends:?}");
    }
    all
}

#[test]
fn a_crash_within_an_open_leaves_no_hole() {
    for seed in 0..16 {
        let disk = SimDisk::new(seed);
        let (journal, _) = open(&disk);
        let logs: Vec<Log> = (0..STREAMS).map(|id| journal.log(StreamId(id))).collect();
        let mut durable = 0;
        for n in 0..120 {
            let at = append(&logs[usize::try_from(n % STREAMS).unwrap()], n / STREAMS);
            // Asked for, so that files are mapped ones.
            let _ = journal.reached(at, Durability::Os);
            if seed % 2 == 0 && n == 20 {
                journal.wait(at, Durability::Disk).unwrap();
                durable = n + 1;
            }
        }
        let image = disk.crash();
        drop(journal);
        for calls in 0.. {
            let context = format!("seed {seed}, crash in call {calls} of the open");
            // An image has nothing that could be lost: its image is the same.
            let first = image.crash();
            first.crash_after(calls);
            let opened = Journal::open(Arc::new(first.clone()), options());
            let done = opened.is_ok() && !first.crashed();
            let second = first.crash();
            drop(opened);
            let report = verify(&second, |_| {}).unwrap();
            assert!(report.is_sound(), "{context}: {:#?}", report.findings);
            let (journal, found) = open(&second);
            assert!(found.damage.is_empty(), "{context}: {:#?}", found.damage);
            let all = check(&journal, &context);
            assert!(all >= durable, "{context}: {all} of {durable}");
            drop(journal);
            if done {
                break;
            }
        }
    }
}
