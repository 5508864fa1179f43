//! Checks of the key codec against the components it encodes.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;

fn component() -> impl Strategy<Value = Component> {
    // Few bytes, the special ones among them, so that escapes and shared beginnings are common.
    let byte = prop::sample::select(vec![0_u8, 0, 0, 1, b'a', 0xff]);
    prop_oneof![
        prop::sample::select(vec!["", "stream", "head", "a\0b"])
            .prop_map(|word| Component::Word(word.to_string())),
        prop_oneof![0_u64..4, any::<u64>()].prop_map(Component::Number),
        "[\\x00\\x00a]{0,3}".prop_map(Component::Text),
        prop::collection::vec(byte, 0..5).prop_map(Component::Bytes),
    ]
}

fn path() -> impl Strategy<Value = Vec<Component>> {
    prop::collection::vec(component(), 0..3)
}

fn key(path: &[Component]) -> Key {
    path.iter().fold(Key::root(), |key, component| match component {
        Component::Word(word) => key.delimited(TAG_WORD, word.as_bytes()),
        Component::Number(number) => key.number(*number),
        Component::Text(text) => key.text(text),
        Component::Bytes(bytes) => key.bytes(bytes),
    })
}

/// The order promised: component by component, by tag and then by value.
fn order(left: &[Component], right: &[Component]) -> Ordering {
    left.cmp(right)
}

proptest! {
    #[test]
    fn a_key_decodes_to_its_components(path in path()) {
        let key = key(&path);
        prop_assert_eq!(key.components(), path);
        prop_assert_eq!(Key::decode(key.as_bytes()), Ok(key));
    }

    #[test]
    fn keys_sort_like_their_components(left in path(), right in path()) {
        prop_assert_eq!(key(&left).cmp(&key(&right)), order(&left, &right));
    }

    #[test]
    fn a_key_is_under_exactly_the_keys_of_its_first_components(left in path(), right in path()) {
        prop_assert_eq!(key(&left).is_under(&key(&right)), left.starts_with(&right));
    }

    #[test]
    fn a_range_holds_exactly_the_keys_under_its_prefix(inner in path(), prefix in path()) {
        use std::ops::RangeBounds;
        let (key, prefix) = (key(&inner), key(&prefix));
        let bounds = KeyRange::under(prefix.clone()).bounds();
        prop_assert_eq!(bounds.contains(&key.as_bytes().to_vec()), key.is_under(&prefix));
    }

    #[test]
    fn bounds_of_any_range_are_in_order(prefix in path(), from in path()) {
        let range = KeyRange::under(key(&prefix));
        for range in [range.clone().starting_at(key(&from)), range.after(key(&from))] {
            let (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) =
                range.bounds()
            else {
                panic!("bounds are closed on both sides")
            };
            prop_assert!(start <= end);
        }
    }

    #[test]
    fn decoding_takes_any_bytes_and_accepts_only_the_one_encoding(
        bytes in prop::collection::vec(any::<u8>(), 0..24)
    ) {
        if let Ok(decoded) = Key::decode(&bytes) {
            let again = key(&decoded.components());
            prop_assert_eq!(again.as_bytes(), bytes.as_slice());
        }
    }
}

/// The golden bytes of `docs/formats/meta.md`.
#[test]
fn keys_have_the_documented_bytes() {
    let key = Key::of("topic").text("a\0b").number(258).bytes(b"\xff");
    assert_eq!(
        key.as_bytes(),
        b"\x01topic\x00\x01\x03a\x00\xffb\x00\x01\x02\x00\x00\x00\x00\x00\x00\x01\x02\x04\xff\x00\x01"
    );
    assert_eq!(key.to_string(), "/topic/\"a\\0b\"/258/x\"\\xff\"");
}

/// Without typed components a topic called `stream` could shadow the keys of streams.
#[test]
fn a_user_cannot_name_a_topic_into_another_keyspace() {
    assert_ne!(Key::root().text("stream"), Key::of("stream"));
    assert!(!Key::of("topic").text("a\0\x01b").is_under(&Key::of("topic").text("a")));
}
