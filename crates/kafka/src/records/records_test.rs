//! Batches: what is built reads back in every codec, another implementation agrees, and hostile
//! bytes end in errors.

use bytes::{Bytes, BytesMut};
use kafka_protocol::records::{Compression, RecordBatchDecoder, RecordBatchEncoder};
use kafka_protocol::records::{RecordEncodeOptions, TimestampType};
use proptest::prelude::*;

use super::*;

const EXPANDED_MAX: usize = 1 << 20;

fn header(key: &'static str, value: Option<&'static str>) -> Header {
    Header { key: Bytes::from(key), value: value.map(Bytes::from) }
}

/// Three records with everything that is easily lost: null and empty keys and values, repeated and
/// null headers, a timestamp that goes back.
fn awkward() -> Vec<Record> {
    let bytes = |text: &'static str| Some(Bytes::from(text));
    let headers = vec![header("h", bytes_of("1")), header("", None), header("h", bytes_of(""))];
    vec![
        Record { offset: 0, timestamp: 1000, key: bytes("k"), value: bytes("v"), headers },
        Record { offset: 1, timestamp: 990, key: None, value: bytes(""), headers: vec![] },
        Record { offset: 2, timestamp: 2000, key: bytes(""), value: None, headers: vec![] },
    ]
}

fn bytes_of(text: &'static str) -> Option<&'static str> {
    Some(text)
}

fn built(attributes: Attributes, records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new(attributes).producer(77, 3, 40);
    for record in records {
        let Record { timestamp, key, value, headers, .. } = record;
        builder.push(*timestamp, key.as_deref(), value.as_deref(), headers).unwrap();
    }
    builder.build().unwrap()
}

fn only_batch(bytes: Bytes) -> Batch {
    let mut batches = Batches::new(bytes);
    let batch = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none());
    batch
}

fn read(bytes: Bytes) -> Vec<Record> {
    only_batch(bytes).records(EXPANDED_MAX).unwrap().map(Result::unwrap).collect()
}

#[test]
fn records_read_back_in_every_codec() {
    for codec in Codec::ALL {
        let bytes = built(Attributes::new(codec), &awkward());
        let header = validate(&bytes).unwrap();
        assert_eq!(header.attributes.codec().unwrap(), codec);
        assert_eq!((header.base_offset, header.leader_epoch), (0, -1));
        assert_eq!((header.record_count, header.last_offset_delta), (3, 2));
        assert_eq!((header.base_timestamp, header.max_timestamp), (1000, 2000));
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (77, 3, 40));
        assert_eq!(read(bytes), awkward(), "{codec:?}");
    }
}

/// Larger than one block of any codec.
#[test]
fn large_batches_read_back_in_every_codec() {
    let value = Bytes::from(b"0123456789abcdef some text ".repeat(8000));
    let records: Vec<Record> = (0..4)
        .map(|offset| Record {
            offset,
            timestamp: 5,
            value: Some(value.clone()),
            ..Record::default()
        })
        .collect();
    for codec in Codec::ALL {
        let bytes = built(Attributes::new(codec), &records);
        assert_eq!(read(bytes), records, "{codec:?}");
    }
}

#[test]
fn snappy_without_framing_is_read_too() {
    let plain = built(Attributes::new(Codec::None), &awkward());
    let bare = snap::raw::Encoder::new().compress_vec(&plain[BATCH_HEADER_BYTES..]).unwrap();
    let expanded = compression::decompress(Codec::Snappy, bare.into(), EXPANDED_MAX).unwrap();
    assert_eq!(expanded, plain[BATCH_HEADER_BYTES..]);
}

/// A kilobyte on the wire can be a gigabyte in memory.
#[test]
fn expansion_is_bounded_in_every_codec() {
    let zeros = Bytes::from(vec![0; EXPANDED_MAX]);
    let record = Record { value: Some(zeros), ..Record::default() };
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = only_batch(built(Attributes::new(codec), std::slice::from_ref(&record)));
        assert!(batch.bytes.len() < EXPANDED_MAX / 10, "{codec:?}");
        assert!(batch.records(EXPANDED_MAX + 100).is_ok(), "{codec:?}");
        let error = batch.records(EXPANDED_MAX).unwrap_err();
        assert!(matches!(error, BatchError::TooLarge { limit: EXPANDED_MAX }), "{error}");
    }
}

