//! Named readers as an application uses them: what is handed out, what survives, what is trimmed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use thetis::{
    Durability, Error, Flush, Offset, Options, READERS_MAX, Retention, Saves, Stream, Thetis,
    keyed_dir,
};
use thetis_meta::{Key, Write};

#[path = "../examples/readers.rs"]
#[expect(dead_code, reason = "an example's main")]
mod example;

fn open(dir: &TempDir) -> Thetis {
    let mut options = Options { durability: Durability::Os, ..Options::default() };
    options.journal.file_bytes = 1 << 20;
    Thetis::open_with(dir.path(), options).unwrap().0
}

fn filled(thetis: &Thetis, count: u32) -> Stream {
    let stream = thetis.stream("orders").unwrap();
    stream.append_batch((0..count).map(|n| format!("order {n}"))).unwrap();
    stream
}

fn relaxed(records: u32) -> Saves {
    Saves::Every { records, interval: None }
}

#[test]
fn a_strict_reader_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    {
        let thetis = open(&dir);
        let reader = filled(&thetis, 10).reader("billing").unwrap();
        for n in 0..4 {
            assert_eq!(reader.read_next().unwrap().unwrap().value, format!("order {n}"));
        }
        assert_eq!((reader.position(), reader.saved()), (Offset(4), Offset(4)));
    }
    let thetis = open(&dir);
    let stream = thetis.stream("orders").unwrap();
    let listed = stream.readers();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].name.as_str(), listed[0].position, listed[0].unread),
        ("billing", Offset(4), 6)
    );
    let reader = stream.reader("billing").unwrap();
    let rest: Vec<_> = std::iter::from_fn(|| reader.read_next().unwrap()).collect();
    assert_eq!(rest.len(), 6);
    assert_eq!(rest[0].offset, Offset(4));
    assert_eq!(reader.unread(), 0);
}

#[test]
fn a_relaxed_reader_repeats_at_most_its_number_and_skips_nothing() {
    let dir = tempfile::tempdir().unwrap();
    filled(&open(&dir), 30);
    let mut handed_out = HashSet::new();
    let mut next = 0;
    // Each round ends as a crash would: nothing is saved on the way out.
    for round in [2, 7, 3, 11, 1] {
        let thetis = open(&dir);
        let reader = thetis.stream("orders").unwrap().reader_with("r", relaxed(3)).unwrap();
        let begin = reader.position().0;
        assert!(begin <= next, "skipped from {next} to {begin}");
        assert!(next - begin <= 3, "repeats {} records", next - begin);
        for _ in 0..round {
            handed_out.insert(reader.read_next().unwrap().unwrap().offset);
        }
        next = next.max(begin + round);
    }
    assert_eq!(handed_out.len() as u64, next);
}

#[test]
fn a_relaxed_batch_is_saved_by_the_next_one_and_by_close() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let stream = filled(&thetis, 100);
    let reader = stream.reader_with("r", relaxed(10)).unwrap();
    // A record is "order NN": 8 bytes.
    for _ in 0..5 {
        reader.read_batch(16 * 8).unwrap();
    }
    assert!(reader.position().since(reader.saved()) <= 17);
    let at = reader.position();
    drop((reader, stream));
    thetis.close().unwrap();
    let thetis = open(&dir);
    assert_eq!(thetis.stream("orders").unwrap().reader("r").unwrap().position(), at);
}

#[test]
fn the_interval_saves_without_further_reads() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let saves = Saves::Every { records: 1_000, interval: Some(Duration::from_millis(2)) };
    let reader = filled(&thetis, 3).reader_with("r", saves).unwrap();
    reader.read_next().unwrap().unwrap();
    // Ends when it is saved; a saver that never saves fails by the runner's limit.
    while reader.saved() != Offset(1) {
        thread::yield_now();
    }
    drop((thetis, reader));
    // The thread has let go of the directory.
    let thetis = open(&dir);
    assert_eq!(thetis.stream("orders").unwrap().readers()[0].saved, Offset(1));
}

