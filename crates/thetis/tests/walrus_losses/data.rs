//! Rows about entries and cursors: what is appended is read, once, in order, by whom it belongs to.

use std::io::ErrorKind;
use std::thread;

use thetis::walrus::{FsyncSchedule, Walrus};

use super::{MIB, again, at_least_once, builder, drain, given, numbered, numbers, open};

/// `idxshift`: strict reads of four fifths of a topic, the files of those given back, a restart.
#[test]
fn a_cursor_holds_when_files_before_it_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    {
        let often = FsyncSchedule::Milliseconds(1);
        let wal = builder(dir.path()).fsync_schedule(often).build().unwrap();
        for n in 0..300 {
            wal.append_for_topic("t", &numbered(n, MIB)).unwrap();
        }
        for _ in 0..240 {
            wal.read_next("t", true).unwrap().unwrap();
        }
        // Reads give files back by themselves once those are sealed, which a thread does meanwhile.
        while wal.thetis().journal().stats().file_bytes > 200 << 20 {
            wal.thetis().reclaim().unwrap();
            thread::yield_now();
        }
    }
    let wal = open(dir.path());
    assert_eq!(wal.get_topic_entry_count("t"), 60);
    assert_eq!(numbers(&drain(&wal, "t")), (240..300).collect::<Vec<u64>>());
}

/// `peekdelete`: 150 peeks of batches behind a cursor, then reclaim and a restart.
#[test]
fn peeks_give_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    {
        let wal = open(dir.path());
        for n in 0..100 {
            wal.append_for_topic("t", &numbered(n, MIB)).unwrap();
        }
        for _ in 0..9 {
            wal.read_next("t", true).unwrap().unwrap();
        }
        for _ in 0..150 {
            wal.batch_read_for_topic("t", 2 * MIB, false, None).unwrap();
        }
        wal.thetis().reclaim().unwrap();
    }
    assert_eq!(drain(&open(dir.path()), "t").len(), 91);
}

/// `twoinst`: two keyed instances in one process, one consumes everything and reclaims.
#[test]
fn what_one_instance_consumes_is_nothing_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|key| builder(dir.path()).key(key).build().unwrap());
    for n in 0..100 {
        a.append_for_topic("t", &numbered(n, MIB)).unwrap();
        b.append_for_topic("t", &numbered(n, MIB)).unwrap();
    }
    assert_eq!(drain(&b, "t").len(), 100);
    b.thetis().reclaim().unwrap();
    drop((a, b));
    let a = builder(dir.path()).key("a").build().unwrap();
    assert_eq!(a.get_topic_entry_count("t"), 100);
    assert_eq!(drain(&a, "t").len(), 100);
}

/// `hole`: an append under a name of 300 bytes, then flushed appends to another topic, a restart.
#[test]
fn a_refused_name_hides_nothing_that_follows() {
    let dir = tempfile::tempdir().unwrap();
    {
        let each = FsyncSchedule::SyncEach;
        let wal = builder(dir.path()).fsync_schedule(each).build().unwrap();
        let refused = wal.append_for_topic(&"n".repeat(300), b"x").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        for n in 0..100 {
            wal.append_for_topic("t", &numbered(n, 64)).unwrap();
        }
    }
    let wal = open(dir.path());
    assert_eq!(drain(&wal, "t").len(), 100);
    assert_eq!(wal.list_topics(), ["t"]);
}

/// `bigfirst`: the first entry of a topic is over 10 MiB, then small ones, a restart.
#[test]
fn a_large_first_entry_hides_nothing_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    {
        let wal = open(dir.path());
        wal.append_for_topic("t", &numbered(0, 10 * MIB + 1)).unwrap();
        for n in 1..11 {
            wal.append_for_topic("t", &numbered(n, 10)).unwrap();
            wal.append_for_topic("u", &numbered(n, 10)).unwrap();
        }
    }
    let wal = open(dir.path());
    assert_eq!(numbers(&drain(&wal, "t")), (0..11).collect::<Vec<u64>>());
    assert_eq!(drain(&wal, "u").len(), 10);
}

/// `bigzero`: an entry of 25 MiB of zeroes, then another topic, a restart.
#[test]
fn zeroes_in_an_entry_are_not_the_end() {
    let dir = tempfile::tempdir().unwrap();
    {
        let wal = open(dir.path());
        wal.append_for_topic("zero", &vec![0; 25 * MIB]).unwrap();
        for n in 0..10 {
            wal.append_for_topic("u", &numbered(n, 10)).unwrap();
        }
    }
    let wal = open(dir.path());
    assert_eq!(drain(&wal, "u").len(), 10);
    assert!(drain(&wal, "zero") == [vec![0; 25 * MIB]]);
}

/// `inject`: a payload of 25 MiB made of whole entries of another topic, a restart.
#[test]
fn bytes_in_an_entry_never_become_an_entry() {
    let dir = tempfile::tempdir().unwrap();
    let file = {
        let wal = builder(&dir.path().join("forge")).build().unwrap();
        wal.append_for_topic("victim", b"forged").unwrap();
        wal.thetis().clone().close().unwrap();
        let journal = dir.path().join("forge/journal");
        let files = std::fs::read_dir(journal).unwrap().map(|file| file.unwrap().path());
        let files: Vec<_> = files.filter(|path| path.metadata().unwrap().len() > 4_096).collect();
        std::fs::read(&files[0]).unwrap()
    };
    let forged: Vec<u8> = file.iter().copied().cycle().take(25 * MIB).collect();
    let real = dir.path().join("real");
    {
        let wal = open(&real);
        wal.append_for_topic("carrier", &forged).unwrap();
        wal.append_for_topic("victim", b"real").unwrap();
    }
    let wal = open(&real);
    assert_eq!(drain(&wal, "victim"), [b"real"]);
    assert!(drain(&wal, "carrier") == [forged]);
    assert_eq!(wal.list_topics(), ["carrier", "victim"]);
}

