//! [`Reader`]: a cursor over the bytes of one frame.
//!
//! Owns the checks that keep a hostile frame harmless: each length and count is compared with the
//! bytes that remain before anything is allocated, and one frame may make the decoder allocate at
//! most [`FRAME_ALLOC_BYTES_MAX`]. Messages are trees of fixed depth (no type contains itself), so
//! nesting needs no limit of its own.

use bytes::Bytes;
use thetis_types::ErrorKind;

use super::{STRING_BYTES_MAX, Wire};

/// Bytes of memory the decoder may ask for on behalf of one frame, beyond the frame itself.
/// The element counts of a frame are already bounded by its length; this bounds the factor
/// between an element on the wire and in memory.
pub const FRAME_ALLOC_BYTES_MAX: usize = 64 << 20;

/// Why bytes are not the message they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("could not read {what} at byte {at}: {fault}")]
pub struct DecodeError {
    /// Bytes between the start of the buffer and the place of the fault.
    pub at: usize,
    /// Message and field, such as `FetchTopic.partitions`.
    pub what: &'static str,
    /// What is wrong there.
    pub fault: DecodeFault,
}

/// What is wrong at one place of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeFault {
    /// The frame ends too early.
    #[error("{need} bytes needed, {have} left")]
    Truncated {
        /// Bytes the value takes.
        need: usize,
        /// Bytes left.
        have: usize,
    },
    /// A length below zero that does not mean null.
    #[error("length {0} is negative")]
    NegativeLength(i32),
    /// More elements than the rest of the frame can hold.
    #[error("{count} elements of at least {each} bytes cannot fit in {have} bytes")]
    Count {
        /// Elements announced.
        count: usize,
        /// Fewest bytes one takes.
        each: usize,
        /// Bytes left.
        have: usize,
    },
    /// The message would take more memory than a frame may.
    #[error("the message needs {need} bytes of memory, {left} of {FRAME_ALLOC_BYTES_MAX} are left")]
    Budget {
        /// Bytes this value needs.
        need: usize,
        /// Bytes of the budget left.
        left: usize,
    },
    /// Null where this version does not allow it.
    #[error("null is not allowed in this version")]
    Null,
    /// A string above [`STRING_BYTES_MAX`].
    #[error("string of {0} bytes; at most {STRING_BYTES_MAX} are allowed")]
    StringTooLong(usize),
    /// A string that is not UTF-8.
    #[error("string is not utf-8")]
    NotUtf8,
    /// A variable-length integer longer than its type.
    #[error("variable-length integer does not end within its type")]
    VarintTooLong,
    /// A tagged field whose announced size is not the size of its value.
    #[error("tagged field announces {announced} bytes and takes {taken}")]
    TagSize {
        /// Size announced.
        announced: usize,
        /// Size of the value read.
        taken: usize,
    },
    /// A version this codec has no table for.
    #[error("version {found} is not one of {min} to {max}")]
    Version {
        /// Version asked for.
        found: i16,
        /// Lowest known.
        min: i16,
        /// Highest known.
        max: i16,
    },
}

impl DecodeError {
    /// What to do about it: change the bytes.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }

    /// Names the field, unless an inner one has been named already.
    #[must_use]
    pub(crate) fn in_field(mut self, field: &'static str) -> DecodeError {
        if self.what.is_empty() {
            self.what = field;
        }
        self
    }
}

/// A cursor over the bytes of one frame.
pub struct Reader {
    bytes: Bytes,
    at: usize,
    version: i16,
    flexible: bool,
    budget: usize,
}

