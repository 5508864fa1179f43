//! The journal over a real directory: what is waited for is there after the next open, and one
//! directory belongs to one journal.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

use std::sync::Arc;

use bytes::Bytes;
use thetis_journal::verify::verify;
use thetis_journal::{
    Append, AppendError, CrashRow, IoChoice, Journal, Log, OpenError, Options, OsDisk, Position,
    Recovery,
};
use thetis_types::{
    AttemptId, Durability, Entry, EntryFormat, Epoch, HeadVersion, Offset, StreamId,
};

fn open(path: &std::path::Path, options: Options) -> (Journal, Recovery) {
    Journal::open(Arc::new(OsDisk::new(path).unwrap()), options).unwrap()
}

fn small() -> Options {
    Options { file_bytes: 1 << 20, ..Options::default() }
}

fn entry(payload: Vec<u8>, record_count: u32, max_timestamp: i64) -> Entry {
    let format = EntryFormat::Records;
    Entry { record_count, max_timestamp, format, payload: Bytes::from(payload) }
}

fn append(log: &Log, entry: &Entry) -> Result<Position, AppendError> {
    let head = log.head().unwrap_or_default();
    log.append(&[Append {
        epoch: Epoch(1),
        version: head.version.next(),
        base_offset: head.end,
        attempt: AttemptId { since: head.end, nonce: head.version.0 + 1 },
        entry,
    }])
}

fn payload(n: u64, bytes: usize) -> Vec<u8> {
    n.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// Reads everything back and compares; 2 records an entry.
fn check(log: &Log, count: u64, bytes: usize) {
    let mut next = Offset(0);
    let until = Offset(count * 2);
    while next < until {
        for stored in log.read(next, until, 300_000).unwrap() {
            assert_eq!(stored.base_offset, next);
            assert_eq!(stored.version, HeadVersion(next.0 / 2 + 1));
            assert_eq!(stored.attempt.nonce, next.0 / 2 + 1);
            assert_eq!(stored.payload, payload(next.0 / 2, bytes));
            next = stored.range().end;
        }
    }
    assert_eq!(next, until);
}

#[test]
fn everything_waited_for_is_there_after_close_and_after_drop() {
    for io in [IoChoice::Auto, IoChoice::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { io, tail_cache_bytes: 2 << 20, ..small() };
        let (journal, found) = open(dir.path(), options.clone());
        assert!(found.streams.is_empty() && found.damage.is_empty());
        let log = journal.log(StreamId(1));
        let other = journal.log(StreamId(2));
        let levels = [Durability::Memory, Durability::Os, Durability::Disk];
        for n in 0..3000_u64 {
            let at = append(&log, &entry(payload(n, 1500), 2, 0)).unwrap();
            append(&other, &entry(vec![1; 10], 1, 0)).unwrap();
            if n % 50 == 0 {
                journal.wait(at, levels[usize::try_from(n / 50 % 3).unwrap()]).unwrap();
            }
        }
        check(&log, 3000, 1500);
        journal.close().unwrap();
        check(&log, 3000, 1500);
        assert!(matches!(append(&log, &entry(vec![1], 1, 0)), Err(AppendError::Closed)));

        let (journal, found) = open(dir.path(), options.clone());
        assert_eq!(found.scanned_files, 0, "a closed journal has only footers to read");
        assert_eq!(found.streams.len(), 2);
        assert_eq!(found.streams[0].head.end, Offset(6000));
        assert_eq!(found.streams[0].head.bytes, 3000 * 1500);
        let log = journal.log(StreamId(1));
        check(&log, 3000, 1500);
        for n in 3000..3500_u64 {
            append(&log, &entry(payload(n, 1500), 2, 0)).unwrap();
        }
        let last = append(&log, &entry(payload(3500, 1500), 2, 0)).unwrap();
        journal.wait(last, Durability::Disk).unwrap();
        drop(log);
        drop((journal, other));

        let (journal, found) = open(dir.path(), options.clone());
        assert!(found.scanned_files >= 1, "nobody sealed the last file");
        assert!(found.damage.is_empty() && found.cut.is_none(), "{found:?}");
        assert!(found.rows.contains(&CrashRow::A));
        check(&journal.log(StreamId(1)), 3501, 1500);
    }
}

#[test]
fn a_second_open_is_refused_until_the_first_closes() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), small());
    let again = Journal::open(Arc::new(OsDisk::new(dir.path()).unwrap()), small());
    assert!(matches!(again, Err(OpenError::Locked)));
    journal.close().unwrap();
    open(dir.path(), small());
}

