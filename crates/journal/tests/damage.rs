//! Faults other than a crash: rot, full disks, failed flushes, newer formats; and reclaim under
//! crashes at every call.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

#[path = "shared/entry.rs"]
mod entry;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use entry::append_next;
use thetis_journal::sim::{Call, Fault, SimDisk};
use thetis_journal::verify::{FindingKind, verify};
use thetis_journal::{
    AppendError, CrashRow, FlushError, Journal, Log, OpenError, Options, Position, ReadError,
    Recovery, inspect,
};
use thetis_types::{Durability, HeadVersion, Offset, Outcome, StreamId};

const FILE: u64 = 32 << 10;

fn open(disk: &SimDisk) -> (Journal, Recovery) {
    let options = Options { file_bytes: FILE, tail_cache_bytes: 0, ..Options::default() };
    Journal::open(Arc::new(disk.clone()), options).unwrap()
}

fn payload(n: u64) -> Bytes {
    (0..500_u64).map(|i| u8::try_from((n * 7 + i) % 250).unwrap() + 1).collect()
}

fn append(log: &Log) -> Result<Position, AppendError> {
    append_next(log, payload)
}

fn append_durably(journal: &Journal, log: &Log, count: u64) {
    for _ in 0..count {
        let at = append(log).unwrap();
        journal.wait(at, Durability::Disk).unwrap();
    }
}

fn check(log: &Log, from: u64, until: u64) {
    for n in from..until {
        let read = log.read(Offset(n), Offset(n + 1), 1).unwrap();
        assert_eq!((read.len(), read[0].base_offset.0), (1, n));
        assert_eq!(read[0].payload, payload(n));
    }
}

/// A closed journal of several files and two streams.
fn closed() -> SimDisk {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    for id in [1, 2] {
        append_durably(&journal, &journal.log(StreamId(id)), 100);
    }
    journal.close().unwrap();
    disk
}

#[test]
fn every_flipped_bit_of_a_closed_journal_is_found_and_none_is_served() {
    let disk = closed();
    assert!(verify(&disk, |_| {}).unwrap().findings.is_empty());
    let files = inspect::files(&disk).unwrap();
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    for round in 0..1000_u64 {
        // Spread over all bytes of all files, headers and footers included.
        let mut at = round * (total / 1000) + round % 97;
        at %= total;
        let file = files.iter().find(|file| {
            let inside = at < file.bytes;
            at -= if inside { 0 } else { file.bytes };
            inside
        });
        let (name, bit) = (&file.unwrap().name, u32::try_from(round % 8).unwrap());
        disk.flip(name, at, bit).unwrap();
        match verify(&disk, |_| {}) {
            Ok(report) => assert!(!report.is_sound(), "bit {bit} of byte {at} of {name}"),
            Err(error) => panic!("bit {bit} of byte {at} of {name}: {error}"),
        }
        disk.flip(name, at, bit).unwrap();
    }
    assert!(verify(&disk, |_| {}).unwrap().findings.is_empty());
}

#[test]
fn a_damaged_entry_is_refused_and_those_around_it_are_served() {
    let disk = closed();
    let file = inspect::files(&disk).unwrap()[0].clone();
    let frames = inspect::frames(&disk, file.sequence).unwrap();
    let frame = frames.iter().find(|it| it.header.unwrap().base_offset == Offset(7)).unwrap();
    disk.flip(&file.name, frame.at + 300, 3).unwrap();
    let report = verify(&disk, |_| {}).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].kind, FindingKind::Damage);
    assert_eq!(report.findings[0].stream, Some(StreamId(1)));
    assert_eq!(report.findings[0].range.unwrap().start, Offset(7));
    let (journal, found) = open(&disk);
    assert_eq!(found.streams[0].head.end, Offset(100), "damage never shortens a stream");
    let log = journal.log(StreamId(1));
    assert_eq!(log.read(Offset(5), Offset(100), usize::MAX).unwrap().len(), 2);
    let refused = log.read(Offset(7), Offset(100), 1);
    assert!(matches!(refused, Err(ReadError::Damaged { offset: Offset(7), .. })), "{refused:?}");
    check(&log, 8, 100);
}

