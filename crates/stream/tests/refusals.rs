//! What a stream says while it may not say yes: refusals that wait for what they speak of (law
//! REFUSE-DURABLE), pauses, sessions that were taken over, limits (law BOUNDED), and acts whose
//! answers the metadata store lost (law CERTAIN).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

#[path = "refusals/gates.rs"]
mod gates;

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use gates::{GatedMeta, GatedWal};
use thetis_meta::faults::{FaultRates, FaultyStore};
use thetis_meta::{Key, MemoryStore, MetaStore, Write};
use thetis_stream::error::Refusal;
use thetis_stream::record::NEXT_STREAM;
use thetis_stream::state::IN_FLIGHT_MAX;
use thetis_stream::{
    Append, AppendError, Lifecycle, Limits, Read, Session, Store, Stream, StreamError, StreamSpec,
};
use thetis_types::clock::{ManualClock, SeededEntropy};
use thetis_types::{Entry, EntryFormat, ErrorKind, Offset, Outcome};
use thetis_wal::Wal;
use thetis_wal::memory::MemoryWal;

struct Rig {
    wal: Arc<GatedWal>,
    clock: Arc<ManualClock>,
    store: Store,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(Limits::default(), |meta| meta)
    }

    /// A store over a WAL whose flushes can be held, and over what `wrap` makes of metadata.
    fn with(limits: Limits, wrap: impl FnOnce(Arc<dyn MetaStore>) -> Arc<dyn MetaStore>) -> Rig {
        let clock = Arc::new(ManualClock::default());
        let wal = Arc::new(GatedWal::default());
        let meta = wrap(Arc::new(MemoryStore::new(clock.clone())));
        let store = open(wal.clone(), meta, &clock, limits);
        Rig { wal, clock, store }
    }

    fn stream(&self) -> Stream {
        self.store.create(&[StreamSpec::default()]).unwrap().remove(0)
    }
}

fn open(
    wal: Arc<dyn Wal>,
    meta: Arc<dyn MetaStore>,
    clock: &Arc<ManualClock>,
    limits: Limits,
) -> Store {
    let entropy = Arc::new(SeededEntropy::new(1));
    Store::open(wal, meta, clock.clone(), entropy, limits).unwrap().0
}

fn entry(payload: &'static str) -> Entry {
    Entry {
        record_count: 1,
        max_timestamp: -1,
        format: EntryFormat::Record,
        payload: Bytes::from_static(payload.as_bytes()),
    }
}

fn append(payload: &'static str) -> Append {
    Append::of(entry(payload))
}

fn under(session: Session) -> Append {
    Append { session: Some(session), ..append("under a session") }
}

fn refusal(result: Result<thetis_stream::Appending, AppendError>) -> Refusal {
    match result {
        Err(AppendError::Refused { why, .. }) => why,
        Err(other) => panic!("not refused but failed: {other}"),
        Ok(_) => panic!("taken"),
    }
}

/// Without the wait, a caller would act on records that a failed flush takes away again.
#[test]
fn a_refusal_by_what_is_in_flight_waits_until_that_is_safe() {
    let rig = Rig::new();
    let stream = rig.stream();
    rig.wal.hold();
    let appending = stream.append(&append("in flight")).unwrap();
    let (said, heard) = mpsc::channel();
    let refused = {
        let stream = stream.clone();
        thread::spawn(move || {
            let wrong = Append { expected: Some(Offset(0)), ..append("at the start") };
            let why = refusal(stream.append(&wrong));
            said.send(stream.committed_end()).unwrap();
            why
        })
    };
    rig.wal.await_waiters(1);
    assert!(heard.try_recv().is_err(), "a refusal left before what it speaks of was safe");
    rig.wal.release();
    let why = refused.join().unwrap();
    assert_eq!(why, Refusal::ExpectedOffset { expected: Offset(0), actual: Offset(1) });
    assert_eq!(appending.wait().unwrap().range.end, Offset(1));
    assert!(matches!(stream.read(Offset(0), 100).unwrap(), Read::Entries(_)));
}

