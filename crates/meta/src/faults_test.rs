//! What a writer must survive above any store: lost, repeated and late writes.

use bytes::Bytes;

use super::*;
use crate::conformance::{ManualClock, Seeded};
use crate::{Condition, MemoryStore, Resolved, Version, resolve};

const RATES: FaultRates =
    FaultRates { refuse: 100, lose_answer: 150, lose_request: 100, delay: 150 };

fn faulty(seed: u64) -> FaultyStore {
    let inner = Arc::new(MemoryStore::new(Arc::new(ManualClock::default())));
    FaultyStore::new(inner, Arc::new(Seeded::new(seed)), RATES)
}

fn insist<T>(call: impl Fn() -> Result<T, MetaError>) -> T {
    loop {
        match call() {
            Ok(answer) => return answer,
            Err(MetaError::Refused(_)) => {}
            Err(error) => panic!("a read is certain: {error}"),
        }
    }
}

/// Sends one write until it is certain that it happened.
fn complete(store: &FaultyStore, write: &Write) -> Version {
    loop {
        match store.write(write.clone()) {
            Ok(WriteOutcome::Done { version }) => return version,
            Ok(WriteOutcome::Lost { .. }) | Err(MetaError::Unknown { .. }) => {
                match insist(|| resolve(store, write)) {
                    Resolved::Done { version } => return version,
                    Resolved::NotDone { .. } => {}
                    other => panic!("nobody else writes: {other:?}"),
                }
            }
            Ok(WriteOutcome::NoLease { .. }) => panic!("no lease was named"),
            Err(MetaError::Refused(_)) => {}
        }
    }
}

/// A lost or late answer taken for a failure would count twice, one taken for a success not at all.
#[test]
fn a_resolved_counter_counts_each_step_exactly_once() {
    for seed in 0..50 {
        let store = faulty(seed);
        let key = Key::of("counter");
        let mut condition = Condition::Absent;
        for step in 1..=100_u64 {
            let seen = insist(|| store.get(&key));
            let held =
                seen.map_or(0, |seen| u64::from_be_bytes(seen.value.as_ref().try_into().unwrap()));
            assert_eq!(held, step - 1, "seed {seed}");
            let write = Write::put(key.clone(), Bytes::copy_from_slice(&step.to_be_bytes()))
                .only_if(condition)
                .with_token(step);
            condition = Condition::Version(complete(&store, &write));
        }
        store.settle().unwrap();
        store.set_rates(FaultRates::default());
        let last = store.get(&key).unwrap().unwrap();
        assert_eq!((last.token, Condition::Version(last.version)), (100, condition), "seed {seed}");
    }
}

#[test]
fn every_fate_is_drawn_and_does_what_it_says() {
    let key = Key::of("k");
    let only = |rates: FaultRates| {
        let store = faulty(1);
        store.set_rates(rates);
        let answer = store.put_if(key.clone(), Bytes::from_static(b"v"), Condition::Any, 1);
        (answer.unwrap_err(), store)
    };
    let holds = |store: &FaultyStore| store.inner.get(&key).unwrap().is_some();

    let (error, store) = only(FaultRates { refuse: 1000, ..FaultRates::default() });
    assert!(matches!(error, MetaError::Refused(_)) && !holds(&store));
    let (error, store) = only(FaultRates { lose_answer: 1000, ..FaultRates::default() });
    assert!(matches!(error, MetaError::Unknown { .. }) && holds(&store));
    let (error, store) = only(FaultRates { lose_request: 1000, ..FaultRates::default() });
    assert!(matches!(error, MetaError::Unknown { .. }) && !holds(&store));
    let (error, store) = only(FaultRates { delay: 1000, ..FaultRates::default() });
    assert!(matches!(error, MetaError::Unknown { .. }) && !holds(&store));
    store.settle().unwrap();
    assert!(holds(&store));
}

#[test]
fn resolving_tells_the_cases_apart() {
    let store = MemoryStore::new(Arc::new(ManualClock::default()));
    let key = Key::of("k");
    let put = |token| Write::put(key.clone(), Bytes::new()).with_token(token);
    let create = put(1).only_if(Condition::Absent);
    assert_eq!(resolve(&store, &create).unwrap(), Resolved::NotDone { current: None });
    let first = store.write(create.clone()).unwrap().done().unwrap();
    assert_eq!(resolve(&store, &create).unwrap(), Resolved::Done { version: first });
    let current = store.get(&key).unwrap();
    let update = put(2).only_if(Condition::Version(first));
    let remove = Write::delete(key.clone()).only_if(Condition::Version(first));
    assert_eq!(resolve(&store, &update).unwrap(), Resolved::NotDone { current: current.clone() });
    assert_eq!(resolve(&store, &remove).unwrap(), Resolved::NotDone { current });
    assert!(store.write(put(3)).unwrap().done().is_some());
    let current = store.get(&key).unwrap();
    for overtaken in [&create, &update, &remove] {
        assert_eq!(
            resolve(&store, overtaken).unwrap(),
            Resolved::Overtaken { current: current.clone() }
        );
    }
    assert!(store.delete_if(key.clone(), Condition::Any).unwrap().done().is_some());
    assert_eq!(resolve(&store, &remove).unwrap(), Resolved::Gone);
    let error = resolve(&store, &Write::put(key, Bytes::new())).unwrap_err();
    assert!(matches!(error, MetaError::Refused(Refusal::NoToken)));
}
