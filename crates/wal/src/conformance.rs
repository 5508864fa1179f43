//! What every WAL engine must do, as one suite. Each engine's tests run it, the model first.

use bytes::Bytes;
use thetis_types::{
    AttemptId, Durability, Entry, EntryFormat, Epoch, HeadVersion, Offset, StreamId,
};

use crate::{Append, AppendError, Log, Position, Wal};

/// Runs the suite on fresh, empty WALs made by `new`.
///
/// # Panics
/// When the engine breaks the contract.
pub fn suite(new: impl Fn() -> Box<dyn Wal>) {
    reads_back_in_order(&*new());
    first_entry_is_whole_and_always_given(&*new());
    keeps_streams_apart(&*new());
    looks_up_times_and_epochs(&*new());
    trims_and_discards(&*new());
    calls_back_once(&*new());
    refuses_when_closed(&*new());
}

fn entry(count: u32, timestamp: i64, payload: &'static [u8]) -> Entry {
    Entry {
        record_count: count,
        max_timestamp: timestamp,
        format: EntryFormat::Record,
        payload: Bytes::from_static(payload),
    }
}

fn put(log: &dyn Log, base: u64, version: u64, epoch: u32, entry: &Entry) -> Position {
    log.append(&[Append {
        epoch: Epoch(epoch),
        version: HeadVersion(version),
        base_offset: Offset(base),
        attempt: AttemptId { since: Offset(base), nonce: version },
        entry,
    }])
    .expect("an open WAL takes a small entry")
}

fn reads_back_in_order(wal: &dyn Wal) {
    let log = wal.log(StreamId(1));
    put(&*log, 0, 1, 0, &entry(1, 10, b"zero"));
    put(&*log, 1, 2, 0, &entry(3, 20, b"one to three"));
    let at = put(&*log, 4, 3, 0, &entry(1, 30, b""));
    wal.wait(at, Durability::Disk).expect("the device works");
    let all = log.read(Offset(0), Offset(5), usize::MAX).expect("readable");
    let got: Vec<(u64, &[u8])> = all.iter().map(|e| (e.base_offset.0, &e.payload[..])).collect();
    assert_eq!(got, [(0, &b"zero"[..]), (1, b"one to three"), (4, b"")]);
    assert_eq!(all[1].attempt, AttemptId { since: Offset(1), nonce: 2 });
    // Nothing at or above what the core vouches for.
    assert_eq!(log.read(Offset(0), Offset(1), usize::MAX).expect("readable").len(), 1);
    let headers = log.headers(Offset(2), Offset(5), 10).expect("readable");
    assert_eq!(headers.iter().map(|h| h.base_offset.0).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(log.bytes_between(Offset(0), Offset(5)).expect("readable"), 16);
}

fn first_entry_is_whole_and_always_given(wal: &dyn Wal) {
    let log = wal.log(StreamId(1));
    put(&*log, 0, 1, 0, &entry(5, 0, b"five records in one"));
    let at = put(&*log, 5, 2, 0, &entry(1, 0, b"next"));
    wal.wait(at, Durability::Os).expect("the device works");
    let read = log.read(Offset(3), Offset(6), 1).expect("readable");
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].base_offset, Offset(0));
}

fn keeps_streams_apart(wal: &dyn Wal) {
    let (one, two) = (wal.log(StreamId(1)), wal.log(StreamId(2)));
    put(&*one, 0, 1, 0, &entry(1, 0, b"one"));
    let at = put(&*two, 0, 1, 0, &entry(1, 0, b"two"));
    wal.wait(at, Durability::Memory).expect("nothing to flush");
    assert_eq!(&one.read(Offset(0), Offset(1), 100).expect("readable")[0].payload[..], b"one");
    assert_eq!(&two.read(Offset(0), Offset(1), 100).expect("readable")[0].payload[..], b"two");
}

fn looks_up_times_and_epochs(wal: &dyn Wal) {
    let log = wal.log(StreamId(1));
    for (base, epoch, timestamp) in [(0, 0, 100), (1, 0, 50), (2, 3, 200), (3, 3, 200)] {
        put(&*log, base, base + 1, epoch, &entry(1, timestamp, b"x"));
    }
    let (from, until) = (Offset(0), Offset(4));
    let at = |timestamp| log.first_at_time(from, until, timestamp).expect("readable");
    assert_eq!(
        [at(1), at(100), at(101), at(200), at(201)].map(|o| o.map(|o| o.0)),
        [Some(0), Some(0), Some(2), Some(2), None]
    );
    assert_eq!(log.first_at_time(Offset(1), until, 60).expect("readable"), Some(Offset(2)));
    assert_eq!(log.max_time(from, until).expect("readable"), Some((Offset(2), 200)));
    let end = |epoch| log.epoch_end(Epoch(epoch), from, until);
    assert_eq!(end(0), Some((Epoch(0), Offset(2))));
    assert_eq!(end(2), Some((Epoch(0), Offset(2))));
    assert_eq!(end(9), Some((Epoch(3), Offset(4))));
}

fn trims_and_discards(wal: &dyn Wal) {
    let log = wal.log(StreamId(1));
    for base in 0..4 {
        put(&*log, base, base + 1, 0, &entry(1, 0, b"x"));
    }
    log.trim(Offset(2));
    wal.reclaim().expect("the device works");
    let kept = log.read(Offset(2), Offset(4), 100).expect("readable");
    assert_eq!(kept.len(), 2);
    // The owner's word reaches above the end: records of a weak durability were lost.
    log.trim(Offset(9));
    let at = put(&*log, 9, 12, 0, &entry(1, 0, b"y"));
    wal.wait(at, Durability::Disk).expect("the device works");
    wal.reclaim().expect("the device works");
    let kept = log.read(Offset(9), Offset(10), 100).expect("readable");
    assert_eq!(kept[0].version, HeadVersion(12));
    log.discard();
    wal.reclaim().expect("the device works");
}

fn calls_back_once(wal: &dyn Wal) {
    let log = wal.log(StreamId(1));
    let at = put(&*log, 0, 1, 0, &entry(1, 0, b"x"));
    let (send, receive) = std::sync::mpsc::channel();
    wal.when(at, Durability::Disk, Box::new(move |result| send.send(result).expect("awaited")));
    assert_eq!(receive.recv(), Ok(Ok(())));
    assert!(receive.recv().is_err(), "called twice");
}

fn refuses_when_closed(wal: &dyn Wal) {
    let log = wal.log(StreamId(1));
    let at = put(&*log, 0, 1, 0, &entry(1, 0, b"x"));
    wal.close().expect("the device works");
    wal.wait(at, Durability::Disk).expect("closing made it safe");
    let refused = log.append(&[Append {
        epoch: Epoch(0),
        version: HeadVersion(2),
        base_offset: Offset(1),
        attempt: AttemptId::NONE,
        entry: &entry(1, 0, b"late"),
    }]);
    assert!(matches!(refused, Err(AppendError::Closed)));
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_model_conforms() {
        super::suite(|| Box::new(crate::memory::MemoryWal::default()));
    }
}
