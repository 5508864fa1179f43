//! The snapshot of a partition's producers. The format is `docs/formats/producer-snapshot.md`.
//!
//! Owns bytes only; where they are kept and when they are written is the caller's.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thetis_types::{ErrorKind, Offset};

use super::{
    BATCHES_REMEMBERED_MAX, Placed, Position, Producer, Producers, SEQUENCE_COUNT, Settings,
};

/// First bytes of every version.
const MAGIC: [u8; 4] = *b"TPRS";
/// The version written, and the newest read.
const VERSION: u16 = 1;
/// Magic, version, reserved, checksum.
const PREFIX_BYTES: usize = 4 + 2 + 2 + 4;
/// Covered end and count of producers.
const HEADER_BYTES: usize = PREFIX_BYTES + 8 + 4;
/// A producer without its batches.
const PRODUCER_BYTES: usize = 8 + 2 + 2 + 4 + 8 + 8;
/// A remembered batch.
const BATCH_BYTES: usize = 4 + 4 + 8 + 8;

/// Why bytes are not a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes end too early.
    #[error("producer snapshot ends {missing} bytes early; drop it and replay the log")]
    Incomplete {
        /// Bytes that are missing at least.
        missing: usize,
    },
    /// A version of a later writer.
    #[error("producer snapshot of version {found}, read up to {max}; upgrade this node")]
    Unsupported {
        /// Its version.
        found: u16,
        /// The newest version read.
        max: u16,
    },
    /// The bytes are not what was written.
    #[error("producer snapshot is damaged at byte {at}: {why}; drop it and replay the log")]
    Corrupt {
        /// Where.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
}

impl SnapshotError {
    /// What the caller should do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            SnapshotError::Incomplete { .. } | SnapshotError::Corrupt { .. } => ErrorKind::Corrupt,
            SnapshotError::Unsupported { .. } => ErrorKind::Unavailable,
        }
    }
}

impl Producers {
    /// The durable state as bytes. `covered` is the offset up to which all batches of the log are
    /// confirmed here; the replay begins there. What is in flight is left out.
    #[must_use]
    pub fn encode(&self, covered: Offset) -> Bytes {
        let durable = || self.producers.iter().filter(|(_, p)| !p.window.is_empty());
        let batches: usize = durable().map(|(_, p)| p.window.len()).sum();
        let count = durable().count();
        let size = HEADER_BYTES + count * PRODUCER_BYTES + batches * BATCH_BYTES;
        let mut out = BytesMut::with_capacity(size);
        out.put_slice(&MAGIC);
        out.put_u16_le(VERSION);
        out.put_u16_le(0);
        out.put_u32_le(0);
        out.put_u64_le(covered.0);
        out.put_u32_le(u32::try_from(count).expect("producers are bounded far below 2^32"));
        for (producer_id, producer) in durable() {
            out.put_i64_le(*producer_id);
            out.put_i16_le(producer.position.epoch);
            out.put_u16_le(u16::try_from(producer.window.len()).expect("at most five"));
            out.put_i32_le(producer.position.next_sequence);
            out.put_u64_le(producer.position.run);
            out.put_i64_le(producer.last_append_ms);
            for placed in &producer.window {
                out.put_i32_le(placed.base_sequence);
                out.put_u32_le(placed.record_count);
                out.put_u64_le(placed.base_offset.0);
                out.put_i64_le(placed.timestamp_ms);
            }
        }
        let checksum = crc32c::crc32c(&out[PREFIX_BYTES..]);
        out[PREFIX_BYTES - 4..PREFIX_BYTES].copy_from_slice(&checksum.to_le_bytes());
        out.freeze()
    }

