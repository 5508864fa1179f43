//! The stream core beside a plain vector: one history of appends, reads, trims, takeovers, failed
//! flushes, crashes and reopenings, each answer compared with what the vector says. Where histories
//! come from is the callers' affair: `model.rs` draws them, a fuzz target reads them from bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thetis_meta::MemoryStore;
use thetis_stream::{Append, Appending, Fate, Limits, Read, Session, Store, Stream, StreamSpec};
use thetis_types::clock::{ManualClock, SeededEntropy};
use thetis_types::{AttemptId, Durability, Entry, EntryFormat, Offset, Outcome, StreamId};
use thetis_wal::memory::MemoryWal;

/// One step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Append an entry of this many records and wait for it.
    Append {
        records: u32,
        expected: Option<i64>,
    },
    /// Append and do not wait.
    Start {
        records: u32,
    },
    /// Wait for the oldest that was started.
    Finish,
    /// Read from this share of the offsets, in percent, a bit past the end too.
    Read {
        percent: u64,
    },
    /// Trim at this share of the offsets.
    Trim {
        percent: u64,
    },
    /// Take the stream over; later appends carry the session, or do not.
    Acquire,
    Release,
    /// Append under the session before the current one.
    Zombie,
    /// The next flush fails.
    FailFlush,
    /// Power is lost; the store opens again.
    Crash,
}

/// What an append was, and what is known of it.
struct Sent {
    base: u64,
    records: u32,
    payload: Bytes,
    attempt: AttemptId,
    acknowledged: bool,
}

struct World {
    wal: MemoryWal,
    meta: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    seed: u64,
    stream: Stream,
    store: Store,
    level: Durability,
    /// The model: entries in order. Those that were not acknowledged may vanish in a crash.
    sent: Vec<Sent>,
    trim: u64,
    session: Option<Session>,
    earlier: Option<Session>,
    started: Vec<(usize, Appending)>,
}

impl World {
    fn new(level: Durability, at_once: Option<Durability>) -> World {
        let wal = MemoryWal::default();
        wal.set_at_once(at_once);
        let clock = Arc::new(ManualClock::default());
        let meta = Arc::new(MemoryStore::new(clock.clone()));
        let store = open(&wal, &meta, &clock, 1);
        let spec =
            StreamSpec { durability: Some(level), label: "model".into(), ..Default::default() };
        let stream = store.create(&[spec]).expect("memory does not fail").remove(0);
        World {
            wal,
            meta,
            clock,
            seed: 1,
            stream,
            store,
            level,
            sent: Vec::new(),
            trim: 0,
            session: None,
            earlier: None,
            started: Vec::new(),
        }
    }

    fn end(&self) -> u64 {
        self.sent.last().map_or(0, |sent| sent.base + u64::from(sent.records))
    }

    fn entry(&self, records: u32) -> Entry {
        Entry {
            record_count: records,
            max_timestamp: -1,
            format: EntryFormat::Records,
            payload: Bytes::from(format!("entry {} of {records}", self.sent.len())),
        }
    }

    /// Starts an append that the model says must be taken, unless the WAL has failed.
    fn start(&mut self, records: u32, expected: Option<Offset>) {
        let entry = self.entry(records);
        let append = Append {
            entry: entry.clone(),
            expected,
            session: self.session,
            attempt: self.stream.attempt(),
        };
        match self.stream.append(&append) {
            Ok(appending) => {
                let base = self.end();
                assert_eq!(appending.range().start, Offset(base), "DENSE");
                self.started.push((self.sent.len(), appending));
                self.sent.push(Sent {
                    base,
                    records,
                    payload: entry.payload,
                    attempt: append.attempt,
                    acknowledged: false,
                });
            }
            Err(error) => {
                assert_eq!(error.outcome(), Outcome::NotCommitted);
                assert!(error.to_string().contains("fail"), "refused without a cause: {error}");
            }
        }
    }

    fn finish(&mut self) {
        if self.started.is_empty() {
            return;
        }
        let (index, appending) = self.started.remove(0);
        match appending.wait() {
            Ok(receipt) => {
                let sent = &mut self.sent[index];
                assert_eq!(receipt.range.start, Offset(sent.base));
                assert_eq!(receipt.range.count(), u64::from(sent.records));
                assert!(receipt.durability >= self.level, "ACK-DURABLE");
                // One commit covers everything before it.
                self.sent[..=index].iter_mut().for_each(|sent| sent.acknowledged = true);
            }
            Err(error) => assert_eq!(error.outcome(), Outcome::MayHaveCommitted),
        }
    }

