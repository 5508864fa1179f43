//! The primitive types of the Kafka protocol, both ways: [`Reader`] over the bytes of one frame,
//! [`Writer`] into segments, and the trait [`Wire`] for everything that has a place on the wire.
//!
//! Owns the checks that keep a hostile frame harmless: each length and count is compared with the
//! bytes that remain before anything is allocated, and one frame may make the decoder allocate at
//! most [`FRAME_ALLOC_BYTES_MAX`]. Messages are trees of fixed depth (no type contains itself), so
//! nesting needs no limit of its own. Knows no message; those are tables in the sibling modules.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use thetis_types::ErrorKind;

/// Bytes of memory the decoder may ask for on behalf of one frame, beyond the frame itself.
/// The element counts of a frame are already bounded by its length; this bounds the factor
/// between an element on the wire and in memory.
pub const FRAME_ALLOC_BYTES_MAX: usize = 64 << 20;

/// Bytes of one string: what the signed 16-bit length of the older encoding can carry. The
/// protocol keeps the limit for the compact encoding.
pub const STRING_BYTES_MAX: usize = 0x7fff;

/// Payloads up to this many bytes are copied next to their neighbours, because one more segment
/// for the socket costs more than the copy.
pub const PAYLOAD_COPY_BYTES_MAX: usize = 1024;

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

/// Why a message of ours cannot be written. A fault of the caller, never of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// A string above [`STRING_BYTES_MAX`].
    #[error("string of {0} bytes cannot be sent; shorten it to {STRING_BYTES_MAX}")]
    StringTooLong(usize),
    /// An array, payload or frame that a signed 32-bit length cannot count.
    #[error("length {0} cannot be sent; send fewer than 2 GiB")]
    TooLong(usize),
    /// A version this codec has no table for.
    #[error("version {found} cannot be sent; use one of {min} to {max}")]
    Version {
        /// Version asked for.
        found: i16,
        /// Lowest known.
        min: i16,
        /// Highest known.
        max: i16,
    },
}

impl EncodeError {
    /// What to do about it: nothing a peer can do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Internal
    }
}

/// Something with a place on the wire. What is written depends on the version and on whether that
/// version is flexible (compact lengths, tagged fields), which reader and writer carry.
pub trait Wire: Sized {
    /// Reads one value. `nullable` says whether this version allows null here.
    ///
    /// # Errors
    /// [`DecodeError`]; the reader is then at an unspecified place.
    fn decode(reader: &mut Reader, nullable: bool) -> Result<Self, DecodeError>;

    /// Writes the value. Null where `nullable` is false is written as empty, which is how versions
    /// without null say the same thing.
    fn encode(&self, writer: &mut Writer, nullable: bool);

    /// Fewest bytes any value takes in this version.
    fn bytes_min(version: i16, flexible: bool) -> usize;
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

