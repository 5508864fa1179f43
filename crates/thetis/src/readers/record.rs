//! The records of readers in metadata: docs/formats/reader-position.md. Owns their keys and bytes;
//! not when they are written.

use bytes::Bytes;
use thetis_meta::record::{RecordError, RecordKind};
use thetis_meta::{Component, Key};
use thetis_types::{Epoch, HeadVersion, Offset, StreamId};

use crate::error::Error;

/// The envelope of a reader's position.
const POSITION: RecordKind = RecordKind { kind: 0x0601, schema: 1 };
/// The envelope of what holds for all readers of a stream.
const POLICY: RecordKind = RecordKind { kind: 0x0602, schema: 1 };
/// The envelope of a mark on a stream.
const MARK: RecordKind = RecordKind { kind: 0x0603, schema: 1 };

/// Whether what all readers have passed is trimmed. On disk: explicit, zero reserved.
const KEEPS: u8 = 1;
const TRIMS: u8 = 2;

/// A mark says one of these. On disk: explicit, zero reserved.
const CLEAN: u8 = 1;
const DIRTY: u8 = 2;

/// What a mark says of its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// Nothing was to be done when the head was this, so nothing is as long as it still is.
    Clean(HeadVersion, Epoch),
    /// Something is to be done.
    Dirty,
}

/// What a key under `reader` names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    Position(StreamId, String),
    Policy(StreamId),
    Mark(StreamId),
}

/// Everything about readers.
pub(crate) fn root_key() -> Key {
    Key::of("reader")
}

/// What holds for all readers of a stream.
pub(crate) fn policy_key(stream: StreamId) -> Key {
    root_key().number(stream.0)
}

/// The position of one reader.
pub(crate) fn position_key(stream: StreamId, name: &str) -> Key {
    policy_key(stream).text(name)
}

/// The mark on a stream.
pub(crate) fn mark_key(stream: StreamId) -> Key {
    policy_key(stream).word("mark")
}

/// What a key names.
pub(crate) fn named(key: &Key) -> Result<Named, Error> {
    let parts = key.components();
    match parts.as_slice() {
        [_, Component::Number(stream)] => Ok(Named::Policy(StreamId(*stream))),
        [_, Component::Number(stream), Component::Text(name)] => {
            Ok(Named::Position(StreamId(*stream), name.clone()))
        }
        [_, Component::Number(stream), Component::Word(word)] if word == "mark" => {
            Ok(Named::Mark(StreamId(*stream)))
        }
        _ => Err(damaged(key, "it names no reader".into())),
    }
}

pub(crate) fn encode_position(position: Offset) -> Bytes {
    POSITION.seal(&position.0.to_le_bytes())
}

pub(crate) fn decode_position(key: &Key, value: &Bytes) -> Result<Offset, Error> {
    let payload = open(POSITION, key, value)?;
    let bytes = payload[..].try_into();
    let bytes = bytes.map_err(|_| damaged(key, format!("{} bytes, not 8", payload.len())))?;
    Ok(Offset(u64::from_le_bytes(bytes)))
}

pub(crate) fn encode_policy(trims: bool) -> Bytes {
    POLICY.seal(&[if trims { TRIMS } else { KEEPS }])
}

/// Whether what all readers have passed is trimmed.
pub(crate) fn decode_policy(key: &Key, value: &Bytes) -> Result<bool, Error> {
    match open(POLICY, key, value)?[..] {
        [KEEPS] => Ok(false),
        [TRIMS] => Ok(true),
        _ => Err(damaged(key, "an unknown policy".into())),
    }
}

pub(crate) fn encode_mark(mark: Mark) -> Bytes {
    let (state, version, epoch) = match mark {
        Mark::Clean(version, epoch) => (CLEAN, version, epoch),
        Mark::Dirty => (DIRTY, HeadVersion(0), Epoch(0)),
    };
    let mut payload = vec![state];
    payload.extend_from_slice(&version.0.to_le_bytes());
    payload.extend_from_slice(&epoch.0.to_le_bytes());
    MARK.seal(&payload)
}

pub(crate) fn decode_mark(key: &Key, value: &Bytes) -> Result<Mark, Error> {
    let payload = open(MARK, key, value)?;
    let unknown = || damaged(key, "an unknown mark".into());
    let (&state, rest) = payload.split_first().ok_or_else(unknown)?;
    let (version, epoch) = rest.split_first_chunk::<8>().ok_or_else(unknown)?;
    let epoch = epoch.try_into().map_err(|_| unknown())?;
    match state {
        CLEAN => Ok(Mark::Clean(
            HeadVersion(u64::from_le_bytes(*version)),
            Epoch(u32::from_le_bytes(epoch)),
        )),
        DIRTY => Ok(Mark::Dirty),
        _ => Err(unknown()),
    }
}

fn open(kind: RecordKind, key: &Key, value: &Bytes) -> Result<Bytes, Error> {
    let (_, payload) =
        kind.open(value).map_err(|error: RecordError| damaged(key, error.to_string()))?;
    Ok(payload)
}

fn damaged(key: &Key, detail: String) -> Error {
    Error::ReaderRecord { key: key.to_string(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden file is the three records one after another.
    #[test]
    fn golden_bytes_read_back() {
        let golden = Bytes::from_static(include_bytes!("../../golden/reader-records-v1.bin"));
        let (position, policy, mark) =
            (golden.slice(..12), golden.slice(12..17), golden.slice(17..));
        let key = position_key(StreamId(7), "billing");
        assert_eq!(decode_position(&key, &position).unwrap(), Offset(500));
        assert_eq!(encode_position(Offset(500)), position);
        assert!(decode_policy(&key, &policy).unwrap());
        assert_eq!(encode_policy(true), policy);
        let clean = Mark::Clean(HeadVersion(258), Epoch(3));
        assert_eq!(decode_mark(&key, &mark).unwrap(), clean);
        assert_eq!(encode_mark(clean), mark);
    }

    #[test]
    fn what_is_cut_or_newer_is_refused() {
        let key = policy_key(StreamId(7));
        for full in [encode_position(Offset(1)), encode_policy(false), encode_mark(Mark::Dirty)] {
            for cut in 0..full.len() {
                let value = full.slice(..cut);
                assert!(decode_position(&key, &value).is_err());
                assert!(decode_policy(&key, &value).is_err());
                assert!(decode_mark(&key, &value).is_err());
            }
        }
        let newer = RecordKind { schema: 2, ..POSITION }.seal(&[0; 8]);
        assert!(decode_position(&key, &newer).unwrap_err().to_string().contains("schema 2"));
    }

    #[test]
    fn keys_say_what_they_name() {
        let stream = StreamId(7);
        assert_eq!(named(&policy_key(stream)).unwrap(), Named::Policy(stream));
        assert_eq!(named(&mark_key(stream)).unwrap(), Named::Mark(stream));
        // A reader called "mark" is a text, never the word.
        let reader = Named::Position(stream, "mark".into());
        assert_eq!(named(&position_key(stream, "mark")).unwrap(), reader);
        assert!(named(&root_key()).is_err());
    }
}
