//! Rows about processes: who holds a directory, what a kill leaves, what an instance costs and leaks.
//! What is counted for a whole process is counted in one of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use thetis::Durability;
use thetis::walrus::{FsyncSchedule, Walrus};

use super::{again, at_least_once, builder, drain, given, numbered, open};

/// `wouldblock`: appends beside a thread that appends batches to the same topic.
#[test]
fn appends_beside_a_batch_wait_and_are_never_refused() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    let batch = [&b"in a batch"[..]; 2_000];
    thread::scope(|scope| {
        let batches = scope.spawn(|| {
            for _ in 0..20 {
                wal.batch_append_for_topic("t", &batch).unwrap();
            }
        });
        let mut alone = 0;
        while !batches.is_finished() || alone < 100 {
            wal.append_for_topic("t", b"alone").unwrap();
            alone += 1;
        }
        assert_eq!(wal.get_topic_entry_count("t"), 20 * 2_000 + alone);
    });
}

fn threads_and_files() -> Option<(usize, usize)> {
    let count = |what: &str| Some(fs::read_dir(what).ok()?.count());
    Some((count("/proc/self/task")?, count("/proc/self/fd")?))
}

/// `threadleak`: an instance opened, used and dropped again and again.
#[test]
fn a_dropped_instance_leaves_no_thread_and_no_file() {
    const TEST: &str = "process::a_dropped_instance_leaves_no_thread_and_no_file";
    let Some(dir) = given() else {
        let dir = tempfile::tempdir().unwrap();
        assert!(again(TEST, dir.path()).status().unwrap().success());
        return;
    };
    let mut before = None;
    for n in 0..12 {
        let wal = builder(&dir).consistency(at_least_once(5)).build().unwrap();
        wal.append_for_topic("t", &numbered(n, 10)).unwrap();
        wal.read_next("t", true).unwrap().unwrap();
        drop(wal);
        // The first leaves what a process has once.
        before = before.or_else(threads_and_files);
    }
    assert_eq!(threads_and_files(), before, "threads and open files");
}

/// Bytes of the process that are no file's.
fn anonymous_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1_024)
}

/// `chanmem`: many appends with a flush every hour.
#[test]
fn appends_that_wait_for_a_late_flush_take_no_memory() {
    const TEST: &str = "process::appends_that_wait_for_a_late_flush_take_no_memory";
    let Some(dir) = given() else {
        let dir = tempfile::tempdir().unwrap();
        assert!(again(TEST, dir.path()).status().unwrap().success());
        return;
    };
    const MORE: usize = 300_000;
    const EACH_BYTES_MAX: usize = 20;
    let late = FsyncSchedule::Milliseconds(3_600_000);
    let wal = Walrus::builder().data_dir(dir).fsync_schedule(late).build().unwrap();
    let entry = numbered(0, 1_024);
    let append = |count| (0..count).for_each(|_| wal.append_for_topic("t", &entry).unwrap());
    // Fills what is bounded: the tail that is kept for readers.
    append(150_000);
    let Some(before) = anonymous_bytes() else { return };
    append(MORE);
    // What full files take goes when threads have flushed and sealed them; a minute is plenty.
    let grown = || anonymous_bytes().unwrap().saturating_sub(before);
    let is_small = || {
        thread::sleep(Duration::from_millis(100));
        grown() < (EACH_BYTES_MAX * MORE) as u64
    };
    assert!((0..600).any(|_| is_small()), "{} bytes more after {MORE} appends", grown());
}