/// Nobody has waited for the append itself, so only the refusal can have advanced the head.
#[test]
fn what_a_refusal_speaks_of_can_be_read() {
    let rig = Rig::new();
    let stream = rig.stream();
    let appending = stream.append(&append("in flight")).unwrap();
    let wrong = Append { expected: Some(Offset(0)), ..append("at the start") };
    let why = refusal(stream.append(&wrong));
    assert_eq!(why, Refusal::ExpectedOffset { expected: Offset(0), actual: Offset(1) });
    assert_eq!(stream.committed_end(), Offset(1));
    appending.wait().unwrap();
}

/// After the flush failed nobody knows the end, so nobody may be told of one.
#[test]
fn a_refusal_after_a_failed_flush_says_broken() {
    let rig = Rig::new();
    let stream = rig.stream();
    let appending = stream.append(&append("in flight")).unwrap();
    rig.wal.model().fail_next_flush();
    let wrong = Append { expected: Some(Offset(0)), ..append("at the start") };
    assert_eq!(refusal(stream.append(&wrong)), Refusal::Broken);
    let error = appending.wait().unwrap_err();
    assert_eq!(error.outcome(), Outcome::MayHaveCommitted);
    assert_eq!(refusal(stream.append(&append("later"))), Refusal::Broken);
    assert_eq!(stream.committed_end(), Offset(0));
    assert_eq!(stream.read(Offset(0), 100).unwrap(), Read::End(Offset(0)));
    let asked = stream.recover_append(thetis_types::AttemptId::NONE).unwrap_err();
    assert_eq!(asked.kind(), ErrorKind::Unavailable);
}

/// What an offset refused under nothing in flight speaks of is durable already.
#[test]
fn a_refusal_by_what_is_committed_leaves_at_once() {
    let rig = Rig::new();
    let stream = rig.stream();
    stream.append(&append("committed")).unwrap().wait().unwrap();
    rig.wal.hold();
    let wrong = Append { expected: Some(Offset(7)), ..append("past the end") };
    let why = refusal(stream.append(&wrong));
    assert_eq!(why, Refusal::ExpectedOffset { expected: Offset(7), actual: Offset(1) });
}

/// A producer that was told `Sealed` goes elsewhere; a crash must not find the stream open then.
#[test]
fn nobody_hears_of_a_seal_before_its_record_is_durable() {
    let gate = Arc::new(std::sync::OnceLock::new());
    let slot = gate.clone();
    let rig = Rig::with(Limits::default(), move |meta| {
        let gated = Arc::new(GatedMeta::new(meta));
        let _ = slot.set(gated.clone());
        gated
    });
    let meta = gate.get().unwrap();
    let stream = rig.stream();
    stream.append(&append("before")).unwrap().wait().unwrap();
    for act in [Act::Acquire, Act::Seal] {
        meta.hold();
        let acting = {
            let stream = stream.clone();
            thread::spawn(move || act.perform(&stream))
        };
        meta.await_writers(1);
        assert_eq!(refusal(stream.append(&append("meanwhile"))), Refusal::Paused);
        assert_eq!(stream.lifecycle(), Lifecycle::Active);
        meta.release();
        acting.join().unwrap();
    }
    assert_eq!(refusal(stream.append(&append("late"))), Refusal::Sealed { end: Offset(1) });
}

#[derive(Clone, Copy)]
enum Act {
    Seal,
    Acquire,
}

impl Act {
    fn perform(self, stream: &Stream) {
        match self {
            Act::Seal => assert_eq!(stream.seal().unwrap(), Offset(1)),
            Act::Acquire => assert!(stream.acquire(Duration::from_secs(1)).is_ok()),
        }
    }
}

