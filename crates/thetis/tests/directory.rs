//! The directory beneath: held by one, left as a crash leaves it, measured while nothing happens.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use thetis::{Error, Offset, Stream, Thetis};

fn all(stream: &Stream) -> Vec<Vec<u8>> {
    let records = stream.read(stream.start()).unwrap();
    records.map(|record| record.unwrap().value.to_vec()).collect()
}

/// A copy of what the kernel has of a directory in use: what is left when the process is killed.
fn image(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let target = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            image(&item.path(), &target);
        } else if let Err(error) = fs::copy(item.path(), target) {
            // A file being prepared may be gone or renamed by now.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

#[test]
fn a_second_open_is_refused_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let first = Thetis::open(dir.path()).unwrap();
    first.stream("orders").unwrap().append("x").unwrap();
    for _ in 0..3 {
        let error = Thetis::open(dir.path()).err().expect("two held one directory");
        assert!(matches!(error, Error::Journal(_)), "{error}");
        assert!(error.to_string().contains("use"), "{error}");
    }
    assert_eq!(all(&first.stream("orders").unwrap()).len(), 1, "the holder is not disturbed");
    drop(first);
    assert_eq!(all(&Thetis::open(dir.path()).unwrap().stream("orders").unwrap()).len(), 1);
}

/// Nothing of a directory lies in what a process has only once.
#[test]
fn two_directories_live_side_by_side_in_one_process() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    thread::scope(|scope| {
        for (dir, word) in [(&one, "one"), (&two, "two")] {
            scope.spawn(move || {
                for round in 0..12_u64 {
                    let thetis = Thetis::open(dir.path()).unwrap();
                    let stream = thetis.stream("orders").unwrap();
                    assert_eq!(stream.end(), Offset(round));
                    stream.append(word).unwrap();
                    thetis.close().unwrap();
                }
            });
        }
    });
    for (dir, word) in [(&one, "one"), (&two, "two")] {
        let stream = Thetis::open(dir.path()).unwrap().stream("orders").unwrap();
        assert_eq!(all(&stream), vec![word.as_bytes().to_vec(); 12]);
    }
}

/// Old handles are refused, not confused with the new ones.
#[test]
fn a_closed_directory_can_be_opened_when_old_handles_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let old = thetis.stream("orders").unwrap();
    old.append("before").unwrap();
    thetis.close().unwrap();
    assert_eq!(old.append("after").unwrap_err().outcome(), thetis::Outcome::NotCommitted);
    assert_eq!(all(&old).len(), 1, "what is there can still be read");
    let error = Thetis::open(dir.path()).err().expect("two metadata stores over one file");
    assert_eq!(error.kind(), thetis_types::ErrorKind::Unavailable, "{error}");
    drop(old);
    let again = Thetis::open(dir.path()).unwrap();
    assert_eq!(again.stream("orders").unwrap().append("again").unwrap().range.start, Offset(1));
}

#[test]
fn dropping_without_closing_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..10_u64 {
        let thetis = Thetis::open(dir.path()).unwrap();
        let stream = thetis.stream("orders").unwrap();
        assert_eq!(stream.end(), Offset(round * 4), "round {round}");
        stream.append("one").unwrap();
        stream.append_batch(["two", "three"]).unwrap();
        stream.start_append("four").unwrap().wait().unwrap();
    }
}

/// A batch is one entry, so a crash leaves all of it or nothing; what was acknowledged it leaves.
#[test]
fn after_a_crash_a_batch_is_whole_or_absent() {
    const RECORDS: usize = 7;
    const BATCH: u64 = RECORDS as u64;
    let dir = tempfile::tempdir().unwrap();
    let images = tempfile::tempdir().unwrap();
    let thetis = Thetis::open(dir.path()).unwrap();
    let stream = thetis.stream("orders").unwrap();
    let value = [b'v'; 1_000];
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..60 {
                        stream.append_batch([&value[..]; RECORDS]).unwrap();
                    }
                })
            })
            .collect();
        let mut index = 0;
        while index < 5 || writers.iter().any(|writer| !writer.is_finished()) {
            let acknowledged = stream.end();
            let copy = images.path().join(index.to_string());
            image(dir.path(), &copy);
            index += 1;
            let Ok(crashed) = Thetis::open(&copy) else {
                panic!("the image of a directory in use does not open");
            };
            let found = crashed.stream("orders").unwrap();
            assert!(found.end() >= acknowledged, "acknowledged and lost: {}", found.end());
            assert_eq!(found.end().0 % BATCH, 0, "half a batch");
            assert_eq!(all(&found).len() as u64, found.end().0);
            assert_eq!(found.append("goes on").unwrap().range.start.0 % BATCH, 0);
            drop((crashed, found));
            fs::remove_dir_all(copy).unwrap();
        }
    });
    assert_eq!(stream.end(), Offset(120 * BATCH));
}

/// The examples are what people copy, so they say what their text promises. Cargo builds them
/// before it runs this.
#[test]
fn the_examples_say_what_they_promise() {
    for (name, expected) in [
        (
            "blocking",
            "[o0, o1) is safe at level disk\nfollowed o0 a coffee\nfollowed o1 a tea\n\
             followed o2 a cake\nread o0\nread o1\nread o2\n\
             the stream begins at o0 and ends at o3\n",
        ),
        ("asynchronous", ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
        let output = Command::new(&program).arg(dir.path()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {told}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        if expected.is_empty() {
            let safe = (0..10).map(|n| format!("[o{n}, o{}) is safe at level disk", n + 1));
            let followed = (0..12).map(|n| format!("followed o{n}"));
            assert_eq!(lines, safe.chain(followed).collect::<Vec<_>>());
        } else {
            // The follower is a thread of its own and may be first.
            let mut expected: Vec<&str> = expected.lines().collect();
            assert_eq!(lines.last(), expected.last());
            expected.sort_unstable();
            lines.sort_unstable();
            assert_eq!(lines, expected);
        }
    }
}