#[test]
fn peeking_moves_nothing_and_batches_keep_to_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let stream = thetis.stream("s").unwrap();
    stream.append_batch(["aaaa", "bb", "cc", "dddddddd"]).unwrap();
    let reader = stream.reader("r").unwrap();
    assert_eq!(reader.peek().unwrap().unwrap().value, "aaaa");
    assert_eq!(reader.peek_batch(6).unwrap().len(), 2);
    assert_eq!(reader.position(), Offset(0));
    assert_eq!(reader.read_batch(0).unwrap().len(), 1);
    assert_eq!(reader.read_batch(11).unwrap().len(), 2);
    assert_eq!(reader.read_batch(1).unwrap()[0].value, "dddddddd");
    assert!(reader.read_batch(1).unwrap().is_empty());
    assert!(reader.peek().unwrap().is_none());
    stream.append("later").unwrap();
    assert_eq!(reader.read_next().unwrap().unwrap().value, "later");
    reader.seek(Offset(1)).unwrap();
    assert_eq!(reader.read_next().unwrap().unwrap().value, "bb");
    assert!(matches!(reader.seek(Offset(6)), Err(Error::PastEnd { .. })));
}

#[test]
fn threads_that_share_a_reader_get_each_record_once() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let stream = filled(&thetis, 2_000);
    let readers: Vec<_> =
        (0..4).map(|_| stream.reader_with("shared", relaxed(100)).unwrap()).collect();
    let threads: Vec<_> = readers
        .into_iter()
        .map(|reader| {
            thread::spawn(move || {
                let next = || reader.read_next().unwrap().map(|record| record.offset);
                std::iter::from_fn(next).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut seen: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    seen.sort();
    assert_eq!(seen, (0..2_000).map(Offset).collect::<Vec<_>>());
}

#[test]
fn only_what_all_readers_have_durably_passed_is_trimmed_and_space_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let stream = thetis.stream("s").unwrap();
    for _ in 0..80 {
        stream.append(vec![7; 100_000]).unwrap();
    }
    stream.trim_when_read(true).unwrap();
    thetis.reclaim().unwrap();
    assert_eq!(stream.start(), Offset(0), "no reader, no proof");
    let slow = stream.reader("slow").unwrap();
    let fast = stream.reader_with("fast", relaxed(1_000)).unwrap();
    while fast.read_next().unwrap().is_some() {}
    slow.read_next().unwrap().unwrap();
    assert_eq!(stream.trim_read().unwrap(), Offset(0), "the fast one has saved nothing");
    fast.save().unwrap();
    assert_eq!(stream.trim_read().unwrap(), Offset(1));
    assert!(matches!(slow.seek(Offset(0)), Err(Error::Trimmed { .. })));
    while slow.read_next().unwrap().is_some() {}
    assert!(stream.start() > Offset(60), "trimming follows reading");
    let before = thetis.journal().stats().file_bytes;
    assert!(thetis.reclaim().unwrap().files > 0);
    assert_eq!(stream.start(), Offset(80));
    assert!(thetis.journal().stats().file_bytes < before);
    assert_eq!(stream.size_bytes().unwrap(), 0);
}

/// Bytes of the journal as the file system counts them.
fn disk_bytes(dir: &TempDir) -> u64 {
    let files = std::fs::read_dir(dir.path().join("journal")).unwrap();
    // A file may be gone by now.
    let blocks =
        |file: std::io::Result<std::fs::DirEntry>| Some(file.ok()?.metadata().ok()?.blocks());
    files.filter_map(blocks).sum::<u64>() * 512
}

/// Reclaims until the journal takes less than `bytes`. Full files are sealed by a thread meanwhile; a
/// minute is plenty.
fn reclaim_to(thetis: &Thetis, dir: &TempDir, bytes: u64) {
    let is_done = || {
        thetis.reclaim().unwrap();
        thread::sleep(Duration::from_millis(10));
        disk_bytes(dir) < bytes
    };
    assert!((0..6_000).any(|_| is_done()), "{} bytes are not given back", disk_bytes(dir));
}

#[test]
fn the_disk_has_its_space_back_across_restarts() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let value = vec![7; 100_000];
    {
        let stream = open(&dir).stream("s").unwrap();
        for _ in 0..240 {
            stream.append(&value).unwrap();
        }
        stream.trim_when_read(true).unwrap();
        let reader = stream.reader("r").unwrap();
        (0..120).for_each(|_| drop(reader.read_next().unwrap().unwrap()));
    }
    assert!(disk_bytes(&dir) > 22 * MIB);
    {
        let thetis = open(&dir);
        reclaim_to(&thetis, &dir, 18 * MIB);
        let reader = thetis.stream("s").unwrap().reader("r").unwrap();
        (0..120).for_each(|_| drop(reader.read_next().unwrap().unwrap()));
    }
    let thetis = open(&dir);
    reclaim_to(&thetis, &dir, 7 * MIB);
    assert_eq!(thetis.stream("s").unwrap().start(), Offset(240));
}

#[test]
fn retention_is_the_streams_own_and_gives_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let value = vec![7; 100_000];
    {
        let thetis = open(&dir);
        for name in ["kept", "by bytes", "by age"] {
            let stream = thetis.stream(name).unwrap();
            for _ in 0..60 {
                stream.append(&value).unwrap();
            }
        }
        thetis.reclaim().unwrap();
        let bytes = Retention { bytes: Some(1_000_000), ..Retention::default() };
        thetis.stream("by bytes").unwrap().set_retention(bytes).unwrap();
        thetis.delete("kept").unwrap();
    }
    let thetis = open(&dir);
    // Some other stream's age is not this one's.
    let age = Retention { age: Some(Duration::from_secs(3_600)), ..Retention::default() };
    let by_age = thetis.stream("by age").unwrap();
    by_age.set_retention(age).unwrap();
    reclaim_to(&thetis, &dir, 13 << 20);
    assert_eq!(thetis.stream("by bytes").unwrap().start(), Offset(50));
    assert_eq!(by_age.start(), Offset(0), "it is not an hour old");
    by_age.set_retention(Retention { age: Some(Duration::ZERO), bytes: None }).unwrap();
    let topic = thetis.catalog().get("by age").unwrap();
    assert_eq!(topic.configs().get("retention.ms"), "0");
    reclaim_to(&thetis, &dir, 8 << 20);
    by_age.set_retention(Retention::default()).unwrap();
    let end = by_age.append("stays").unwrap().range.start;
    thetis.reclaim().unwrap();
    assert_eq!(by_age.start(), end);
}

