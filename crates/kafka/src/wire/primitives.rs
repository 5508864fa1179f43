//! [`Wire`], the trait of everything that has a place on the wire, and the primitive types:
//! integers, strings, payloads, arrays, ids. Knows no message; those are tables in the sibling
//! modules. The bytes themselves are the business of [`Reader`] and [`Writer`].

use std::fmt;

use bytes::Bytes;

use super::{DecodeError, DecodeFault, Reader, Writer};

/// Bytes of one string: what the signed 16-bit length of the older encoding can carry. The
/// protocol keeps the limit for the compact encoding.
pub const STRING_BYTES_MAX: usize = 0x7fff;

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

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn decode(reader: &mut Reader, _nullable: bool) -> Result<Self, DecodeError> {
                Ok(<$type>::from_be_bytes(reader.array()?))
            }
            fn encode(&self, writer: &mut Writer, _nullable: bool) {
                writer.put(&self.to_be_bytes());
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
        writer.put(&self.0);
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
                let null = reader.error(DecodeFault::Null);
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
                let null = reader.error(DecodeFault::Null);
                match reader.$read()? {
                    None if !nullable => Err(null),
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
    use bytes::BytesMut;

    use super::super::{EncodeError, PAYLOAD_COPY_BYTES_MAX, read_varint, write_varint};
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
