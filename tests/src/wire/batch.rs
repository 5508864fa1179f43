//! Record batches (magic 2): built with every codec, read back only as far as the tests look.

use std::io::Write as _;

use super::codec::{Reader, Writer};

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;
/// Position of the base offset's neighbour: the length of what follows it.
const LENGTH_AT: usize = 8;
/// Position of the checksum.
pub const CRC_AT: usize = 17;
/// Position of the first byte that the checksum covers.
pub const CRC_FROM: usize = 21;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy as one raw block, as librdkafka and others read and some write.
    SnappyRaw,
    /// Snappy in blocks under the xerial header, as the Java client writes.
    SnappyXerial,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Codec {
    /// All of them.
    pub const ALL: [Codec; 6] =
        [Codec::None, Codec::Gzip, Codec::SnappyRaw, Codec::SnappyXerial, Codec::Lz4, Codec::Zstd];

    fn attribute(self) -> i16 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::SnappyRaw | Codec::SnappyXerial => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    fn compress(self, plain: Vec<u8>) -> Vec<u8> {
        let in_memory = "writing to memory cannot fail";
        match self {
            Codec::None => plain,
            Codec::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                encoder.write_all(&plain).expect(in_memory);
                encoder.finish().expect(in_memory)
            }
            Codec::SnappyRaw => raw_snappy(&plain),
            Codec::SnappyXerial => {
                let mut out = Writer::new();
                out.raw(b"\x82SNAPPY\0").i32(1).i32(1);
                for block in plain.chunks(32 * 1024) {
                    out.blob(&raw_snappy(block));
                }
                out.bytes
            }
            Codec::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(&plain).expect(in_memory);
                encoder.finish().expect(in_memory)
            }
            Codec::Zstd => zstd::encode_all(plain.as_slice(), 3).expect(in_memory),
        }
    }
}

fn raw_snappy(plain: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(plain).expect("a test's block is small")
}

/// A record to be sent or one that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Null or bytes.
    pub key: Option<Vec<u8>>,
    /// Null or bytes.
    pub value: Option<Vec<u8>>,
}

impl Record {
    /// A record without key.
    #[must_use]
    pub fn new(timestamp: i64, value: &[u8]) -> Record {
        Record { timestamp, key: None, value: Some(value.to_vec()) }
    }
}

/// Milliseconds since 1970, for records whose age matters: Apache Kafka judges by the records' own
/// timestamps when segments end and when it forgets a producer, and both at once for a record of 1970.
///
/// # Panics
/// When the machine's clock stands before 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the server under test lives by the machine's clock")]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.expect("the clock stands after 1970").as_millis();
    i64::try_from(since).expect("it is long until then")
}

/// Who sends a batch, for idempotence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    /// As the broker gave it; -1 for a producer without identity.
    pub id: i64,
    /// As the broker gave it.
    pub epoch: i16,
    /// Sequence number of the first record.
    pub sequence: i32,
}

impl Producer {
    /// A producer without identity.
    pub const ANONYMOUS: Producer = Producer { id: -1, epoch: -1, sequence: -1 };
}

/// The bytes of one batch with correct lengths and checksum, base offset 0.
///
/// # Panics
/// Without records.
#[must_use]
pub fn encode(records: &[Record], codec: Codec, producer: Producer) -> Vec<u8> {
    let base_timestamp = records.first().expect("a batch has records").timestamp;
    let max_timestamp = records.iter().map(|record| record.timestamp).max();
    let max_timestamp = max_timestamp.expect("a batch has records");
    let mut plain = Writer::new();
    for (index, record) in (0_i64..).zip(records) {
        let mut body = Writer::new();
        body.i8(0).varint(record.timestamp - base_timestamp).varint(index);
        body.varint_blob(record.key.as_deref()).varint_blob(record.value.as_deref()).varint(0);
        plain.varint_blob(Some(&body.bytes));
    }
    let count = i32::try_from(records.len()).expect("a test's batch is small");
    let mut covered = Writer::new();
    covered.i16(codec.attribute()).i32(count - 1).i64(base_timestamp).i64(max_timestamp);
    covered.i64(producer.id).i16(producer.epoch).i32(producer.sequence).i32(count);
    covered.raw(&codec.compress(plain.bytes));
    seal(&covered.bytes)
}

