//! Record batches (magic 2): the part of the protocol that is stored byte for byte.
//!
//! ```text
//! offset  0           8       12            16     17    21          23
//!         base offset | length | leader epoch | magic | crc | attributes | last offset delta
//!           i64         i32      i32            i8      u32   i16          i32
//!        27               35              43            51              53               57
//!         base timestamp | max timestamp | producer id | producer epoch | base sequence | count
//!           i64            i64             i64           i16              i32             i32
//!        61  records, compressed as the attributes say
//! ```
//!
//! Length counts what comes after it. The CRC-32C covers everything from the attributes on, so base
//! offset and leader epoch can be set by the broker without it ([`BatchHeader::patched_prefix`]).
//!
//! Owns the header, the checks of a broker, compression (`compression`), reading records (`read`)
//! and making batches (`build`). Does not know which offsets or producers are valid.

mod build;
mod compression;
mod read;
#[cfg(test)]
mod records_test;

use bytes::Bytes;
use thetis_types::ErrorKind;

pub use build::BatchBuilder;
pub use read::{Header, Record, RecordReader};

use crate::wire::ErrorCode;

/// Bytes of a batch before its records.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Bytes at the start of a batch that a broker replaces: base offset, length, leader epoch.
pub const PATCHED_PREFIX_BYTES: usize = 16;

/// The only magic number stored.
pub const MAGIC: i8 = 2;

const LENGTH_AT: usize = 8;
/// Bytes that `length` does not count.
const LENGTH_END: usize = 12;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;

/// How the records of a batch are compressed. Numbers are those of the attributes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Codec {
    /// Not at all.
    #[default]
    None = 0,
    /// gzip.
    Gzip = 1,
    /// Snappy in the framing of the Java library (xerial); read without framing too.
    Snappy = 2,
    /// LZ4 frames.
    Lz4 = 3,
    /// Zstandard.
    Zstd = 4,
}

impl Codec {
    /// All codecs, by number.
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// The name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

impl std::str::FromStr for Codec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Codec::ALL.into_iter().find(|codec| codec.name() == text);
        found.ok_or_else(|| {
            format!("unknown compression {text:?}; use none, gzip, snappy, lz4 or zstd")
        })
    }
}

/// The attributes of a batch: three bits of codec, then one flag each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0b111;
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;

    /// Attributes of an ordinary batch.
    #[must_use]
    pub const fn new(codec: Codec) -> Attributes {
        Attributes(codec as i16)
    }

    /// The same, within a transaction.
    #[must_use]
    pub const fn transactional(self) -> Attributes {
        Attributes(self.0 | Attributes::TRANSACTIONAL)
    }

    /// The same, holding markers rather than records.
    #[must_use]
    pub const fn control(self) -> Attributes {
        Attributes(self.0 | Attributes::CONTROL)
    }

    /// How the records are compressed.
    ///
    /// # Errors
    /// [`BatchError::Codec`] for a number we do not know.
    pub fn codec(self) -> Result<Codec, BatchError> {
        let number = self.0 & Attributes::CODEC;
        let found = Codec::ALL.into_iter().find(|codec| *codec as i16 == number);
        found.ok_or(BatchError::Codec(number))
    }

    /// Whether the batch's max timestamp, set by the broker, is the time of all its records.
    #[must_use]
    pub const fn is_log_append_time(self) -> bool {
        self.0 & Attributes::LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Attributes::TRANSACTIONAL != 0
    }

    /// Whether the batch holds markers, which consumers do not see.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Attributes::CONTROL != 0
    }
}

