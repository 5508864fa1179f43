//! What only the embedded engine promises: answers outlive a crash, a full disk refuses and keeps
//! reading, a file has one opener and one known format.

use std::io::ErrorKind as IoKind;

use bytes::Bytes;
use thetis_types::clock::Entropy;

use super::*;
use crate::conformance::{ManualClock, Seeded, suite};
use crate::{Condition, Version};

#[path = "disk_test.rs"]
mod disk;

use disk::{Disk, DiskFault};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::default())
}

fn attach(disk: &Disk) -> Result<EmbeddedStore, MetaError> {
    EmbeddedStore::attach(Box::new(disk.clone()), clock())
}

fn key(number: u64) -> Key {
    Key::of("k").number(number)
}

fn put(store: &EmbeddedStore, number: u64, value: u64) -> Result<Version, MetaError> {
    let value = Bytes::copy_from_slice(&value.to_be_bytes());
    let outcome = store.put_if(key(number), value, Condition::Any, 0)?;
    Ok(outcome.done().expect("an unconditional put is done"))
}

fn get(store: &EmbeddedStore, number: u64) -> Option<u64> {
    let stored = store.get(&key(number)).unwrap()?;
    Some(u64::from_be_bytes(stored.value.as_ref().try_into().unwrap()))
}

#[test]
fn the_embedded_engine_conforms() {
    suite(&|clock| Arc::new(EmbeddedStore::attach(Box::new(Disk::default()), clock).unwrap()));
}

#[test]
fn a_file_keeps_values_versions_and_leases() {
    let directory = tempfile::tempdir().unwrap();
    let time = clock();
    let store = EmbeddedStore::open(directory.path(), time.clone()).unwrap();
    let first = put(&store, 1, 10).unwrap();
    let lease = store.grant_lease(Duration::from_secs(5)).unwrap();
    let bound = Write::put(key(2), "bound").with_lease(lease);
    assert!(store.write(bound).unwrap().done().is_some());
    time.advance(Duration::from_secs(4));
    drop(store);
    let store = EmbeddedStore::open(directory.path(), time.clone()).unwrap();
    assert_eq!(get(&store, 1), Some(10));
    assert!(put(&store, 1, 11).unwrap() > first);
    // The time of a lease begins anew, and its end still takes the key along.
    time.advance(Duration::from_secs(4));
    assert!(store.get(&key(2)).unwrap().is_some());
    time.advance(Duration::from_secs(1));
    assert_eq!(store.sweep().unwrap(), 1);
    assert!(store.get(&key(2)).unwrap().is_none());
    let names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, [EMBEDDED_FILE]);
}

#[test]
fn a_second_opener_is_told_that_the_file_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), clock()).unwrap();
    let error = EmbeddedStore::open(directory.path(), clock()).map(|_| ()).unwrap_err();
    assert!(
        matches!(&error, MetaError::Refused(Refusal::InUse { path }) if path.ends_with(EMBEDDED_FILE))
    );
    assert!(error.to_string().contains("in use"), "{error}");
    put(&store, 1, 1).unwrap();
    drop(store);
    assert_eq!(get(&EmbeddedStore::open(directory.path(), clock()).unwrap(), 1), Some(1));
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let disk = Disk::default();
    put(&attach(&disk).unwrap(), 1, 1).unwrap();
    disk.set_format(FORMAT_VERSION + 1);
    let error = attach(&disk).map(|_| ()).unwrap_err();
    assert!(
        matches!(
            error,
            MetaError::Refused(Refusal::UnsupportedFormat { found, supported })
                if found == FORMAT_VERSION + 1 && supported == FORMAT_VERSION
        ),
        "{error}"
    );
    disk.set_format(FORMAT_VERSION);
    assert_eq!(get(&attach(&disk).unwrap(), 1), Some(1));
}

#[test]
fn a_file_of_something_else_is_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(EMBEDDED_FILE);
    fs::write(&path, vec![b'x'; 100_000]).unwrap();
    let error = EmbeddedStore::open(directory.path(), clock()).map(|_| ()).unwrap_err();
    assert!(matches!(error, MetaError::Refused(Refusal::Corrupt { .. })), "{error}");
    assert_eq!(fs::read(&path).unwrap(), vec![b'x'; 100_000]);
}

