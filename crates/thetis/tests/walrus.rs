//! Programs written against the Walrus engine's documented API: they compile with another import and
//! behave as documented. What the engine is known to get wrong is in `walrus_losses.rs`.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;

use thetis::walrus::{
    Entry, FsyncSchedule, PREFIX_META_SIZE, ReadConsistency, Walrus, WalrusBuilder,
    disable_fd_backend, enable_fd_backend, topic_entry_count, topic_entry_counts,
};
use thetis_catalog::{Format, TopicSpec};

fn open(dir: &Path) -> Walrus {
    builder(dir).build().expect("the directory opens")
}

fn builder(dir: &Path) -> WalrusBuilder {
    Walrus::builder().data_dir(dir.into()).fsync_schedule(FsyncSchedule::NoFsync)
}

fn at_least_once(persist_every: u32) -> ReadConsistency {
    ReadConsistency::AtLeastOnce { persist_every }
}

fn drain(wal: &Walrus, topic: &str) -> Vec<Vec<u8>> {
    let next = || wal.read_next(topic, true).expect("the topic is read");
    std::iter::from_fn(|| next().map(|entry| entry.data)).collect()
}

#[test]
fn append_read_and_peek() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    assert!(wal.read_next("t", true).unwrap().is_none(), "no such topic yet");
    wal.append_for_topic("t", b"one").unwrap();
    wal.append_for_topic("t", b"").unwrap();
    wal.append_for_topic("ünïcode", &[0, 255, 0]).unwrap();
    wal.batch_append_for_topic("t", &[b"two", b"", b"three"]).unwrap();
    wal.batch_append_for_topic("t", &[]).unwrap();
    let peeked: Entry = wal.read_next("t", false).unwrap().unwrap();
    assert_eq!(peeked.data, b"one");
    assert_eq!(wal.get_topic_entry_count("t"), 5);
    let all: [&[u8]; 5] = [b"one", b"", b"two", b"", b"three"];
    assert_eq!(drain(&wal, "t"), all);
    assert_eq!(drain(&wal, "ünïcode"), [[0, 255, 0]]);
}

#[test]
fn batch_reads_keep_to_bytes_and_entries() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    let payload = [7_u8; 100];
    wal.batch_append_for_topic("t", &vec![&payload[..]; 2_500]).unwrap();
    assert_eq!(wal.batch_read_for_topic("t", 1, true, None).unwrap().len(), 1);
    assert_eq!(wal.batch_read_for_topic("t", 1_050, false, None).unwrap().len(), 10);
    assert_eq!(wal.batch_read_for_topic("t", 1_000, true, None).unwrap().len(), 10);
    assert_eq!(wal.batch_read_for_topic("t", usize::MAX, true, None).unwrap().len(), 2_000);
    assert_eq!(wal.batch_read_for_topic("t", usize::MAX, true, None).unwrap().len(), 489);
    assert!(wal.batch_read_for_topic("t", 1, true, None).unwrap().is_empty());
}

