//! One call of the disk fails, each kind and each occurrence in turn; the directory goes under the
//! running journal; a real file system fills up. What was waited for is there, reads go on, the
//! error says what happened, and there is a way back.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

#[path = "shared/entry.rs"]
mod entry;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use entry::append_next;
use thetis_journal::sim::{Call, Fault, SimDisk};
use thetis_journal::verify::verify;
use thetis_journal::{AppendError, Journal, Log, OpenError, Options, OsDisk, Position, ReadError};
use thetis_types::{Durability, HeadVersion, Offset, StreamId};

const FILE: u64 = 32 << 10;
const STREAMS: u64 = 3;

fn open(disk: &SimDisk) -> Result<Journal, OpenError> {
    let options = Options { file_bytes: FILE, tail_cache_bytes: 64 << 10, ..Options::default() };
    Ok(Journal::open(Arc::new(disk.clone()), options)?.0)
}

fn payload(n: u64) -> Bytes {
    (0..800_u64).map(|i| u8::try_from((n * 11 + i) % 250).unwrap() + 1).collect()
}

fn append(log: &Log) -> Result<Position, AppendError> {
    append_next(log, payload)
}

/// Every entry of `[from, until)` is there, or else why one is not; an entry that is there is right.
fn readable(log: &Log, from: u64, until: u64) -> Result<(), ReadError> {
    (from..until).try_for_each(|n| {
        let read = log.read(Offset(n), Offset(n + 1), 1)?;
        assert!(read[0].payload == payload(n), "other bytes at {n}");
        Ok(())
    })
}

/// What was promised of each stream.
#[derive(Default)]
struct Promised {
    ends: BTreeMap<u64, u64>,
    trims: BTreeMap<u64, u64>,
}

impl Promised {
    fn check(&self, journal: &Journal, context: &str) {
        for (id, end) in &self.ends {
            let log = journal.log(StreamId(*id));
            let from = self.trims.get(id).copied().unwrap_or_default();
            let known = log.head().map_or(0, |head| head.end.0);
            assert!(known >= *end, "{context} s{id}: {known} of {end}");
            // A single failed read is the fault that was asked for; the next one is none.
            let there = readable(&log, from, *end).or_else(|_| readable(&log, from, *end));
            there.unwrap_or_else(|error| panic!("{context} s{id}: {error}"));
        }
    }
}

/// Appends at all levels, trims and reclaims until something refuses; says whether it did.
fn work(journal: &Journal, promised: &mut Promised) -> bool {
    let mut refused = false;
    for n in 0..90_u64 {
        let id = n % STREAMS;
        let log = journal.log(StreamId(id));
        let Ok(at) = append(&log) else {
            refused = true;
            continue;
        };
        let level = [Durability::Disk, Durability::Os, Durability::Memory, Durability::Disk];
        let level = level[usize::try_from(n % 4).unwrap()];
        match journal.wait(at, level) {
            Ok(()) if level == Durability::Disk => {
                promised.ends.insert(id, log.head().unwrap().end.0);
            }
            Ok(()) => {}
            Err(error) => {
                assert!(error.to_string().contains("reopen"), "{error}");
                refused = true;
            }
        }
        if n % 30 == 29 {
            let end = promised.ends.get(&0).copied().unwrap_or_default();
            promised.trims.insert(0, end);
            journal.log(StreamId(0)).trim(Offset(end));
            refused |= journal.reclaim().is_err();
        }
    }
    refused
}