    fn error(&self, fault: DecodeFault) -> DecodeError {
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

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
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

    fn string(&mut self) -> Result<Option<String>, DecodeError> {
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

    fn payload(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length(false)? else { return Ok(None) };
        let start = self.at;
        self.take(length)?;
        Ok(Some(self.bytes.slice(start..start + length)))
    }

    fn elements<T: Wire>(&mut self) -> Result<Option<Vec<T>>, DecodeError> {
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

/// Collects a frame as segments: the small parts side by side in one buffer, large payloads as
/// they are. A fault is kept until [`Writer::frame`], so that tables need no error paths.
pub struct Writer {
    buffer: BytesMut,
    /// Payloads, each with the length of `buffer` at its place.
    payloads: Vec<(usize, Bytes)>,
    version: i16,
    flexible: bool,
    error: Option<EncodeError>,
}

impl Writer {
    /// A writer of nothing yet.
    #[must_use]
    pub fn new(version: i16, flexible: bool) -> Writer {
        let buffer = BytesMut::with_capacity(256);
        Writer { buffer, payloads: Vec::new(), version, flexible, error: None }
    }

    /// A writer that has left room for the length of the frame.
    pub(crate) fn framed(version: i16, flexible: bool) -> Writer {
        let mut writer = Writer::new(version, flexible);
        writer.buffer.put_i32(0);
        writer
    }

    /// The version being written.
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

    /// The segments of a frame, its length filled in.
    ///
    /// # Errors
    /// The first fault met while writing, or a frame above `i32::MAX` bytes.
    pub(crate) fn frame(mut self) -> Result<Vec<Bytes>, EncodeError> {
        let payload_bytes: usize = self.payloads.iter().map(|(_, payload)| payload.len()).sum();
        let length = self.buffer.len() - size_of::<i32>() + payload_bytes;
        match i32::try_from(length) {
            Ok(length) => self.buffer[..4].copy_from_slice(&length.to_be_bytes()),
            Err(_) => self.fail(EncodeError::TooLong(length)),
        }
        self.segments()
    }

    /// The segments written.
    ///
    /// # Errors
    /// The first fault met while writing.
    pub fn segments(self) -> Result<Vec<Bytes>, EncodeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut rest = self.buffer.freeze();
        let mut cut = 0;
        let mut segments = Vec::with_capacity(2 * self.payloads.len() + 1);
        for (place, payload) in self.payloads {
            if place > cut {
                segments.push(rest.split_to(place - cut));
                cut = place;
            }
            segments.push(payload);
        }
        if !rest.is_empty() {
            segments.push(rest);
        }
        Ok(segments)
    }

    fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    fn unsigned_varint(&mut self, value: u32) {
        write_varint(&mut self.buffer, u64::from(value));
    }

    fn length(&mut self, length: Option<usize>, narrow: bool) {
        let Ok(raw) = length.map_or(Ok(-1), i32::try_from) else {
            self.fail(EncodeError::TooLong(length.unwrap_or_default()));
            return;
        };
        if self.flexible {
            self.unsigned_varint(raw.wrapping_add(1).cast_unsigned());
        } else if narrow {
            self.buffer.put_i16(i16::try_from(raw).unwrap_or(i16::MAX));
        } else {
            self.buffer.put_i32(raw);
        }
    }

    fn string(&mut self, text: Option<&str>) {
        let bytes = text.unwrap_or_default().as_bytes();
        if bytes.len() > STRING_BYTES_MAX {
            self.fail(EncodeError::StringTooLong(bytes.len()));
        }
        self.length(text.map(str::len), true);
        self.buffer.put_slice(bytes);
    }

    fn raw(&mut self, payload: &Bytes) {
        if payload.len() <= PAYLOAD_COPY_BYTES_MAX {
            self.buffer.put_slice(payload);
        } else {
            self.payloads.push((self.buffer.len(), payload.clone()));
        }
    }

    fn elements<T: Wire>(&mut self, elements: Option<&[T]>) {
        self.length(elements.map(<[T]>::len), false);
        for element in elements.unwrap_or_default() {
            element.encode(self, false);
        }
    }

    /// Writes the tagged fields at the end of a structure, if this version has them. `fields` are
    /// those that differ from their defaults, in order of their tags.
    pub(crate) fn tagged_fields(&mut self, fields: Vec<(u32, Writer)>) {
        if !self.flexible {
            return;
        }
        self.unsigned_varint(u32::try_from(fields.len()).expect("a table has a handful of tags"));
        for (tag, field) in fields {
            match field.segments() {
                Ok(segments) => {
                    let size: usize = segments.iter().map(Bytes::len).sum();
                    self.unsigned_varint(tag);
                    match u32::try_from(size) {
                        Ok(size) => self.unsigned_varint(size),
                        Err(_) => self.fail(EncodeError::TooLong(size)),
                    }
                    segments.iter().for_each(|segment| self.raw(segment));
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// A writer for the value of a tagged field.
    pub(crate) fn inner(&self) -> Writer {
        Writer::new(self.version, self.flexible)
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

/// Writes an unsigned variable-length integer.
pub(crate) fn write_varint(buffer: &mut BytesMut, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits fit a byte");
        value >>= 7;
        if value == 0 {
            buffer.put_u8(low);
            return;
        }
        buffer.put_u8(low | 0x80);
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn decode(reader: &mut Reader, _nullable: bool) -> Result<Self, DecodeError> {
                Ok(<$type>::from_be_bytes(reader.array()?))
            }
            fn encode(&self, writer: &mut Writer, _nullable: bool) {
                writer.buffer.put_slice(&self.to_be_bytes());
            }
            fn bytes_min(_version: i16, _flexible: bool) -> usize {
                size_of::<$type>()
            }
        }
    )*};
}
integers!(i8, i16, i32, i64);

impl Wire for bool {
    fn decode(reader: &mut Reader, _nullable: bool) -> Result<Self, DecodeError> {
        Ok(i8::decode(reader, false)? != 0)
    }
    fn encode(&self, writer: &mut Writer, _nullable: bool) {
        i8::from(*self).encode(writer, false);
    }
    fn bytes_min(_version: i16, _flexible: bool) -> usize {
        1
    }
}

/// A topic's id, or a directory's: 16 bytes, all zero for none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// No id.
    pub const ZERO: Uuid = Uuid([0; 16]);
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Wire for Uuid {
    fn decode(reader: &mut Reader, _nullable: bool) -> Result<Self, DecodeError> {
        Ok(Uuid(reader.array()?))
    }
    fn encode(&self, writer: &mut Writer, _nullable: bool) {
        writer.buffer.put_slice(&self.0);
    }
    fn bytes_min(_version: i16, _flexible: bool) -> usize {
        16
    }
}

/// Implements [`Wire`] for a type behind a length, and for its `Option`, which is null or a value.
macro_rules! nullable {
    ([$($generic:tt)*] $type:ty, $older:literal, $read:ident, |$writer:ident, $value:ident| $write:expr) => {
        impl $($generic)* Wire for $type {
            fn decode(reader: &mut Reader, _nullable: bool) -> Result<Self, DecodeError> {
                let at = reader.at;
                let null = DecodeError { at, what: "", fault: DecodeFault::Null };
                reader.$read()?.ok_or(null)
            }
            fn encode(&self, $writer: &mut Writer, _nullable: bool) {
                let $value = Some(self);
                $write
            }
            fn bytes_min(_version: i16, flexible: bool) -> usize {
                if flexible { 1 } else { $older }
            }
        }
        impl $($generic)* Wire for Option<$type> {
            fn decode(reader: &mut Reader, nullable: bool) -> Result<Self, DecodeError> {
                let at = reader.at;
                match reader.$read()? {
                    None if !nullable => {
                        Err(DecodeError { at, what: "", fault: DecodeFault::Null })
                    }
                    value => Ok(value),
                }
            }
            fn encode(&self, $writer: &mut Writer, nullable: bool) {
                let empty = Default::default();
                let $value = self.as_ref().or((!nullable).then_some(&empty));
                $write
            }
            fn bytes_min(version: i16, flexible: bool) -> usize {
                <$type>::bytes_min(version, flexible)
            }
        }
    };
}
nullable!([] String, 2, string, |writer, value| writer.string(value.map(String::as_str)));
nullable!([] Bytes, 4, payload, |writer, value| {
    writer.length(value.map(Bytes::len), false);
    if let Some(value) = value {
        writer.raw(value);
    }
});
nullable!([<T: Wire>] Vec<T>, 4, elements, |writer, value| {
    writer.elements(value.map(Vec::as_slice));
});

/// Record batches of a Fetch answer: pieces as they lie in memory, sent one after the other and
/// never copied together. Null on the wire reads as empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Records {
    /// The pieces; a batch may be cut anywhere.
    pub parts: Vec<Bytes>,
}

impl Records {
    /// Bytes of all parts.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Records {
        Records { parts: if bytes.is_empty() { Vec::new() } else { vec![bytes] } }
    }
}

impl Wire for Records {
    fn decode(reader: &mut Reader, _nullable: bool) -> Result<Self, DecodeError> {
        Ok(reader.payload()?.unwrap_or_default().into())
    }
    fn encode(&self, writer: &mut Writer, _nullable: bool) {
        writer.length(Some(self.len_bytes()), false);
        self.parts.iter().for_each(|part| writer.raw(part));
    }
    fn bytes_min(version: i16, flexible: bool) -> usize {
        Bytes::bytes_min(version, flexible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_read_back_and_refuse_what_does_not_fit() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut buffer = BytesMut::new();
            write_varint(&mut buffer, value);
            assert_eq!(read_varint(&buffer, 10), Some((value, buffer.len())));
        }
        assert_eq!(read_varint(&[0x80; 10], 10), None);
        assert_eq!(
            read_varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], 10),
            None
        );
    }

    #[test]
    fn a_count_is_checked_before_memory_is_asked_for() {
        // 0x7ffffffe elements announced, nothing behind it.
        let bytes = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x07]);
        let error = Vec::<i64>::decode(&mut Reader::new(bytes, 9, true), false).unwrap_err();
        assert_eq!(
            error.fault,
            DecodeFault::Count { count: 0x7fff_fffe, each: 8, have: 0 },
            "{error}"
        );
    }