impl Reader {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes, version: i16, flexible: bool) -> Reader {
        Reader { bytes, at: 0, version, flexible, budget: FRAME_ALLOC_BYTES_MAX }
    }

    /// The version being read.
    #[must_use]
    pub fn version(&self) -> i16 {
        self.version
    }

    /// Whether lengths are compact and structures end in tagged fields.
    #[must_use]
    pub fn flexible(&self) -> bool {
        self.flexible
    }

    /// A header may be flexible where the body is not, and the other way round.
    pub(crate) fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// What was not read yet, sharing the buffer.
    #[must_use]
    pub fn rest(mut self) -> Bytes {
        self.bytes.split_off(self.at)
    }

    pub(super) fn error(&self, fault: DecodeFault) -> DecodeError {
        DecodeError { at: self.at, what: "", fault }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], DecodeError> {
        let have = self.remaining();
        if count > have {
            return Err(self.error(DecodeFault::Truncated { need: count, have }));
        }
        let start = self.at;
        self.at += count;
        Ok(&self.bytes[start..start + count])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let have = self.remaining();
        match read_varint(&self.bytes[self.at..], 5) {
            Some((value, taken)) => {
                let value = u32::try_from(value)
                    .map_err(|_too_large| self.error(DecodeFault::VarintTooLong))?;
                self.at += taken;
                Ok(value)
            }
            None if have < 5 => Err(self.error(DecodeFault::Truncated { need: have + 1, have })),
            None => Err(self.error(DecodeFault::VarintTooLong)),
        }
    }

    /// Length or count in front of a value; `None` is null. `narrow` is the older encoding of
    /// strings, which is 16 bits wide.
    fn length(&mut self, narrow: bool) -> Result<Option<usize>, DecodeError> {
        if self.flexible {
            let raw = self.unsigned_varint()?;
            return Ok(raw.checked_sub(1).map(|length| length as usize));
        }
        let at = self.at;
        let raw = if narrow {
            i32::from(i16::from_be_bytes(self.array()?))
        } else {
            i32::from_be_bytes(self.array()?)
        };
        match usize::try_from(raw) {
            Ok(length) => Ok(Some(length)),
            Err(_) if raw == -1 => Ok(None),
            Err(_) => Err(DecodeError { at, what: "", fault: DecodeFault::NegativeLength(raw) }),
        }
    }

    fn spend(&mut self, need: usize) -> Result<(), DecodeError> {
        match self.budget.checked_sub(need) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(self.error(DecodeFault::Budget { need, left: self.budget })),
        }
    }

    pub(super) fn string(&mut self) -> Result<Option<String>, DecodeError> {
        let Some(length) = self.length(true)? else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(self.error(DecodeFault::StringTooLong(length)));
        }
        let at = self.at;
        self.spend(length.min(self.remaining()))?;
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(DecodeError { at, what: "", fault: DecodeFault::NotUtf8 }),
        }
    }

    pub(super) fn payload(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length(false)? else { return Ok(None) };
        let start = self.at;
        self.take(length)?;
        Ok(Some(self.bytes.slice(start..start + length)))
    }

    pub(super) fn elements<T: Wire>(&mut self) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.length(false)? else { return Ok(None) };
        let each = T::bytes_min(self.version, self.flexible).max(1);
        let have = self.remaining();
        if count > have / each {
            return Err(self.error(DecodeFault::Count { count, each, have }));
        }
        self.spend(count.saturating_mul(size_of::<T>()))?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::decode(self, false)?);
        }
        Ok(Some(elements))
    }

    /// Reads the tagged fields at the end of a structure, if this version has them. `read` reads
    /// the value of a tag it knows and answers true; values it does not know are skipped.
    ///
    /// # Errors
    /// Those of `read`, and a size that does not match the value.
    pub fn tagged_fields(
        &mut self,
        mut read: impl FnMut(u32, &mut Reader) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.unsigned_varint()?;
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let announced = self.unsigned_varint()? as usize;
            let start = self.at;
            let have = self.remaining();
            if announced > have {
                return Err(self.error(DecodeFault::Truncated { need: announced, have }));
            }
            if read(tag, self)? {
                let taken = self.at - start;
                if taken != announced {
                    let fault = DecodeFault::TagSize { announced, taken };
                    return Err(DecodeError { at: start, what: "", fault });
                }
            } else {
                self.at = start + announced;
            }
        }
        Ok(())
    }
}

/// Reads an unsigned variable-length integer of at most `bytes_max` bytes: value and bytes taken.
/// `None` when it does not end in time, or does not fit 64 bits.
pub(crate) fn read_varint(bytes: &[u8], bytes_max: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(bytes_max).enumerate() {
        let part = u64::from(byte & 0x7f);
        let shift = 7 * u32::try_from(index).ok()?;
        let placed = part.checked_shl(shift)?;
        if placed >> shift != part {
            return None;
        }
        value |= placed;
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}
