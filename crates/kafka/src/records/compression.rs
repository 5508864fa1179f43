//! The four codecs of record batches, and a bound on what they may expand to.
//!
//! Snappy has two shapes on the wire: bare blocks, and the framing of the Java library (xerial):
//! a header of sixteen bytes, then blocks with their length in front. Both are read; the framing is
//! written, as Java clients expect it.

use std::io::{self, Read, Write};

use bytes::Bytes;

use super::{BatchError, Codec};

/// Start of the xerial framing; version and oldest compatible version follow, four bytes each.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
/// Bytes of input in one block written, as the Java library does.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;

/// Most a snappy block can expand: a copy of 64 bytes takes three, so 22 is above the truth. A
/// block that announces more is refused before memory is asked for.
const SNAPPY_EXPANSION_MAX: usize = 22;

/// Largest window a zstd frame may ask for (128 MiB): what level 22 writes, and what the zstd
/// library itself allows by default.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Level of the zstd library's default: its point of balance.
const ZSTD_LEVEL: i32 = 3;

/// Expands `body` to at most `bytes_max` bytes. Not compressed records are passed on, whatever
/// their size: they take no new memory.
pub(super) fn decompress(codec: Codec, body: Bytes, bytes_max: usize) -> Result<Bytes, BatchError> {
    let failed = |source| BatchError::Compression { codec, source };
    match codec {
        Codec::None => Ok(body),
        Codec::Gzip => bounded(flate2::read::MultiGzDecoder::new(&body[..]), codec, bytes_max),
        Codec::Snappy => snappy(&body, bytes_max),
        Codec::Lz4 => bounded(lz4_flex::frame::FrameDecoder::new(&body[..]), codec, bytes_max),
        Codec::Zstd => {
            let mut reader = zstd::stream::read::Decoder::with_buffer(&body[..]).map_err(failed)?;
            reader.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(failed)?;
            bounded(reader, codec, bytes_max)
        }
    }
}

fn bounded(reader: impl Read, codec: Codec, bytes_max: usize) -> Result<Bytes, BatchError> {
    let mut expanded = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    reader
        .take(limit)
        .read_to_end(&mut expanded)
        .map_err(|source| BatchError::Compression { codec, source })?;
    if expanded.len() > bytes_max {
        return Err(BatchError::TooLarge { limit: bytes_max });
    }
    Ok(expanded.into())
}

fn snappy(body: &[u8], bytes_max: usize) -> Result<Bytes, BatchError> {
    let mut expanded = Vec::new();
    if !body.starts_with(&XERIAL_MAGIC) {
        snappy_block(body, bytes_max, &mut expanded)?;
        return Ok(expanded.into());
    }
    let mut rest = body;
    while !rest.is_empty() {
        // Streams written one after the other each bring their header.
        if rest.starts_with(&XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER_BYTES..).ok_or_else(cut_short)?;
            continue;
        }
        let (length, blocks) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| cut_short())?;
        let (block, after) = blocks.split_at_checked(length).ok_or_else(cut_short)?;
        snappy_block(block, bytes_max, &mut expanded)?;
        rest = after;
    }
    Ok(expanded.into())
}

fn cut_short() -> BatchError {
    let source = io::Error::from(io::ErrorKind::UnexpectedEof);
    BatchError::Compression { codec: Codec::Snappy, source }
}

fn snappy_block(block: &[u8], bytes_max: usize, expanded: &mut Vec<u8>) -> Result<(), BatchError> {
    let failed = |source| BatchError::Compression { codec: Codec::Snappy, source };
    let length = snap::raw::decompress_len(block).map_err(|error| failed(error.into()))?;
    if length > bytes_max - expanded.len() {
        return Err(BatchError::TooLarge { limit: bytes_max });
    }
    if length > block.len().saturating_mul(SNAPPY_EXPANSION_MAX) {
        return Err(failed(io::ErrorKind::InvalidData.into()));
    }
    let start = expanded.len();
    expanded.resize(start + length, 0);
    let written = snap::raw::Decoder::new()
        .decompress(block, &mut expanded[start..])
        .map_err(|error| failed(error.into()))?;
    expanded.truncate(start + written);
    Ok(())
}

/// Compresses the records of a batch.
pub(super) fn compress(codec: Codec, records: Bytes) -> Result<Bytes, BatchError> {
    let compressed = match codec {
        Codec::None => return Ok(records),
        Codec::Gzip => gzip(&records),
        Codec::Snappy => xerial(&records),
        Codec::Lz4 => lz4(&records),
        Codec::Zstd => zstd::bulk::compress(&records, ZSTD_LEVEL),
    };
    compressed.map(Bytes::from).map_err(|source| BatchError::Compression { codec, source })
}

fn gzip(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(records)?;
    encoder.finish()
}

fn lz4(records: &[u8]) -> io::Result<Vec<u8>> {
    // Java clients refuse frames whose blocks depend on each other.
    let info = lz4_flex::frame::FrameInfo::new()
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_mode(lz4_flex::frame::BlockMode::Independent);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(records)?;
    encoder.finish().map_err(io::Error::from)
}

fn xerial(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut framed = XERIAL_MAGIC.to_vec();
    framed.extend_from_slice(&1u32.to_be_bytes());
    framed.extend_from_slice(&1u32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(XERIAL_BLOCK_BYTES) {
        let block = encoder.compress_vec(block)?;
        let length = u32::try_from(block.len()).expect("a block is 32 KiB and a bit");
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend_from_slice(&block);
    }
    Ok(framed)
}