/// A program that keeps its own place, as a sum of what entries take. Its places hold when earlier
/// entries are consumed and given back, and after a restart.
#[test]
fn a_stateless_read_goes_on_where_the_last_one_ended() {
    let dir = tempfile::tempdir().unwrap();
    let entry = |n: usize| vec![n.to_le_bytes()[0]; n % 7];
    let place = |n: usize| (0..n).map(|n| (PREFIX_META_SIZE + entry(n).len()) as u64).sum::<u64>();
    let mut wal = open(dir.path());
    for n in 0..60 {
        match n % 4 {
            0 => wal.append_for_topic("t", &entry(n)).unwrap(),
            1 => {
                let batch = [entry(n), entry(n + 1), entry(n + 2)];
                wal.batch_append_for_topic("t", &batch.each_ref().map(|it| &it[..])).unwrap();
            }
            _ => {}
        }
    }
    for consumed in [0, 18, 35] {
        let mut at = place(consumed);
        for n in consumed..60 {
            assert_eq!(at, place(n));
            let read = wal.batch_read_for_topic("t", 0, true, Some(at)).unwrap();
            let read = &read.first().unwrap_or_else(|| panic!("nothing at {at}")).data;
            assert_eq!(*read, entry(n));
            at += (PREFIX_META_SIZE + read.len()) as u64;
        }
        assert!(wal.batch_read_for_topic("t", 0, true, Some(at)).unwrap().is_empty());
        assert_eq!(wal.get_topic_entry_count("t"), 60 - consumed as u64);
        if consumed > 0 {
            let gone = wal.batch_read_for_topic("t", 0, true, Some(place(consumed) - 1));
            assert_eq!(gone.unwrap_err().kind(), ErrorKind::InvalidInput);
            let first = wal.batch_read_for_topic("t", 0, true, Some(0)).unwrap();
            assert_eq!(first[0].data, entry(consumed), "from the first that is kept");
        }
        // 18 is inside a batch.
        let next = if consumed == 0 { 18 } else { 17 };
        (0..next).for_each(|_| drop(wal.read_next("t", true).unwrap().unwrap()));
        wal.thetis().reclaim().unwrap();
        drop(wal);
        wal = open(dir.path());
    }
    assert!(wal.batch_read_for_topic("none", 10, true, Some(0)).unwrap().is_empty());
}

#[test]
fn cursors_survive_a_restart_as_their_consistency_says() {
    let dir = tempfile::tempdir().unwrap();
    {
        let wal = open(dir.path());
        for n in 0..10 {
            wal.append_for_topic("strict", &[n]).unwrap();
            wal.append_for_topic("relaxed", &[n]).unwrap();
        }
        for _ in 0..4 {
            wal.read_next("strict", true).unwrap();
        }
    }
    {
        let wal = builder(dir.path()).consistency(at_least_once(3)).build().unwrap();
        assert_eq!(wal.get_topic_entry_count("strict"), 6);
        wal.read_next("relaxed", true).unwrap();
        wal.read_next("relaxed", true).unwrap();
    }
    let wal = builder(dir.path()).consistency(at_least_once(0)).build().unwrap();
    assert_eq!(wal.read_next("strict", true).unwrap().unwrap().data, [4]);
    assert_eq!(wal.read_next("relaxed", true).unwrap().unwrap().data, [0], "seen again");
}

#[test]
fn counts_are_of_what_is_unread() {
    let dir = tempfile::tempdir().unwrap();
    {
        let wal = open(dir.path());
        wal.append_for_topic("a", b"1").unwrap();
        wal.batch_append_for_topic("b", &[b"1", b"2", b"3"]).unwrap();
        wal.read_next("b", false).unwrap();
        assert_eq!(wal.get_topic_entry_count("b"), 3);
        wal.read_next("b", true).unwrap();
        assert_eq!(topic_entry_count(&wal, "b"), 2);
        assert_eq!(topic_entry_count(&wal, "none"), 0);
        assert!(wal.get_topic_size("b") >= 3);
        assert_eq!(wal.get_topic_size("none"), 0);
    }
    let counts: HashMap<String, u64> = topic_entry_counts(&open(dir.path()));
    assert_eq!(counts, HashMap::from([("a".into(), 1), ("b".into(), 2)]));
}

#[test]
fn clean_marks_hold_until_the_next_append_and_survive() {
    let dir = tempfile::tempdir().unwrap();
    {
        let wal = open(dir.path());
        assert!(wal.topic_is_clean("none"));
        wal.mark_topic_clean("none");
        wal.append_for_topic("t", b"1").unwrap();
        assert!(!wal.topic_is_clean("t"));
        wal.mark_topic_clean("t");
        wal.mark_topic_dirty("u");
        assert!(wal.topic_is_clean("t") && !wal.topic_is_clean("u"));
    }
    let wal = open(dir.path());
    assert!(wal.topic_is_clean("t") && !wal.topic_is_clean("u"));
    wal.append_for_topic("t", b"2").unwrap();
    assert!(!wal.topic_is_clean("t"));
}

