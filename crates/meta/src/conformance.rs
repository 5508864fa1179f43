//! The conformance suite: what every engine must do to be a [`MetaStore`]. Run by the tests of
//! each engine, the memory engine first. Owns the checks of the contract; what only one engine
//! promises, such as surviving a crash, is tested with that engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use thetis_types::clock::{Clock, Entropy};

use crate::{
    BATCH_WRITES_MAX, Condition, KEY_BYTES_MAX, Key, KeyRange, LEASE_TTL_MAX, LeaseId, MemoryStore,
    MetaError, MetaStore, Refusal, Renewal, VALUE_BYTES_MAX, Version, Wake, Write, WriteOutcome,
};

/// A clock that moves when told.
#[derive(Default)]
pub struct ManualClock {
    now: Mutex<Duration>,
}

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        *self.now.lock() += by;
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        i64::try_from(self.now.lock().as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        *self.now.lock()
    }
}

/// Numbers from a seed (SplitMix64): the same seed gives the same numbers.
pub struct Seeded {
    state: AtomicU64,
}

impl Seeded {
    /// Numbers from this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Seeded {
        Seeded { state: AtomicU64::new(seed) }
    }
}

impl Entropy for Seeded {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Makes an empty store that lives by the given clock.
pub type NewStore<'a> = &'a dyn Fn(Arc<ManualClock>) -> Arc<dyn MetaStore>;

/// Runs all checks.
///
/// # Panics
/// When the engine breaks the contract.
pub fn suite(new: NewStore<'_>) {
    let fresh = || new(Arc::new(ManualClock::default()));
    conditions_decide(&*fresh());
    versions_grow_across_deletes(&*fresh());
    a_batch_has_independent_outcomes_in_order(&*fresh());
    values_and_tokens_come_back(&*fresh());
    ranges_are_ordered_and_paged(&*fresh());
    limits_refuse_before_anything_happens(&*fresh());
    watches_wake_for_their_prefix_only(fresh());
    racing_creators_have_one_winner(&fresh());
    leases_bind_keys(new);
    for seed in 0..8 {
        agrees_with_the_model(new, seed, 400);
    }
}

fn key(number: u64) -> Key {
    Key::of("conformance").number(number)
}

fn put(number: u64, value: &'static str) -> Write {
    Write::put(key(number), value)
}

fn done(store: &dyn MetaStore, write: Write) -> Version {
    let outcome = store.write(write).expect("the store works");
    outcome.done().unwrap_or_else(|| panic!("the condition holds, got {outcome:?}"))
}

fn lost(store: &dyn MetaStore, write: Write) -> Option<Version> {
    match store.write(write).expect("the store works") {
        WriteOutcome::Lost { current } => current.map(|stored| stored.version),
        other => panic!("the condition does not hold, got {other:?}"),
    }
}

fn get(store: &dyn MetaStore, number: u64) -> Option<(Bytes, Version)> {
    let found = store.get(&key(number)).expect("the store works");
    found.map(|stored| (stored.value, stored.version))
}

fn conditions_decide(store: &dyn MetaStore) {
    assert_eq!(get(store, 1), None);
    assert_eq!(lost(store, put(1, "x").only_if(Condition::Version(Version(1)))), None);
    assert_eq!(lost(store, Write::delete(key(1)).only_if(Condition::Version(Version(1)))), None);
    let first = done(store, put(1, "a").only_if(Condition::Absent));
    assert_eq!(lost(store, put(1, "b").only_if(Condition::Absent)), Some(first));
    let second = done(store, put(1, "b").only_if(Condition::Version(first)));
    assert_eq!(lost(store, put(1, "c").only_if(Condition::Version(first))), Some(second));
    assert_eq!(lost(store, Write::delete(key(1)).only_if(Condition::Version(first))), Some(second));
    assert_eq!(get(store, 1), Some((Bytes::from_static(b"b"), second)));
    let third = done(store, put(1, "d"));
    assert!(third > second && second > first);
    done(store, Write::delete(key(1)).only_if(Condition::Version(third)));
    assert_eq!(get(store, 1), None);
    done(store, Write::delete(key(1)));
    done(store, Write::delete(key(1)).only_if(Condition::Absent));
}

/// A version given twice would let a stale compare-and-set win against a key made anew.
fn versions_grow_across_deletes(store: &dyn MetaStore) {
    let mut last = Version(0);
    for _ in 0..3 {
        let made = done(store, put(1, "v").only_if(Condition::Absent));
        let other = done(store, put(2, "v"));
        let deleted = done(store, Write::delete(key(1)));
        assert!(last < made && made < other && other < deleted);
        last = deleted;
    }
}

fn a_batch_has_independent_outcomes_in_order(store: &dyn MetaStore) {
    let held = done(store, put(1, "held"));
    let outcomes = store
        .batch(vec![
            put(2, "first").only_if(Condition::Absent),
            put(1, "lost").only_if(Condition::Absent),
            put(2, "second").only_if(Condition::Absent),
            put(3, "third"),
            Write::delete(key(3)),
        ])
        .expect("the store works");
    let versions: Vec<Option<Version>> = outcomes.iter().map(WriteOutcome::done).collect();
    assert!(versions[0] < versions[3] && versions[3] < versions[4]);
    let currents: Vec<Option<Version>> = outcomes
        .into_iter()
        .filter_map(|outcome| match outcome {
            WriteOutcome::Lost { current } => Some(current.map(|stored| stored.version)),
            _ => None,
        })
        .collect();
    assert_eq!(currents, vec![Some(held), versions[0]]);
    assert_eq!(get(store, 1), Some((Bytes::from_static(b"held"), held)));
    assert_eq!(get(store, 2).map(|(value, _)| value), Some(Bytes::from_static(b"first")));
    assert_eq!(get(store, 3), None);
    assert_eq!(store.batch(Vec::new()).expect("nothing to do"), Vec::new());
}

fn values_and_tokens_come_back(store: &dyn MetaStore) {
    done(store, Write::put(key(1), Bytes::new()).with_token(u64::MAX));
    let found = store.get(&key(1)).expect("the store works").expect("the key is there");
    assert_eq!((found.value.len(), found.token, found.lease), (0, u64::MAX, None));
    let large = Bytes::from(vec![7; VALUE_BYTES_MAX]);
    done(store, Write::put(key(1), large.clone()));
    let found = store.get(&key(1)).expect("the store works").expect("the key is there");
    assert_eq!((found.value, found.token), (large, 0), "a put without a token clears the old one");
}

fn ranges_are_ordered_and_paged(store: &dyn MetaStore) {
    let under = |text: &str| Key::of("topic").text(text);
    let mut expected: Vec<Key> =
        (0..25).map(|partition| under("orders").number(partition)).collect();
    expected.push(under("orders"));
    expected.sort();
    for (index, key) in expected.iter().enumerate().rev() {
        done(store, Write::put(key.clone(), index.to_string()));
    }
    for stranger in [under("order"), under("orders2"), under("orders\0"), Key::of("stream")] {
        done(store, Write::put(stranger, "stranger"));
    }
    for limit in [1, 7, 26, 27, usize::MAX] {
        let mut found = Vec::new();
        let mut next = Some(KeyRange::under(under("orders")));
        while let Some(range) = next {
            let page = store.range(&range, limit).expect("the store works");
            assert!(page.items.len() <= limit);
            found.extend(page.items.into_iter().map(|item| item.key));
            next = page.next;
        }
        assert_eq!(found, expected, "limit {limit}");
    }
    let first_of = |range: KeyRange| {
        let page = store.range(&range, 1).expect("the store works");
        page.items.into_iter().next().map(|item| item.key)
    };
    let all = KeyRange::under(under("orders"));
    let third = under("orders").number(3);
    assert_eq!(first_of(all.clone().starting_at(third.clone())), Some(third.clone()));
    assert_eq!(first_of(all.clone().after(third)), Some(under("orders").number(4)));
    assert_eq!(first_of(all.clone().starting_at(Key::of("a"))), Some(under("orders")));
    assert_eq!(first_of(all.after(Key::of("z"))), None);
    let everything = store.range(&KeyRange::under(Key::root()), 1000).expect("the store works");
    assert_eq!(everything.items.len(), 30);
}

fn limits_refuse_before_anything_happens(store: &dyn MetaStore) {
    let refusal = |writes: Vec<Write>| match store.batch(writes) {
        Err(MetaError::Refused(refusal)) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    };
    let long = Key::root().bytes(&vec![1; KEY_BYTES_MAX]);
    assert!(matches!(
        refusal(vec![put(1, "v"), Write::put(long.clone(), "v")]),
        Refusal::KeyTooLong { .. }
    ));
    assert!(matches!(refusal(vec![Write::put(Key::root(), "v")]), Refusal::RootKey));
    let large = Write::put(key(2), vec![0; VALUE_BYTES_MAX + 1]);
    assert!(matches!(refusal(vec![put(1, "v"), large]), Refusal::ValueTooLarge { .. }));
    assert!(matches!(
        refusal(vec![put(1, "v"); BATCH_WRITES_MAX + 1]),
        Refusal::BatchTooLarge { .. }
    ));
    let megabyte = Write::put(key(1), vec![0; VALUE_BYTES_MAX]);
    assert!(matches!(refusal(vec![megabyte; 9]), Refusal::BatchTooLarge { .. }));
    let empty = store.range(&KeyRange::under(Key::root()), 0);
    assert!(matches!(empty, Err(MetaError::Refused(Refusal::EmptyPage))));
    assert!(matches!(store.get(&long), Err(MetaError::Refused(Refusal::KeyTooLong { .. }))));
    for ttl in [Duration::ZERO, LEASE_TTL_MAX + Duration::from_millis(1)] {
        let refused = store.grant_lease(ttl);
        assert!(matches!(refused, Err(MetaError::Refused(Refusal::BadTtl { .. }))));
    }
    assert_eq!(get(store, 1), None);
}

fn watches_wake_for_their_prefix_only(store: Arc<dyn MetaStore>) {
    let watch = store.watch(&key(1)).expect("the store works");
    done(&*store, put(2, "elsewhere"));
    let held = done(&*store, put(2, "elsewhere"));
    assert_eq!(lost(&*store, put(2, "v").only_if(Condition::Absent)), Some(held));
    assert_eq!(watch.try_wake(), None);
    done(&*store, put(1, "here"));
    done(&*store, Write::put(key(1).text("below"), "here"));
    assert_eq!(watch.wait(Duration::MAX), Some(Wake::Changed));
    assert_eq!(watch.try_wake(), None, "wake-ups are merged");
    done(&*store, Write::delete(key(1)));
    assert_eq!(watch.try_wake(), Some(Wake::Changed));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| watch.wait(Duration::MAX));
        done(&*store, put(1, "again"));
        assert_eq!(waiter.join().expect("the waiter ends"), Some(Wake::Changed));
    });
    drop(store);
    assert_eq!(watch.wait(Duration::MAX), Some(Wake::Closed));
    assert_eq!(watch.try_wake(), Some(Wake::Closed), "the end stays");
}

