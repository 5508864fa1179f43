//! Sequence numbers batch by batch, snapshots, and any history against a plain model.

use proptest::prelude::*;

use super::*;

const ID: i64 = 7;

fn batch(epoch: i16, base_sequence: i32, record_count: u32) -> BatchFacts {
    BatchFacts {
        producer_id: ID,
        producer_epoch: epoch,
        base_sequence,
        record_count,
        timestamp_ms: 1_000 + i64::from(base_sequence),
    }
}

fn new() -> Producers {
    Producers::new(Settings::default())
}

/// Appends and confirms.
fn store(producers: &mut Producers, batch: &BatchFacts, at: u64) {
    assert_eq!(producers.check(batch), Verdict::Append, "{batch:?}");
    producers.appended(batch, Offset(at), 0);
    assert!(producers.confirmed(batch.producer_id, Offset(at)));
}

/// Incident: without this a retry of a stored batch was refused, and modern clients then raised
/// their epoch and wrote it a second time.
#[test]
fn each_of_the_last_five_is_answered_with_its_original_offset() {
    let mut p = new();
    for n in 0..6 {
        store(&mut p, &batch(0, n * 2, 2), 100 + 2 * u64::try_from(n).unwrap());
    }
    for restarted in [false, true] {
        if restarted {
            p = Producers::decode(&p.encode(Offset(112)), Settings::default()).unwrap().0;
        }
        for n in 1..6 {
            let base_offset = Offset(100 + 2 * u64::try_from(n).unwrap());
            let timestamp_ms = 1_000 + i64::from(n) * 2;
            let expected = Verdict::Duplicate { base_offset, timestamp_ms };
            assert_eq!(p.check(&batch(0, n * 2, 2)), expected);
        }
        let older = Verdict::Refuse(Refusal::DuplicateSequenceNumber);
        assert_eq!(p.check(&batch(0, 0, 2)), older);
        let gap = Verdict::Refuse(Refusal::OutOfOrderSequenceNumber);
        assert_eq!(p.check(&batch(0, 13, 1)), gap);
        assert_eq!(p.check(&batch(0, 11, 2)), gap, "half of it is new");
        assert_eq!(p.check(&batch(0, 12, 1)), Verdict::Append);
    }
}

#[test]
fn a_producer_that_is_not_known_begins_anywhere() {
    let mut p = new();
    store(&mut p, &batch(0, 40, 2), 0);
    let refused = Verdict::Refuse(Refusal::OutOfOrderSequenceNumber);
    assert_eq!(p.check(&batch(0, 38, 2)), refused, "never seen, so not said to be stored");
    assert_eq!(p.check(&batch(0, 42, 1)), Verdict::Append);
}

#[test]
fn a_later_epoch_begins_at_zero_and_fences_the_earlier() {
    let mut p = new();
    store(&mut p, &batch(3, 0, 5), 0);
    let refused = Verdict::Refuse(Refusal::OutOfOrderSequenceNumber);
    assert_eq!(p.check(&batch(4, 5, 1)), refused);
    store(&mut p, &batch(4, 0, 5), 5);
    let fenced = Verdict::Refuse(Refusal::InvalidProducerEpoch);
    assert_eq!(p.check(&batch(3, 5, 1)), fenced);
    assert_eq!(p.check(&batch(3, 0, 5)), fenced, "a repeat of the old epoch is fenced too");
    let repeat = Verdict::Duplicate { base_offset: Offset(5), timestamp_ms: 1_000 };
    assert_eq!(p.check(&batch(4, 0, 5)), repeat);
}

#[test]
fn sequence_numbers_go_round() {
    let mut p = new();
    store(&mut p, &batch(0, i32::MAX - 1, 1), 0);
    store(&mut p, &batch(0, i32::MAX, 2), 1);
    store(&mut p, &batch(0, 1, 1), 3);
    let repeat =
        Verdict::Duplicate { base_offset: Offset(1), timestamp_ms: 1_000 + i64::from(i32::MAX) };
    assert_eq!(p.check(&batch(0, i32::MAX, 2)), repeat);
    assert_eq!(p.check(&batch(0, 2, 1)), Verdict::Append);
    store(&mut p, &batch(0, 2, u32::try_from(i32::MAX).unwrap()), 4);
    assert_eq!(p.check(&batch(0, 1, 1)), Verdict::Append, "one whole round");
}