/// Why bytes are not a batch that can be accepted or read.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does; at the end of a fetched blob this is how a broker cuts.
    #[error("batch of {need} bytes, only {have} are there")]
    Truncated {
        /// Bytes of the batch, or of its header if not even that is there.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// A length too small for a header.
    #[error("batch length {0} is too small for a batch")]
    Length(i32),
    /// More bytes than one batch.
    #[error("{0} bytes after the batch; send one batch for each partition")]
    Trailing(usize),
    /// Another record format.
    #[error("magic {0} is not supported; send record batches of magic 2")]
    Magic(i8),
    /// The bytes were damaged.
    #[error("checksum {computed:#010x} where the batch says {stored:#010x}")]
    Crc {
        /// In the header.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// A codec we do not know.
    #[error("compression codec {0} is not known; use none, gzip, snappy, lz4 or zstd")]
    Codec(i16),
    /// Count and offsets disagree, or there is no record.
    #[error("{count} records do not cover offsets up to delta {last_offset_delta}")]
    Count {
        /// Records announced.
        count: i32,
        /// Largest offset within the batch.
        last_offset_delta: i32,
    },
    /// A producer id without a sequence to go with it.
    #[error("base sequence {0} is negative although there is a producer id")]
    Sequence(i32),
    /// A marker from a client; only brokers write those.
    #[error("control batches come from brokers only")]
    Control,
    /// Records that the codec cannot expand, or not compress.
    #[error("{} could not process the records", .codec.name())]
    Compression {
        /// The codec.
        codec: Codec,
        /// What it said.
        #[source]
        source: std::io::Error,
    },
    /// Records that expand to more than the caller wants to hold.
    #[error("records expand to more than {limit} bytes")]
    TooLarge {
        /// The caller's limit.
        limit: usize,
    },
    /// A record that does not add up.
    #[error("record {index} is damaged at byte {at} of the expanded records: {what}")]
    Record {
        /// Place of the record in the batch.
        index: u32,
        /// Place in the expanded records.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
}

impl BatchError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            BatchError::Crc { .. } | BatchError::Compression { .. } | BatchError::Record { .. } => {
                ErrorKind::Corrupt
            }
            _ => ErrorKind::Invalid,
        }
    }

    /// How a producer is told.
    #[must_use]
    pub fn error_code(&self) -> ErrorCode {
        match self {
            BatchError::Truncated { .. }
            | BatchError::Length(_)
            | BatchError::Crc { .. }
            | BatchError::Compression { .. }
            | BatchError::Record { .. } => ErrorCode::CorruptMessage,
            BatchError::Trailing(_)
            | BatchError::Magic(_)
            | BatchError::Count { .. }
            | BatchError::Sequence(_)
            | BatchError::Control => ErrorCode::InvalidRecord,
            BatchError::Codec(_) => ErrorCode::UnsupportedCompressionType,
            BatchError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        }
    }
}

/// The header of a batch, as found; [`validate`] says whether it may be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Offset of the first record; a producer sends 0.
    pub base_offset: i64,
    /// Bytes after this field.
    pub length: i32,
    /// Epoch of the leader that appended it; a producer sends -1.
    pub leader_epoch: i32,
    /// Record format; [`MAGIC`] for what is described here.
    pub magic: i8,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: Attributes,
    /// Offset of the last record, from the first. Stays when compaction takes that record away.
    pub last_offset_delta: i32,
    /// Timestamp of the first record, milliseconds since 1970.
    pub base_timestamp: i64,
    /// Largest timestamp of the records, milliseconds since 1970.
    pub max_timestamp: i64,
    /// Producer, or -1 for one that is not idempotent.
    pub producer_id: i64,
    /// Epoch of the producer, or -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, or -1.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`. Checks only that length and magic make sense;
    /// the rest of the batch need not be there.
    ///
    /// # Errors
    /// [`BatchError::Truncated`], [`BatchError::Length`], [`BatchError::Magic`].
    pub fn read(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let have = bytes.len();
        // The magic stands at the same place in all formats, the other fields do not.
        if let Some(magic) = bytes.get(16).map(|byte| byte.cast_signed())
            && magic != MAGIC
        {
            return Err(BatchError::Magic(magic));
        }
        let Some(header) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(BatchError::Truncated { need: BATCH_HEADER_BYTES, have });
        };
        let header = BatchHeader {
            base_offset: i64::from_be_bytes(field(header, 0)),
            length: i32::from_be_bytes(field(header, LENGTH_AT)),
            leader_epoch: i32::from_be_bytes(field(header, LENGTH_END)),
            magic: i8::from_be_bytes(field(header, 16)),
            crc: u32::from_be_bytes(field(header, CRC_AT)),
            attributes: Attributes(i16::from_be_bytes(field(header, ATTRIBUTES_AT))),
            last_offset_delta: i32::from_be_bytes(field(header, 23)),
            base_timestamp: i64::from_be_bytes(field(header, 27)),
            max_timestamp: i64::from_be_bytes(field(header, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(field(header, 43)),
            producer_epoch: i16::from_be_bytes(field(header, 51)),
            base_sequence: i32::from_be_bytes(field(header, 53)),
            record_count: i32::from_be_bytes(field(header, 57)),
        };
        match usize::try_from(header.length) {
            Ok(length) if length + LENGTH_END >= BATCH_HEADER_BYTES => Ok(header),
            _ => Err(BatchError::Length(header.length)),
        }
    }

    /// Bytes of the whole batch.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        usize::try_from(self.length).expect("checked when the header was read") + LENGTH_END
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The first bytes of the batch under another base offset and leader epoch, to be sent or
    /// stored instead of its own. The CRC does not cover them.
    #[must_use]
    pub fn patched_prefix(
        &self,
        base_offset: i64,
        leader_epoch: i32,
    ) -> [u8; PATCHED_PREFIX_BYTES] {
        let mut prefix = [0; PATCHED_PREFIX_BYTES];
        prefix[..LENGTH_AT].copy_from_slice(&base_offset.to_be_bytes());
        prefix[LENGTH_AT..LENGTH_END].copy_from_slice(&self.length.to_be_bytes());
        prefix[LENGTH_END..].copy_from_slice(&leader_epoch.to_be_bytes());
        prefix
    }
}