/// Damage in a file that was never sealed: told from a torn tail by what stands behind it, or by
/// being one bit.
#[test]
fn damage_before_the_tail_of_an_unsealed_file_is_fenced_off() {
    for (victim, rows) in [(5, CrashRow::D), (19, CrashRow::E)] {
        let disk = SimDisk::new(2);
        let (journal, _) = open(&disk);
        append_durably(&journal, &journal.log(StreamId(1)), 20);
        let disk = disk.crash();
        let frames = inspect::frames(&disk, 1).unwrap();
        let entries: Vec<_> =
            frames.iter().filter(|it| it.header.is_some_and(|it| it.kind.is_entry())).collect();
        assert_eq!(entries.len(), 20);
        disk.flip(&inspect::files(&disk).unwrap()[0].name, entries[victim].at + 200, 1).unwrap();
        for open_again in [false, true] {
            let (journal, found) = open(&disk);
            let row = if open_again { CrashRow::D } else { rows };
            assert!(found.rows.contains(&row), "{:?}", found.rows);
            assert!(found.cut.is_none());
            assert_eq!(found.damage.len(), 1);
            assert_eq!(found.streams[0].head.end, Offset(20));
            let log = journal.log(StreamId(1));
            let at = victim as u64;
            let refused = log.read(Offset(at), Offset(20), 1);
            assert!(matches!(refused, Err(ReadError::Damaged { .. })));
            check(&log, 0, at);
            check(&log, at + 1, 20);
            journal.close().unwrap();
        }
    }
}

