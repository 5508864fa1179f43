//! A stream's record in the metadata store: what must be known before its WAL is read. Owns the
//! encoding (docs/formats/stream-record.md) inside the envelope of `thetis_meta::record`; who writes it when is `crate::lane`'s affair.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thetis_meta::record::{RecordError as EnvelopeError, RecordKind};
use thetis_types::limits::OFFSET_MAX;
use thetis_types::{Durability, Epoch, Head, HeadVersion, Offset, Profile};

/// Longest label a stream may carry, in bytes.
pub const LABEL_BYTES_MAX: usize = 1_024;

/// The envelope of stream records.
pub const STREAM: RecordKind = RecordKind { kind: 0x0101, schema: 1 };

/// The envelope of the number of times the store was opened.
pub const INCARNATION: RecordKind = RecordKind { kind: 0x0102, schema: 1 };

/// The envelope of the smallest id never given to a stream.
pub const NEXT_STREAM: RecordKind = RecordKind { kind: 0x0103, schema: 1 };

/// What a stream allows. Trimming, sealing and deleting are acts of their own, each with its own
/// field here; an acknowledgement touches none of them (law ACK-IS-NOT-TRIM).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Lifecycle {
    /// Appends and reads.
    Active = 1,
    /// Reads.
    Sealed = 2,
    /// Nothing: its bytes are being given back. The record stays until the WAL has forgotten the
    /// stream, so that its frames are never taken for those of an unknown stream.
    Deleting = 3,
}

/// The record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamRecord {
    /// What the stream allows.
    pub lifecycle: Lifecycle,
    /// Where its bytes live.
    pub profile: Profile,
    /// What an acknowledged record survives; `None` takes the store's default.
    pub durability: Option<Durability>,
    /// Takeovers by sessions; the stream's epoch is this plus the store's incarnation.
    pub takeovers: u32,
    /// First offset that may be read.
    pub trim: Offset,
    /// A committed head, at least as far as `trim`. Where the WAL has nothing left of a stream
    /// whose records are all trimmed, this is what remembers its end.
    pub checkpoint: Head,
    /// Whose stream it is, in the words of the layer that made it; the core does not read it.
    pub label: String,
}

/// A record that cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Not such a record, or one of a newer schema.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// Its payload makes no sense.
    #[error("{what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
}

