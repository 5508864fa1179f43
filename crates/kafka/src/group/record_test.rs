//! The offsets log's records: round trips, golden bytes, damage.

use bytes::Bytes;
use proptest::prelude::*;

use super::record::*;

/// Reads `<name>: <hex>` lines; `#` begins a comment.
fn golden(name: &str) -> Bytes {
    let text = include_str!("../../golden/consumer-offsets.txt");
    let prefix = format!("{name}:");
    let hex: String = text
        .lines()
        .filter_map(|line| line.strip_prefix(prefix.as_str()))
        .flat_map(|hex| hex.chars().filter(char::is_ascii_hexdigit))
        .collect();
    assert!(!hex.is_empty(), "no golden bytes named {name}");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn sample_offset() -> OffsetValue {
    OffsetValue {
        offset: 500,
        leader_epoch: 7,
        metadata: "m\u{fc}".into(),
        commit_timestamp_ms: 1_700_000_000_000,
        expire_timestamp_ms: None,
    }
}

fn sample_group() -> GroupValue {
    GroupValue {
        protocol_type: "consumer".into(),
        generation: 3,
        protocol: Some("range".into()),
        leader: Some("a-1".into()),
        state_since_ms: Some(1_700_000_000_000),
        members: vec![MemberValue {
            member_id: "a-1".into(),
            group_instance_id: Some("i".into()),
            client_id: "a".into(),
            client_host: "/127.0.0.1".into(),
            rebalance_timeout_ms: 60_000,
            session_timeout_ms: 30_000,
            subscription: Bytes::from_static(&[1, 2]),
            assignment: Bytes::from_static(&[3]),
        }],
    }
}

fn emptied() -> GroupValue {
    GroupValue { protocol: None, leader: None, members: Vec::new(), ..sample_group() }
}

#[test]
fn golden_bytes_are_written_and_read() {
    assert_eq!(offset_key("g", "t", 5), golden("offset-key-v1"));
    assert_eq!(offset_value(&sample_offset()), golden("offset-value-v3"));
    assert_eq!(group_key("g"), golden("group-key-v2"));
    assert_eq!(group_value(&sample_group()), golden("group-value-v3"));
    assert_eq!(group_value(&emptied()), golden("group-value-v3-empty"));
    let expiring = OffsetValue {
        leader_epoch: -1,
        expire_timestamp_ms: Some(1_700_000_001_000),
        ..sample_offset()
    };
    assert_eq!(offset_value(&expiring), golden("offset-value-v1"));

    let key = Key::Offset { group_id: "g".into(), topic: "t".into(), partition: 5 };
    assert_eq!(decode_key(&golden("offset-key-v1")), Ok(key));
    assert_eq!(decode_key(&golden("group-key-v2")), Ok(Key::Group { group_id: "g".into() }));
    assert_eq!(decode_offset_value(&golden("offset-value-v3")), Ok(sample_offset()));
    assert_eq!(decode_offset_value(&golden("offset-value-v1")), Ok(expiring));
    assert_eq!(decode_group_value(&golden("group-value-v3")), Ok(sample_group()));
    assert_eq!(decode_group_value(&golden("group-value-v3-empty")), Ok(emptied()));
}

#[test]
fn older_versions_are_read() {
    let plain = OffsetValue { leader_epoch: -1, ..sample_offset() };
    assert_eq!(decode_offset_value(&golden("offset-value-v0")), Ok(plain.clone()));
    assert_eq!(decode_offset_value(&golden("offset-value-v2")), Ok(plain));
    let mut old = sample_group();
    old.members[0].group_instance_id = None;
    assert_eq!(decode_group_value(&golden("group-value-v2")), Ok(old.clone()));
    old.state_since_ms = None;
    assert_eq!(decode_group_value(&golden("group-value-v1")), Ok(old.clone()));
    old.members[0].rebalance_timeout_ms = 30_000;
    assert_eq!(decode_group_value(&golden("group-value-v0")), Ok(old));
}

/// A later version must not be taken for damage, nor damage for a later version.
#[test]
fn later_versions_damage_and_truncation_are_told_apart() {
    let later = Bytes::from_static(&[0, 4, 0, 0]);
    let unsupported =
        |what| RecordError::Unsupported { what, found: 4, max: if what == "key" { 2 } else { 3 } };
    assert_eq!(decode_key(&later), Err(unsupported("key")));
    assert_eq!(decode_offset_value(&later), Err(unsupported("offset value")));
    assert_eq!(decode_group_value(&later), Err(unsupported("group value")));
    let negative = Bytes::from_static(&[0xff, 0xff, 0, 0]);
    assert_eq!(decode_key(&negative), Err(RecordError::Corrupt { at: 0, why: "negative version" }));
    let short = Bytes::from_static(&[0, 2, 0, 9, b'x']);
    assert_eq!(decode_key(&short), Err(RecordError::Incomplete { at: 4, missing: 8 }));
    let not_text = Bytes::from_static(&[0, 2, 0, 1, 0xff]);
    let why = "string is not UTF-8";
    assert_eq!(decode_key(&not_text), Err(RecordError::Corrupt { at: 5, why }));
}

/// A count of two milliards must not ask for two milliards' worth of memory.
#[test]
fn a_count_is_checked_against_what_remains() {
    let mut bytes = group_value(&emptied()).to_vec();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&i32::MAX.to_be_bytes());
    let missing = usize::try_from(i32::MAX).unwrap() * 18;
    assert_eq!(
        decode_group_value(&Bytes::from(bytes)),
        Err(RecordError::Incomplete { at: at + 4, missing })
    );
}