/// A crash while the file was being created must not keep the store from ever starting.
#[test]
fn an_interrupted_creation_is_begun_again() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join(EMBEDDED_FILE_NEW);
    fs::write(&new, vec![b'x'; 5000]).unwrap();
    let store = EmbeddedStore::open(directory.path(), clock()).unwrap();
    put(&store, 1, 1).unwrap();
    assert!(!new.exists());
}

/// Crashes at every kind of moment: the disk keeps what was flushed and any part of the rest.
#[test]
fn every_write_answered_done_outlives_a_crash() {
    let (mut crashes, mut unknown) = (0, 0);
    for seed in 0..150 {
        let entropy = Seeded::new(seed);
        let disk = Disk::default();
        let mut held = [None; 4];
        let mut step = 0;
        for _ in 0..3 {
            let store = attach(&disk).unwrap();
            for (number, held) in (0..).zip(&held) {
                assert_eq!(get(&store, number), *held, "seed {seed}");
            }
            disk.set_fault(DiskFault::PowerCut { after_calls: entropy.next_u64() % 120 });
            let (number, attempted, error) = loop {
                step += 1;
                let number = entropy.next_u64() % 4;
                match put(&store, number, step) {
                    Ok(_) => held[usize::try_from(number).unwrap()] = Some(step),
                    Err(error) => break (number, step, error),
                }
            };
            drop(store);
            crashes += 1;
            disk.crash(&entropy);
            let slot = &mut held[usize::try_from(number).unwrap()];
            let found = get(&attach(&disk).unwrap(), number);
            if matches!(error, MetaError::Unknown { .. }) && found == Some(attempted) {
                unknown += 1;
                *slot = found;
            }
            assert_eq!(found, *slot, "seed {seed}, step {step}: {error}");
        }
    }
    assert_eq!(crashes, 450);
    assert!(unknown > 0, "no crash fell between a commit and its answer");
}

/// Fills the disk, then looks at what the store says and still can do.
fn fill(fault: DiskFault) {
    let disk = Disk::default();
    let time = clock();
    let store = EmbeddedStore::attach(Box::new(disk.clone()), time.clone()).unwrap();
    let large = |number| Write::put(key(number), vec![7; 20_000]);
    for number in 0..5 {
        assert!(store.write(large(number)).unwrap().done().is_some());
    }
    disk.set_fault(fault);
    let mut next = 5;
    let error = loop {
        match store.write(large(next)) {
            Ok(_) => next += 1,
            Err(error) => break error,
        }
        assert!(next < 10_000, "the disk never fills");
    };
    assert!(matches!(error, MetaError::Refused(Refusal::Full { .. })), "{error}");
    for _ in 0..3 {
        let error = store.write(large(next)).unwrap_err();
        assert!(matches!(error, MetaError::Refused(_)), "{error}");
        for number in 0..next {
            assert_eq!(store.get(&key(number)).unwrap().unwrap().value.len(), 20_000);
        }
        assert_eq!(store.get(&key(next)).unwrap(), None);
        time.advance(READ_ONLY_INTERVAL);
    }
    disk.set_fault(DiskFault::None);
    assert!(store.write(large(next)).unwrap().done().is_some());
    drop(store);
    let store = attach(&disk).unwrap();
    assert!(store.get(&key(next)).unwrap().is_some());
}

#[test]
fn a_disk_that_refuses_to_grow_refuses_writes_and_serves_reads() {
    fill(DiskFault::NoGrowth);
}

#[test]
fn a_disk_that_takes_no_new_blocks_refuses_writes_and_serves_reads() {
    fill(DiskFault::NoNewBlocks);
}

#[test]
fn a_disk_that_takes_no_write_at_all_refuses_writes_and_serves_reads() {
    fill(DiskFault::NoWrites);
}

/// After a failed flush the system may show pages that are not on the device.
#[test]
fn a_failed_flush_is_unknown_and_final() {
    let disk = Disk::default();
    let store = attach(&disk).unwrap();
    put(&store, 1, 1).unwrap();
    disk.set_fault(DiskFault::NoFlush);
    let error = put(&store, 1, 2).unwrap_err();
    assert!(matches!(error, MetaError::Unknown { .. }), "{error}");
    disk.set_fault(DiskFault::None);
    let error = put(&store, 1, 3).unwrap_err();
    assert!(matches!(error, MetaError::Refused(Refusal::FlushFailed)), "{error}");
    let error = store.get(&key(1)).unwrap_err();
    assert!(matches!(error, MetaError::Refused(Refusal::FlushFailed)), "{error}");
    drop(store);
    disk.crash(&Seeded::new(1));
    let found = get(&attach(&disk).unwrap(), 1);
    assert!(found == Some(1) || found == Some(2), "{found:?}");
}