fn racing_creators_have_one_winner(store: &Arc<dyn MetaStore>) {
    const RACERS: u64 = 8;
    const KEYS: u64 = 16;
    let won = std::thread::scope(|scope| {
        let racers: Vec<_> = (1..=RACERS)
            .map(|racer| {
                scope.spawn(move || {
                    let create = |number| {
                        let write = put(number, "mine").only_if(Condition::Absent);
                        store.write(write.with_token(racer)).expect("the store works")
                    };
                    let wins = (0..KEYS).filter(|number| create(*number).done().is_some());
                    wins.map(|number| (number, racer)).collect::<Vec<_>>()
                })
            })
            .collect();
        racers.into_iter().flat_map(|racer| racer.join().expect("racers end")).collect::<Vec<_>>()
    });
    assert_eq!(won.len() as u64, KEYS, "one winner for each key: {won:?}");
    for (number, racer) in won {
        let holder = store.get(&key(number)).expect("the store works").expect("it was created");
        assert_eq!(holder.token, racer);
    }
}

fn leases_bind_keys(new: NewStore<'_>) {
    let clock = Arc::new(ManualClock::default());
    let store = new(Arc::clone(&clock));
    let ttl = Duration::from_secs(10);
    let lease = store.grant_lease(ttl).expect("the store works");
    let other = store.grant_lease(ttl).expect("the store works");
    assert_ne!(lease, other);
    for number in 1..=3 {
        done(&*store, put(number, "bound").with_lease(lease));
    }
    done(&*store, put(2, "freed"));
    done(&*store, put(3, "moved").with_lease(other));
    let watch = store.watch(&key(1)).expect("the store works");

    clock.advance(Duration::from_secs(9));
    assert_eq!(store.renew_lease(other).expect("the store works"), Renewal::Renewed);
    assert!(get(&*store, 1).is_some());
    clock.advance(Duration::from_secs(1));
    assert_eq!(get(&*store, 1), None, "a lapsed key is hidden at once");
    let page = store.range(&KeyRange::under(Key::of("conformance")), 10).expect("the store works");
    assert_eq!(page.items.len(), 2);
    store.sweep().expect("the store works");
    assert_eq!(watch.try_wake(), Some(Wake::Changed));
    assert_eq!(store.renew_lease(lease).expect("the store works"), Renewal::Lapsed);
    let late = store.write(put(1, "late").with_lease(lease)).expect("the store works");
    assert_eq!(late, WriteOutcome::NoLease { lease });
    done(&*store, put(1, "anew").only_if(Condition::Absent));
    assert!(get(&*store, 2).is_some() && get(&*store, 3).is_some());

    store.revoke_lease(other).expect("the store works");
    store.revoke_lease(other).expect("revoking twice is no error");
    assert_eq!(get(&*store, 3), None);
    assert_eq!(store.renew_lease(other).expect("the store works"), Renewal::Lapsed);
    assert_eq!(store.sweep().expect("the store works"), 0);
    assert!(get(&*store, 1).is_some() && get(&*store, 2).is_some());
    let never = store.renew_lease(LeaseId(u64::MAX)).expect("the store works");
    assert_eq!(never, Renewal::Lapsed);
}