#[test]
fn topics_are_listed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    wal.append_for_topic("b", b"1").unwrap();
    wal.append_for_topic("a", b"1").unwrap();
    assert_eq!(wal.list_topics(), ["a", "b"]);
    wal.delete_topic("a").unwrap();
    assert_eq!(wal.delete_topic("a").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(wal.read_next("a", true).unwrap().is_none());
    wal.append_for_topic("a", b"2").unwrap();
    assert_eq!(drain(&wal, "a"), [b"2"]);
}

#[test]
fn thousands_of_topics_are_counted_and_read() {
    const TOPICS: usize = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let name = |n: usize| format!("topic {n:04}");
    {
        let wal = open(dir.path());
        // Made together: each by itself costs a flush of metadata.
        let spec = |n| TopicSpec {
            name: name(n),
            partitions: 1,
            format: Format::Plain,
            configs: [].into(),
        };
        let made = wal.thetis().catalog().create_all((0..TOPICS).map(spec).collect());
        assert!(made.iter().all(Result::is_ok));
        for round in 0..3 {
            for n in 0..TOPICS {
                // In an order of its own.
                let n = n * 2_777 % TOPICS;
                wal.append_for_topic(&name(n), format!("{n} {round}").as_bytes()).unwrap();
            }
        }
    }
    let wal = open(dir.path());
    let counts = wal.get_topic_entry_counts();
    assert_eq!(counts.len(), TOPICS);
    assert_eq!(counts.values().sum::<u64>(), 3 * TOPICS as u64);
    for n in (0..TOPICS).step_by(97) {
        let entries = wal.batch_read_for_topic(&name(n), usize::MAX, false, None).unwrap();
        let texts: Vec<_> = (0..3).map(|round| format!("{n} {round}").into_bytes()).collect();
        assert_eq!(entries.into_iter().map(|entry| entry.data).collect::<Vec<_>>(), texts);
    }
}

#[test]
fn writers_of_one_topic_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    enable_fd_backend();
    disable_fd_backend();
    thread::scope(|scope| {
        for writer in 0..4_u8 {
            let wal = &wal;
            scope.spawn(move || {
                for n in 0..100_u8 {
                    wal.append_for_topic("t", &[writer, n]).unwrap();
                    wal.batch_append_for_topic("t", &[&[writer, n, 0], &[writer, n, 1]]).unwrap();
                }
            });
        }
    });
    let entries = drain(&wal, "t");
    assert_eq!(entries.len(), 4 * 300);
    for pair in entries.windows(2).filter(|pair| pair[0].len() == 3 && pair[0][2] == 0) {
        assert_eq!(pair[1], [pair[0][0], pair[0][1], 1], "a batch stays together");
    }
}

/// The constructors read the environment, which a test may not change while others run; so this
/// runs itself again with one set.
#[test]
fn constructors_honour_the_environment() {
    const CHILD: &str = "WALRUS_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let strict = ReadConsistency::StrictlyAtOnce;
        let each = FsyncSchedule::SyncEach;
        Walrus::new().unwrap().append_for_topic("t", b"0").unwrap();
        drop(Walrus::with_consistency(strict).unwrap());
        let wal = Walrus::with_consistency_and_schedule(strict, each).unwrap();
        assert_eq!(drain(&wal, "t"), [b"0"]);
        let all = [
            Walrus::new_for_key("a").unwrap(),
            Walrus::with_consistency_for_key("b", strict).unwrap(),
            Walrus::with_consistency_and_schedule_for_key("c", strict, each).unwrap(),
        ];
        for wal in &all {
            assert!(wal.list_topics().is_empty());
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "constructors_honour_the_environment"])
        .env(CHILD, "1")
        .env("WALRUS_DATA_DIR", dir.path())
        .env("WALRUS_INSTANCE_KEY", "inst")
        .status()
        .unwrap();
    assert!(status.success());
    for key in ["key-inst", "key-a", "key-b", "key-c"] {
        assert!(dir.path().join(key).join("meta.redb").exists(), "{key}");
    }
}