#[test]
fn two_directories_at_once_stay_apart() {
    for _ in 0..10 {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        std::thread::scope(|scope| {
            for (n, dir) in dirs.iter().enumerate() {
                scope.spawn(move || {
                    let (journal, _) = open(dir.path(), small());
                    let log = journal.log(StreamId(n as u64 + 1));
                    let at = append(&log, &entry(vec![7; 100], 1, 0)).unwrap();
                    journal.wait(at, Durability::Disk).unwrap();
                    journal.close().unwrap();
                });
            }
        });
        for (n, dir) in dirs.iter().enumerate() {
            let (_journal, found) = open(dir.path(), small());
            let streams: Vec<_> = found.streams.iter().map(|it| it.stream).collect();
            assert_eq!(streams, [StreamId(n as u64 + 1)]);
        }
    }
}

#[test]
fn many_threads_append_wait_and_call_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), small());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for id in 1..=8_u64 {
            let (journal, sender) = (journal.clone(), sender.clone());
            scope.spawn(move || {
                let log = journal.log(StreamId(id));
                for n in 0..300_u64 {
                    let at = append(&log, &entry(payload(n, 700), 2, 0)).unwrap();
                    match (id + n) % 3 {
                        0 => journal.wait(at, Durability::Disk).unwrap(),
                        1 => journal.wait(at, Durability::Os).unwrap(),
                        _ => {
                            let sender = sender.clone();
                            let then = move |result: Result<(), _>| {
                                result.unwrap();
                                sender.send((id, n)).unwrap();
                            };
                            journal.when(at, Durability::Disk, Box::new(then));
                        }
                    }
                }
            });
        }
    });
    journal.close().unwrap();
    drop(sender);
    let mut last = [None; 9];
    let mut count = 0;
    for (id, n) in receiver {
        let last = &mut last[usize::try_from(id).unwrap()];
        assert!(last.is_none_or(|before| before < n), "stream {id}: {n} after {last:?}");
        *last = Some(n);
        count += 1;
    }
    assert_eq!(count, 800);
    let (journal, found) = open(dir.path(), small());
    assert!(found.damage.is_empty());
    for id in 1..=8 {
        check(&journal.log(StreamId(id)), 300, 700);
    }
}

#[test]
fn entries_larger_than_a_file_and_empty_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), small());
    let log = journal.log(StreamId(1));
    let sizes = [0, 1, 3 << 20, 7, (5 << 20) + 13, 0];
    let mut last = Position(0);
    for (n, size) in sizes.into_iter().enumerate() {
        last = append(&log, &entry(payload(n as u64, size), 1, 0)).unwrap();
    }
    journal.wait(last, Durability::Disk).unwrap();
    drop((journal, log));
    let (journal, _) = open(dir.path(), small());
    let log = journal.log(StreamId(1));
    let mut next = Offset(0);
    for (n, size) in sizes.into_iter().enumerate() {
        let stored = log.read(next, Offset(6), 0).unwrap();
        assert_eq!(stored.len(), 1, "at least the first entry, whatever its size");
        assert_eq!(stored[0].payload, payload(n as u64, size));
        next = stored[0].range().end;
    }
}

