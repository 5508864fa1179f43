//! Programs as they are written against the Walrus engine: each in a module of its own, whose first line
//! is all that was changed. What they print there is returned here.

use std::path::Path;

/// A service that logs what it does and works through it, with an instance shared by threads.
mod shared {
    use thetis::walrus as walrus_rust;

    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;
    use std::thread;

    use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

    pub(crate) fn run(dir: &Path) -> std::io::Result<BTreeSet<String>> {
        let wal = Arc::new(
            Walrus::builder()
                .data_dir(dir.into())
                .key("service")
                .consistency(ReadConsistency::AtLeastOnce { persist_every: 16 })
                .fsync_schedule(FsyncSchedule::Milliseconds(50))
                .build()?,
        );
        let writers: Vec<thread::JoinHandle<std::io::Result<()>>> = (0..4)
            .map(|writer| {
                let wal = Arc::clone(&wal);
                thread::spawn(move || {
                    for n in 0..25 {
                        wal.append_for_topic("work", format!("{writer}/{n}").as_bytes())?;
                    }
                    Ok(())
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("a writer panicked")?;
        }
        let mut done = BTreeSet::new();
        loop {
            let entries = wal.batch_read_for_topic("work", 64, true, None)?;
            if entries.is_empty() {
                break;
            }
            done.extend(entries.into_iter().map(|e| String::from_utf8_lossy(&e.data).to_string()));
        }
        Ok(done)
    }
}

/// A database's log: batches that must be whole, read again from the start when it comes up, peeked at
/// and never consumed, and dropped when a snapshot was made.
mod replay {
    use thetis::walrus as walrus_rust;

    use walrus_rust::{Entry, Walrus, WalrusBuilder};

    pub(crate) struct Database {
        wal: Walrus,
        pub(crate) rows: Vec<Vec<u8>>,
    }

    impl Database {
        pub(crate) fn open(dir: &std::path::Path) -> std::io::Result<Self> {
            let wal = WalrusBuilder::new().data_dir(dir.to_path_buf()).build()?;
            let mut rows = Vec::new();
            if !wal.topic_is_clean("log") {
                let replayed: Vec<Entry> =
                    wal.batch_read_for_topic("log", usize::MAX, false, None)?;
                rows.extend(replayed.iter().map(|e| e.clone().data));
            }
            Ok(Database { wal, rows })
        }

        pub(crate) fn commit(&mut self, transaction: &[&[u8]]) -> std::io::Result<()> {
            self.wal.batch_append_for_topic("log", transaction)?;
            self.rows.extend(transaction.iter().map(|row| row.to_vec()));
            Ok(())
        }

        pub(crate) fn snapshot(&mut self) -> std::io::Result<usize> {
            let mut dropped = 0;
            while self.wal.read_next("log", true)?.is_some() {
                dropped += 1;
            }
            self.wal.mark_topic_clean("log");
            assert_eq!(self.wal.get_topic_entry_count("log"), 0);
            Ok(dropped)
        }
    }
}

/// Tails a topic from a place that it keeps itself, in an index beside the log, while another part of it
/// consumes. Uses what the environment says.
mod tail {
    use thetis::walrus as walrus_rust;

    use walrus_rust::{
        FsyncSchedule, PREFIX_META_SIZE, ReadConsistency, WalIndex, Walrus, disable_fd_backend,
        enable_fd_backend, topic_entry_count, topic_entry_counts,
    };

    pub(crate) fn run() -> std::io::Result<Vec<String>> {
        disable_fd_backend();
        enable_fd_backend();
        let wal = Walrus::with_consistency_and_schedule(
            ReadConsistency::StrictlyAtOnce,
            FsyncSchedule::SyncEach,
        )?;
        let mut index = WalIndex::new("tail")?;
        let first = index.get("events").map_or(0, |at| at.cur_block_idx);
        for n in first..first + 10 {
            wal.append_for_topic("events", format!("event {n}").as_bytes())?;
        }
        let mut at = index.get("events").map_or(0, |at| at.cur_block_offset);
        let mut seen = Vec::new();
        loop {
            let entries = wal.batch_read_for_topic("events", 20, false, Some(at))?;
            let Some(entry) = entries.first() else { break };
            at += (PREFIX_META_SIZE + entry.data.len()) as u64;
            seen.push(String::from_utf8_lossy(&entry.data).into_owned());
        }
        index.set("events".to_string(), first + 10, at)?;
        assert_eq!(topic_entry_count(&wal, "events"), first + 10);
        assert_eq!(topic_entry_counts(&wal).len(), 1);
        assert!(wal.get_topic_size("events") <= at);
        index.set("gone".to_string(), 1, 2)?;
        assert_eq!(index.remove("gone")?.map(|at| at.cur_block_offset), Some(2));
        assert!(index.remove("gone")?.is_none());
        Ok(seen)
    }
}

#[test]
fn a_service_with_many_threads_moves_over() {
    let dir = tempfile::tempdir().unwrap();
    let all = (0..4).flat_map(|writer| (0..25).map(move |n| format!("{writer}/{n}")));
    assert_eq!(shared::run(dir.path()).unwrap(), all.collect());
}

#[test]
fn a_database_that_replays_its_log_moves_over() {
    let dir = tempfile::tempdir().unwrap();
    let open = |dir: &Path| replay::Database::open(dir).unwrap();
    {
        let mut database = open(dir.path());
        assert!(database.rows.is_empty());
        database.commit(&[b"a", b"b"]).unwrap();
        database.commit(&[b"", b"c"]).unwrap();
    }
    {
        let mut database = open(dir.path());
        assert_eq!(database.rows, [&b"a"[..], b"b", b"", b"c"]);
        assert_eq!(database.snapshot().unwrap(), 4);
    }
    {
        let mut database = open(dir.path());
        assert!(database.rows.is_empty(), "the snapshot has them");
        database.commit(&[b"d"]).unwrap();
    }
    assert_eq!(open(dir.path()).rows, [b"d"]);
}

/// Runs itself again, twice, with an environment: a test may not change its own.
#[test]
fn a_tail_that_keeps_its_own_place_moves_over() {
    if std::env::var_os("WALRUS_DATA_DIR").is_some() {
        let seen = tail::run().unwrap();
        println!("\nsaw {} to {}", seen[0], seen[seen.len() - 1]);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for expected in ["saw event 0 to event 9", "saw event 10 to event 19"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_tail_that_keeps_its_own_place_moves_over", "--nocapture"])
            .env("WALRUS_DATA_DIR", dir.path())
            .env("WALRUS_INSTANCE_KEY", "tail")
            .env("WALRUS_QUIET", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.lines().any(|line| line == expected), "{said}");
    }
}