/// A store that could only read writes again once the medium does.
#[test]
fn a_passing_fault_heals() {
    let disk = Disk::default();
    let time = clock();
    let store = EmbeddedStore::attach(Box::new(disk.clone()), time.clone()).unwrap();
    put(&store, 1, 1).unwrap();
    disk.set_fault(DiskFault::NoWrites);
    assert!(put(&store, 1, 2).is_err());
    disk.set_fault(DiskFault::None);
    assert_eq!(get(&store, 1), Some(1));
    let error = put(&store, 1, 2).unwrap_err();
    assert!(matches!(error, MetaError::Refused(Refusal::Full { .. })), "{error}");
    time.advance(READ_ONLY_INTERVAL);
    put(&store, 1, 3).unwrap();
    assert_eq!(get(&store, 1), Some(3));
}

/// Without the sharing, 64 threads that create things would wait for 64 flushes.
#[test]
fn writers_that_wait_for_a_flush_share_the_next() {
    const WAITING: u64 = 63;
    let disk = Disk::default();
    let store = attach(&disk).unwrap();
    let before = disk.flushes();
    disk.hold_flushes();
    std::thread::scope(|scope| {
        let store = &store;
        scope.spawn(|| put(store, 0, 0).unwrap());
        disk.wait_for_held_flush();
        for number in 1..=WAITING {
            scope.spawn(move || put(store, number, number).unwrap());
        }
        while store.groups.waiting() < 63 {
            std::thread::yield_now();
        }
        disk.release_flushes();
    });
    assert_eq!(disk.flushes() - before, 2);
    for number in 0..=WAITING {
        assert_eq!(get(&store, number), Some(number));
    }
}

#[test]
fn a_lost_condition_costs_no_flush() {
    let disk = Disk::default();
    let store = attach(&disk).unwrap();
    put(&store, 1, 1).unwrap();
    let before = disk.flushes();
    let outcome = store.put_if(key(1), Bytes::new(), Condition::Absent, 0).unwrap();
    assert!(matches!(outcome, WriteOutcome::Lost { .. }));
    assert_eq!(disk.flushes(), before);
}

#[test]
fn errors_of_a_full_medium_are_recognised() {
    for kind in [IoKind::StorageFull, IoKind::QuotaExceeded] {
        let error = refuse_io(io::Error::from(kind));
        assert!(matches!(error, MetaError::Refused(Refusal::Full { .. })), "{kind:?}");
    }
    let error = refuse_io(io::Error::from(IoKind::PermissionDenied));
    assert!(matches!(error, MetaError::Refused(Refusal::Unavailable { .. })));
}

/// An overlay that read back anything but what was written would serve wrong metadata.
#[test]
fn an_overlay_reads_like_a_file() {
    for seed in 0..40 {
        let entropy = Seeded::new(seed);
        let below = |bound: usize| usize::try_from(entropy.next_u64() % (bound as u64)).unwrap();
        let disk = Disk::default();
        let mut model: Vec<u8> = (0..below(20_000)).map(|_| below(256).to_le_bytes()[0]).collect();
        disk.set_len(model.len() as u64).unwrap();
        disk.write(0, &model).unwrap();
        disk.set_fault(DiskFault::NoWrites);
        let overlay = Overlay::over(Arc::new(disk)).unwrap();
        for _ in 0..60 {
            let at = below(model.len() + 1);
            let len = below(model.len() - at + 1).min(9000);
            if below(8) == 0 {
                model.resize(below(20_000), 0);
                overlay.set_len(model.len() as u64).unwrap();
            } else {
                let byte = below(256).to_le_bytes()[0];
                model[at..at + len].fill(byte);
                overlay.write(at as u64, &vec![byte; len]).unwrap();
            }
            let mut read = vec![0; model.len()];
            overlay.read(0, &mut read).unwrap();
            assert_eq!(read, model, "seed {seed}");
        }
        assert!(overlay.read(model.len() as u64, &mut [0]).is_err());
    }
}
