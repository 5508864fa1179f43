//! The journal's bytes on disk: `docs/formats/journal.md` is the text, this module its code.
//! Encode and decode stand side by side, one submodule a structure. No I/O and no policy here:
//! what a flaw means (torn, damaged) is decided in `recover`.

pub(crate) mod file;
pub(crate) mod footer;
pub(crate) mod frame;

/// Newest format version this build reads and the one it writes.
pub(crate) const VERSION: u16 = 1;

/// Unit of writing: no two writes in flight share a block. Covers the logical block size of
/// every device direct I/O is used on, and the page size.
pub(crate) const BLOCK: u64 = 4096;

/// Why bytes could not be decoded. Three different answers: wait, upgrade, or treat as damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Flaw {
    /// The bytes end too early.
    #[error("{missing} more bytes are needed")]
    Incomplete {
        /// Bytes needed beyond those given.
        missing: u64,
    },
    /// Whole and checksummed, but of a format this build does not know.
    #[error("format version {found} is newer than {max}, the newest this build reads")]
    Unsupported {
        /// Version (or ordinal) found.
        found: u16,
        /// Largest one known.
        max: u16,
    },
    /// The bytes contradict themselves.
    #[error("{why} at byte {at}")]
    Corrupt {
        /// Byte of the structure where the contradiction was seen.
        at: u64,
        /// What contradicts.
        why: &'static str,
    },
}

/// A count of bytes as an index into memory.
pub(crate) fn mem(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the journal is built for 64-bit machines only")
}

/// `at` rounded down to a block.
pub(crate) const fn block_floor(at: u64) -> u64 {
    at - at % BLOCK
}

/// `at` rounded up to a block.
pub(crate) const fn block_ceil(at: u64) -> u64 {
    at.next_multiple_of(BLOCK)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    // In steps that become vector instructions: recovery looks through whole files with it.
    let (blocks, tail) = bytes.as_chunks::<64>();
    let zero = |block: &[u8; 64]| {
        let (words, _) = block.as_chunks::<8>();
        words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word)) == 0
    };
    blocks.iter().all(zero) && tail.iter().all(|byte| *byte == 0)
}
