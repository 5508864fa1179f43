//! The primitive types of the Kafka protocol: what a request is made of and an answer is read from.

/// Bytes in the making.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    /// What was written so far.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Writer {
        Writer::default()
    }

    /// One byte.
    pub fn i8(&mut self, value: i8) -> &mut Writer {
        self.raw(&value.to_be_bytes())
    }

    /// A boolean as one byte.
    pub fn bool(&mut self, value: bool) -> &mut Writer {
        self.i8(i8::from(value))
    }

    /// Two bytes.
    pub fn i16(&mut self, value: i16) -> &mut Writer {
        self.raw(&value.to_be_bytes())
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) -> &mut Writer {
        self.raw(&value.to_be_bytes())
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) -> &mut Writer {
        self.raw(&value.to_be_bytes())
    }

    /// The count of an array's elements, four bytes.
    pub fn count(&mut self, count: usize) -> &mut Writer {
        self.i32(i32::try_from(count).expect("a test's array is small"))
    }

    /// A string with two bytes of length; nothing is null.
    pub fn string(&mut self, value: Option<&str>) -> &mut Writer {
        match value {
            None => self.i16(-1),
            Some(text) => {
                self.i16(i16::try_from(text.len()).expect("a test's string is short"));
                self.raw(text.as_bytes())
            }
        }
    }

    /// Bytes with four bytes of length.
    pub fn blob(&mut self, value: &[u8]) -> &mut Writer {
        self.count(value.len());
        self.raw(value)
    }

    /// A length or count in the compact form: one more than it is, as an unsigned varint.
    pub fn compact_count(&mut self, count: usize) -> &mut Writer {
        self.unsigned_varint(u64::try_from(count).expect("a length has 64 bits") + 1)
    }

    /// A string in the compact form.
    pub fn compact_string(&mut self, text: &str) -> &mut Writer {
        self.compact_count(text.len());
        self.raw(text.as_bytes())
    }

    /// No tagged fields.
    pub fn tags(&mut self) -> &mut Writer {
        self.i8(0)
    }

    /// A signed varint, zigzag.
    pub fn varint(&mut self, value: i64) -> &mut Writer {
        self.unsigned_varint(((value << 1) ^ (value >> 63)).cast_unsigned())
    }

    /// Bytes with a varint length; nothing is null.
    pub fn varint_blob(&mut self, value: Option<&[u8]>) -> &mut Writer {
        match value {
            None => self.varint(-1),
            Some(bytes) => {
                self.varint(i64::try_from(bytes.len()).expect("a length has 63 bits"));
                self.raw(bytes)
            }
        }
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn unsigned_varint(&mut self, mut value: u64) -> &mut Writer {
        while value >= 0x80 {
            let low = u8::try_from(value & 0x7f).expect("seven bits fit a byte");
            self.bytes.push(low | 0x80);
            value >>= 7;
        }
        self.bytes.push(u8::try_from(value).expect("seven bits fit a byte"));
        self
    }
}

/// Bytes to be read in order. Reading past the end is a malformed answer, hence a panic.
#[derive(Debug)]
pub struct Reader {
    bytes: Vec<u8>,
    position: usize,
}

impl Reader {
    /// Reads from the first byte on.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Reader {
        Reader { bytes, position: 0 }
    }

    /// Whether all was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.position == self.bytes.len()
    }

    /// The next bytes.
    pub fn raw(&mut self, count: usize) -> Vec<u8> {
        let end = self.position.checked_add(count).expect("an answer's length is sane");
        let slice = self.bytes.get(self.position..end);
        let slice = slice.unwrap_or_else(|| {
            panic!("answer of {} bytes ends before byte {end}", self.bytes.len())
        });
        self.position = end;
        slice.to_vec()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.raw(N).try_into().expect("the slice has the length that was asked for")
    }

    /// One byte.
    pub fn i8(&mut self) -> i8 {
        i8::from_be_bytes(self.array())
    }

    /// Two bytes.
    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.array())
    }

    /// Four bytes.
    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.array())
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.array())
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> [u8; 16] {
        self.array()
    }

    /// The count of an array's elements; a null array has none.
    pub fn count(&mut self) -> usize {
        usize::try_from(self.i32()).unwrap_or(0)
    }

    /// A string; a null one is `None`.
    pub fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.i16()).ok()?;
        Some(String::from_utf8(self.raw(length)).expect("a string is UTF-8"))
    }

    /// Bytes; null ones are empty.
    pub fn blob(&mut self) -> Vec<u8> {
        let length = self.count();
        self.raw(length)
    }

    /// A count or length in the compact form; null is 0.
    pub fn compact_count(&mut self) -> usize {
        let count = self.unsigned_varint();
        usize::try_from(count).expect("a count fits the machine").saturating_sub(1)
    }

    /// A string in the compact form; a null one is empty.
    pub fn compact_string(&mut self) -> String {
        let length = self.compact_count();
        String::from_utf8(self.raw(length)).expect("a string is UTF-8")
    }

    /// Tagged fields, passed over.
    pub fn tags(&mut self) {
        for _ in 0..self.unsigned_varint() {
            self.unsigned_varint();
            let length = usize::try_from(self.unsigned_varint()).expect("a length fits");
            self.raw(length);
        }
    }

    /// A signed varint, zigzag.
    pub fn varint(&mut self) -> i64 {
        let value = self.unsigned_varint();
        (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
    }

    /// Bytes with a varint length; null is `None`.
    pub fn varint_blob(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.varint()).ok()?;
        Some(self.raw(length))
    }

    fn unsigned_varint(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array();
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
        }
        panic!("a varint of more than ten bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, -1, 63, -64, 64, 300, -301, i64::MAX, i64::MIN] {
            let mut writer = Writer::new();
            writer.varint(value);
            let mut reader = Reader::new(writer.bytes);
            assert_eq!(reader.varint(), value);
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn null_and_empty_stay_apart() {
        let mut writer = Writer::new();
        writer.varint_blob(None).varint_blob(Some(b"")).string(None).string(Some(""));
        let mut reader = Reader::new(writer.bytes);
        assert_eq!(reader.varint_blob(), None);
        assert_eq!(reader.varint_blob(), Some(Vec::new()));
        assert_eq!(reader.string(), None);
        assert_eq!(reader.string(), Some(String::new()));
    }
}