    #[test]
    fn null_is_refused_where_the_version_has_none() {
        let null = Bytes::from_static(&[0xff, 0xff]);
        let mut reader = Reader::new(null.clone(), 0, false);
        assert_eq!(Option::<String>::decode(&mut reader, true), Ok(None));
        let error = Option::<String>::decode(&mut Reader::new(null, 0, false), false).unwrap_err();
        assert_eq!(error.fault, DecodeFault::Null);
    }

    #[test]
    fn large_payloads_become_segments_of_their_own() {
        let large = Bytes::from(vec![7; PAYLOAD_COPY_BYTES_MAX + 1]);
        let mut writer = Writer::framed(0, false);
        1i32.encode(&mut writer, false);
        let small = Bytes::from_static(b"prefix");
        Records { parts: vec![small, large.clone()] }.encode(&mut writer, false);
        2i16.encode(&mut writer, false);
        let segments = writer.frame().unwrap();
        assert_eq!(segments.len(), 3);
        assert_eq!(segments[1].as_ptr(), large.as_ptr(), "the payload was copied");
        let total: usize = segments.iter().map(Bytes::len).sum();
        assert_eq!(segments[0][..4], u32::try_from(total - 4).unwrap().to_be_bytes());
        assert_eq!(&segments[2][..], &[0, 2]);
    }

    #[test]
    fn faults_of_the_writer_are_kept() {
        let mut writer = Writer::framed(0, false);
        "x".repeat(STRING_BYTES_MAX + 1).encode(&mut writer, false);
        assert_eq!(writer.frame(), Err(EncodeError::StringTooLong(STRING_BYTES_MAX + 1)));
    }
}