/// `sealdup`: an append of over 1 GiB and a batch of as much, between small ones.
#[test]
fn an_entry_refused_for_its_size_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    for n in 0..3 {
        wal.append_for_topic("t", &numbered(n, 8)).unwrap();
    }
    let huge = vec![0; (1 << 30) + 1];
    let refused = wal.append_for_topic("t", &huge).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let parts = vec![&huge[..1 << 28]; 4];
    assert!(wal.batch_append_for_topic("t", &parts).is_err());
    wal.append_for_topic("t", &numbered(3, 8)).unwrap();
    assert_eq!(numbers(&drain(&wal, "t")), [0, 1, 2, 3]);
}

/// `dupread`: four threads drain one topic strictly.
#[test]
fn threads_that_share_a_topic_get_each_entry_once() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    let entries: Vec<_> = (0..300).map(|n| numbered(n, 16)).collect();
    let batch: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
    wal.batch_append_for_topic("t", &batch).unwrap();
    let mut seen = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| drain(&wal, "t"))).collect();
        threads.into_iter().flat_map(|thread| numbers(&thread.join().unwrap())).collect::<Vec<_>>()
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..300).collect::<Vec<u64>>());
}

/// `alo`: 928 of 1000 entries consumed by batch reads with `persist_every` 10, a restart.
#[test]
fn batch_reads_count_for_persist_every() {
    let dir = tempfile::tempdir().unwrap();
    let entries: Vec<_> = (0..1_000).map(|n| numbered(n, 16)).collect();
    let batch: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
    {
        let wal = builder(dir.path()).consistency(at_least_once(10)).build().unwrap();
        wal.batch_append_for_topic("t", &batch).unwrap();
        for _ in 0..116 {
            assert_eq!(wal.batch_read_for_topic("t", 8 * 16, true, None).unwrap().len(), 8);
        }
    }
    let again = numbers(&drain(&open(dir.path()), "t"));
    assert!((918..=928).contains(&again[0]), "begins again at {}", again[0]);
    assert_eq!(again.last(), Some(&999));
}

/// `longtopic`: batches under names of 250 and 249 bytes.
#[test]
fn a_batch_under_a_long_name_is_refused_and_poisons_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    let long = "n".repeat(250);
    for _ in 0..2 {
        let refused = wal.batch_append_for_topic(&long, &[b"x"]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    assert!(wal.read_next(&long, true).unwrap().is_none());
    let fits = "n".repeat(249);
    wal.batch_append_for_topic(&fits, &[b"x"]).unwrap();
    assert_eq!(drain(&wal, &fits), [b"x"]);
}

/// `enospc`: flushed appends of 1 MiB onto a file system of 200 MB until three are refused.
///
/// Runs itself again on a file system of its own; where the system does not allow that, nothing is
/// tested and it says so.
#[test]
fn a_full_disk_is_an_error_and_keeps_what_was_acknowledged() {
    const TEST: &str = "data::a_full_disk_is_an_error_and_keeps_what_was_acknowledged";
    if let Some(dir) = given() {
        let each = FsyncSchedule::SyncEach;
        let small = || Walrus::builder().data_dir(dir.clone()).fsync_schedule(each).build();
        let wal = small().unwrap();
        let mut acknowledged = Vec::new();
        let mut refused = 0;
        for n in 0.. {
            match wal.append_for_topic("t", &numbered(n, MIB)) {
                Ok(()) => acknowledged.push(n as u64),
                Err(_) => refused += 1,
            }
            if refused == 3 {
                break;
            }
        }
        assert!(acknowledged.len() > 10, "only {} fit", acknowledged.len());
        assert!(acknowledged.len() < 200, "more than the disk holds");
        drop(wal);
        // Room to read: opening writes a little.
        std::fs::remove_file(dir.join("ballast")).unwrap();
        let wal = small().unwrap();
        // An append that was answered with an error may be there; one that was acknowledged must.
        let read = numbers(&drain(&wal, "t"));
        let lost: Vec<_> = acknowledged.iter().filter(|n| !read.contains(n)).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        assert!(read.is_sorted(), "out of order: {read:?}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=200m none \"$1\" 2>/dev/null || exit 77\n\
        mkdir \"$1/data\" && head -c 16777216 /dev/zero > \"$1/data/ballast\" || exit 1\n\
        shift; exec \"$@\"";
    let test = again(TEST, &dir.path().join("data"));
    let status = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(test.get_program())
        .args(test.get_args())
        .envs(test.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .status();
    match status.map(|status| status.code()) {
        Ok(Some(0)) => {}
        Ok(Some(77 | 1)) | Err(_) => eprintln!("skipped: no file system of our own to be had"),
        other => panic!("{other:?}"),
    }
}