#[test]
fn damaged_headers_and_footers_are_reported_and_made_up_for() {
    let disk = closed();
    let name = inspect::files(&disk).unwrap()[0].name.clone();
    let size = inspect::files(&disk).unwrap()[0].bytes;
    // One copy of the header, and the footer's trailer.
    disk.flip(&name, 20, 0).unwrap();
    disk.flip(&name, size - 50, 0).unwrap();
    let (journal, found) = open(&disk);
    assert!(found.rows.is_superset(&BTreeSet::from([CrashRow::G, CrashRow::J])), "{found:?}");
    check(&journal.log(StreamId(1)), 0, 100);
    check(&journal.log(StreamId(2)), 0, 100);
    journal.close().unwrap();
    // Both copies: the file is left alone, its offsets are missing, never silently passed over.
    disk.flip(&name, 2048 + 20, 0).unwrap();
    let (journal, found) = open(&disk);
    assert!(found.rows.contains(&CrashRow::K));
    let log = journal.log(StreamId(1));
    assert!(matches!(log.read(Offset(0), Offset(100), 1), Err(ReadError::Missing { .. })));
    assert_eq!(log.head().unwrap().end, Offset(100));
    journal.close().unwrap();
    disk.flip(&name, 2048 + 20, 0).unwrap();
    let (journal, _) = open(&disk);
    check(&journal.log(StreamId(1)), 0, 100);
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let disk = closed();
    let name = inspect::files(&disk).unwrap()[1].name.clone();
    // Version 2 in both copies, with a checksum that fits: bytes 8 and 60.. of each.
    let io = thetis_journal::Disk::open(&disk, &name).unwrap();
    let mut header = [0; 64];
    io.read_at(&mut header, 0).unwrap();
    header[8] = 2;
    let crc = crc32c::crc32c(&header[..60]).to_le_bytes();
    header[60..].copy_from_slice(&crc);
    for copy in [0, 2048] {
        for (at, value) in header.iter().enumerate() {
            disk.set_byte(&name, copy + at as u64, *value).unwrap();
        }
    }
    match Journal::open(Arc::new(disk.clone()), Options::default()) {
        Err(OpenError::Unsupported { file, .. }) => assert_eq!(file, name),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_failed_flush_stops_appends_and_leaves_reads() {
    // A mapped file has no writes that could fail.
    for (call, may_map) in [(Call::Write, false), (Call::Sync, false), (Call::Sync, true)] {
        for sticky in [false, true] {
            let disk = SimDisk::new(3);
            disk.set_may_map(may_map);
            let (journal, _) = open(&disk);
            let log = journal.log(StreamId(1));
            append_durably(&journal, &log, 10);
            let at = append(&log).unwrap();
            if call == Call::Sync {
                // Bytes in the page cache make the next flush a sync.
                journal.wait(at, Durability::Os).unwrap();
            }
            disk.fail(Some(Fault { call, after: 0, sticky }));
            // The journal's own timer may be the one that meets the fault.
            let error = match append(&log) {
                Ok(at) => journal.wait(at, Durability::Disk).unwrap_err(),
                Err(AppendError::Poisoned { reason }) => FlushError::Poisoned { reason },
                Err(error) => panic!("{error}"),
            };
            assert_eq!(error.outcome(), Outcome::MayHaveCommitted);
            let (sender, receiver) = std::sync::mpsc::channel();
            let then = Box::new(move |result| sender.send(result).unwrap());
            journal.when(Position(u64::MAX), Durability::Disk, then);
            assert!(matches!(receiver.recv().unwrap(), Err(FlushError::Poisoned { .. })));
            let refused = append(&log).unwrap_err();
            assert!(matches!(refused, AppendError::Poisoned { .. }));
            assert_eq!(refused.outcome(), Outcome::NotCommitted);
            assert!(journal.stats().poisoned.is_some());
            check(&log, 0, 10);
            drop((journal, log));
            let (journal, found) = open(&disk.crash());
            assert!(found.damage.is_empty());
            check(&journal.log(StreamId(1)), 0, 10);
        }
    }
}

#[test]
fn a_full_disk_refuses_appends_until_there_is_room() {
    let disk = SimDisk::new(4);
    disk.set_capacity(4 * FILE);
    let (journal, _) = open(&disk);
    let log = journal.log(StreamId(1));
    let mut last = Position(0);
    let refused = loop {
        match append(&log) {
            Ok(at) => last = at,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::Full { .. }), "{refused}");
    assert_eq!(refused.outcome(), Outcome::NotCommitted);
    journal.wait(last, Durability::Disk).unwrap();
    let end = log.head().unwrap().end.0;
    check(&log, 0, end);
    drop((journal, log));

    // Restarted while full: everything is readable, nothing can be appended.
    let disk = disk.crash();
    disk.set_capacity(disk.used());
    let (journal, found) = open(&disk);
    assert!(found.damage.is_empty() && found.cut.is_none(), "{found:?}");
    let log = journal.log(StreamId(1));
    check(&log, 0, end);
    disk.set_capacity(0);
    assert!(matches!(append(&log), Err(AppendError::Full { .. })));
    // Room again, without a restart.
    disk.set_capacity(u64::MAX);
    append_durably(&journal, &log, 5);
    check(&log, 0, end + 5);
    journal.close().unwrap();
    assert!(verify(&disk, |_| {}).unwrap().findings.is_empty());
}

/// Three streams interleaved: one trimmed to its end, one discarded, one that lives in few places.
fn mostly_dead(disk: &SimDisk) -> Journal {
    let (journal, _) = open(disk);
    for n in 0..300 {
        for id in [1, 2, 3] {
            if id != 3 || n % 25 == 0 {
                append_durably(&journal, &journal.log(StreamId(id)), 1);
            }
        }
    }
    append_durably(&journal, &journal.log(StreamId(4)), 30);
    journal.close().unwrap();
    let (journal, _) = open(disk);
    say(&journal);
    journal
}

fn say(journal: &Journal) {
    journal.log(StreamId(1)).trim(Offset(300));
    journal.log(StreamId(2)).discard();
    journal.log(StreamId(3)).trim(Offset(1));
}

#[test]
fn reclaim_removes_what_is_dead_and_moves_what_lives() {
    let disk = SimDisk::new(5);
    let journal = mostly_dead(&disk);
    let before = journal.stats();
    let reclaim = |journal: &Journal| {
        std::iter::repeat_with(|| journal.reclaim().unwrap())
            .take_while(|report| report.removed_files > 0)
            .map(|report| report.relocated_entries)
            .sum::<u64>()
    };
    let relocated = reclaim(&journal);
    assert!(relocated >= 11, "{relocated}");
    let check_all = |journal: &Journal| {
        let trimmed = journal.log(StreamId(1)).head().unwrap();
        assert_eq!((trimmed.end, trimmed.version), (Offset(300), HeadVersion(300)));
        assert_eq!(trimmed.bytes, 300 * 500);
        check(&journal.log(StreamId(3)), 1, 12);
        check(&journal.log(StreamId(4)), 0, 30);
    };
    check_all(&journal);
    append_durably(&journal, &journal.log(StreamId(3)), 1);
    check(&journal.log(StreamId(3)), 1, 13);
    journal.close().unwrap();
    assert!(verify(&disk, |_| {}).unwrap().findings.is_empty());
    let (journal, _) = open(&disk);
    check_all(&journal);
    // With every file sealed, not while one may wait for it, they can be counted.
    say(&journal);
    reclaim(&journal);
    check(&journal.log(StreamId(3)), 1, 13);
    let left = journal.stats().files;
    assert!(left <= 4, "{left} of {} files", before.files);
}

#[test]
fn nothing_goes_without_the_owners_word() {
    let disk = closed();
    let (journal, _) = open(&disk);
    assert_eq!(journal.reclaim().unwrap().removed_files, 0);
    check(&journal.log(StreamId(1)), 0, 100);
}

#[test]
fn reclaim_survives_a_crash_at_every_call() {
    let mut rows = BTreeSet::new();
    for calls in 0.. {
        let disk = SimDisk::new(calls);
        let journal = mostly_dead(&disk);
        disk.crash_after(calls);
        let done = (0..6).all(|_| journal.reclaim().is_ok());
        let image = disk.crash();
        drop(journal);
        let report = verify(&image, |_| {}).unwrap();
        assert!(report.is_sound(), "call {calls}: {:?}", report.findings);
        let (journal, found) = open(&image);
        rows.extend(found.rows);
        say(&journal);
        check(&journal.log(StreamId(3)), 1, 12);
        check(&journal.log(StreamId(4)), 0, 30);
        assert_eq!(journal.log(StreamId(1)).head().unwrap().version, HeadVersion(300));
        while journal.reclaim().unwrap().removed_files > 0 {}
        check(&journal.log(StreamId(3)), 1, 12);
        if done {
            break;
        }
    }
    assert!(rows.contains(&CrashRow::N), "{rows:?}");
}

/// Two files go in one reclaim, one of them evacuated; a crash may bring only that one back, with
/// dead entries before a hole.
#[test]
fn a_mark_counts_the_runs_of_evacuated_files() {
    for seed in 0..8 {
        for calls in 0.. {
            let disk = SimDisk::new(seed * 1000 + calls);
            let (journal, _) = open(&disk);
            let (dying, living) = (journal.log(StreamId(1)), journal.log(StreamId(2)));
            append_durably(&journal, &living, 1);
            append_durably(&journal, &dying, 200);
            journal.close().unwrap();
            let files = inspect::files(&disk).unwrap();
            let third = &files[2].footer.as_ref().unwrap().runs[0];
            assert_eq!(third.stream, StreamId(1));
            let (journal, _) = open(&disk);
            // Everything in the first two files but the one entry of the other stream.
            let start = third.range.start;
            journal.log(StreamId(1)).trim(start);
            disk.crash_after(calls);
            let done = journal.reclaim().is_ok_and(|report| report.removed_files == 2);
            let image = disk.crash();
            drop((journal, dying, living));
            let report = verify(&image, |_| {}).unwrap();
            assert!(report.is_sound(), "seed {seed}, call {calls}: {:?}", report.findings);
            let (journal, _) = open(&image);
            check(&journal.log(StreamId(1)), start.0, 200);
            check(&journal.log(StreamId(2)), 0, 1);
            if done {
                break;
            }
        }
    }
}

/// The way back from a full disk without a restart: what needs no copy goes first, the room it
/// leaves lets the rest follow.
#[test]
fn reclaim_makes_room_on_a_full_disk() {
    let disk = SimDisk::new(9);
    let (journal, _) = open(&disk);
    let log = journal.log(StreamId(1));
    append_durably(&journal, &journal.log(StreamId(2)), 1);
    append_durably(&journal, &log, 400);
    append_durably(&journal, &journal.log(StreamId(3)), 1);
    append_durably(&journal, &log, 200);
    journal.close().unwrap();
    let (journal, _) = open(&disk);
    let log = journal.log(StreamId(1));
    // Fill the disk to the last file.
    disk.set_capacity(disk.used() + 2 * FILE);
    while append(&log).is_ok() {}
    let end = log.head().unwrap().end.0;
    log.trim(Offset(end - 60));
    let before = journal.stats().files;
    let mut removed = 0;
    loop {
        let report = journal.reclaim().unwrap();
        removed += report.removed_files;
        if report.removed_files == 0 {
            break;
        }
    }
    assert!(removed > before / 2, "{removed} of {before}");
    append_durably(&journal, &log, 20);
    check(&log, end - 60, end + 20);
    check(&journal.log(StreamId(2)), 0, 1);
    check(&journal.log(StreamId(3)), 0, 1);
    journal.close().unwrap();
    assert!(verify(&disk, |_| {}).unwrap().findings.is_empty());
    let (journal, _) = open(&disk);
    check(&journal.log(StreamId(1)), end - 60, end + 20);
    check(&journal.log(StreamId(2)), 0, 1);
}