#[test]
fn a_stream_keeps_what_was_read_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let stream = filled(&thetis, 5);
    let reader = stream.reader("r").unwrap();
    while reader.read_next().unwrap().is_some() {}
    thetis.reclaim().unwrap();
    assert_eq!(stream.start(), Offset(0));
    // The choice is remembered, with who has passed what.
    stream.trim_when_read(true).unwrap();
    drop((stream, reader, thetis));
    let thetis = open(&dir);
    let stream = thetis.stream("orders").unwrap();
    assert!(stream.is_trimmed_when_read());
    thetis.reclaim().unwrap();
    assert_eq!(stream.start(), Offset(5));
}

#[test]
fn a_reader_left_behind_by_a_trim_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let stream = filled(&thetis, 10);
    let reader = stream.reader("r").unwrap();
    reader.peek().unwrap().unwrap();
    stream.trim(Offset(4)).unwrap();
    assert!(matches!(reader.read_next(), Err(Error::Trimmed { start: Offset(4), .. })));
    assert_eq!(reader.unread(), 6);
    reader.seek(stream.start()).unwrap();
    assert_eq!(reader.read_next().unwrap().unwrap().offset, Offset(4));
}

#[test]
fn readers_go_when_dropped_and_with_their_stream() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let stream = filled(&thetis, 3);
    let reader = stream.reader("r").unwrap();
    let other = stream.reader("other").unwrap();
    reader.read_next().unwrap();
    stream.drop_reader("r").unwrap();
    assert!(matches!(stream.drop_reader("r"), Err(Error::NoReader { .. })));
    assert!(matches!(reader.read_next(), Err(Error::NoReader { .. })));
    assert_eq!(stream.reader("r").unwrap().position(), Offset(0), "a new reader of the old name");
    thetis.delete("orders").unwrap();
    assert!(matches!(other.read_next(), Err(Error::NoReader { .. })));
    assert!(stream.reader("late").is_err());
    let anew = thetis.stream("orders").unwrap();
    assert!(anew.readers().is_empty());
    drop((stream, anew, reader, other, thetis));
    assert!(open(&dir).stream("orders").unwrap().readers().is_empty());
}