#[test]
fn any_call_may_fail_once_and_nothing_promised_is_lost() {
    let calls = [
        Call::Write,
        Call::Sync,
        Call::Read,
        Call::Create,
        Call::Open,
        Call::Rename,
        Call::Remove,
        Call::SyncDir,
        Call::Truncate,
    ];
    let mut seen = 0;
    for call in calls {
        for may_map in [false, true] {
            for after in 0.. {
                let context = format!("{call:?} {after}, mapped {may_map}");
                let disk = SimDisk::new(after);
                disk.set_may_map(may_map);
                disk.fail(Some(Fault { call, after, sticky: false }));
                let mut promised = Promised::default();
                // A failed open changes nothing: the next one goes well.
                let journal = open(&disk).or_else(|_| open(&disk)).unwrap();
                let refused = work(&journal, &mut promised);
                seen += usize::from(refused);
                promised.check(&journal, &format!("{context}, running"));
                let _ = journal.close();
                // Closed or stopped, reads go on.
                promised.check(&journal, &format!("{context}, closed"));
                let struck = !disk.is_failing();
                drop(journal);
                disk.fail(None);
                let image = disk.crash();
                let journal = open(&image).unwrap();
                promised.check(&journal, &context);
                // The way back: what was opened again works.
                assert!(!work(&journal, &mut promised), "{context}: still refused");
                journal.close().unwrap();
                let report = verify(&image, |_| {}).unwrap();
                assert!(report.is_sound(), "{context}: {:?}", report.findings);
                if !struck || after > 36 {
                    break;
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} faults were felt");
}

#[test]
fn the_open_of_a_crashed_journal_may_fail_at_any_call() {
    let disk = SimDisk::new(3);
    let journal = open(&disk).unwrap();
    let mut promised = Promised::default();
    assert!(!work(&journal, &mut promised));
    let image = disk.crash();
    drop(journal);
    let calls = [Call::Write, Call::Sync, Call::Read, Call::Create, Call::Open, Call::Rename];
    for call in calls.into_iter().chain([Call::Remove, Call::SyncDir, Call::Truncate]) {
        for after in 0.. {
            let context = format!("{call:?} {after}");
            let disk = image.crash();
            disk.fail(Some(Fault { call, after, sticky: false }));
            let opened = open(&disk);
            let struck = !disk.is_failing();
            if let Err(error) = &opened {
                assert!(matches!(error, OpenError::Io { .. }), "{context}: {error}");
            }
            drop(opened);
            disk.fail(None);
            let journal = open(&disk).unwrap();
            promised.check(&journal, &context);
            if !struck {
                break;
            }
        }
    }
}

#[test]
fn a_directory_removed_in_use_is_said_and_reads_go_on() {
    let disk = SimDisk::new(4);
    let journal = open(&disk).unwrap();
    let log = journal.log(StreamId(1));
    for _ in 0..20 {
        journal.wait(append(&log).unwrap(), Durability::Disk).unwrap();
    }
    let end = log.head().unwrap().end.0;
    disk.remove_directory();
    let error = std::iter::repeat_with(|| append(&log)).find_map(Result::err).unwrap();
    assert!(matches!(error, AppendError::NoFile { .. }), "{error}");
    assert!(error.to_string().contains("see that the directory is there"), "{error}");
    readable(&log, 0, end).unwrap();
}

#[test]
fn a_caller_that_panics_or_goes_leaves_the_journal_whole() {
    let disk = SimDisk::new(5);
    let journal = open(&disk).unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    for n in 0..40 {
        let (journal, told) = (journal.clone(), Arc::clone(&told));
        let caller = std::thread::spawn(move || {
            let log = journal.log(StreamId(n % STREAMS));
            let at = append(&log).unwrap();
            // Nobody waits for it, or a callback does whose owner is gone when it runs.
            if n % 2 == 0 {
                let gone = Gone(told);
                let then = Box::new(move |_| drop(gone));
                journal.when(at, Durability::Disk, then);
            }
            drop(log);
            assert!(n % 3 == 0, "on purpose");
        });
        assert_eq!(caller.join().is_err(), n % 3 != 0);
    }
    let log = journal.log(StreamId(0));
    journal.wait(append(&log).unwrap(), Durability::Disk).unwrap();
    let ends: Vec<u64> =
        (0..STREAMS).map(|id| journal.log(StreamId(id)).head().unwrap().end.0).collect();
    assert_eq!(ends.iter().sum::<u64>(), 41);
    drop(log);
    // Every callback was run or dropped, none twice and none never.
    journal.close().unwrap();
    drop(journal);
    assert_eq!(told.load(Ordering::Acquire), 20);
    let journal = open(&disk).unwrap();
    for (id, end) in (0..STREAMS).zip(ends) {
        readable(&journal.log(StreamId(id)), 0, end).unwrap();
    }
}

struct Gone(Arc<AtomicUsize>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// A callback of somebody else that panics takes neither the flush nor the other callbacks along.
#[test]
fn a_callback_that_panics_stops_nobody() {
    let disk = SimDisk::new(6);
    let journal = open(&disk).unwrap();
    let log = journal.log(StreamId(1));
    for _ in 0..8 {
        let at = append(&log).unwrap();
        journal.when(at, Durability::Disk, Box::new(|_| panic!("on purpose")));
        let done = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = std::sync::mpsc::channel();
        let note = Arc::clone(&done);
        let then = Box::new(move |result: Result<(), _>| {
            note.store(result.is_ok(), Ordering::Release);
            sender.send(()).unwrap();
        });
        journal.when(at, Durability::Disk, then);
        receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert!(done.load(Ordering::Acquire));
    }
    journal.wait(append(&log).unwrap(), Durability::Disk).unwrap();
    journal.close().unwrap();
}

/// A file system of a few megabytes that fills up for real.
#[test]
fn a_real_disk_that_fills_up_comes_back() {
    let Some(mount) = Tmpfs::mount("8m") else {
        eprintln!("SKIPPED: a small file system cannot be mounted here");
        return;
    };
    let options = Options { file_bytes: 1 << 20, ..Options::default() };
    let disk = Arc::new(OsDisk::new(&mount.0).unwrap());
    let (journal, _) = Journal::open(disk, options.clone()).unwrap();
    let log = journal.log(StreamId(1));
    let mut last = Position(0);
    let error = loop {
        match append(&log) {
            Ok(at) => last = at,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::Full { .. }), "{error}");
    journal.wait(last, Durability::Disk).unwrap();
    let end = log.head().unwrap().end.0;
    readable(&log, 0, end).unwrap();
    // Restarted while it is full, then given room by the owner's word.
    drop((journal, log));
    let disk = Arc::new(OsDisk::new(&mount.0).unwrap());
    let (journal, found) = Journal::open(disk, options).unwrap();
    assert!(found.damage.is_empty() && found.cut.is_none(), "{found:?}");
    let log = journal.log(StreamId(1));
    readable(&log, 0, end).unwrap();
    log.trim(Offset(end - 10));
    while journal.reclaim().unwrap().removed_files > 0 {}
    for _ in 0..100 {
        journal.wait(append(&log).unwrap(), Durability::Disk).unwrap();
    }
    readable(&log, end - 10, end + 100).unwrap();
    journal.close().unwrap();
}

/// A memory file system of its own, unmounted when dropped.
struct Tmpfs(std::path::PathBuf, Option<tempfile::TempDir>);

impl Tmpfs {
    fn mount(size: &str) -> Option<Tmpfs> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let option = format!("size={size}");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &option, "thetis-test"]).arg(&path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Tmpfs(path, Some(dir)))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
        self.1.take();
    }
}

#[test]
fn versions_go_on_after_a_fault() {
    // A refused append leaves no gap in versions: the same entry is taken later.
    let disk = SimDisk::new(7);
    let journal = open(&disk).unwrap();
    let log = journal.log(StreamId(1));
    disk.fail(Some(Fault { call: Call::Create, after: 0, sticky: true }));
    let error = std::iter::repeat_with(|| append(&log)).find_map(Result::err).unwrap();
    assert!(matches!(error, AppendError::NoFile { .. }), "{error}");
    let before = log.head().unwrap();
    disk.fail(None);
    journal.wait(append(&log).unwrap(), Durability::Disk).unwrap();
    let after = log.head().unwrap();
    assert_eq!(after.version, HeadVersion(before.version.0 + 1));
    assert_eq!(after.end, before.end.plus(1));
}

/// The timer and a waiting thread may sync at once. When one sync fails, pages it covered count as
/// clean; the other's success must not be taken for theirs.
#[test]
fn a_failed_sync_is_not_covered_up_by_another() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        disk.shake(true);
        let options = Options {
            file_bytes: FILE,
            os_flush_interval: std::time::Duration::from_micros(200),
            ..Options::default()
        };
        let (journal, _) = Journal::open(Arc::new(disk.clone()), options).unwrap();
        disk.fail(Some(Fault { call: Call::Sync, after: 10 + seed % 20, sticky: false }));
        let ends: Vec<u64> = std::thread::scope(|scope| {
            let work = |id: u64| {
                let log = journal.log(StreamId(id));
                let level = if id == 0 { Durability::Os } else { Durability::Disk };
                let mut end = 0;
                for _ in 0..60 {
                    let Ok(at) = append(&log) else { break };
                    match journal.wait(at, level) {
                        Ok(()) if id > 0 => end = log.head().unwrap().end.0,
                        Ok(()) => {}
                        Err(_) => break,
                    }
                }
                end
            };
            let threads: Vec<_> = (0..STREAMS).map(|id| scope.spawn(move || work(id))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // A loss of power that takes all it may take.
        let image = disk.crash();
        drop(journal);
        image.shake(false);
        let journal = open(&image).unwrap();
        for (id, end) in (0..STREAMS).zip(ends) {
            let known = journal.log(StreamId(id)).head().map_or(0, |head| head.end.0);
            assert!(known >= end, "seed {seed} s{id}: {known} of {end}");
            readable(&journal.log(StreamId(id)), 0, end).unwrap();
        }
    }
}
