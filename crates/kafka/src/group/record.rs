//! Records of the offsets log: encode and decode. The format is Kafka's own, described in
//! `docs/formats/consumer-offsets.md`.
//!
//! Owns bytes only. Decoding never panics, and allocates nothing before it has checked a length
//! against the bytes that remain. The four results of decoding are never merged: a record, or
//! [`RecordError::Incomplete`], [`RecordError::Unsupported`], [`RecordError::Corrupt`].

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thetis_types::ErrorKind;

use super::message::Record;

/// Newest version of a key about an offset that is read; the one written.
const OFFSET_KEY_VERSION: i16 = 1;
/// Version of a key about a group.
const GROUP_KEY_VERSION: i16 = 2;
/// Version written of an offset without an expiry of its own; the newest one read.
const OFFSET_VALUE_VERSION: i16 = 3;
/// Version written of an offset with an expiry of its own: the only one with that field.
const OFFSET_VALUE_VERSION_EXPIRING: i16 = 1;
/// Version written of a group; the newest one read.
const GROUP_VALUE_VERSION: i16 = 3;
/// Fewest bytes a member takes in a group's value of version 0: two bytes of length for each of
/// three strings, the session timeout, four bytes of length for each of two byte strings.
const MEMBER_BYTES_MIN: usize = 3 * 2 + 4 + 2 * 4;

/// Why bytes are not a record of the offsets log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end inside a field.
    #[error("record of the offsets log ends {missing} bytes early, at byte {at}")]
    Incomplete {
        /// Where the field begins.
        at: usize,
        /// How many bytes the field lacks.
        missing: usize,
    },
    /// A version of a later writer.
    #[error("{what} of version {found} in the offsets log, read up to {max}; upgrade this node")]
    Unsupported {
        /// Key or value.
        what: &'static str,
        /// Its version.
        found: i16,
        /// The newest version read.
        max: i16,
    },
    /// A field has a value that no writer gives it.
    #[error("record of the offsets log is damaged at byte {at}: {why}")]
    Corrupt {
        /// Where.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
}

impl RecordError {
    /// What the caller should do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            RecordError::Incomplete { .. } | RecordError::Corrupt { .. } => ErrorKind::Corrupt,
            RecordError::Unsupported { .. } => ErrorKind::Unavailable,
        }
    }
}

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A committed offset.
    Offset {
        /// The group.
        group_id: String,
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// A group's generation and members.
    Group {
        /// The group.
        group_id: String,
    },
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetValue {
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record read, -1 when unknown.
    pub leader_epoch: i32,
    /// Text of the client's own.
    pub metadata: String,
    /// Time of the commit, milliseconds since 1970.
    pub commit_timestamp_ms: i64,
    /// When it expires, for the rare client that says so. Such an offset is written in the one
    /// version that has the field, which has none for the leader epoch.
    pub expire_timestamp_ms: Option<i64>,
}

/// A member in a group's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// Its id.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
    /// The client's name for itself.
    pub client_id: String,
    /// Where it connected from.
    pub client_host: String,
    /// Milliseconds it may take to rejoin.
    pub rebalance_timeout_ms: i32,
    /// Milliseconds without heartbeat after which it is gone.
    pub session_timeout_ms: i32,
    /// Its metadata under the group's protocol.
    pub subscription: Bytes,
    /// Its assignment.
    pub assignment: Bytes,
}

/// A group's generation and members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupValue {
    /// Type of the protocols; empty when the group never had members.
    pub protocol_type: String,
    /// The generation.
    pub generation: i32,
    /// The protocol chosen; `None` without members.
    pub protocol: Option<String>,
    /// The leader's id; `None` without members.
    pub leader: Option<String>,
    /// Since when the group is in its state, milliseconds since 1970; `None` from old writers.
    pub state_since_ms: Option<i64>,
    /// The members.
    pub members: Vec<MemberValue>,
}

/// Encodes the key of a committed offset.
///
/// # Panics
/// When a name is longer than `i16::MAX` bytes; the coordinator admits none.
#[must_use]
pub fn offset_key(group_id: &str, topic: &str, partition: i32) -> Bytes {
    let mut out = BytesMut::with_capacity(10 + group_id.len() + topic.len());
    out.put_i16(OFFSET_KEY_VERSION);
    put_string(&mut out, group_id);
    put_string(&mut out, topic);
    out.put_i32(partition);
    out.freeze()
}

/// Encodes the key of a group.
///
/// # Panics
/// As [`offset_key`].
#[must_use]
pub fn group_key(group_id: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(4 + group_id.len());
    out.put_i16(GROUP_KEY_VERSION);
    put_string(&mut out, group_id);
    out.freeze()
}