/// Rows @C and @D of docs/formats/reader-position.md. Without @C, records appended after the loss
/// would be skipped.
#[test]
fn positions_beyond_the_end_are_set_back_for_good_and_orphans_go() {
    let dir = tempfile::tempdir().unwrap();
    let key = |stream| Key::of("reader").number(stream).text("r");
    let position_500 = &include_bytes!("../golden/reader-records-v1.bin")[..12];
    {
        let thetis = open(&dir);
        let stream = filled(&thetis, 3);
        let id = stream.append("fourth").unwrap().stream;
        let meta = thetis.catalog().store().meta();
        for stream in [id.0, 77] {
            let done = meta.write(Write::put(key(stream), position_500)).unwrap();
            assert!(done.done().is_some());
        }
    }
    {
        let thetis = open(&dir);
        let stream = thetis.stream("orders").unwrap();
        assert_eq!(stream.readers()[0].saved, Offset(4));
        stream.append_batch(["fifth", "sixth"]).unwrap();
        assert!(thetis.catalog().store().meta().get(&key(77)).unwrap().is_none());
    }
    let thetis = open(&dir);
    let reader = thetis.stream("orders").unwrap().reader("r").unwrap();
    assert_eq!(reader.read_next().unwrap().unwrap().value, "fifth");
}

#[test]
fn names_and_numbers_of_readers_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = open(&dir);
    let stream = filled(&thetis, 1);
    assert!(matches!(stream.reader(""), Err(Error::ReaderName { .. })));
    assert!(matches!(stream.reader(&"x".repeat(250)), Err(Error::ReaderName { .. })));
    assert!(stream.reader(&"x".repeat(249)).is_ok());
    for n in 1..READERS_MAX {
        stream.reader(&n.to_string()).unwrap();
    }
    assert!(matches!(stream.reader("one more"), Err(Error::TooManyReaders { .. })));
    stream.drop_reader("1").unwrap();
    assert!(stream.reader("one more").is_ok());
}

#[test]
fn stores_of_different_keys_stand_side_by_side() {
    let root = tempfile::tempdir().unwrap();
    let keys = ["a/b", "a_b", "..", "A", "a"];
    let stores: Vec<_> =
        keys.iter().map(|key| Thetis::open_keyed(root.path(), key).unwrap()).collect();
    for (key, store) in keys.iter().zip(&stores) {
        store.stream("s").unwrap().append(key).unwrap();
    }
    for (key, store) in keys.iter().zip(&stores) {
        let stream = store.stream("s").unwrap();
        assert_eq!(stream.end(), Offset(1));
        assert_eq!(stream.reader("r").unwrap().read_next().unwrap().unwrap().value, *key);
        assert!(keyed_dir(root.path(), key).unwrap().join("meta.redb").exists());
    }
    assert!(Thetis::open_keyed(root.path(), "a").is_err(), "a directory has one holder");
}

#[test]
fn flush_policies_are_durability_levels() {
    for (flush, level) in [
        (Flush::Each, Durability::Disk),
        (Flush::Every(Duration::from_millis(5)), Durability::Os),
        (Flush::Never, Durability::Os),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().flush(flush);
        let (thetis, _) = Thetis::open_with(dir.path(), options).unwrap();
        let receipt = thetis.stream("s").unwrap().append("x").unwrap();
        assert!(receipt.durability >= level);
        thetis.close().unwrap();
    }
}

#[test]
fn the_example_runs() {
    let dir = tempfile::tempdir().unwrap();
    example::run(dir.path()).unwrap();
}
