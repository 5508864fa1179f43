//! Callers that are cancelled, panic, or let go in the middle: the store stays whole, its directory can
//! be opened again, and no act lasts longer than its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use thetis::{Flush, Offset, Options, Saves, Stream, Thetis};

struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

/// Polls a future once, then drops it.
fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(&Waker::from(Arc::new(Idle))))
}

/// Opens a directory that an append under way may hold for as long as that append takes; a minute
/// is plenty.
fn open_soon(dir: &Path) -> Thetis {
    for _ in 0..6_000 {
        match Thetis::open(dir) {
            Ok(thetis) => return thetis,
            Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the directory is held by an append that ended long ago");
}

fn values(stream: &Stream) -> Vec<String> {
    let records = stream.read(stream.start()).unwrap();
    records.map(|it| String::from_utf8(it.unwrap().value.to_vec()).unwrap()).collect()
}

#[test]
fn an_append_that_was_cancelled_happens_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..8_u64 {
        let thetis = open_soon(dir.path());
        let stream = thetis.stream("orders").unwrap();
        assert_eq!(stream.end(), Offset(4 * round));
        // Never polled: nothing happens. Polled once: it happens, whoever waits.
        drop(stream.append_async("never"));
        let _ = poll_once(stream.append_async("one"));
        let _ = poll_once(stream.append_batch_async(["two", "three"]));
        drop(stream.start_append("four").unwrap());
    }
    let stream = open_soon(dir.path()).stream("orders").unwrap();
    assert_eq!(values(&stream), ["one", "two", "three", "four"].repeat(8));
}

/// Each is told of its append, or of a record, while it holds the last handles; after that nobody
/// else does.
#[test]
fn whoever_was_answered_can_open_the_directory_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    for round in 0..6_u64 {
        let thetis = Thetis::open(dir.path()).expect("nothing is under way");
        let stream = thetis.stream("orders").unwrap();
        let mut follow = stream.follow_async(stream.end()).unwrap();
        match round % 3 {
            0 => assert_eq!(stream.append("x").unwrap().range.start, Offset(round)),
            1 => {
                let receipt = runtime.block_on(stream.append_async("x")).unwrap();
                assert_eq!(receipt.range.start, Offset(round));
            }
            _ => {
                // The append is nobody's any more when its record is seen.
                drop(stream.start_append("x").unwrap());
                assert_eq!(runtime.block_on(follow.next()).unwrap().unwrap().offset, Offset(round));
            }
        }
    }
}

#[test]
fn followers_that_give_up_cost_nobody_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    let mut follow = stream.follow_async(Offset(0)).unwrap();
    let mut waiting = stream.follow(Offset(0)).unwrap();
    for n in 0..10 {
        for _ in 0..3 {
            assert!(poll_once(follow.next()).is_pending());
        }
        assert!(waiting.next_within(Duration::ZERO).is_none());
        stream.append(n.to_string()).unwrap();
        match poll_once(follow.next()) {
            Poll::Ready(Some(record)) => assert_eq!(record.unwrap().offset, Offset(n)),
            other => panic!("{}", if other.is_pending() { "it waits" } else { "it ended" }),
        }
        assert_eq!(waiting.next().unwrap().unwrap().offset, Offset(n));
    }
    drop((stream, follow, waiting, thetis));
    assert_eq!(open_soon(dir.path()).stream("orders").unwrap().end(), Offset(10));
}

#[test]
fn a_caller_that_panics_leaves_no_half_batch_and_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    let reader = stream.reader("billing").unwrap();
    let panics = |act: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
    let broken = || ["a", "b"].into_iter().inspect(|value| assert_ne!(*value, "b", "on purpose"));
    panics(&|| drop(stream.append_batch(broken())));
    panics(&|| {
        let _ = poll_once(stream.append_batch_async(broken()));
    });
    assert_eq!(stream.end(), Offset(0));
    stream.append_batch(["first", "second"]).unwrap();
    // With a record in hand, and with an append under way.
    panics(&|| {
        let record = reader.read_next().unwrap().unwrap();
        panic!("on purpose, with {}", record.offset);
    });
    panics(&|| {
        let _appending = stream.start_append("third").unwrap();
        panic!("on purpose");
    });
    panics(&|| {
        let _session = stream.acquire(Duration::from_millis(1)).unwrap();
        panic!("on purpose");
    });
    assert_eq!(reader.read_next().unwrap().unwrap().value, "second");
    drop((stream, reader, thetis));
    let stream = open_soon(dir.path()).stream("orders").unwrap();
    assert_eq!(values(&stream), ["first", "second", "third"]);
    assert_eq!(stream.reader("billing").unwrap().position(), Offset(2));
}

#[test]
fn threads_that_append_hold_the_directory_no_longer_than_they_append() {
    for flush in [Flush::Each, Flush::Every(Duration::from_secs(3_600)), Flush::Never] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().flush(flush);
        let (thetis, _) = Thetis::open_with(dir.path(), options).unwrap();
        let stream = thetis.stream("orders").unwrap();
        let saves = Saves::Every { records: 5, interval: Some(Duration::from_millis(1)) };
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let stream = stream.clone();
                thread::spawn(move || {
                    let reader = stream.reader_with("shared", saves).unwrap();
                    for _ in 0..25 {
                        stream.append("x").unwrap();
                        reader.read_next().unwrap();
                    }
                })
            })
            .collect();
        drop((stream, thetis));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let thetis = Thetis::open(dir.path()).expect("every thread has ended");
        assert_eq!(thetis.stream("orders").unwrap().end(), Offset(100));
    }
}

/// Without this a thread that follows would wait for ever, and hold the directory as long.
#[test]
fn closing_ends_whoever_follows() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3_u64 {
        let thetis = Thetis::open(dir.path()).expect("every follower has ended");
        let stream = thetis.stream("orders").unwrap();
        stream.append("x").unwrap();
        let mut follow = stream.follow_async(Offset(0)).unwrap();
        let asynchronous = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut seen = 0;
                while let Some(record) = follow.next().await {
                    record.unwrap();
                    seen += 1;
                }
                seen
            })
        });
        let blocking = stream.follow(Offset(0)).unwrap();
        let blocking = thread::spawn(move || blocking.map(Result::unwrap).count() as u64);
        let mut late = stream.follow(stream.end()).unwrap();
        thetis.close().unwrap();
        assert_eq!(asynchronous.join().unwrap(), round + 1);
        assert_eq!(blocking.join().unwrap(), round + 1);
        assert!(late.next().is_none(), "nothing is to come");
    }
}