fn field<const N: usize>(header: &[u8; BATCH_HEADER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&header[at..at + N]);
    field
}

/// Checks one batch as a broker does before it accepts it from a producer. The records within are
/// not expanded.
///
/// # Errors
/// [`BatchError`], with the code for the producer in [`BatchError::error_code`]. `bytes` must hold
/// exactly one batch.
pub fn validate(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::read(bytes)?;
    let (need, have) = (header.total_bytes(), bytes.len());
    if have < need {
        return Err(BatchError::Truncated { need, have });
    }
    if have > need {
        return Err(BatchError::Trailing(have - need));
    }
    let (stored, computed) = (header.crc, crc32c::crc32c(&bytes[ATTRIBUTES_AT..]));
    if stored != computed {
        return Err(BatchError::Crc { stored, computed });
    }
    header.attributes.codec()?;
    let BatchHeader { record_count: count, last_offset_delta, .. } = header;
    if count < 1 || last_offset_delta != count - 1 {
        return Err(BatchError::Count { count, last_offset_delta });
    }
    if header.producer_id >= 0 && header.base_sequence < 0 {
        return Err(BatchError::Sequence(header.base_sequence));
    }
    if header.attributes.is_control() {
        return Err(BatchError::Control);
    }
    Ok(header)
}

/// Sets the broker's time as the time of all records, and the checksum that follows from it.
///
/// # Errors
/// [`BatchError`] when `batch` is not exactly one batch; it is then unchanged.
pub fn stamp_append_time(batch: &mut [u8], time_ms: i64) -> Result<(), BatchError> {
    let header = BatchHeader::read(batch)?;
    let (need, have) = (header.total_bytes(), batch.len());
    if have != need {
        return Err(if have < need {
            BatchError::Truncated { need, have }
        } else {
            BatchError::Trailing(have - need)
        });
    }
    let attributes = header.attributes.0 | Attributes::LOG_APPEND_TIME;
    batch[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&time_ms.to_be_bytes());
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
    Ok(())
}

/// One batch and its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// What the first bytes say.
    pub header: BatchHeader,
    /// The whole batch, header included.
    pub bytes: Bytes,
}

impl Batch {
    /// The records, expanded to at most `bytes_max` bytes. The checksum is not looked at; see
    /// [`Batch::verify`].
    ///
    /// # Errors
    /// [`BatchError::Codec`], [`BatchError::Compression`], [`BatchError::TooLarge`], or
    /// [`BatchError::Count`] for more records than the bytes can hold.
    pub fn records(&self, bytes_max: usize) -> Result<RecordReader, BatchError> {
        let body = self.bytes.slice(BATCH_HEADER_BYTES..);
        let codec = self.header.attributes.codec()?;
        let body = compression::decompress(codec, body, bytes_max)?;
        RecordReader::new(self.header, body)
    }

    /// Compares the checksum with the bytes.
    ///
    /// # Errors
    /// [`BatchError::Crc`].
    pub fn verify(&self) -> Result<(), BatchError> {
        let (stored, computed) = (self.header.crc, crc32c::crc32c(&self.bytes[ATTRIBUTES_AT..]));
        if stored == computed { Ok(()) } else { Err(BatchError::Crc { stored, computed }) }
    }
}

/// Cuts a blob of record batches into batches, without copying and without looking at records. A
/// fault ends the iteration; a broker that cuts its answer at a number of bytes leaves a
/// [`BatchError::Truncated`] at the end.
#[derive(Clone, Debug)]
pub struct Batches {
    blob: Bytes,
}

impl Batches {
    /// The batches in `blob`.
    #[must_use]
    pub fn new(blob: Bytes) -> Batches {
        Batches { blob }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.blob.is_empty() {
            return None;
        }
        let have = self.blob.len();
        let batch = BatchHeader::read(&self.blob).and_then(|header| match header.total_bytes() {
            need if need > have => Err(BatchError::Truncated { need, have }),
            need => Ok(Batch { header, bytes: self.blob.split_to(need) }),
        });
        if batch.is_err() {
            self.blob.clear();
        }
        Some(batch)
    }
}
