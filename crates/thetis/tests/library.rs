//! The library on a real directory, as an application uses it: append, read, follow, trim, seal,
//! sessions, durability, and all of it again after the directory was opened again.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

use std::thread;
use std::time::Duration;

use thetis::{
    AttemptId, Durability, Error, Fate, Offset, OffsetRange, Options, Outcome,
    READER_BATCH_RECORDS_MAX, Record, Stream, Thetis,
};
use thetis_catalog::{Format, TopicSpec};
use thetis_types::ErrorKind;

fn values(records: impl IntoIterator<Item = Result<Record, Error>>) -> Vec<String> {
    let text = |record: Result<Record, Error>| String::from_utf8(record.unwrap().value.to_vec());
    records.into_iter().map(|record| text(record).unwrap()).collect()
}

fn all(stream: &Stream) -> Vec<String> {
    values(stream.read(stream.start()).unwrap())
}

#[test]
fn what_was_appended_is_read_from_any_offset_also_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    for opening in 0..2 {
        let thetis = Thetis::open(dir.path()).unwrap();
        let stream = thetis.stream("orders").unwrap();
        if opening == 0 {
            let receipt = stream.append("a").unwrap();
            assert_eq!((receipt.range.start, receipt.durability), (Offset(0), Durability::Disk));
            let receipt = stream.append_batch(["b", "", "d"]).unwrap();
            assert_eq!(receipt.range, OffsetRange::new(Offset(1), Offset(4)));
            stream.append("e").unwrap();
        }
        assert_eq!((stream.start(), stream.end()), (Offset(0), Offset(5)));
        let expected = ["a", "b", "", "d", "e"];
        for from in 0..=5 {
            let records = stream.read(Offset(from)).unwrap();
            let from = usize::try_from(from).unwrap();
            assert_eq!(values(records), expected[from..], "from {from}");
        }
        assert!(stream.read(Offset(9)).unwrap().next().is_none());
        let first = stream.read(Offset(2)).unwrap().next().unwrap().unwrap();
        assert_eq!(first.offset, Offset(2), "a batch is entered in its middle");
        assert_eq!(stream.offset_at(0).unwrap(), Some(Offset(0)));
        assert_eq!(stream.offset_at(i64::MAX).unwrap(), None);
        assert_eq!(thetis.names(), ["orders"]);
        assert!(thetis.find("nothing").unwrap().is_none());
        thetis.close().unwrap();
    }
}

#[test]
fn a_follower_sees_every_record_and_ends_with_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    stream.append("0").unwrap();
    let follower = stream.follow(Offset(0)).unwrap();
    let followed = thread::spawn(move || values(follower));
    for index in 1..20 {
        stream.append(index.to_string()).unwrap();
    }
    let mut idle = stream.follow(stream.end()).unwrap();
    assert!(idle.next_within(Duration::ZERO).is_none(), "there is nothing to come yet");
    assert_eq!(stream.seal().unwrap(), Offset(20));
    let expected: Vec<String> = (0..20).map(|index: u32| index.to_string()).collect();
    assert_eq!(followed.join().unwrap(), expected);
    assert!(idle.next().is_none(), "a sealed stream has no more to come");
}

#[tokio::test]
async fn the_async_face_does_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    let mut follow = stream.follow_async(Offset(0)).unwrap();
    let follower = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(record) = follow.next().await {
            seen.push(record);
        }
        values(seen)
    });
    stream.append_async("0").await.unwrap();
    stream.append_batch_async(["1", "2"]).await.unwrap();
    let under_way: Vec<_> = (3..50).map(|n: u32| stream.start_append(n.to_string())).collect();
    for (appending, at) in under_way.into_iter().zip(3..) {
        let appending = appending.unwrap();
        assert_eq!(appending.range().start, Offset(at));
        assert_eq!(appending.await.unwrap().range.start, Offset(at));
    }
    // A future that is dropped before it is waited for undoes nothing.
    drop(stream.start_append("50").unwrap());
    let sealing = stream.clone();
    assert_eq!(tokio::task::spawn_blocking(move || sealing.seal()).await.unwrap().unwrap().0, 51);
    let expected: Vec<String> = (0..51).map(|index: u32| index.to_string()).collect();
    assert_eq!(follower.await.unwrap(), expected);
}