/// A seal that metadata refused leaves a stream that takes appends as before.
#[test]
fn an_act_that_was_refused_leaves_the_stream_as_it_was() {
    let (rig, faults) = faulty();
    let stream = rig.stream();
    stream.append(&append("before")).unwrap().wait().unwrap();
    faults.set_rates(FaultRates { refuse: 1000, ..FaultRates::default() });
    assert!(matches!(stream.seal(), Err(StreamError::Meta { .. })));
    assert!(matches!(stream.acquire(Duration::from_secs(9)), Err(StreamError::Meta { .. })));
    assert!(matches!(stream.trim(Offset(1)), Err(StreamError::Meta { .. })));
    assert!(rig.store.create(&[StreamSpec::default()]).is_err());
    faults.set_rates(FaultRates::default());
    assert_eq!(stream.trim_offset(), Offset(0));
    assert_eq!(stream.lifecycle(), Lifecycle::Active);
    assert_eq!(stream.append(&append("after")).unwrap().wait().unwrap().range.start, Offset(1));
}

fn faulty() -> (Rig, Arc<FaultyStore>) {
    let gate = Arc::new(std::sync::OnceLock::new());
    let slot = gate.clone();
    let rig = Rig::with(Limits::default(), move |meta| {
        let entropy = Arc::new(SeededEntropy::new(9));
        let faulty = Arc::new(FaultyStore::new(meta, entropy, FaultRates::default()));
        let _ = slot.set(faulty.clone());
        faulty
    });
    let faults = gate.get().unwrap().clone();
    (rig, faults)
}

/// The write happened and its answer was lost: the act happened, once, and says so.
#[test]
fn lost_answers_of_metadata_neither_double_nor_lose_an_act() {
    let (rig, faults) = faulty();
    let stream = rig.stream();
    for _ in 0..3 {
        stream.append(&append("before")).unwrap().wait().unwrap();
    }
    let epoch = stream.epoch();
    faults.set_rates(FaultRates { lose_answer: 1000, ..FaultRates::default() });
    assert_eq!(stream.trim(Offset(2)).unwrap(), Offset(2));
    let session = stream.acquire(Duration::from_secs(9)).unwrap();
    assert_eq!(session.epoch.0, epoch.0 + 1, "a takeover was counted twice");
    stream.append(&under(session)).unwrap().wait().unwrap();
    assert_eq!(stream.seal().unwrap(), Offset(4));
    // A creation whose answer is lost may leave streams nobody is told of, but never an id twice.
    assert!(rig.store.create(&[StreamSpec::default()]).is_err());
    faults.set_rates(FaultRates::default());
    let created = rig.stream();
    assert!(created.id().0 > stream.id().0 + 1, "the id of a lost creation was given again");
    let again = open(rig.wal.clone(), rig.store.meta().clone(), &rig.clock, Limits::default());
    let found = again.get(stream.id()).unwrap();
    assert_eq!((found.trim_offset(), found.committed_end()), (Offset(2), Offset(4)));
    assert_eq!(found.lifecycle(), Lifecycle::Sealed);
    assert_eq!(again.len(), 3, "the lost creation is found by its label");
}

/// The request was lost, so nothing happened: the act fails, and succeeds when called again.
#[test]
fn lost_requests_of_metadata_are_told_and_can_be_repeated() {
    let (rig, faults) = faulty();
    let stream = rig.stream();
    stream.append(&append("before")).unwrap().wait().unwrap();
    faults.set_rates(FaultRates { lose_request: 1000, ..FaultRates::default() });
    assert!(matches!(stream.trim(Offset(1)), Err(StreamError::Meta { .. })));
    assert!(matches!(stream.seal(), Err(StreamError::Meta { .. })));
    assert_eq!(stream.trim_offset(), Offset(0), "trimmed in memory alone");
    faults.set_rates(FaultRates::default());
    assert_eq!(stream.trim(Offset(1)).unwrap(), Offset(1));
    assert_eq!(stream.seal().unwrap(), Offset(1));
}