/// `batchkill`: SIGKILL while batches of 2000 are appended.
#[test]
fn after_a_kill_a_batch_is_whole_or_absent() {
    const TEST: &str = "process::after_a_kill_a_batch_is_whole_or_absent";
    const BATCH: u64 = 2_000;
    if let Some(dir) = given() {
        let wal = open(&dir);
        let batch = [&[b'v'; 700][..]; 2_000];
        for acknowledged in wal.get_topic_entry_count("t") / BATCH.. {
            wal.batch_append_for_topic("t", &batch).unwrap();
            println!("\nacknowledged {}", acknowledged + 1);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let mut child = again(TEST, dir.path()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let acknowledged = lines
            .filter_map(|line| line.unwrap().strip_prefix("acknowledged ")?.parse::<u64>().ok());
        let acknowledged = acknowledged.take(5 + round).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let wal = open(dir.path());
        let there = wal.get_topic_entry_count("t");
        assert_eq!(there % BATCH, 0, "a part of a batch");
        assert!(there >= acknowledged * BATCH, "{acknowledged} batches were acknowledged");
    }
    let wal = open(dir.path());
    let entries = wal.batch_read_for_topic("t", usize::MAX, true, None).unwrap();
    assert!(entries.iter().all(|entry| entry.data == [b'v'; 700]));
}

/// `open2`: a second process opens the directory.
#[test]
fn a_second_process_is_refused() {
    const TEST: &str = "process::a_second_process_is_refused";
    if let Some(dir) = given() {
        let error = builder(&dir).build().err().expect("two processes held one directory");
        assert!(error.to_string().contains("use"), "{error}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    wal.append_for_topic("t", b"1").unwrap();
    assert!(again(TEST, dir.path()).status().unwrap().success());
    assert_eq!(drain(&wal, "t"), [b"1"]);
}

/// `dotdot`: instances with the keys `..`, `a/b`, `a_b` and alike.
#[test]
fn a_key_leaves_the_directory_never_and_collides_with_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("outer/root");
    let keys = ["..", "../..", "a/b", "a_b", "/", ".", "a", "A", ""];
    let instance = |key: &&str| builder(&root).key(key).build().unwrap();
    let all: Vec<Walrus> = keys.iter().map(instance).collect();
    for (key, wal) in keys.iter().zip(&all) {
        wal.append_for_topic("t", key.as_bytes()).unwrap();
    }
    for (key, wal) in keys.iter().zip(&all) {
        assert_eq!(drain(wal, "t"), [key.as_bytes()], "{key:?}");
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), keys.len());
    assert_eq!(fs::read_dir(dir.path().join("outer")).unwrap().count(), 1);
}

/// `sched2`: an instance that never flushes, opened beside one that flushes each append.
#[test]
fn a_schedule_is_its_instances_own() {
    let dir = tempfile::tempdir().unwrap();
    let of = |key, schedule| builder(dir.path()).key(key).fsync_schedule(schedule).build().unwrap();
    let each = of("each", FsyncSchedule::SyncEach);
    let never = of("never", FsyncSchedule::NoFsync);
    // Whether each append is on the device when it returns.
    let flushed = |wal: &Walrus| {
        let append = |n| {
            wal.append_for_topic("t", &numbered(n, 10)).unwrap();
            wal.thetis().journal().stats().unflushed_bytes == 0
        };
        (0..100).filter(|n| append(*n)).count()
    };
    let durability = |wal: &Walrus| wal.thetis().stream("t").unwrap().durability();
    assert_eq!(flushed(&each), 100);
    assert!(flushed(&never) < 100);
    assert_eq!((durability(&each), durability(&never)), (Durability::Disk, Durability::Os));
}

/// Bytes the process has written, by any system call.
fn written_bytes() -> Option<u64> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

/// `idxcost`: strict reads of one topic beside 1 and beside 400 others with cursors.
///
/// What is written for a cursor does not grow with the number of cursors.
#[test]
fn a_strict_read_writes_its_own_cursor_alone() {
    const TEST: &str = "process::a_strict_read_writes_its_own_cursor_alone";
    const READS: usize = 50;
    let Some(dir) = given() else {
        let dir = tempfile::tempdir().unwrap();
        assert!(again(TEST, dir.path()).status().unwrap().success());
        return;
    };
    let wal = open(&dir);
    let make = |topics: std::ops::Range<usize>| {
        for topic in topics {
            let topic = topic.to_string();
            wal.batch_append_for_topic(&topic, &[&b"entry"[..]; 4 * READS]).unwrap();
            wal.read_next(&topic, true).unwrap().unwrap();
        }
    };
    let written = || {
        let before = written_bytes()?;
        (0..READS).for_each(|_| drop(wal.read_next("0", true).unwrap().unwrap()));
        Some(written_bytes()? - before)
    };
    make(0..1);
    let Some(few) = written() else { return };
    thread::scope(|scope| {
        for part in 0..8 {
            let make = &make;
            scope.spawn(move || make(1 + part * 50..1 + (part + 1) * 50));
        }
    });
    let many = written().unwrap();
    assert!(many < 4 * few, "{few} bytes beside no topic, {many} beside 400");
}
