//! Rows about what lies in the directory: damaged bytes, leftovers, entries of any size, positions.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use thetis::walrus::{FsyncSchedule, PREFIX_META_SIZE, Walrus};

use super::{drain, numbered, open};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        match item.file_type().unwrap().is_dir() {
            true => copy(&item.path(), &to.join(item.file_name())),
            false => drop(fs::copy(item.path(), to.join(item.file_name())).unwrap()),
        }
    }
}

/// `corrupthdr`: each bit of the bytes before an entry flipped in turn, and the directory opened.
///
/// Nothing comes up under another topic or changed, nothing crashes, and what is missing is told of.
#[test]
fn a_damaged_header_is_told_and_moves_no_entry() {
    const ENTRIES: usize = 6;
    const BEFORE: usize = 72;
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let entry = |topic: &str, n: usize| format!("{topic} has entry {n}").into_bytes();
    {
        let wal = open(&whole);
        for n in 0..ENTRIES {
            for topic in ["left", "right"] {
                wal.append_for_topic(topic, &entry(topic, n)).unwrap();
            }
        }
        wal.thetis().clone().close().unwrap();
    }
    let journal = fs::read_dir(whole.join("journal")).unwrap().map(|file| file.unwrap().path());
    let holds = |bytes: &[u8]| {
        let wanted = entry("right", 2);
        bytes.windows(wanted.len()).position(|window| window == wanted)
    };
    let mut files = journal.filter_map(|path| Some((holds(&fs::read(&path).ok()?)?, path)));
    let (at, file) = files.next().expect("the entry is in a file");
    let name = Path::new("journal").join(file.file_name().unwrap());
    let mut told = 0;
    for before in (1..=BEFORE).rev().step_by(2) {
        let case = dir.path().join(before.to_string());
        copy(&whole, &case);
        let mut bytes = fs::read(case.join(&name)).unwrap();
        bytes[at - before] ^= 1 << (before / 2 % 8);
        fs::write(case.join(&name), bytes).unwrap();
        let wal = match Walrus::builder().data_dir(case.clone()).build() {
            Ok(wal) => wal,
            Err(_) => {
                told += 1;
                continue;
            }
        };
        assert_eq!(wal.list_topics(), ["left", "right"], "{before} before the entry");
        for topic in ["left", "right"] {
            let mut n = 0;
            let error = loop {
                match wal.read_next(topic, true) {
                    Ok(Some(read)) => assert_eq!(read.data, entry(topic, n)),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
                n += 1;
            };
            match error {
                Some(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
                    told += 1;
                }
                None => assert_eq!(n, ENTRIES, "{topic} ends early, {before} before the entry"),
            }
        }
        drop(wal);
        fs::remove_dir_all(case).unwrap();
    }
    assert!(told > 0, "none of the flipped bits was in a header");
}

/// `mmapoob`: an entry of 1.06 GB, larger than a file of the engine.
#[test]
fn an_entry_of_more_than_a_gigabyte_is_kept() {
    const BYTES: usize = 1_060_000_000;
    const PART: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let parts = || (0..BYTES / PART).map(|n| [n.to_le_bytes()[0] ^ n.to_le_bytes()[1]; PART]);
    let wal = open(dir.path());
    wal.append_for_topic("t", b"before").unwrap();
    let mut entry = Vec::with_capacity(BYTES);
    parts().for_each(|part| entry.extend_from_slice(&part));
    wal.append_for_topic("t", &entry).unwrap();
    drop(entry);
    wal.append_for_topic("t", b"after").unwrap();
    assert_eq!(wal.get_topic_entry_count("t"), 3);
    assert_eq!(wal.read_next("t", true).unwrap().unwrap().data, b"before");
    let entry = wal.read_next("t", true).unwrap().unwrap().data;
    assert_eq!(entry.len(), BYTES);
    assert!(entry.chunks(PART).zip(parts()).all(|(read, part)| read == part));
    assert_eq!(wal.read_next("t", true).unwrap().unwrap().data, b"after");
}

/// `tmpfile`: files that a crash leaves between write and rename, and foreign ones, at open.
#[test]
fn leftovers_of_a_crash_are_never_read_as_data() {
    let dir = tempfile::tempdir().unwrap();
    {
        let wal = open(dir.path());
        for n in 0..10 {
            wal.append_for_topic("t", &numbered(n, 100)).unwrap();
        }
        wal.read_next("t", true).unwrap();
    }
    let journal = dir.path().join("journal");
    let mut files = fs::read_dir(&journal).unwrap().map(|file| file.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|it| it == "journal")).unwrap();
    let half = fs::read(&file).unwrap();
    let next = journal.join("00000000000000ff.journal.prepare");
    fs::write(next, &half[..half.len() / 2]).unwrap();
    fs::write(journal.join("00000000000000fe.journal.prepare"), b"").unwrap();
    fs::write(journal.join("read_offset_idx_index.db.tmp"), &half[..5_000]).unwrap();
    fs::write(dir.path().join("meta.redb.new"), &half[..1_000]).unwrap();
    let wal = open(dir.path());
    assert_eq!(wal.list_topics(), ["t"]);
    assert_eq!(drain(&wal, "t").len(), 9);
}

/// `nouring`: a system without io_uring, as containers have it.
///
/// No ring is ever asked for, so there is nothing to be without; and flushes go on by themselves.
#[test]
fn nothing_depends_on_io_uring() {
    let dir = tempfile::tempdir().unwrap();
    let often = FsyncSchedule::Milliseconds(1);
    let wal = Walrus::builder().data_dir(dir.path().into()).fsync_schedule(often).build().unwrap();
    let batch = [&b"one"[..]; 2_000];
    for _ in 0..3 {
        wal.batch_append_for_topic("t", &batch).unwrap();
        // Ends when the thread has flushed it; one that is dead fails by the runner's limit.
        while wal.thetis().journal().stats().unflushed_bytes > 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(wal.batch_read_for_topic("t", usize::MAX, true, None).unwrap().len(), 2_000);
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        for link in open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()) {
            assert!(!link.to_string_lossy().contains("io_uring"), "{link:?}");
        }
    }
}

/// `stateless`: entries of 6, 6, 500 and 6 bytes, read from 0 and from inside a payload.
#[test]
fn a_stateless_read_begins_with_a_whole_entry_and_passes_none_over() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    let sizes = [6_usize, 6, 500, 6];
    for size in sizes {
        wal.append_for_topic("t", &vec![b'e'; size]).unwrap();
    }
    let lengths = |wal: &Walrus, at: usize| -> Vec<usize> {
        let entries = wal.batch_read_for_topic("t", usize::MAX, true, Some(at as u64)).unwrap();
        entries.iter().map(|entry| entry.data.len()).collect()
    };
    let mut begins = 0;
    for (index, size) in sizes.iter().enumerate() {
        let ends = begins + PREFIX_META_SIZE + size;
        for at in [begins, begins + 1, begins + PREFIX_META_SIZE + size / 2, ends - 1] {
            assert_eq!(lengths(&wal, at), sizes[index..], "from {at}");
        }
        begins = ends;
    }
    assert!(lengths(&wal, begins).is_empty());
    assert_eq!(wal.get_topic_size("t"), begins as u64);
    assert_eq!(wal.get_topic_entry_count("t"), 4, "it moved the cursor");
}