/// Encodes a committed offset.
///
/// # Panics
/// As [`offset_key`], for the text.
#[must_use]
pub fn offset_value(value: &OffsetValue) -> Bytes {
    let mut out = BytesMut::with_capacity(32 + value.metadata.len());
    if let Some(expire) = value.expire_timestamp_ms {
        out.put_i16(OFFSET_VALUE_VERSION_EXPIRING);
        out.put_i64(value.offset);
        put_string(&mut out, &value.metadata);
        out.put_i64(value.commit_timestamp_ms);
        out.put_i64(expire);
    } else {
        out.put_i16(OFFSET_VALUE_VERSION);
        out.put_i64(value.offset);
        out.put_i32(value.leader_epoch);
        put_string(&mut out, &value.metadata);
        out.put_i64(value.commit_timestamp_ms);
    }
    out.freeze()
}

/// Encodes a group's generation and members.
///
/// # Panics
/// As [`offset_key`], for every string; and past `i32::MAX` members or bytes of one of them.
#[must_use]
pub fn group_value(value: &GroupValue) -> Bytes {
    let members: usize = value.members.iter().map(|m| 64 + m.size_bytes()).sum();
    let mut out = BytesMut::with_capacity(64 + members);
    out.put_i16(GROUP_VALUE_VERSION);
    put_string(&mut out, &value.protocol_type);
    out.put_i32(value.generation);
    put_nullable_string(&mut out, value.protocol.as_deref());
    put_nullable_string(&mut out, value.leader.as_deref());
    out.put_i64(value.state_since_ms.unwrap_or(-1));
    put_count(&mut out, value.members.len());
    for member in &value.members {
        put_string(&mut out, &member.member_id);
        put_nullable_string(&mut out, member.group_instance_id.as_deref());
        put_string(&mut out, &member.client_id);
        put_string(&mut out, &member.client_host);
        out.put_i32(member.rebalance_timeout_ms);
        out.put_i32(member.session_timeout_ms);
        put_bytes(&mut out, &member.subscription);
        put_bytes(&mut out, &member.assignment);
    }
    out.freeze()
}

impl MemberValue {
    fn size_bytes(&self) -> usize {
        self.member_id.len()
            + self.group_instance_id.as_ref().map_or(0, String::len)
            + self.client_id.len()
            + self.client_host.len()
            + self.subscription.len()
            + self.assignment.len()
    }
}

/// A tombstone for `key`.
#[must_use]
pub fn tombstone(key: Bytes) -> Record {
    Record { key, value: None }
}

/// Reads a key.
///
/// # Errors
/// See [`RecordError`].
pub fn decode_key(bytes: &Bytes) -> Result<Key, RecordError> {
    let mut from = Reader::new(bytes);
    let key = match from.i16()? {
        0 | OFFSET_KEY_VERSION => {
            Key::Offset { group_id: from.string()?, topic: from.string()?, partition: from.i32()? }
        }
        GROUP_KEY_VERSION => Key::Group { group_id: from.string()? },
        found if found < 0 => return Err(RecordError::Corrupt { at: 0, why: "negative version" }),
        found => {
            return Err(RecordError::Unsupported { what: "key", found, max: GROUP_KEY_VERSION });
        }
    };
    from.end()?;
    Ok(key)
}

/// Reads a committed offset.
///
/// # Errors
/// See [`RecordError`].
pub fn decode_offset_value(bytes: &Bytes) -> Result<OffsetValue, RecordError> {
    let mut from = Reader::new(bytes);
    let version = from.version("offset value", OFFSET_VALUE_VERSION)?;
    let offset = from.i64()?;
    let leader_epoch = if version >= 3 { from.i32()? } else { -1 };
    let metadata = from.string()?;
    let commit_timestamp_ms = from.i64()?;
    let expire = if version == OFFSET_VALUE_VERSION_EXPIRING { from.i64()? } else { -1 };
    from.end()?;
    let expire_timestamp_ms = (expire != -1).then_some(expire);
    Ok(OffsetValue { offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms })
}