#[test]
fn trimmed_records_are_an_error_and_stay_gone() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    stream.append_batch(["a", "b", "c", "d"]).unwrap();
    let mut reading = stream.read(Offset(0)).unwrap();
    reading.next().unwrap().unwrap();
    assert_eq!(stream.trim(Offset(3)).unwrap(), Offset(3));
    assert_eq!(stream.trim(Offset(1)).unwrap(), Offset(3), "a trim never goes back");
    let error = stream.read(Offset(2)).err().unwrap();
    assert!(matches!(error, Error::Trimmed { at: Offset(2), start: Offset(3) }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Trimmed);
    assert!(stream.trim(Offset(5)).is_err(), "past the end");
    drop((thetis, stream, reading));
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    assert_eq!(all(&stream), ["d"]);
    stream.trim(Offset(4)).unwrap();
    thetis.reclaim().unwrap();
    drop((thetis, stream));
    let stream = Thetis::open(dir.path()).unwrap().stream("orders").unwrap();
    assert_eq!((stream.start(), stream.end()), (Offset(4), Offset(4)));
    assert_eq!(stream.append("e").unwrap().range.start, Offset(4), "offsets never come again");
}

#[test]
fn a_sealed_stream_takes_nothing_ever() {
    let dir = tempfile::tempdir().unwrap();
    for opening in 0..2 {
        let thetis = Thetis::open(dir.path()).unwrap();
        let stream = thetis.stream("orders").unwrap();
        if opening == 0 {
            stream.append("last").unwrap();
        }
        assert_eq!(stream.seal().unwrap(), Offset(1));
        let error = stream.append("more").unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Sealed, Outcome::NotCommitted));
        assert_eq!(all(&stream), ["last"]);
    }
}

#[test]
fn a_name_deleted_and_taken_again_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let old = thetis.stream("orders").unwrap();
    old.append("old").unwrap();
    thetis.delete("orders").unwrap();
    assert_eq!(thetis.delete("orders").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(old.append("into nothing").unwrap_err().kind(), ErrorKind::NotFound);
    let new = thetis.stream("orders").unwrap();
    assert!(all(&new).is_empty());
    new.append("new").unwrap();
    drop((thetis, old, new));
    let thetis = Thetis::open(dir.path()).unwrap();
    assert_eq!(all(&thetis.stream("orders").unwrap()), ["new"]);
}

#[test]
fn each_durability_is_given_and_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options { durability: Durability::Os, ..Options::default() };
    {
        let (thetis, _) = Thetis::open_with(dir.path(), options()).unwrap();
        for level in Durability::ALL {
            let stream = thetis.stream(level.name()).unwrap();
            assert_eq!(stream.durability(), Durability::Os, "the directory's default");
            stream.set_durability(Some(level)).unwrap();
            let receipt = stream.append("x").unwrap();
            assert!(receipt.durability >= level);
        }
        thetis.close().unwrap();
    }
    let thetis = Thetis::open(dir.path()).unwrap();
    for level in Durability::ALL {
        let stream = thetis.stream(level.name()).unwrap();
        assert_eq!(stream.durability(), level);
        // It is the topic's configuration, where every front shows it.
        let said = || thetis.catalog().get(level.name()).unwrap().configs().durability();
        assert_eq!(said(), Some(level));
        assert_eq!(all(&stream), ["x"], "closing makes everything safe");
        stream.set_durability(None).unwrap();
        assert_eq!(stream.durability(), Durability::Disk, "this opening's default");
        assert_eq!(said(), None);
        thetis.delete(level.name()).unwrap();
        let gone = stream.set_durability(Some(level)).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn the_compare_and_set_lets_one_of_many_win() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    for round in 0..10 {
        let won: usize = thread::scope(|scope| {
            let try_one = || match stream.append_at(Offset(round), "x") {
                Ok(receipt) => {
                    assert_eq!(receipt.range.start, Offset(round));
                    1
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict);
                    assert_eq!(error.outcome(), Outcome::NotCommitted);
                    // The refusal speaks of what is durable, so it can be read.
                    assert!(stream.end() > Offset(round));
                    0
                }
            };
            let tries: Vec<_> = (0..4).map(|_| scope.spawn(try_one)).collect();
            tries.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(won, 1, "round {round}");
    }
}

#[test]
fn a_session_is_the_only_writer_until_it_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    let lease = Duration::from_secs(3_600);
    let first = stream.acquire(lease).unwrap();
    let under =
        |session, value: &str| stream.append_with([value], None, Some(session), AttemptId::NONE);
    under(first, "first").unwrap();
    assert_eq!(stream.append("nobody").unwrap_err().kind(), ErrorKind::Fenced);
    let second = stream.acquire(lease).unwrap();
    assert_eq!(under(first, "zombie").unwrap_err().kind(), ErrorKind::Fenced);
    let receipt = under(second, "second").unwrap();
    assert_eq!(receipt.epoch, second.epoch);
    stream.renew(second, lease).unwrap();
    stream.release(second).unwrap();
    stream.append("anybody").unwrap();
    assert_eq!(all(&stream), ["first", "second", "anybody"]);
}