#[test]
fn questions_about_time_epochs_and_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), small());
    let log = journal.log(StreamId(1));
    let times = [10, 30, 20, -1, 30, 40];
    for round in 0..2_u64 {
        // The second round asks the footer.
        if round == 0 {
            for (n, time) in times.into_iter().enumerate() {
                let n = n as u64;
                let append = Append {
                    epoch: Epoch(if n < 4 { 3 } else { 5 }),
                    version: HeadVersion(n + 1),
                    base_offset: Offset(n * 2),
                    attempt: AttemptId::NONE,
                    entry: &entry(payload(n, 100), 2, time),
                };
                log.append(&[append]).unwrap();
            }
        } else {
            journal.close().unwrap();
        }
        let all = (Offset(0), Offset(12));
        assert_eq!(log.first_at_time(all.0, all.1, 20).unwrap(), Some(Offset(2)));
        assert_eq!(log.first_at_time(Offset(4), all.1, 21).unwrap(), Some(Offset(8)));
        assert_eq!(log.first_at_time(all.0, Offset(10), 40).unwrap(), None);
        assert_eq!(log.max_time(all.0, Offset(10)).unwrap(), Some((Offset(2), 30)));
        assert_eq!(log.max_time(all.0, all.1).unwrap(), Some((Offset(10), 40)));
        assert_eq!(log.epoch_end(Epoch(4), all.0, all.1), Some((Epoch(3), Offset(8))));
        assert_eq!(log.epoch_end(Epoch(9), all.0, Offset(11)), Some((Epoch(5), Offset(11))));
        assert_eq!(log.epoch_end(Epoch(2), all.0, all.1), None);
        assert_eq!(log.bytes_between(Offset(3), Offset(10)).unwrap(), 400);
        let headers = log.headers(Offset(5), all.1, 2).unwrap();
        let bases: Vec<_> = headers.iter().map(|it| (it.base_offset.0, it.version.0)).collect();
        assert_eq!(bases, [(4, 3), (6, 4)]);
        let inside = log.read(Offset(5), Offset(9), usize::MAX).unwrap();
        let bases: Vec<_> = inside.iter().map(|it| it.base_offset.0).collect();
        assert_eq!(bases, [4, 6], "the entry at 8 reaches above 9");
    }
}

#[test]
fn out_of_order_appends_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), small());
    let log = journal.log(StreamId(1));
    append(&log, &entry(vec![1], 1, 0)).unwrap();
    let entry = entry(vec![2], 1, 0);
    for (base_offset, version) in [(Offset(0), HeadVersion(2)), (Offset(1), HeadVersion(3))] {
        let attempt = AttemptId::NONE;
        let append = Append { epoch: Epoch(1), version, base_offset, attempt, entry: &entry };
        assert!(matches!(log.append(&[append]), Err(AppendError::OutOfOrder { .. })));
    }
}

const KILL_DIR: &str = "JOURNAL_KILL_DIR";

/// The process that [`what_os_answered_survives_a_kill`] kills: says each append that was answered.
#[test]
#[ignore = "a part of what_os_answered_survives_a_kill, which runs it"]
fn appends_until_killed() {
    let dir = std::env::var(KILL_DIR).unwrap();
    // Long enough that nothing but the mapping, or the answer's own write, can save a byte.
    let os_flush_interval = std::time::Duration::from_secs(3600);
    let io = if dir.ends_with("buffered") { IoChoice::Buffered } else { IoChoice::Auto };
    let (journal, _) = open(dir.as_ref(), Options { io, os_flush_interval, ..small() });
    let log = journal.log(StreamId(1));
    for n in 0.. {
        let at = append(&log, &entry(payload(n, 1500), 2, 0)).unwrap();
        journal.wait(at, Durability::Os).unwrap();
        println!("answered {n}");
    }
}

#[test]
fn what_os_answered_survives_a_kill() {
    for (name, count) in [("mapped", 10_u64), ("mapped", 5000), ("buffered", 5000)] {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join(name);
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "appends_until_killed", "--ignored", "--nocapture"])
            .env(KILL_DIR, &dir)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let answered = lines.map_while(Result::ok).filter(|line| line.contains("answered"));
        assert_eq!(u64::try_from(answered.take(mem(count)).count()).unwrap(), count);
        child.kill().unwrap();
        child.wait().unwrap();

        let (journal, found) = open(&dir, small());
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        let log = journal.log(StreamId(1));
        let head = log.head().unwrap();
        assert!(head.version.0 >= count, "{head:?} of {count} answered");
        check(&log, head.version.0, 1500);
    }
}

fn mem(count: u64) -> usize {
    usize::try_from(count).unwrap()
}