/// Reads a group's generation and members. Byte strings are copied, so that a member does not
/// hold the batch it was read from.
///
/// # Errors
/// See [`RecordError`].
pub fn decode_group_value(bytes: &Bytes) -> Result<GroupValue, RecordError> {
    let mut from = Reader::new(bytes);
    let version = from.version("group value", GROUP_VALUE_VERSION)?;
    let protocol_type = from.string()?;
    let generation = from.i32()?;
    let protocol = from.nullable_string()?;
    let leader = from.nullable_string()?;
    let since = if version >= 2 { from.i64()? } else { -1 };
    let count = from.count(MEMBER_BYTES_MIN)?;
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let member_id = from.string()?;
        let group_instance_id = if version >= 3 { from.nullable_string()? } else { None };
        let client_id = from.string()?;
        let client_host = from.string()?;
        let rebalance = if version >= 1 { Some(from.i32()?) } else { None };
        let session_timeout_ms = from.i32()?;
        members.push(MemberValue {
            member_id,
            group_instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms: rebalance.unwrap_or(session_timeout_ms),
            session_timeout_ms,
            subscription: from.bytes()?,
            assignment: from.bytes()?,
        });
    }
    from.end()?;
    if protocol.is_none() && !members.is_empty() {
        return from.corrupt("members without a protocol");
    }
    let state_since_ms = (since != -1).then_some(since);
    Ok(GroupValue { protocol_type, generation, protocol, leader, state_since_ms, members })
}

/// Topics of a consumer's subscription (the metadata of protocol type `consumer`): a version, then
/// an array of names; what follows is not looked at. `None` when the bytes are not that.
pub(super) fn subscribed_topics(metadata: &Bytes) -> Option<Vec<String>> {
    let mut from = Reader::new(metadata);
    from.i16().ok()?;
    let count = from.count(2).ok()?;
    (0..count).map(|_| from.string().ok()).collect()
}

fn put_string(out: &mut BytesMut, text: &str) {
    out.put_i16(i16::try_from(text.len()).expect("names are checked against i16::MAX on entry"));
    out.put_slice(text.as_bytes());
}

fn put_nullable_string(out: &mut BytesMut, text: Option<&str>) {
    match text {
        Some(text) => put_string(out, text),
        None => out.put_i16(-1),
    }
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_i32(i32::try_from(count).expect("a record is far smaller than i32::MAX bytes"));
}

fn put_bytes(out: &mut BytesMut, bytes: &Bytes) {
    put_count(out, bytes.len());
    out.put_slice(bytes);
}

/// Reads fields in order. Never reads past the end.
struct Reader<'a> {
    whole: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { whole: bytes.len(), rest: bytes }
    }

    fn at(&self) -> usize {
        self.whole - self.rest.len()
    }

    fn need(&self, count: usize) -> Result<(), RecordError> {
        match count.checked_sub(self.rest.len()) {
            None | Some(0) => Ok(()),
            Some(missing) => Err(RecordError::Incomplete { at: self.at(), missing }),
        }
    }

    fn corrupt<T>(&self, why: &'static str) -> Result<T, RecordError> {
        Err(RecordError::Corrupt { at: self.at(), why })
    }

    fn i16(&mut self) -> Result<i16, RecordError> {
        self.need(2)?;
        Ok(self.rest.get_i16())
    }

    fn i32(&mut self) -> Result<i32, RecordError> {
        self.need(4)?;
        Ok(self.rest.get_i32())
    }

    fn i64(&mut self) -> Result<i64, RecordError> {
        self.need(8)?;
        Ok(self.rest.get_i64())
    }

    fn version(&mut self, what: &'static str, max: i16) -> Result<i16, RecordError> {
        match self.i16()? {
            found if found < 0 => Err(RecordError::Corrupt { at: 0, why: "negative version" }),
            found if found > max => Err(RecordError::Unsupported { what, found, max }),
            found => Ok(found),
        }
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        self.need(length)?;
        let (head, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(head)
    }

    fn nullable_string(&mut self) -> Result<Option<String>, RecordError> {
        let length = self.i16()?;
        if length == -1 {
            return Ok(None);
        }
        let Ok(length) = usize::try_from(length) else {
            return self.corrupt("negative length of a string");
        };
        let bytes = self.slice(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => self.corrupt("string is not UTF-8"),
        }
    }

    fn string(&mut self) -> Result<String, RecordError> {
        match self.nullable_string()? {
            Some(text) => Ok(text),
            None => self.corrupt("null string where one is required"),
        }
    }

    fn bytes(&mut self) -> Result<Bytes, RecordError> {
        let length = self.i32()?;
        let Ok(length) = usize::try_from(length) else {
            return self.corrupt("negative length of a byte string");
        };
        Ok(Bytes::copy_from_slice(self.slice(length)?))
    }

    /// A count of items of at least `item_bytes_min` bytes, checked against what remains.
    fn count(&mut self, item_bytes_min: usize) -> Result<usize, RecordError> {
        let count = self.i32()?;
        let Ok(count) = usize::try_from(count) else {
            return self.corrupt("negative count");
        };
        self.need(count.saturating_mul(item_bytes_min))?;
        Ok(count)
    }

    fn end(&self) -> Result<(), RecordError> {
        if self.rest.is_empty() { Ok(()) } else { self.corrupt("bytes after the last field") }
    }
}