    /// Reads a snapshot; the second value is the offset at which the replay of the log begins. If
    /// it holds more producers than the settings allow, those silent longest are left out.
    ///
    /// # Errors
    /// See [`SnapshotError`]. All but `Unsupported` are remedied by a replay from the beginning of
    /// the log.
    pub fn decode(bytes: &[u8], settings: Settings) -> Result<(Producers, Offset), SnapshotError> {
        let mut from = Reader { whole: bytes.len(), rest: bytes };
        from.need(MAGIC.len() + 2)?;
        if from.rest[..MAGIC.len()] != MAGIC {
            return Err(SnapshotError::Corrupt { at: 0, why: "not a producer snapshot" });
        }
        from.rest.advance(MAGIC.len());
        let version = from.rest.get_u16_le();
        if version > VERSION {
            return Err(SnapshotError::Unsupported { found: version, max: VERSION });
        }
        if version == 0 {
            return Err(SnapshotError::Corrupt { at: MAGIC.len(), why: "version zero" });
        }
        from.need(HEADER_BYTES - MAGIC.len() - 2)?;
        if from.rest.get_u16_le() != 0 {
            return from.corrupt("reserved bytes are not zero");
        }
        let checksum = from.rest.get_u32_le();
        if crc32c::crc32c(from.rest) != checksum {
            // A file that was cut cannot be told from a damaged one unless its lengths say so.
            let cut = from.missing_bytes();
            return match cut {
                Some(missing) => Err(SnapshotError::Incomplete { missing }),
                None => from.corrupt("checksum does not match"),
            };
        }
        let covered = Offset(from.rest.get_u64_le());
        let count = from.rest.get_u32_le();
        let mut producers = Producers::new(settings);
        for _ in 0..count {
            let (producer_id, producer) = from.producer(covered)?;
            producers.make_room(producer_id);
            producers.by_age.insert((producer.last_append_ms, producer_id));
            if producers.producers.insert(producer_id, producer).is_some() {
                return from.corrupt("a producer stands twice");
            }
        }
        if !from.rest.is_empty() {
            return from.corrupt("bytes after the last producer");
        }
        Ok((producers, covered))
    }
}

/// Reads fields in order.
struct Reader<'a> {
    whole: usize,
    rest: &'a [u8],
}

impl Reader<'_> {
    fn need(&self, count: usize) -> Result<(), SnapshotError> {
        match count.checked_sub(self.rest.len()) {
            None | Some(0) => Ok(()),
            Some(missing) => Err(SnapshotError::Incomplete { missing }),
        }
    }

    fn corrupt<T>(&self, why: &'static str) -> Result<T, SnapshotError> {
        Err(SnapshotError::Corrupt { at: self.whole - self.rest.len(), why })
    }

    /// How many bytes the counts ask for beyond the end, if they do.
    fn missing_bytes(&self) -> Option<usize> {
        let mut rest = self.rest;
        rest.advance(8);
        for _ in 0..rest.get_u32_le() {
            if rest.len() < PRODUCER_BYTES {
                return Some(PRODUCER_BYTES - rest.len());
            }
            let window = usize::from(u16::from_le_bytes([rest[10], rest[11]]));
            let size = PRODUCER_BYTES + window * BATCH_BYTES;
            if rest.len() < size {
                return Some(size - rest.len());
            }
            rest.advance(size);
        }
        None
    }

    fn producer(&mut self, covered: Offset) -> Result<(i64, Producer), SnapshotError> {
        self.need(PRODUCER_BYTES)?;
        let producer_id = self.rest.get_i64_le();
        let epoch = self.rest.get_i16_le();
        let batches = usize::from(self.rest.get_u16_le());
        let next_sequence = self.rest.get_i32_le();
        let run = self.rest.get_u64_le();
        let last_append_ms = self.rest.get_i64_le();
        if producer_id < 0 || epoch < 0 || next_sequence < 0 {
            return self.corrupt("negative id, epoch or sequence number");
        }
        if batches == 0 || batches > BATCHES_REMEMBERED_MAX {
            return self.corrupt("no batches, or more than are remembered");
        }
        self.need(batches * BATCH_BYTES)?;
        let mut window = VecDeque::with_capacity(batches);
        for _ in 0..batches {
            window.push_back(self.batch()?);
        }
        let rises = window.iter().zip(window.iter().skip(1));
        let sorted = rises.into_iter().all(|(a, b)| a.base_offset < b.base_offset);
        let inside = window.back().is_some_and(|last| last.base_offset < covered);
        if !sorted || !inside {
            return self.corrupt("offsets of a producer's batches do not rise below the end");
        }
        let position = Position { epoch, next_sequence, run };
        Ok((producer_id, Producer { position, window, in_flight: VecDeque::new(), last_append_ms }))
    }

    fn batch(&mut self) -> Result<Placed, SnapshotError> {
        let placed = Placed {
            base_sequence: self.rest.get_i32_le(),
            record_count: self.rest.get_u32_le(),
            base_offset: Offset(self.rest.get_u64_le()),
            timestamp_ms: self.rest.get_i64_le(),
        };
        let count = 1..SEQUENCE_COUNT;
        if placed.base_sequence < 0 || !count.contains(&placed.record_count) {
            return self.corrupt("negative sequence number, or no records");
        }
        Ok(placed)
    }
}
