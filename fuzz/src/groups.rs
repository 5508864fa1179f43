//! State that groups and producers leave on disk: records of the offsets log, snapshots of the
//! producers of a partition.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thetis_kafka::group::record::{self, Key};
use thetis_kafka::group::{Event, Loading, Now, Record, Settings};
use thetis_kafka::producers::{self, BatchFacts, Producers, Verdict};
use thetis_types::Offset;
use thetis_types::clock::SeededEntropy;

use crate::input::Input;

/// Stands for the length of a value that is not there.
const TOMBSTONE: u16 = u16::MAX;
/// Records of one log: enough for a snapshot of a snapshot, few enough for many runs.
const RECORDS_MAX: usize = 64;

/// Records: for each the length of its key (one byte), that of its value (two bytes, little-endian,
/// all ones for none), key and value.
pub fn group_log(data: &[u8]) {
    let mut input = Input::new(data);
    let mut records = Vec::new();
    while !input.is_empty() && records.len() < RECORDS_MAX {
        let key = usize::from(input.byte());
        let value = input.u16();
        let key = Bytes::copy_from_slice(input.bytes(key));
        let value = (value != TOMBSTONE).then(|| input.bytes(usize::from(value)));
        records.push(Record { key, value: value.map(Bytes::copy_from_slice) });
    }
    records.iter().for_each(read_alone);
    let snapshot = replay(&records);
    // What is live is all there is: a replay of a snapshot makes the same snapshot.
    assert_eq!(replay(&snapshot), snapshot);
}

/// What was read must be written and read again as the same.
fn read_alone(record: &Record) {
    let Ok(key) = record::decode_key(&record.key) else { return };
    let again = match &key {
        Key::Offset { group_id, topic, partition } => {
            record::offset_key(group_id, topic, *partition)
        }
        Key::Group { group_id } => record::group_key(group_id),
    };
    assert_eq!(record::decode_key(&again).expect("a key just written"), key);
    let Some(value) = &record.value else { return };
    if let Ok(value) = record::decode_offset_value(value) {
        let again = record::decode_offset_value(&record::offset_value(&value));
        assert_eq!(again.expect("a value just written"), value);
    }
    if let Ok(value) = record::decode_group_value(value) {
        let again = record::decode_group_value(&record::group_value(&value));
        assert_eq!(again.expect("a value just written"), value);
    }
}

/// Loads the log, lets two weeks pass, and gives what was live at the start.
fn replay(records: &[Record]) -> Vec<Record> {
    let entropy = Arc::new(SeededEntropy::new(1));
    let mut loading = Loading::new(Settings::default(), entropy);
    for record in records {
        // A record that cannot be read is passed over, as the shell does.
        let _ = loading.replay(record);
    }
    let mut now = Now { wall_ms: 1_700_000_000_000, monotonic: Duration::from_secs(1) };
    let mut coordinator = loading.start(now);
    coordinator.validate();
    let live = coordinator.snapshot();
    for _ in 0..4 {
        now.wall_ms += 300_000_000;
        now.monotonic += Duration::from_millis(300_000_000);
        coordinator.apply(now, Event::Tick);
        coordinator.validate();
    }
    // A group with too many members begins a rebalance, which writes; nothing else may.
    live.unwrap_or_default()
}

/// One byte saying whether the checksum is to be made right, then a snapshot.
pub fn producer_snapshot(data: &[u8]) {
    const CRC_AT: usize = 8;
    const COVERED_AT: usize = 12;
    let settings = || producers::Settings { producers_max: 8, ..producers::Settings::default() };
    let mut input = Input::new(data);
    let repairs = input.byte() & 1 == 1;
    let mut bytes = input.rest().to_vec();
    if repairs && bytes.len() >= COVERED_AT {
        let crc = crc32c::crc32c(&bytes[COVERED_AT..]);
        bytes[CRC_AT..COVERED_AT].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok((mut found, covered)) = Producers::decode(&bytes, settings()) else { return };
    let again = found.encode(covered);
    let (same, at) = Producers::decode(&again, settings()).expect("a snapshot just written");
    assert_eq!(at, covered);
    assert_eq!(same.encode(at), again);
    if covered.0 > thetis_types::limits::OFFSET_MAX {
        // No log ends there, so nobody would go on from it.
        return;
    }
    go_on(&mut found, covered, &bytes);
}

/// Appends batches of producers in the snapshot and of others, each as its check allows.
fn go_on(found: &mut Producers, covered: Offset, bytes: &[u8]) {
    let now_ms = 1_700_000_000_000;
    for (index, chunk) in (0..16).zip(bytes.chunks(8).cycle()) {
        let pick = i64::from(chunk[0]);
        let facts = BatchFacts {
            producer_id: pick % 10,
            producer_epoch: i16::from(*chunk.get(1).unwrap_or(&0)) % 3,
            base_sequence: i32::from(*chunk.get(2).unwrap_or(&0)),
            record_count: 1 + u32::from(*chunk.get(3).unwrap_or(&0)),
            timestamp_ms: now_ms,
        };
        if found.check(&facts) == Verdict::Append {
            let base_offset = Offset(covered.0 + index * 1_000);
            found.appended(&facts, base_offset, now_ms);
            assert!(found.confirmed(facts.producer_id, base_offset));
            // The same batch again must never be appended again.
            assert_ne!(found.check(&facts), Verdict::Append);
        }
        assert!(found.count() <= 8, "more producers than are allowed");
    }
    found.expire(i64::MAX);
    assert_eq!(found.count(), 0);
}