/// A repeat of a batch in flight answered at once would acknowledge what a crash can still lose.
#[test]
fn what_hangs_on_a_batch_in_flight_waits_for_it() {
    let mut p = new();
    p.appended(&batch(0, 0, 1), Offset(10), 0);
    p.appended(&batch(0, 1, 1), Offset(11), 0);
    assert_eq!(p.check(&batch(0, 2, 1)), Verdict::Append, "the next need not wait");
    assert_eq!(p.check(&batch(0, 1, 1)), Verdict::Wait { until: Offset(11) });
    assert_eq!(p.check(&batch(0, 9, 1)), Verdict::Wait { until: Offset(10) });
    assert!(!p.confirmed(ID, Offset(11)), "commits come in order");
    assert!(p.confirmed(ID, Offset(10)));
    assert!(p.confirmed(ID, Offset(11)));
    let repeat = Verdict::Duplicate { base_offset: Offset(11), timestamp_ms: 1_001 };
    assert_eq!(p.check(&batch(0, 1, 1)), repeat);
    for n in 2..7u8 {
        p.appended(&batch(0, i32::from(n), 1), Offset(10 + u64::from(n)), 0);
    }
    assert_eq!(p.check(&batch(0, 7, 1)), Verdict::Wait { until: Offset(12) }, "five in flight");
    assert_eq!(p.check(&batch(0, 1, 1)), repeat, "durable: nothing in flight changes that");
}

#[test]
fn a_failed_append_takes_those_after_it_along() {
    let mut p = new();
    store(&mut p, &batch(0, 0, 1), 10);
    p.appended(&batch(0, 1, 1), Offset(11), 0);
    p.appended(&batch(1, 0, 1), Offset(12), 0);
    assert_eq!(p.check(&batch(0, 0, 1)), Verdict::Wait { until: Offset(11) });
    p.rolled_back(ID, Offset(11));
    p.rolled_back(ID, Offset(12));
    let repeat = Verdict::Duplicate { base_offset: Offset(10), timestamp_ms: 1_000 };
    assert_eq!(p.check(&batch(0, 0, 1)), repeat, "the epoch did not rise");
    assert_eq!(p.check(&batch(0, 1, 1)), Verdict::Append);
}

/// Else the second batch of a new producer would be taken for its first, and the first be lost.
#[test]
fn after_a_failed_first_append_the_second_batch_is_out_of_order() {
    let mut p = new();
    p.appended(&batch(0, 0, 1), Offset(10), 0);
    p.rolled_back(ID, Offset(10));
    let refused = Verdict::Refuse(Refusal::OutOfOrderSequenceNumber);
    assert_eq!(p.check(&batch(0, 1, 1)), refused);
    assert_eq!(p.check(&batch(0, 0, 1)), Verdict::Append);
    assert_eq!(Producers::decode(&p.encode(Offset(0)), Settings::default()).unwrap().0.count(), 0);
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let p = new();
    let invalid = Verdict::Refuse(Refusal::InvalidRecord);
    assert_eq!(p.check(&batch(-1, 0, 1)), invalid);
    assert_eq!(p.check(&batch(0, -1, 1)), invalid);
    assert_eq!(p.check(&batch(0, 0, 0)), invalid);
    assert_eq!(p.check(&batch(0, 0, 1 << 31)), invalid);
    let plain = BatchFacts { producer_id: -1, ..batch(-1, -1, 1) };
    assert_eq!(p.check(&plain), Verdict::Append, "no producer, no sequence");
}

#[test]
fn silent_producers_expire_and_the_oldest_makes_room() {
    let settings = Settings { expiration: Duration::from_millis(100), producers_max: 2 };
    let mut p = Producers::new(settings);
    let of = |producer_id| BatchFacts { producer_id, ..batch(0, 0, 1) };
    p.appended(&of(1), Offset(0), 10);
    p.appended(&of(2), Offset(1), 20);
    assert_eq!(p.check(&of(3)), Verdict::Wait { until: Offset(0) }, "all are busy");
    assert!(p.confirmed(1, Offset(0)) && p.confirmed(2, Offset(1)));
    assert_eq!(p.check(&of(3)), Verdict::Append);
    p.appended(&of(3), Offset(2), 30);
    assert_eq!(p.count(), 2, "the first made room");
    assert_eq!(p.check(&of(2)), Verdict::Duplicate { base_offset: Offset(1), timestamp_ms: 1_000 });
    assert_eq!(p.expire(119), 0);
    assert_eq!(p.expire(120), 1);
    assert_eq!(p.expire(1_000), 0, "the third is in flight");
    assert!(p.confirmed(3, Offset(2)));
    assert_eq!(p.expire(1_000), 1);
    assert_eq!(p.count(), 0);
}

fn golden() -> Vec<u8> {
    let text = include_str!("../../golden/producer-snapshot-v1.txt");
    let bytes = text.lines().filter(|line| !line.starts_with('#'));
    bytes.flat_map(str::split_whitespace).map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect()
}

#[test]
fn golden_bytes_are_written_and_read() {
    let mut p = new();
    p.appended(&batch(2, 0, 3), Offset(10), 5_000);
    assert!(p.confirmed(ID, Offset(10)));
    p.appended(&batch(2, 3, 1), Offset(13), 6_000);
    assert!(p.confirmed(ID, Offset(13)));
    assert_eq!(p.encode(Offset(14)).to_vec(), golden());
    assert_eq!(Producers::decode(&golden(), Settings::default()), Ok((p, Offset(14))));
}

