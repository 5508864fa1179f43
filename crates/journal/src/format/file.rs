//! The header of a journal file: who it is, kept twice in its first block.

use super::{BLOCK, Flaw, VERSION, mem, put, u16_at, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"THTSJRNL";
const HEADER: usize = 64;
/// Where the second copy stands: another sector, so that one bad sector leaves one copy.
const COPY_AT: usize = 2048;

/// Byte of a file at which frames begin.
pub(crate) const FRAMES_AT: u64 = BLOCK;

/// Ending of a file in use; the stem is its sequence number in 16 hex digits.
pub(crate) const SUFFIX: &str = ".journal";
/// Ending of a file being prepared; never read.
pub(crate) const TEMPORARY: &str = ".prepare";

/// The name of the file with this sequence number.
pub(crate) fn name(sequence: u64) -> String {
    format!("{sequence:016x}{SUFFIX}")
}

/// The sequence number in a file name, when it is a name of ours.
pub(crate) fn sequence(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(SUFFIX)?;
    if stem.len() != 16 {
        return None;
    }
    u64::from_str_radix(stem, 16).ok()
}

/// A file header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileHeader {
    /// Random; salts every checksum in the file, so that bytes of another file never fit.
    pub(crate) id: u64,
    /// Place in the order of files.
    pub(crate) sequence: u64,
    /// Journal position of the file's byte zero; a multiple of the block.
    pub(crate) base: u64,
    /// Bytes preallocated.
    pub(crate) bytes: u64,
}

/// A decoded header block.
#[derive(Debug)]
pub(crate) struct HeaderBlock {
    pub(crate) header: FileHeader,
    /// One of the two copies is bad.
    pub(crate) damaged: Option<Flaw>,
}

impl FileHeader {
    /// The first block of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut one = [0_u8; HEADER];
        put(&mut one, 0, &MAGIC);
        put(&mut one, 8, &VERSION.to_le_bytes());
        put(&mut one, 10, &64_u16.to_le_bytes());
        put(&mut one, 16, &self.id.to_le_bytes());
        put(&mut one, 24, &self.sequence.to_le_bytes());
        put(&mut one, 32, &self.base.to_le_bytes());
        put(&mut one, 40, &self.bytes.to_le_bytes());
        let crc = crc32c::crc32c(&one[..60]);
        put(&mut one, 60, &crc.to_le_bytes());
        let mut block = vec![0_u8; mem(BLOCK)];
        put(&mut block, 0, &one);
        put(&mut block, COPY_AT, &one);
        block
    }

    fn decode_copy(one: &[u8]) -> Result<FileHeader, Flaw> {
        if one[..8] != MAGIC {
            return Err(Flaw::Corrupt { at: 0, why: "no journal magic" });
        }
        if crc32c::crc32c(&one[..60]) != u32_at(one, 60) {
            return Err(Flaw::Corrupt { at: 60, why: "file header checksum differs" });
        }
        // The first 64 bytes keep their meaning in every version, so a newer one is known as
        // such and not taken for damage.
        let found = u16_at(one, 8);
        if found != VERSION {
            return Err(Flaw::Unsupported { found, max: VERSION });
        }
        if u16_at(one, 10) != 64 || u32_at(one, 12) != 0 || one[48..60] != [0; 12] {
            return Err(Flaw::Corrupt { at: 10, why: "reserved bytes are not zero" });
        }
        let base = u64_at(one, 32);
        if !base.is_multiple_of(BLOCK) {
            return Err(Flaw::Corrupt { at: 32, why: "base position is not on a block" });
        }
        Ok(FileHeader {
            id: u64_at(one, 16),
            sequence: u64_at(one, 24),
            base,
            bytes: u64_at(one, 40),
        })
    }

    /// Decodes the first block from either copy.
    ///
    /// # Errors
    /// The flaw of the first copy when neither can be read; `Unsupported` when either says so.
    pub(crate) fn decode(block: &[u8]) -> Result<HeaderBlock, Flaw> {
        if (block.len() as u64) < BLOCK {
            return Err(Flaw::Incomplete { missing: BLOCK - block.len() as u64 });
        }
        let first = Self::decode_copy(&block[..HEADER]);
        let second = Self::decode_copy(&block[COPY_AT..COPY_AT + HEADER]);
        let rest_zero = super::all_zero(&block[HEADER..COPY_AT])
            && super::all_zero(&block[COPY_AT + HEADER..mem(BLOCK)]);
        match (first, second) {
            (Ok(header), Ok(copy)) if header == copy => {
                let damaged = (!rest_zero).then_some(Flaw::Corrupt {
                    at: HEADER as u64,
                    why: "unused bytes of the header block are not zero",
                });
                Ok(HeaderBlock { header, damaged })
            }
            (Ok(_), Ok(_)) => Err(Flaw::Corrupt { at: 0, why: "header copies differ" }),
            (Err(unsupported @ Flaw::Unsupported { .. }), _)
            | (_, Err(unsupported @ Flaw::Unsupported { .. })) => Err(unsupported),
            (Ok(header), Err(flaw)) | (Err(flaw), Ok(header)) => {
                Ok(HeaderBlock { header, damaged: Some(flaw) })
            }
            (Err(flaw), Err(_)) => Err(flaw),
        }
    }
}