impl StreamRecord {
    /// The bytes of the record.
    ///
    /// # Panics
    /// When the label is over [`LABEL_BYTES_MAX`], which creation refuses.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert!(self.label.len() <= LABEL_BYTES_MAX, "label too long");
        let label_len = u16::try_from(self.label.len()).expect("bounded above");
        let mut out = BytesMut::with_capacity(64 + self.label.len());
        out.put_u8(self.lifecycle as u8);
        out.put_u8(profile_ordinal(self.profile));
        out.put_u8(durability_ordinal(self.durability));
        out.put_u32_le(self.takeovers);
        out.put_u64_le(self.trim.0);
        out.put_u64_le(self.checkpoint.version.0);
        out.put_u64_le(self.checkpoint.end.0);
        out.put_u64_le(self.checkpoint.bytes);
        out.put_u32_le(self.checkpoint.epoch.0);
        out.put_u16_le(label_len);
        out.put_slice(self.label.as_bytes());
        STREAM.seal(&out)
    }

    /// The record in `bytes`.
    ///
    /// # Errors
    /// A newer version, or bytes that are no record.
    pub fn decode(value: &Bytes) -> Result<StreamRecord, RecordError> {
        let (_, payload) = STREAM.open(value)?;
        let mut bytes = &payload[..];
        let damaged = |what| RecordError::Damaged { what };
        let short = |_| damaged("ends too early");
        let lifecycle = match bytes.try_get_u8().map_err(short)? {
            1 => Lifecycle::Active,
            2 => Lifecycle::Sealed,
            3 => Lifecycle::Deleting,
            _ => return Err(damaged("unknown lifecycle")),
        };
        let profile = match bytes.try_get_u8().map_err(short)? {
            1 => Profile::WalOnly,
            _ => return Err(damaged("unknown profile")),
        };
        let durability = match bytes.try_get_u8().map_err(short)? {
            0 => None,
            1 => Some(Durability::Memory),
            2 => Some(Durability::Os),
            3 => Some(Durability::Disk),
            _ => return Err(damaged("unknown durability")),
        };
        let takeovers = bytes.try_get_u32_le().map_err(short)?;
        let trim = Offset(bytes.try_get_u64_le().map_err(short)?);
        let checkpoint = Head {
            version: HeadVersion(bytes.try_get_u64_le().map_err(short)?),
            end: Offset(bytes.try_get_u64_le().map_err(short)?),
            bytes: bytes.try_get_u64_le().map_err(short)?,
            epoch: Epoch(bytes.try_get_u32_le().map_err(short)?),
        };
        let label_len = usize::from(bytes.try_get_u16_le().map_err(short)?);
        if bytes.len() != label_len {
            return Err(damaged("label length does not match the bytes"));
        }
        let label = std::str::from_utf8(bytes).map_err(|_| damaged("label is not UTF-8"))?;
        if checkpoint.end < trim {
            return Err(damaged("trimmed past its checkpoint"));
        }
        // Each commit adds a version, an offset and bytes to these; no stream lives to see this.
        let Head { version, end, bytes, .. } = checkpoint;
        if [version.0, end.0, bytes].iter().any(|count| *count > OFFSET_MAX) {
            return Err(damaged("a checkpoint beyond what a stream reaches"));
        }
        Ok(StreamRecord {
            lifecycle,
            profile,
            durability,
            takeovers,
            trim,
            checkpoint,
            label: label.to_owned(),
        })
    }
}

fn profile_ordinal(profile: Profile) -> u8 {
    match profile {
        Profile::WalOnly => 1,
    }
}

fn durability_ordinal(durability: Option<Durability>) -> u8 {
    match durability {
        None => 0,
        Some(Durability::Memory) => 1,
        Some(Durability::Os) => 2,
        Some(Durability::Disk) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> StreamRecord {
        StreamRecord {
            lifecycle: Lifecycle::Active,
            profile: Profile::WalOnly,
            durability: Some(Durability::Os),
            takeovers: 3,
            trim: Offset(5),
            checkpoint: Head {
                version: HeadVersion(4),
                epoch: Epoch(2),
                end: Offset(9),
                bytes: 1_000,
            },
            label: "orders/0".into(),
        }
    }

    #[test]
    fn golden_bytes_read_back() {
        let golden = Bytes::from_static(include_bytes!("../golden/stream-record-v1.bin"));
        assert_eq!(StreamRecord::decode(&golden), Ok(record()));
        assert_eq!(record().encode(), golden);
    }

    #[test]
    fn a_checkpoint_that_no_stream_reaches_is_damage() {
        let counts: [fn(&mut Head) -> &mut u64; 3] =
            [|head| &mut head.end.0, |head| &mut head.version.0, |head| &mut head.bytes];
        for count in counts {
            let mut beyond = record();
            *count(&mut beyond.checkpoint) = OFFSET_MAX;
            assert_eq!(StreamRecord::decode(&beyond.encode()), Ok(beyond.clone()));
            *count(&mut beyond.checkpoint) += 1;
            assert!(StreamRecord::decode(&beyond.encode()).is_err());
        }
    }

    #[test]
    fn every_cut_and_newer_schemas_are_refused() {
        let bytes = record().encode();
        for cut in 0..bytes.len() {
            assert!(StreamRecord::decode(&bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
        let mut newer = bytes.to_vec();
        newer[2] = 2;
        let decoded = StreamRecord::decode(&newer.into());
        let expected = EnvelopeError::Unsupported { kind: 0x0101, found: 2, supported: 1 };
        assert_eq!(decoded, Err(RecordError::Envelope(expected)));
    }
}
