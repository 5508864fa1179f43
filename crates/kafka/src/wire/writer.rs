//! [`Writer`]: collects one frame as segments, without copying large payloads.

use bytes::{BufMut, Bytes, BytesMut};
use thetis_types::ErrorKind;

use super::{STRING_BYTES_MAX, Wire};

/// Payloads up to this many bytes are copied next to their neighbours, because one more segment
/// for the socket costs more than the copy.
pub const PAYLOAD_COPY_BYTES_MAX: usize = 1024;

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

/// Collects a frame as segments: the small parts side by side in one buffer, large payloads as
/// they are. A fault is kept until the frame is made, so that tables need no error paths.
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

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
    }

    fn unsigned_varint(&mut self, value: u32) {
        write_varint(&mut self.buffer, u64::from(value));
    }

    pub(super) fn length(&mut self, length: Option<usize>, narrow: bool) {
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

    pub(super) fn string(&mut self, text: Option<&str>) {
        let bytes = text.unwrap_or_default().as_bytes();
        if bytes.len() > STRING_BYTES_MAX {
            self.fail(EncodeError::StringTooLong(bytes.len()));
        }
        self.length(text.map(str::len), true);
        self.buffer.put_slice(bytes);
    }

    pub(super) fn raw(&mut self, payload: &Bytes) {
        if payload.len() <= PAYLOAD_COPY_BYTES_MAX {
            self.buffer.put_slice(payload);
        } else {
            self.payloads.push((self.buffer.len(), payload.clone()));
        }
    }

    pub(super) fn elements<T: Wire>(&mut self, elements: Option<&[T]>) {
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
