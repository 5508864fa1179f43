//! Programs under which the engine is known to lose, repeat or invent entries, each under the name
//! of its probe. Here every one of them keeps what was acknowledged, once and in order.

use std::io::ErrorKind;
use std::thread;

use thetis::walrus::{FsyncSchedule, ReadConsistency, Walrus};

use super::{at_least_once, builder, drain, open};

const MIB: usize = 1 << 20;

/// Entry `n` of `bytes` bytes.
fn numbered(n: usize, bytes: usize) -> Vec<u8> {
    let mut entry = vec![b'.'; bytes];
    entry[..8].copy_from_slice(&(n as u64).to_le_bytes());
    entry
}

fn numbers(entries: &[Vec<u8>]) -> Vec<u64> {
    let number = |entry: &Vec<u8>| entry.first_chunk().copied().map(u64::from_le_bytes);
    entries.iter().map(|entry| number(entry).expect("numbered")).collect()
}

/// A cursor that is a place in a list of files is wrong once a file is gone.
#[test]
fn idxshift() {
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

/// A peek counts as nothing.
#[test]
fn peekdelete() {
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

/// What one instance consumes is nothing to another.
#[test]
fn twoinst() {
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

/// A refused append leaves nothing that hides what follows.
#[test]
fn hole() {
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

/// A first entry of any size hides nothing behind it.
#[test]
fn bigfirst() {
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

/// Zeroes in an entry are not the end of a file.
#[test]
fn bigzero() {
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

/// Bytes inside an entry never become an entry: here the journal's own files are appended, whole.
#[test]
fn inject() {
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

/// An entry that is refused for its size repeats nothing.
#[test]
fn sealdup() {
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

/// Threads that read one topic strictly get each entry once.
#[test]
fn dupread() {
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

/// Batch reads count for `persist_every`.
#[test]
fn alo() {
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

/// A name that is too long is refused, in a batch too, and the topic's neighbours go on.
#[test]
fn longtopic() {
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

/// A full disk is an error, and what was acknowledged before it stays. Runs itself again on a file
/// system of its own; where the system does not allow that, nothing is tested and it says so.
#[test]
fn enospc() {
    const CHILD: &str = "WALRUS_TEST_SMALL_DISK";
    if let Some(dir) = std::env::var_os(CHILD) {
        let strict = ReadConsistency::StrictlyAtOnce;
        let each = FsyncSchedule::SyncEach;
        let small = || {
            let small = Walrus::builder().data_dir(&dir).consistency(strict);
            small.fsync_schedule(each).build()
        };
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
        std::fs::remove_file(std::path::Path::new(&dir).join("ballast")).unwrap();
        let wal = small().unwrap();
        // An append that was answered with an error may be there; one that was acknowledged must.
        let read = numbers(&drain(&wal, "t"));
        let lost: Vec<_> = acknowledged.iter().filter(|n| !read.contains(n)).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        assert!(read.is_sorted(), "out of order: {read:?}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=200m none \"$DISK\" 2>/dev/null || exit 77\n\
        mkdir \"$DISK/data\" && head -c 16777216 /dev/zero > \"$DISK/data/ballast\" || exit 1\n\
        WALRUS_TEST_SMALL_DISK=\"$DISK/data\" exec \"$TEST\" --exact probes::enospc --nocapture";
    let status = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", script])
        .env("DISK", dir.path())
        .env("TEST", std::env::current_exe().unwrap())
        .status();
    match status.map(|status| status.code()) {
        Ok(Some(0)) => {}
        Ok(Some(77 | 1)) | Err(_) => eprintln!("skipped: no file system of our own to be had"),
        other => panic!("{other:?}"),
    }
}