/// A trim was made durable, the records it was about were of a level that did not survive: the
/// stream goes on at the trim offset, and neither recovery nor verification calls that a hole.
#[test]
fn a_trim_beyond_the_end_is_where_the_stream_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), small());
    let log = journal.log(StreamId(1));
    append(&log, &entry(payload(0, 700), 2, 0)).unwrap();
    log.trim(Offset(10));
    let entry = entry(payload(5, 700), 2, 0);
    let at = |offset, version| {
        let (base_offset, version) = (Offset(offset), HeadVersion(version));
        let attempt = AttemptId { since: base_offset, nonce: version.0 };
        log.append(&[Append { epoch: Epoch(1), version, base_offset, attempt, entry: &entry }])
    };
    for (offset, version) in [(2, 2), (9, 7), (10, 1), (11, 7)] {
        let refused = at(offset, version);
        assert!(matches!(refused, Err(AppendError::OutOfOrder { .. })), "o{offset} v{version}");
    }
    at(10, 7).unwrap();
    assert!(matches!(at(12, 9), Err(AppendError::OutOfOrder { .. })), "one jump, no more");
    let last = at(12, 8).unwrap();
    journal.wait(last, Durability::Disk).unwrap();
    drop((journal, log));
    for _ in 0..2 {
        // First after a crash, then from the footer.
        let disk = OsDisk::new(dir.path()).unwrap();
        assert_eq!(verify(&disk, |_| {}).unwrap().findings, []);
        let (journal, found) = open(dir.path(), small());
        assert!(found.damage.is_empty() && found.cut.is_none(), "{found:?}");
        let log = journal.log(StreamId(1));
        assert_eq!((found.streams[0].start, found.streams[0].head.end), (Offset(10), Offset(14)));
        assert_eq!(log.head().unwrap().version, HeadVersion(8));
        let read = log.read(Offset(10), Offset(14), usize::MAX).unwrap();
        let places: Vec<_> = read.iter().map(|it| (it.base_offset.0, it.version.0)).collect();
        assert_eq!(places, [(10, 7), (12, 8)]);
        journal.close().unwrap();
    }
}

/// Readers and appends go on while files are evacuated and removed under them.
#[test]
fn reclaim_beside_appends_and_reads() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { file_bytes: 256 << 10, tail_cache_bytes: 0, ..Options::default() };
    let (journal, _) = open(dir.path(), options.clone());
    let keeper = journal.log(StreamId(9));
    for n in 0..20 {
        append(&keeper, &entry(payload(n, 1500), 2, 0)).unwrap();
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let log = journal.log(StreamId(1));
            for n in 0..4000_u64 {
                let at = append(&log, &entry(payload(n, 1500), 2, 0)).unwrap();
                if n % 100 == 0 {
                    journal.wait(at, Durability::Disk).unwrap();
                    log.trim(Offset(n * 2));
                    journal.reclaim().unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                check(&keeper, 20, 1500);
            }
        });
    });
    journal.close().unwrap();
    let (journal, found) = open(dir.path(), options);
    assert!(found.damage.is_empty() && found.cut.is_none());
    check(&journal.log(StreamId(9)), 20, 1500);
    assert_eq!(journal.log(StreamId(1)).head().unwrap().end, Offset(8000));
    // With every file sealed, what is left is about what lives: of 6 MB, the last 150 kB.
    journal.log(StreamId(1)).trim(Offset(7800));
    journal.reclaim().unwrap();
    assert!(journal.stats().file_bytes < 3 << 20, "{:?}", journal.stats());
    check(&journal.log(StreamId(9)), 20, 1500);
}

/// As many streams as appends: nothing is lost among them, neither over a crash nor over a close.
#[test]
fn appends_to_many_streams_complete_and_recover() {
    const STREAMS: u64 = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), small());
    let mut last = Position(0);
    for id in 0..STREAMS {
        last = append(&journal.log(StreamId(id)), &entry(payload(id, 24), 1, 0)).unwrap();
    }
    journal.wait(last, Durability::Disk).unwrap();
    let check = |journal: &Journal, found: &Recovery| {
        assert!(found.damage.is_empty() && found.streams.len() as u64 == STREAMS);
        for id in 0..STREAMS {
            let read = journal.log(StreamId(id)).read(Offset(0), Offset(1), 100).unwrap();
            assert_eq!(read[0].payload, payload(id, 24));
        }
    };
    drop(journal);
    let (journal, found) = open(dir.path(), small());
    check(&journal, &found);
    journal.close().unwrap();
    drop(journal);
    let (journal, found) = open(dir.path(), small());
    assert_eq!(found.scanned_files, 0);
    check(&journal, &found);
}
