//! Frames: one header and the bytes of one entry, or a pad, or a trim mark.

use thetis_types::{AttemptId, EntryFormat, Epoch, HeadVersion, Offset, StreamId};

use super::{BLOCK, Flaw, mem, put, u32_at, u64_at};

/// Bytes of a frame header.
pub(crate) const HEADER: usize = 96;
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"ThFr");
const VERSION: u8 = 1;
const CRC_AT: usize = HEADER - 4;

/// What a frame is. Ordinals are on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// An entry, where it was committed.
    Entry = 1,
    /// A copy of an entry, made when its file was evacuated: a new generation, not a commit.
    Relocated = 2,
    /// Nothing: fills a block, so that two writes in flight never share one.
    Pad = 3,
    /// Offsets of the stream below `base_offset` are dead by the owner's word.
    Trim = 4,
    /// The first frame of a file begun by rolling over: `version` is the sequence number of the
    /// file before, `stream_bytes` the byte of that file where its frames end.
    Follows = 5,
}

impl Kind {
    const fn from_ordinal(ordinal: u8) -> Option<Kind> {
        match ordinal {
            1 => Some(Kind::Entry),
            2 => Some(Kind::Relocated),
            3 => Some(Kind::Pad),
            4 => Some(Kind::Trim),
            5 => Some(Kind::Follows),
            _ => None,
        }
    }

    /// Whether the frame carries an entry.
    #[must_use]
    pub const fn is_entry(self) -> bool {
        matches!(self, Kind::Entry | Kind::Relocated)
    }
}

/// A frame header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// What the frame is.
    pub kind: Kind,
    /// What the payload is; `None` in pads and trim marks.
    pub format: Option<EntryFormat>,
    /// The stream; zero in pads.
    pub stream: StreamId,
    /// Epoch of the commit.
    pub epoch: Epoch,
    /// Offsets covered; zero in pads and trim marks.
    pub record_count: u32,
    /// The head's version after the entry.
    pub version: HeadVersion,
    /// First offset of the entry, or the trim offset.
    pub base_offset: Offset,
    /// Largest timestamp, milliseconds since 1970; negative when there is none.
    pub max_timestamp: i64,
    /// The attempt that appended it.
    pub attempt: AttemptId,
    /// Bytes of payload, before padding.
    pub payload_bytes: u32,
    /// CRC32C of the payload.
    pub payload_crc: u32,
    /// Journal position known to be durable when the frame was written.
    pub durable: u64,
    /// Payload bytes of the stream up to and including this entry.
    pub stream_bytes: u64,
}

/// The checksum salt: who the file is and where in it the frame stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salt {
    pub(crate) file: u64,
    pub(crate) at: u64,
}

impl Salt {
    fn crc(self, header: &[u8]) -> u32 {
        const SALT: usize = 16;
        let mut salted = [0_u8; SALT + CRC_AT];
        put(&mut salted, 0, &self.file.to_le_bytes());
        put(&mut salted, 8, &self.at.to_le_bytes());
        put(&mut salted, SALT, &header[..CRC_AT]);
        crc32c::crc32c(&salted)
    }
}

/// Bytes a frame occupies: header, payload, zeros up to a multiple of eight.
pub(crate) const fn frame_bytes(payload: u64) -> u64 {
    HEADER as u64 + payload.next_multiple_of(8)
}

/// Where the next frame begins when the one before ended at `at`: there, or at the next block
/// when a header no longer fits into this one. So a header never crosses a block, and every gap
/// before a block border is either too small for a frame or large enough for a pad.
pub(crate) const fn frame_at(at: u64) -> u64 {
    let left = BLOCK - at % BLOCK;
    if left < HEADER as u64 { at + left } else { at }
}

impl FrameHeader {
    /// A frame without an entry and without payload.
    fn bare(kind: Kind) -> FrameHeader {
        FrameHeader {
            kind,
            format: None,
            stream: StreamId(0),
            epoch: Epoch(0),
            record_count: 0,
            version: HeadVersion(0),
            base_offset: Offset(0),
            max_timestamp: 0,
            attempt: AttemptId::NONE,
            payload_bytes: 0,
            payload_crc: 0,
            durable: 0,
            stream_bytes: 0,
        }
    }

    /// A pad over `bytes`, header included.
    pub(crate) fn pad(bytes: u64) -> FrameHeader {
        let payload = bytes - HEADER as u64;
        FrameHeader {
            payload_bytes: u32::try_from(payload).expect("a pad is smaller than a block"),
            payload_crc: crc32c::crc32c(&vec![0; mem(payload)]),
            ..Self::bare(Kind::Pad)
        }
    }