    fn read(&self, percent: u64) {
        let from = self.end() * percent / 100;
        let acknowledged = self
            .sent
            .iter()
            .filter(|sent| sent.acknowledged)
            .map(|sent| sent.base + u64::from(sent.records))
            .max()
            .unwrap_or(0);
        match self.stream.read(Offset(from), 64).expect("memory does not fail") {
            Read::Trimmed(trim) => {
                assert!(from < self.trim);
                assert_eq!(trim, Offset(self.trim));
            }
            Read::End(end) => {
                assert!(end.0 <= from, "SAME-VIEW: silence below the committed end");
                assert!(end.0 >= acknowledged, "an acknowledged record is not readable");
            }
            Read::Entries(entries) => {
                assert!(from >= self.trim);
                let mut at = entries[0].base_offset.0;
                assert!(at <= from && entries[0].range().contains(Offset(from)));
                for entry in &entries {
                    assert_eq!(entry.base_offset.0, at, "DENSE");
                    let sent = self.sent.iter().find(|sent| sent.base == at).expect("was sent");
                    assert_eq!(entry.payload, sent.payload);
                    assert_eq!(entry.record_count, sent.records);
                    at += u64::from(sent.records);
                }
                assert!(at <= self.stream.committed_end().0);
            }
        }
    }

    fn trim(&mut self, percent: u64) {
        let at = self.end() * percent / 100;
        let committed = self.stream.committed_end().0;
        match self.stream.trim(Offset(at)) {
            Ok(trim) => {
                self.trim = self.trim.max(at);
                assert_eq!(trim, Offset(self.trim));
            }
            Err(_) => assert!(at > committed, "a trim inside the stream was refused"),
        }
    }

    fn acquire(&mut self) {
        match self.stream.acquire(Duration::from_secs(30)) {
            Ok(session) => {
                assert!(self.session.is_none_or(|old| old.epoch < session.epoch), "FENCE");
                self.earlier = self.session.or(self.earlier);
                self.session = Some(session);
            }
            Err(error) => assert!(error.to_string().contains("fail"), "{error}"),
        }
    }

    fn zombie(&mut self) {
        let Some(earlier) = self.earlier else { return };
        let append = Append { session: Some(earlier), ..Append::of(self.entry(1)) };
        assert!(self.stream.append(&append).is_err(), "FENCE: an old session appended");
    }

    fn crash(&mut self) {
        self.started.clear();
        self.wal.crash(self.level);
        self.seed += 1;
        let id: StreamId = self.stream.id();
        let epoch = self.stream.epoch();
        self.store = open(&self.wal, &self.meta, &self.clock, self.seed);
        self.stream = self.store.get(id).expect("the stream was created durably");
        assert!(self.stream.epoch() > epoch, "a new opening has a new epoch");
        (self.session, self.earlier) = (None, None);
        // Every attempt has one certain fate, and an acknowledged one only one.
        let end = self.stream.committed_end().0;
        for sent in &self.sent {
            match self.stream.recover_append(sent.attempt).expect("memory does not fail") {
                Fate::Committed(range) => assert_eq!(range.start.0, sent.base),
                Fate::NotCommitted => {
                    assert!(!sent.acknowledged, "an acknowledged append was lost");
                    assert!(sent.base >= end);
                }
                // An attempt is looked for from the end it was named at, which may be trimmed
                // although its own offsets, behind others in flight, are not.
                Fate::Trimmed(trim) => {
                    assert!(sent.attempt.since < trim);
                    assert!(sent.base < trim.0 || !sent.acknowledged, "it is there to be found");
                }
            }
        }
        self.sent.retain(|sent| sent.base < end);
        self.sent.iter_mut().for_each(|sent| sent.acknowledged = true);
        assert_eq!(self.end().max(self.trim), end.max(self.trim), "DENSE after recovery");
    }
}

fn open(wal: &MemoryWal, meta: &Arc<MemoryStore>, clock: &Arc<ManualClock>, seed: u64) -> Store {
    let entropy = Arc::new(SeededEntropy::new(seed));
    let wal = Arc::new(wal.clone());
    Store::open(wal, meta.clone(), clock.clone(), entropy, Limits::default())
        .expect("memory does not fail")
        .0
}

/// Performs a history; panics where stream and vector differ.
pub(crate) fn run(level: Durability, at_once: Option<Durability>, steps: Vec<Step>) {
    let mut world = World::new(level, at_once);
    for step in steps {
        match step {
            Step::Append { records, expected: None } => {
                world.start(records, None);
                while !world.started.is_empty() {
                    world.finish();
                }
            }
            Step::Append { records, expected: Some(0) } => {
                let end = Offset(world.end());
                world.start(records, Some(end));
            }
            Step::Append { records, expected: Some(off_by) } => {
                let Some(wrong) = world.end().checked_add_signed(off_by) else { continue };
                let append = Append {
                    expected: Some(Offset(wrong)),
                    session: world.session,
                    ..Append::of(world.entry(records))
                };
                let error = world.stream.append(&append).err().expect("the wrong end was accepted");
                assert_eq!(error.outcome(), Outcome::NotCommitted);
            }
            Step::Start { records } => world.start(records, None),
            Step::Finish => world.finish(),
            Step::Read { percent } => world.read(percent),
            Step::Trim { percent } => world.trim(percent),
            Step::Acquire => world.acquire(),
            Step::Release => {
                if let Some(session) = world.session.take() {
                    world.stream.release(session).expect("it is held");
                    world.earlier = Some(session);
                }
            }
            Step::Zombie => world.zombie(),
            Step::FailFlush => world.wal.fail_next_flush(),
            Step::Crash => world.crash(),
        }
    }
    world.crash();
    world.read(0);
    world.read(50);
}