#[test]
fn a_batch_is_refused_for_the_right_reason() {
    let good = built(Attributes::new(Codec::None), &awkward());
    let refusal = |edit: &dyn Fn(&mut BytesMut), repair: bool| {
        let mut bytes = BytesMut::from(&good[..]);
        edit(&mut bytes);
        if repair {
            let crc = crc32c::crc32c(&bytes[ATTRIBUTES_AT..]);
            bytes[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
        }
        validate(&bytes).unwrap_err()
    };
    let put = |at: usize, value: &'static [u8]| {
        move |bytes: &mut BytesMut| bytes[at..at + value.len()].copy_from_slice(value)
    };
    let error = refusal(&put(16, &[1]), true);
    assert!(matches!(error, BatchError::Magic(1)));
    assert_eq!(error.error_code(), ErrorCode::InvalidRecord);
    let error = refusal(&put(70, &[0xff]), false);
    assert!(matches!(error, BatchError::Crc { .. }));
    assert_eq!(error.error_code(), ErrorCode::CorruptMessage);
    let error = refusal(&put(22, &[5]), true);
    assert!(matches!(error, BatchError::Codec(5)));
    assert_eq!(error.error_code(), ErrorCode::UnsupportedCompressionType);
    let error = refusal(&put(60, &[4]), true);
    assert!(matches!(error, BatchError::Count { count: 4, last_offset_delta: 2 }));
    let error = refusal(&put(53, &[0xff, 0xff, 0xff, 0xff]), true);
    assert!(matches!(error, BatchError::Sequence(-1)));
    let error = refusal(&put(22, &[0x20]), true);
    assert!(matches!(error, BatchError::Control));
    let error = refusal(&put(8, &[0, 0, 0, 48]), true);
    assert!(matches!(error, BatchError::Length(48)));
    let error = refusal(&|bytes| bytes.extend_from_slice(&[0]), false);
    assert!(matches!(error, BatchError::Trailing(1)));
    let error = refusal(&|bytes| bytes.truncate(bytes.len() - 1), false);
    assert!(matches!(error, BatchError::Truncated { .. }));
    let error = refusal(&|bytes| bytes.truncate(60), false);
    assert!(matches!(error, BatchError::Truncated { need: 61, have: 60 }));
}

#[test]
fn an_empty_batch_is_not_built() {
    let empty = BatchBuilder::new(Attributes::default()).build();
    assert!(matches!(empty, Err(BatchError::Count { count: 0, .. })));
}

#[test]
fn the_prefix_changes_offset_and_epoch_and_nothing_else() {
    let bytes = built(Attributes::new(Codec::Lz4), &awkward());
    let header = validate(&bytes).unwrap();
    let mut patched = BytesMut::from(&header.patched_prefix(1_000_000, 9)[..]);
    patched.extend_from_slice(&bytes[PATCHED_PREFIX_BYTES..]);
    let read_again = validate(&patched).unwrap();
    assert_eq!(read_again, BatchHeader { base_offset: 1_000_000, leader_epoch: 9, ..header });
    assert_eq!(read_again.last_offset(), 1_000_002);
    let offsets: Vec<i64> = read(patched.freeze()).iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [1_000_000, 1_000_001, 1_000_002]);
}

#[test]
fn append_time_is_the_time_of_all_records() {
    let mut bytes = BytesMut::from(&built(Attributes::new(Codec::Zstd), &awkward())[..]);
    stamp_append_time(&mut bytes, 123_456).unwrap();
    let header = validate(&bytes).unwrap();
    assert!(header.attributes.is_log_append_time());
    assert_eq!(header.max_timestamp, 123_456);
    let records = read(bytes.clone().freeze());
    assert!(records.iter().all(|record| record.timestamp == 123_456));
    let before = bytes.clone();
    bytes.extend_from_slice(&[0]);
    assert!(stamp_append_time(&mut bytes, 1).is_err());
    assert_eq!(bytes[..before.len()], before, "a refused batch was changed");
}

#[test]
fn a_blob_is_cut_into_batches_without_copying() {
    let one = built(Attributes::new(Codec::None), &awkward());
    let two = built(Attributes::new(Codec::Gzip).transactional(), &awkward()[..1]);
    let blob = Bytes::from([&one[..], &two[..], &one[..30]].concat());
    let mut batches = Batches::new(blob.clone());
    let first = batches.next().unwrap().unwrap();
    assert_eq!(first.bytes, one);
    assert_eq!(first.bytes.as_ptr(), blob.as_ptr());
    first.verify().unwrap();
    let second = batches.next().unwrap().unwrap();
    assert!(second.header.attributes.is_transactional());
    assert!(matches!(batches.next(), Some(Err(BatchError::Truncated { need: 61, have: 30 }))));
    assert!(batches.next().is_none());
}