/// One below the limit is taken, one above is refused before the WAL sees it, and room that comes
/// back is used.
#[test]
fn appends_in_flight_are_limited_for_each_stream() {
    let rig = Rig::new();
    let (stream, other) = (rig.stream(), rig.stream());
    rig.wal.hold();
    let mut under_way: Vec<_> =
        (0..IN_FLIGHT_MAX).map(|_| stream.append(&append("x")).unwrap()).collect();
    let why = refusal(stream.append(&append("one too many")));
    assert_eq!(why, Refusal::InFlight { max: IN_FLIGHT_MAX });
    assert_eq!(why.kind(), ErrorKind::Throttled);
    let unhindered = other.append(&append("of another stream")).unwrap();
    rig.wal.release();
    let last = under_way.pop().unwrap().wait().unwrap();
    assert_eq!(last.range.end, Offset(IN_FLIGHT_MAX as u64), "a refused append took an offset");
    unhindered.wait().unwrap();
    assert_eq!(
        stream.append(&append("again")).unwrap().wait().unwrap().range.start,
        last.range.end
    );
}

#[test]
fn bytes_in_flight_are_limited_for_all_streams_together() {
    let limits = Limits { in_flight_bytes_max: 10, ..Limits::default() };
    let rig = Rig::with(limits, |meta| meta);
    let (one, two) = (rig.stream(), rig.stream());
    rig.wal.hold();
    let first = one.append(&append("12345")).unwrap();
    let second = two.append(&append("67890")).unwrap();
    let why = refusal(one.append(&append("!")));
    assert_eq!(why, Refusal::InFlightBytes { bytes: 11, max: 10 });
    rig.wal.release();
    first.wait().unwrap();
    second.wait().unwrap();
    // One append is always let in, however large.
    rig.wal.hold();
    let large = one.append(&append("more than the limit")).unwrap();
    assert!(two.append(&append("!")).is_err());
    rig.wal.release();
    assert_eq!(large.wait().unwrap().range.start, Offset(1));
}

#[test]
fn entries_outside_their_limits_are_refused() {
    let rig = Rig::new();
    let stream = rig.stream();
    for (count, taken) in [(0, false), (1, true), (u32::MAX, false), (i32::MAX as u32, true)] {
        let odd = Append::of(Entry { record_count: count, ..entry("x") });
        assert_eq!(stream.append(&odd).is_ok(), taken, "{count} records");
    }
}

/// Whoever was taken over appends nothing, ever: not after one takeover, not after two.
#[test]
fn a_zombie_is_refused_after_one_takeover_and_after_two() {
    let rig = Rig::new();
    let stream = rig.stream();
    let lease = Duration::from_secs(30);
    let first = stream.acquire(lease).unwrap();
    stream.append(&under(first)).unwrap().wait().unwrap();
    let second = stream.acquire(lease).unwrap();
    assert!(second.epoch > first.epoch);
    let fenced = |session: Session| {
        let why = refusal(stream.append(&under(session)));
        assert_eq!(why.kind(), ErrorKind::Fenced, "{why}");
        assert!(stream.renew(session, lease).is_err());
        assert!(stream.release(session).is_err());
    };
    fenced(first);
    let third = stream.acquire(lease).unwrap();
    fenced(first);
    fenced(second);
    let receipt = stream.append(&under(third)).unwrap().wait().unwrap();
    assert_eq!((receipt.range.start, receipt.epoch), (Offset(1), third.epoch));
    // A guess of the token is no session either.
    fenced(Session { token: third.token ^ 1, ..third });
    stream.append(&under(third)).unwrap().wait().unwrap();
}

#[test]
fn while_a_session_is_held_others_are_refused() {
    let rig = Rig::new();
    let stream = rig.stream();
    let session = stream.acquire(Duration::from_secs(30)).unwrap();
    let why = refusal(stream.append(&append("without")));
    assert_eq!(why, Refusal::SessionHeld { epoch: session.epoch });
    stream.release(session).unwrap();
    stream.append(&append("without")).unwrap().wait().unwrap();
    assert_eq!(refusal(stream.append(&under(session))).kind(), ErrorKind::Fenced);
    assert!(stream.release(session).is_err(), "released twice");
}