#[test]
fn every_prefix_is_incomplete_and_every_extension_corrupt() {
    let whole = group_value(&sample_group());
    for length in 0..whole.len() {
        let result = decode_group_value(&whole.slice(..length));
        assert!(matches!(result, Err(RecordError::Incomplete { .. })), "{length}: {result:?}");
    }
    let longer = Bytes::from([&whole[..], &[0]].concat());
    let why = "bytes after the last field";
    assert_eq!(decode_group_value(&longer), Err(RecordError::Corrupt { at: whole.len(), why }));
}

prop_compose! {
    fn any_member()(
        member_id in ".{0,20}",
        group_instance_id in proptest::option::of(".{0,9}"),
        client_id in ".{0,9}",
        client_host in ".{0,9}",
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
        subscription in proptest::collection::vec(any::<u8>(), 0..40),
        assignment in proptest::collection::vec(any::<u8>(), 0..40),
    ) -> MemberValue {
        MemberValue {
            member_id, group_instance_id, client_id, client_host, rebalance_timeout_ms,
            session_timeout_ms, subscription: subscription.into(), assignment: assignment.into(),
        }
    }
}

proptest! {
    #[test]
    fn groups_round_trip(
        protocol_type in ".{0,9}",
        generation: i32,
        leader in proptest::option::of(".{0,9}"),
        since in proptest::option::of(0..i64::MAX),
        members in proptest::collection::vec(any_member(), 0..4),
    ) {
        let protocol = Some("range".to_owned());
        let value = GroupValue {
            protocol_type, generation, protocol, leader, state_since_ms: since, members,
        };
        prop_assert_eq!(decode_group_value(&group_value(&value)), Ok(value));
    }

    #[test]
    fn offsets_round_trip(
        offset: i64, epoch: i32, metadata in ".{0,40}", commit_timestamp_ms: i64,
        expire in proptest::option::of(0..i64::MAX),
    ) {
        let leader_epoch = if expire.is_some() { -1 } else { epoch };
        let value = OffsetValue {
            offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms: expire,
        };
        prop_assert_eq!(decode_offset_value(&offset_value(&value)), Ok(value));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        for version in 0..=3 {
            if let Some(at) = bytes.get_mut(..2) { at.copy_from_slice(&[0, version]); }
            let bytes = Bytes::from(bytes.clone());
            // What decodes at all must encode to bytes that decode to the same.
            if let Ok(value) = decode_group_value(&bytes) {
                prop_assert_eq!(decode_group_value(&group_value(&value)), Ok(value));
            }
            if let Ok(value) = decode_offset_value(&bytes) {
                prop_assert!(decode_offset_value(&offset_value(&value)).is_ok());
            }
            let _ = decode_key(&bytes);
        }
    }
}