    /// A mark that offsets of `stream` below `before` are dead.
    pub(crate) fn trim(stream: StreamId, before: Offset) -> FrameHeader {
        FrameHeader { stream, base_offset: before, ..Self::bare(Kind::Trim) }
    }

    /// Names the file before and where its frames end.
    pub(crate) fn follows(sequence: u64, data_end: u64) -> FrameHeader {
        FrameHeader {
            version: HeadVersion(sequence),
            stream_bytes: data_end,
            ..Self::bare(Kind::Follows)
        }
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        frame_bytes(u64::from(self.payload_bytes))
    }

    /// First offset after the entry.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.base_offset.plus(u64::from(self.record_count))
    }

    pub(crate) fn encode(&self, salt: Salt) -> [u8; HEADER] {
        let mut out = [0_u8; HEADER];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        out[4] = VERSION;
        out[5] = 12; // header length in words of eight bytes
        out[6] = self.kind as u8;
        out[7] = self.format.map_or(0, |format| format as u8);
        put(&mut out, 8, &self.stream.0.to_le_bytes());
        put(&mut out, 16, &self.epoch.0.to_le_bytes());
        put(&mut out, 20, &self.record_count.to_le_bytes());
        put(&mut out, 24, &self.version.0.to_le_bytes());
        put(&mut out, 32, &self.base_offset.0.to_le_bytes());
        put(&mut out, 40, &self.max_timestamp.to_le_bytes());
        put(&mut out, 48, &self.attempt.since.0.to_le_bytes());
        put(&mut out, 56, &self.attempt.nonce.to_le_bytes());
        put(&mut out, 64, &self.payload_bytes.to_le_bytes());
        put(&mut out, 68, &self.payload_crc.to_le_bytes());
        put(&mut out, 72, &self.durable.to_le_bytes());
        put(&mut out, 80, &self.stream_bytes.to_le_bytes());
        let crc = salt.crc(&out);
        put(&mut out, CRC_AT, &crc.to_le_bytes());
        out
    }

    /// Decodes the header at the start of `bytes`, which may be longer.
    ///
    /// # Errors
    /// See [`Flaw`]; the payload is not looked at.
    pub(crate) fn decode(bytes: &[u8], salt: Salt) -> Result<FrameHeader, Flaw> {
        if bytes.len() < HEADER {
            return Err(Flaw::Incomplete { missing: (HEADER - bytes.len()) as u64 });
        }
        if u32_at(bytes, 0) != MAGIC {
            return Err(Flaw::Corrupt { at: 0, why: "no frame magic" });
        }
        if salt.crc(bytes) != u32_at(bytes, CRC_AT) {
            return Err(Flaw::Corrupt { at: CRC_AT as u64, why: "frame header checksum differs" });
        }
        Self::decode_fields(bytes)
    }

    fn decode_fields(bytes: &[u8]) -> Result<FrameHeader, Flaw> {
        if bytes[4] != VERSION {
            return Err(Flaw::Unsupported { found: bytes[4].into(), max: VERSION.into() });
        }
        let corrupt = |at, why| Err(Flaw::Corrupt { at, why });
        let Some(kind) = Kind::from_ordinal(bytes[6]) else {
            return Err(Flaw::Unsupported { found: bytes[6].into(), max: Kind::Follows as u16 });
        };
        if bytes[5] != 12 || u32_at(bytes, 88) != 0 {
            return corrupt(5, "reserved bytes are not zero");
        }
        let format = match (kind.is_entry(), bytes[7]) {
            (false, 0) => None,
            (false, _) => return corrupt(7, "a frame without an entry has a format"),
            (true, ordinal) => match EntryFormat::from_ordinal(ordinal) {
                Some(format) => Some(format),
                None => return Err(Flaw::Unsupported { found: ordinal.into(), max: 3 }),
            },
        };
        let header = FrameHeader {
            kind,
            format,
            stream: StreamId(u64_at(bytes, 8)),
            epoch: Epoch(u32_at(bytes, 16)),
            record_count: u32_at(bytes, 20),
            version: HeadVersion(u64_at(bytes, 24)),
            base_offset: Offset(u64_at(bytes, 32)),
            max_timestamp: i64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes")),
            attempt: AttemptId { since: Offset(u64_at(bytes, 48)), nonce: u64_at(bytes, 56) },
            payload_bytes: u32_at(bytes, 64),
            payload_crc: u32_at(bytes, 68),
            durable: u64_at(bytes, 72),
            stream_bytes: u64_at(bytes, 80),
        };
        if kind.is_entry() != (header.record_count > 0) {
            return corrupt(20, "record count does not fit the kind");
        }
        let end = header.base_offset.0.checked_add(u64::from(header.record_count));
        if end.is_none_or(|end| end > thetis_types::limits::OFFSET_MAX) {
            return corrupt(32, "offset beyond the largest");
        }
        if u64::from(header.payload_bytes) > thetis_types::limits::ENTRY_BYTES_MAX as u64 {
            return corrupt(64, "payload longer than an entry may be");
        }
        Ok(header)
    }

    /// The header `bytes` would be if exactly one of its bits had not been flipped. A torn write
    /// loses whole sectors; one wrong bit in a header speaks of rot.
    pub(crate) fn decode_one_bit_off(bytes: &[u8], salt: Salt) -> Option<FrameHeader> {
        let mut copy: [u8; HEADER] = bytes.get(..HEADER)?.try_into().ok()?;
        for bit in 0..HEADER * 8 {
            copy[bit / 8] ^= 1 << (bit % 8);
            if let Ok(header) = Self::decode(&copy, salt) {
                return Some(header);
            }
            copy[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }
}

/// Whether `payload` differs from what `crc` was computed over by exactly one bit.
///
/// CRC32C is linear: the xor of both checksums depends on the error alone. A register is stepped
/// back from the last bit to the first and compared with it; linear in the payload's length.
pub(crate) fn one_bit_off(payload: &[u8], crc: u32) -> bool {
    const POLYNOMIAL: u32 = 0x82f6_3b78; // Castagnoli, reflected
    let syndrome = crc32c::crc32c(payload) ^ crc;
    // The checksum change caused by the last bit of the message (bit 7 of the last byte).
    let mut register = POLYNOMIAL;
    for _ in 0..payload.len() * 8 {
        if register == syndrome {
            return true;
        }
        register = (register >> 1) ^ if register & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    // The stored checksum lies under the header's own, so it is not the one at fault.
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt { file: 7, at: 4096 };

    fn header() -> FrameHeader {
        FrameHeader {
            kind: Kind::Entry,
            format: Some(EntryFormat::Record),
            stream: StreamId(3),
            epoch: Epoch(2),
            record_count: 5,
            version: HeadVersion(9),
            base_offset: Offset(40),
            max_timestamp: -1,
            attempt: AttemptId { since: Offset(39), nonce: 0xfeed },
            payload_bytes: 11,
            payload_crc: 1,
            durable: 4096,
            stream_bytes: 111,
        }
    }

    #[test]
    fn a_header_reads_back_only_where_it_was_written() {
        let bytes = header().encode(SALT);
        assert_eq!(FrameHeader::decode(&bytes, SALT), Ok(header()));
        let elsewhere = [Salt { file: 8, at: 4096 }, Salt { file: 7, at: 4104 }];
        for salt in elsewhere {
            assert!(matches!(FrameHeader::decode(&bytes, salt), Err(Flaw::Corrupt { at: 92, .. })));
        }
        assert_eq!(FrameHeader::decode(&bytes[..90], SALT), Err(Flaw::Incomplete { missing: 6 }));
    }

    #[test]
    fn every_flipped_bit_is_seen_and_named_as_one() {
        let bytes = header().encode(SALT);
        for bit in 0..HEADER * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(&bad, SALT).is_err(), "bit {bit}");
            assert_eq!(FrameHeader::decode_one_bit_off(&bad, SALT), Some(header()), "bit {bit}");
        }
        let mut two = bytes;
        two[3] ^= 1;
        two[60] ^= 128;
        assert_eq!(FrameHeader::decode_one_bit_off(&two, SALT), None);
    }

    #[test]
    fn one_flipped_payload_bit_is_told_from_a_lost_sector() {
        let payload: Vec<u8> = (0..1500_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let crc = crc32c::crc32c(&payload);
        for bit in (0..payload.len() * 8).step_by(37) {
            let mut bad = payload.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(one_bit_off(&bad, crc), "bit {bit}");
        }
        let mut torn = payload;
        torn[512..1024].fill(0);
        assert!(!one_bit_off(&torn, crc));
    }

    #[test]
    fn headers_never_cross_a_block_and_gaps_hold_a_pad() {
        for at in (0..BLOCK).step_by(8) {
            let start = frame_at(at);
            assert!(start % BLOCK + HEADER as u64 <= BLOCK, "{at}");
            let gap = block_gap(start);
            assert!(gap == 0 || gap >= HEADER as u64, "{at}");
        }
    }

    fn block_gap(at: u64) -> u64 {
        super::super::block_ceil(at) - at
    }
}