#[test]
fn the_fate_of_an_attempt_is_known_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let (made, never, trimmed);
    {
        let thetis = Thetis::open(dir.path()).unwrap();
        let stream = thetis.stream("orders").unwrap();
        trimmed = stream.attempt();
        stream.append_with(["gone"], None, None, trimmed).unwrap();
        stream.trim(Offset(1)).unwrap();
        made = stream.attempt();
        never = stream.attempt();
        stream.append_with(["a", "b"], None, None, made).unwrap();
    }
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    let range = OffsetRange::new(Offset(1), Offset(3));
    assert_eq!(stream.recover_append(made).unwrap(), Fate::Committed(range));
    assert_eq!(stream.recover_append(never).unwrap(), Fate::NotCommitted);
    assert_eq!(stream.recover_append(trimmed).unwrap(), Fate::Trimmed(Offset(1)));
}

#[test]
fn what_cannot_be_appended_or_named_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    let empty = stream.append_batch(Vec::<&[u8]>::new()).unwrap_err();
    assert!(matches!(empty, Error::EmptyBatch));
    for name in ["", "a\tb", &"x".repeat(250)] {
        assert_eq!(thetis.stream(name).err().unwrap().kind(), ErrorKind::Invalid, "{name:?}");
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    assert!(Thetis::open(&file).is_err());
}

/// What other engines limit to 2000 entries, 216 bytes of name, or entries that are not empty.
#[test]
fn what_has_no_limit_elsewhere_has_none_here() {
    let dir = tempfile::tempdir().unwrap();
    let name = "n".repeat(249);
    let reader_name = "r".repeat(249);
    for opening in 0..2 {
        let thetis = Thetis::open(dir.path()).unwrap();
        let stream = thetis.stream(&name).unwrap();
        if opening == 0 {
            let receipt = stream.append_batch(vec![""; 100_000]).unwrap();
            assert_eq!(receipt.range, OffsetRange::new(Offset(0), Offset(100_000)));
            stream.append("").unwrap();
            stream.append([0_u8, 255, b'\n', 0]).unwrap();
            let records = stream.reader(&reader_name).unwrap().read_batch(1).unwrap();
            assert_eq!(records.len(), READER_BATCH_RECORDS_MAX, "empty records have no bytes");
        }
        let reader = stream.reader(&reader_name).unwrap();
        assert_eq!(reader.unread(), 100_002 - READER_BATCH_RECORDS_MAX as u64);
        let last = stream.read(Offset(100_000)).unwrap().map(|it| it.unwrap().value);
        assert_eq!(last.collect::<Vec<_>>(), [&b""[..], &[0, 255, b'\n', 0]]);
        assert_eq!(stream.read(Offset(0)).unwrap().count(), 100_002);
    }
}

/// Readers that look all the time, while batches of seven are appended.
#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    for level in Durability::ALL {
        let stream = thetis.stream(level.name()).unwrap();
        stream.set_durability(Some(level)).unwrap();
        thread::scope(|scope| {
            let appends = scope.spawn(|| {
                for _ in 0..40 {
                    stream.append_batch(["x"; 7]).unwrap();
                }
            });
            while !appends.is_finished() {
                assert_eq!(stream.end().0 % 7, 0);
                assert_eq!(all(&stream).len() % 7, 0);
            }
        });
        assert_eq!(stream.end(), Offset(280));
    }
}

/// Plain entries in a topic of Kafka clients would be unreadable to them, and take offsets of theirs.
#[test]
fn a_topic_of_kafka_clients_is_theirs_alone() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    for (name, format, partitions) in
        [("kafka", Format::Kafka, 1), ("both", Format::Kafka, 3), ("wide", Format::Plain, 3)]
    {
        let spec = TopicSpec { name: name.into(), partitions, format, configs: [].into() };
        thetis.catalog().create(spec).unwrap();
        assert_eq!(thetis.stream(name).err().unwrap().kind(), ErrorKind::Invalid, "{name}");
        assert_eq!(thetis.find(name).err().unwrap().kind(), ErrorKind::Invalid, "{name}");
    }
}

/// Futures dropped before their first poll, after it, and callers that panic between placing and
/// waiting: every append commits once, in its place, and those behind are not held up.
#[test]
fn futures_that_are_dropped_leave_the_log_whole() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    for n in 0..60_u32 {
        let appending = stream.start_append(n.to_string()).unwrap();
        match n % 3 {
            0 => drop(appending.into_future()),
            1 => {
                let mut future = appending.into_future();
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                let _ = future.as_mut().poll(&mut context);
            }
            _ => {
                let caller = std::thread::spawn(move || {
                    let _held = appending;
                    panic!("on purpose");
                });
                assert!(caller.join().is_err());
            }
        }
    }
    assert_eq!(stream.append("last").unwrap().range.start, Offset(60));
    drop((stream, thetis));
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    let mut expected: Vec<String> = (0..60).map(|index: u32| index.to_string()).collect();
    expected.push("last".into());
    assert_eq!(all(&stream), expected);
}