fn their_codec(codec: Codec) -> Compression {
    match codec {
        Codec::None => Compression::None,
        Codec::Gzip => Compression::Gzip,
        Codec::Snappy => Compression::Snappy,
        Codec::Lz4 => Compression::Lz4,
        Codec::Zstd => Compression::Zstd,
    }
}

/// The other implementation reads what we build. Headers with the same key are left out: it keeps
/// one of them only.
#[test]
fn another_implementation_reads_our_batches() {
    for codec in Codec::ALL {
        let mut records = awkward();
        records[0].headers.pop();
        let mut bytes = built(Attributes::new(codec).transactional(), &records);
        let theirs = RecordBatchDecoder::decode(&mut bytes).unwrap().records;
        assert_eq!(theirs.len(), records.len());
        for (ours, theirs) in records.iter().zip(&theirs) {
            assert_eq!((ours.offset, ours.timestamp), (theirs.offset, theirs.timestamp));
            assert_eq!((&ours.key, &ours.value), (&theirs.key, &theirs.value));
            assert_eq!(ours.headers.len(), theirs.headers.len());
            for (ours, (key, value)) in ours.headers.iter().zip(&theirs.headers) {
                assert_eq!((&ours.key[..], &ours.value), (key.as_bytes(), value));
            }
            assert!(theirs.transactional && !theirs.control);
            assert_eq!((theirs.producer_id, theirs.producer_epoch), (77, 3));
            assert_eq!(i64::from(theirs.sequence), 40 + ours.offset);
        }
    }
}

#[test]
fn we_read_batches_of_another_implementation() {
    for codec in Codec::ALL {
        let records = awkward();
        let theirs: Vec<_> = records
            .iter()
            .map(|record| kafka_protocol::records::Record {
                transactional: false,
                control: false,
                delete_horizon: false,
                partition_leader_epoch: 4,
                producer_id: 77,
                producer_epoch: 3,
                timestamp_type: TimestampType::Creation,
                offset: record.offset,
                sequence: i32::try_from(record.offset).unwrap() + 40,
                timestamp: record.timestamp,
                key: record.key.clone(),
                value: record.value.clone(),
                headers: Default::default(),
            })
            .collect();
        let mut bytes = BytesMut::new();
        let options = RecordEncodeOptions { version: 2, compression: their_codec(codec) };
        RecordBatchEncoder::encode(&mut bytes, &theirs, &options).unwrap();
        let header = validate(&bytes).unwrap();
        assert_eq!((header.leader_epoch, header.base_sequence), (4, 40));
        for (read, mut record) in read(bytes.freeze()).into_iter().zip(records) {
            record.headers.clear();
            assert_eq!(read, record, "{codec:?}");
        }
    }
}

proptest! {
    /// Damage beyond the header, behind a checksum made right again: errors, never a panic, and
    /// never more memory than allowed.
    #[test]
    fn damaged_records_never_panic(
        codec in 0usize..5,
        edits in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = BytesMut::from(&built(Attributes::new(Codec::ALL[codec]), &awkward())[..]);
        for (place, value) in edits {
            let length = bytes.len();
            bytes[usize::from(place) % length] = value;
        }
        for batch in Batches::new(bytes.freeze()).flatten() {
            if let Ok(records) = batch.records(EXPANDED_MAX) {
                let count = usize::try_from(batch.header.record_count).unwrap();
                prop_assert!(records.flatten().count() <= count);
            }
        }
    }

    #[test]
    fn random_bytes_are_no_records(
        codec in 0usize..5,
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let expanded = compression::decompress(Codec::ALL[codec], body.into(), 4096);
        if let Ok(expanded) = expanded {
            prop_assert!(expanded.len() <= 4096);
        }
    }

    #[test]
    fn any_record_reads_back(
        timestamp in any::<i64>(),
        second in any::<i64>(),
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)),
        value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200)),
        headers in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..4), proptest::option::of(any::<[u8; 3]>())),
            0..5,
        ),
    ) {
        let headers: Vec<Header> = headers
            .into_iter()
            .map(|(key, value)| Header {
                key: key.into(),
                value: value.map(|value| Bytes::copy_from_slice(&value)),
            })
            .collect();
        let record = |offset, timestamp| Record {
            offset,
            timestamp,
            key: key.clone().map(Bytes::from),
            value: value.clone().map(Bytes::from),
            headers: headers.clone(),
        };
        let records = vec![record(0, timestamp), record(1, second)];
        prop_assert_eq!(read(built(Attributes::default(), &records)), records);
    }
}