/// Runs one random history against the engine and the model: both must give the same answers.
/// Versions are compared by what they do, since engines number differently.
fn agrees_with_the_model(new: NewStore<'_>, seed: u64, steps: u64) {
    const KEYS: u64 = 6;
    let clock = Arc::new(ManualClock::default());
    let stores = [new(Arc::clone(&clock)), Arc::new(MemoryStore::new(clock.clone()))];
    let entropy = Seeded::new(seed);
    let below = |bound: u64| entropy.next_u64() % bound;
    // The versions the two stores last gave each key, and pairs of leases.
    let mut known: BTreeMap<u64, [Version; 2]> = BTreeMap::new();
    let mut leases: Vec<[LeaseId; 2]> = Vec::new();
    for step in 0..steps {
        let number = below(KEYS);
        let at = format!("seed {seed}, step {step}");
        match below(10) {
            0 => clock.advance(Duration::from_secs(below(3))),
            1 => {
                let ttl = Duration::from_secs(1 + below(4));
                leases.push([0, 1].map(|side| stores[side].grant_lease(ttl).expect("it works")));
            }
            2 if !leases.is_empty() => {
                let lease = leases[pick(below(leases.len() as u64))];
                let renew = |side: usize| stores[side].renew_lease(lease[side]).expect("it works");
                assert_eq!(renew(0), renew(1), "{at}");
            }
            3 if !leases.is_empty() && below(4) == 0 => {
                let lease = leases[pick(below(leases.len() as u64))];
                for side in [0, 1] {
                    stores[side].revoke_lease(lease[side]).expect("it works");
                }
            }
            action => {
                let condition = below(3);
                let lease = match below(3) {
                    0 if !leases.is_empty() => Some(pick(below(leases.len() as u64))),
                    _ => None,
                };
                let write = |side: usize| {
                    let condition = match (condition, known.get(&number)) {
                        (0, _) => Condition::Absent,
                        (1, Some(versions)) => Condition::Version(versions[side]),
                        _ => Condition::Any,
                    };
                    let write = match action {
                        9 => Write::delete(key(number)),
                        _ => Write::put(key(number), step.to_string()).with_token(step),
                    };
                    let write = match lease {
                        Some(index) => write.with_lease(leases[index][side]),
                        None => write,
                    };
                    stores[side].write(write.only_if(condition)).expect("it works")
                };
                let outcomes = [write(0), write(1)];
                let kinds = outcomes.each_ref().map(std::mem::discriminant);
                assert_eq!(kinds[0], kinds[1], "{at}: {outcomes:?}");
                if let [Some(left), Some(right)] = outcomes.each_ref().map(WriteOutcome::done) {
                    known.insert(number, [left, right]);
                }
            }
        }
        let dump = |store: &dyn MetaStore| -> Vec<(Key, Bytes, u64, bool)> {
            let page = store.range(&KeyRange::under(Key::root()), 100).expect("it works");
            let rows = page.items.into_iter().map(|item| {
                let stored = item.stored;
                (item.key, stored.value, stored.token, stored.lease.is_some())
            });
            rows.collect()
        };
        assert_eq!(dump(&*stores[0]), dump(&*stores[1]), "{at}");
    }
}

fn pick(index: u64) -> usize {
    usize::try_from(index).expect("a small index")
}