#[test]
fn a_session_lapses_unless_it_is_renewed() {
    let rig = Rig::new();
    let stream = rig.stream();
    let session = stream.acquire(Duration::from_secs(10)).unwrap();
    rig.clock.advance(Duration::from_secs(9));
    stream.renew(session, Duration::from_secs(10)).unwrap();
    rig.clock.advance(Duration::from_secs(9));
    stream.append(&under(session)).unwrap().wait().unwrap();
    rig.clock.advance(Duration::from_secs(1));
    assert_eq!(refusal(stream.append(&under(session))).kind(), ErrorKind::Fenced);
    assert!(stream.renew(session, Duration::from_secs(10)).is_err(), "a lapsed session came back");
    stream.append(&append("anyone")).unwrap().wait().unwrap();
}

/// A lease without end is what a caller means who never wants to renew.
#[test]
fn the_longest_lease_is_for_ever() {
    let rig = Rig::new();
    let stream = rig.stream();
    rig.clock.advance(Duration::from_secs(1));
    let session = stream.acquire(Duration::MAX).unwrap();
    stream.renew(session, Duration::MAX).unwrap();
    rig.clock.advance(Duration::from_secs(1_000_000_000));
    stream.append(&under(session)).unwrap().wait().unwrap();
    assert_eq!(stream.block_beyond(Offset(0), Some(Duration::MAX)), Offset(1));
}

/// A session of before a restart is as dead as one that was taken over.
#[test]
fn a_session_does_not_outlive_the_store() {
    let rig = Rig::new();
    let stream = rig.stream();
    let session = stream.acquire(Duration::from_secs(30)).unwrap();
    let meta = rig.store.meta().clone();
    let model: MemoryWal = rig.wal.model().clone();
    let again = open(Arc::new(model), meta, &rig.clock, Limits::default());
    let stream = again.get(stream.id()).unwrap();
    assert_eq!(refusal(stream.append(&under(session))).kind(), ErrorKind::Fenced);
    stream.append(&append("anyone")).unwrap().wait().unwrap();
}

/// The journal outlived a metadata store that was restored from an older copy, or lost: its epochs
/// are above all that metadata counts, and so must be the next session's.
#[test]
fn a_session_is_above_every_epoch_that_the_wal_knows() {
    let rig = Rig::new();
    let stream = rig.stream();
    for _ in 0..5 {
        let session = stream.acquire(Duration::from_secs(30)).unwrap();
        stream.append(&under(session)).unwrap().wait().unwrap();
    }
    let epoch = stream.epoch();
    let meta = Arc::new(MemoryStore::new(rig.clock.clone()));
    let model = Arc::new(rig.wal.model().clone());
    let fresh = open(model.clone(), meta.clone(), &rig.clock, Limits::default());
    fresh.create(&[StreamSpec::default()]).unwrap();
    let again = open(model, meta, &rig.clock, Limits::default());
    let stream = again.get(stream.id()).unwrap();
    assert_eq!((stream.committed_end(), stream.epoch()), (Offset(5), epoch));
    let session = stream.acquire(Duration::from_secs(30)).unwrap();
    assert!(session.epoch > epoch, "FENCE: {} is not above {epoch}", session.epoch);
    stream.append(&under(session)).unwrap().wait().unwrap();
}

/// A damaged counter gives no ids that are zero or come round again.
#[test]
fn ids_that_are_used_up_are_damage() {
    let clock = Arc::new(ManualClock::default());
    for (next, good) in [(0, false), (1, true), (u64::MAX - 1, true), (u64::MAX, false)] {
        let meta = Arc::new(MemoryStore::new(clock.clone()));
        let key = Key::of("store").word("next-stream");
        let counter = NEXT_STREAM.seal(&next.to_le_bytes());
        assert!(meta.write(Write::put(key, counter)).unwrap().done().is_some());
        let store = open(Arc::new(MemoryWal::default()), meta, &clock, Limits::default());
        let made = store.create(&[StreamSpec::default()]);
        assert_eq!(made.is_ok(), good, "next id {next}");
        assert!(made.is_ok() || made.err().unwrap().kind() == ErrorKind::Corrupt);
    }
}
