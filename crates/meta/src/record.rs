//! The envelope of records: which kind of record a value is and in which version of its encoding.
//! Owns those four bytes; the payload belongs to whoever defines the record.
//!
//! ```text
//!   0        2        4
//!   +--------+--------+----------------
//!   |  kind  | schema | payload ...
//!   +--------+--------+----------------     both little-endian, both at least one
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use thetis_types::ErrorKind;

/// Bytes in front of the payload.
pub const ENVELOPE_BYTES: usize = 4;

/// A kind of record and the versions of its encoding. Kinds are on disk: explicit, never reused,
/// zero reserved. `docs/formats/meta.md` lists the ranges given to each crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordKind {
    /// The kind; not zero.
    pub kind: u16,
    /// The newest schema this release reads, and the one it writes; counted from one.
    pub schema: u16,
}

/// A value that could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Too short for an envelope.
    #[error("a record of {bytes} bytes has no envelope of {ENVELOPE_BYTES} bytes")]
    Truncated {
        /// Its length.
        bytes: usize,
    },
    /// Another kind of record, or none.
    #[error("record has kind {found}, expected {expected}")]
    WrongKind {
        /// What the envelope says.
        found: u16,
        /// What the reader wanted.
        expected: u16,
    },
    /// Written by a newer release.
    #[error(
        "record of kind {kind} has schema {found}, this release reads up to {supported}; use a \
         newer release"
    )]
    Unsupported {
        /// The kind of record.
        kind: u16,
        /// What the envelope says.
        found: u16,
        /// The newest schema known here.
        supported: u16,
    },
}

impl RecordError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RecordError::Truncated { .. } | RecordError::WrongKind { .. } => ErrorKind::Corrupt,
            RecordError::Unsupported { .. } => ErrorKind::Invalid,
        }
    }
}

impl RecordKind {
    /// Puts a payload into its envelope.
    #[must_use]
    pub fn seal(self, payload: &[u8]) -> Bytes {
        let mut value = BytesMut::with_capacity(ENVELOPE_BYTES + payload.len());
        value.put_u16_le(self.kind);
        value.put_u16_le(self.schema);
        value.put_slice(payload);
        value.freeze()
    }

    /// Takes a payload out of its envelope; returns the schema it was written in, `1..=schema`.
    ///
    /// # Errors
    /// When the value is not a record of this kind in a schema known here.
    pub fn open(self, value: &Bytes) -> Result<(u16, Bytes), RecordError> {
        let Some(([kind_low, kind_high, low, high], _)) = value.split_first_chunk() else {
            return Err(RecordError::Truncated { bytes: value.len() });
        };
        let found = u16::from_le_bytes([*kind_low, *kind_high]);
        let schema = u16::from_le_bytes([*low, *high]);
        if found != self.kind || schema == 0 {
            return Err(RecordError::WrongKind { found, expected: self.kind });
        }
        if schema > self.schema {
            return Err(RecordError::Unsupported {
                kind: found,
                found: schema,
                supported: self.schema,
            });
        }
        Ok((schema, value.slice(ENVELOPE_BYTES..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: RecordKind = RecordKind { kind: 7, schema: 2 };

    #[test]
    fn a_record_opens_in_known_schemas_of_its_own_kind_only() {
        let value = TOPIC.seal(b"orders");
        assert_eq!(value.as_ref(), b"\x07\x00\x02\x00orders");
        assert_eq!(TOPIC.open(&value), Ok((2, Bytes::from_static(b"orders"))));
        let old = RecordKind { kind: 7, schema: 1 };
        assert_eq!(
            old.open(&value),
            Err(RecordError::Unsupported { kind: 7, found: 2, supported: 1 })
        );
        let other = RecordKind { kind: 8, schema: 2 };
        assert_eq!(other.open(&value), Err(RecordError::WrongKind { found: 7, expected: 8 }));
        let short = Bytes::from_static(b"\x07\x00\x02");
        assert_eq!(TOPIC.open(&short), Err(RecordError::Truncated { bytes: 3 }));
    }
}