/// Puts base offset, length, epoch, magic and checksum before what the checksum covers.
fn seal(covered: &[u8]) -> Vec<u8> {
    let mut batch = Writer::new();
    batch.i64(0).count(covered.len() + CRC_FROM - 12).i32(-1).i8(2);
    batch.raw(&crc32c::crc32c(covered).to_be_bytes()).raw(covered);
    batch.bytes
}

/// What the header of a batch says, and its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Records that it counts.
    pub count: i64,
    /// Who sent it.
    pub producer: Producer,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Batch {
    /// The offset after its last.
    #[must_use]
    pub fn end_offset(&self) -> i64 {
        self.base_offset + self.count
    }

    /// The records of an uncompressed batch, with their offsets.
    ///
    /// # Panics
    /// When it is compressed or malformed.
    #[must_use]
    pub fn records(&self) -> Vec<(i64, Record)> {
        let mut reader = Reader::new(self.bytes.clone());
        reader.raw(CRC_FROM);
        assert_eq!(reader.i16() & 7, 0, "only uncompressed batches are read");
        reader.i32();
        let base_timestamp = reader.i64();
        reader.raw(HEADER_BYTES - CRC_FROM - 14);
        let mut records = Vec::new();
        for _ in 0..self.count {
            reader.varint();
            reader.i8();
            let timestamp = base_timestamp + reader.varint();
            let offset = self.base_offset + reader.varint();
            let record =
                Record { timestamp, key: reader.varint_blob(), value: reader.varint_blob() };
            assert_eq!(reader.varint(), 0, "the tests send no headers");
            records.push((offset, record));
        }
        assert!(reader.is_empty(), "bytes follow the last record of {self:?}");
        records
    }
}

/// Splits what a fetch returned into whole batches; a cut one at the end is left out, as clients do.
///
/// # Panics
/// When a whole batch has a wrong checksum or magic.
#[must_use]
pub fn decode(mut bytes: &[u8]) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(field) = bytes.get(LENGTH_AT..LENGTH_AT + 4) {
        let length = i32::from_be_bytes(field.try_into().expect("four bytes"));
        let whole = 12 + usize::try_from(length).expect("a batch's length is positive");
        let Some(batch) = bytes.get(..whole) else { break };
        batches.push(read_header(batch));
        bytes = &bytes[whole..];
    }
    batches
}

fn read_header(bytes: &[u8]) -> Batch {
    let mut reader = Reader::new(bytes.to_vec());
    let base_offset = reader.i64();
    reader.raw(8);
    assert_eq!(reader.i8(), 2, "magic of the batch at offset {base_offset}");
    let crc = reader.i32().cast_unsigned();
    let covered = &bytes[CRC_FROM..];
    assert_eq!(crc, crc32c::crc32c(covered), "checksum of the batch at offset {base_offset}");
    reader.i16();
    let last_delta = reader.i32();
    reader.raw(16);
    let producer = Producer { id: reader.i64(), epoch: reader.i16(), sequence: reader.i32() };
    let count = i64::from(reader.i32());
    assert_eq!(i64::from(last_delta) + 1, count, "record count at offset {base_offset}");
    Batch { base_offset, count, producer, bytes: bytes.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_comes_back() {
        let records = [Record::new(100, b"a"), Record::new(50, b""), Record::new(200, b"ccc")];
        let producer = Producer { id: 7, epoch: 1, sequence: 9 };
        let mut bytes = encode(&records, Codec::None, producer);
        let whole = bytes.clone();
        bytes.extend_from_slice(&whole[..30]);
        let batches = decode(&bytes);
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].producer, producer);
        assert_eq!(batches[0].end_offset(), 3);
        let read: Vec<Record> = batches[0].records().into_iter().map(|(_, read)| read).collect();
        assert_eq!(read, records);
    }

    #[test]
    #[should_panic(expected = "checksum")]
    fn a_flipped_bit_is_seen() {
        let mut bytes = encode(&[Record::new(1, b"abc")], Codec::None, Producer::ANONYMOUS);
        *bytes.last_mut().expect("not empty") ^= 1;
        let _batches = decode(&bytes);
    }
}