#[test]
fn damage_truncation_and_later_versions_are_told_apart() {
    let whole = golden();
    let decode = |bytes: &[u8]| Producers::decode(bytes, Settings::default());
    for length in 0..whole.len() {
        let result = decode(&whole[..length]);
        let incomplete = matches!(result, Err(SnapshotError::Incomplete { .. }));
        assert!(incomplete, "{length}: {result:?}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        assert!(decode(&damaged).is_err(), "byte {at}");
    }
    let mut later = whole;
    later[4] = 2;
    assert_eq!(decode(&later), Err(SnapshotError::Unsupported { found: 2, max: 1 }));
    later[0] = b'X';
    let why = "not a producer snapshot";
    assert_eq!(decode(&later), Err(SnapshotError::Corrupt { at: 0, why }));
}

#[test]
fn a_snapshot_of_more_producers_than_allowed_keeps_the_youngest() {
    let mut p = new();
    for producer_id in 0..3 {
        let batch = BatchFacts { producer_id, ..batch(0, 0, 1) };
        let at = u64::try_from(producer_id).unwrap();
        p.appended(&batch, Offset(at), producer_id);
        assert!(p.confirmed(producer_id, Offset(at)));
    }
    let two = Settings { producers_max: 2, ..Settings::default() };
    let (p, _) = Producers::decode(&p.encode(Offset(3)), two).unwrap();
    assert_eq!(p.producers.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

proptest! {
    /// Whatever is sent, repeated, confirmed, rolled back: each sequence number is stored once and
    /// in order, and a replay of the log, whole or behind a snapshot, gives the same state.
    #[test]
    fn each_record_is_stored_once_and_in_order(
        steps in prop::collection::vec((0..12i32, 1..3u32, 0..4u8), 1..120),
        cut in 0..40usize,
    ) {
        let mut p = new();
        let (mut log, mut in_flight) = (Vec::new(), VecDeque::new());
        let (mut end, mut next) = (0u64, 0i32);
        for (sequence, count, act) in steps {
            match act {
                0 if !in_flight.is_empty() => {
                    let (batch, at): (BatchFacts, Offset) = in_flight.pop_front().unwrap();
                    prop_assert!(p.confirmed(ID, at));
                    log.push((batch, at));
                }
                1 if !in_flight.is_empty() && sequence == 0 => {
                    // A failed append: nothing in flight arrives.
                    let (first, at) = in_flight[0];
                    in_flight.iter().for_each(|(_, at)| p.rolled_back(ID, *at));
                    in_flight.clear();
                    (end, next) = (at.0, first.base_sequence);
                }
                _ => {
                    // The next one, or one from about there.
                    let sequence = if act == 3 { next } else { sequence };
                    let sent = batch(0, sequence, count);
                    let known = !(log.is_empty() && in_flight.is_empty() && p.count() == 0);
                    match p.check(&sent) {
                        Verdict::Append => {
                            prop_assert!(!known || sequence == next, "a gap or a repeat");
                            p.appended(&sent, Offset(end), 0);
                            in_flight.push_back((sent, Offset(end)));
                            end += u64::from(count);
                            next = sequence + i32::try_from(count).unwrap();
                        }
                        Verdict::Duplicate { base_offset, .. } => {
                            prop_assert!(log.contains(&(sent, base_offset)), "not stored there");
                        }
                        Verdict::Wait { until } => {
                            prop_assert!(in_flight.iter().any(|(_, at)| *at == until));
                        }
                        Verdict::Refuse(Refusal::DuplicateSequenceNumber) => {
                            let first = log[0].0.base_sequence;
                            prop_assert!(sequence >= first && sequence < next);
                        }
                        Verdict::Refuse(refusal) => {
                            prop_assert_eq!(refusal, Refusal::OutOfOrderSequenceNumber);
                            prop_assert!(sequence != next);
                        }
                    }
                }
            }
        }
        in_flight.iter().for_each(|(_, at)| p.rolled_back(ID, *at));
        if !log.is_empty() {
            let mut whole = new();
            log.iter().for_each(|(batch, at)| whole.replay(batch, *at, 0));
            prop_assert_eq!(&whole, &p);
            let (before, _) = log.split_at(cut.min(log.len()));
            let mut part = new();
            before.iter().for_each(|(batch, at)| part.replay(batch, *at, 0));
            let covered = before.last().map_or(0, |(b, at)| at.0 + u64::from(b.record_count));
            let (mut part, _) = Producers::decode(&part.encode(Offset(covered)), Settings::default()).unwrap();
            // From earlier than need be: what the snapshot has is passed over.
            log.iter().for_each(|(batch, at)| part.replay(batch, *at, 0));
            prop_assert_eq!(&part, &p);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Producers::decode(&tail, Settings::default());
        // With a good checksum, so that the fields are reached.
        let mut bytes = b"TPRS\x01\0\0\0".to_vec();
        bytes.extend(crc32c::crc32c(&tail).to_le_bytes());
        bytes.extend(&tail);
        if let Ok((producers, covered)) = Producers::decode(&bytes, Settings::default()) {
            let again = Producers::decode(&producers.encode(covered), Settings::default());
            prop_assert_eq!(again, Ok((producers, covered)));
        }
    }
}
