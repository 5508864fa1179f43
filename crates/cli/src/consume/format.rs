//! How a record is written: by a format string, length-prefixed, or as JSON. Pure but for the
//! writer it is given.

use std::io::{self, Write};
use std::str::FromStr;

use serde::Serialize;

use crate::client::Fetched;
use crate::output;

/// The form of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Text with fields in it.
    Template(Vec<Piece>),
    /// The value behind its length, four bytes, big-endian.
    LengthPrefixed,
    /// One object a line.
    Json,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes written as they are.
    Text(Vec<u8>),
    /// The value.
    Value,
    /// The key.
    Key,
    /// The offset.
    Offset,
    /// The partition.
    Partition,
    /// The topic.
    Topic,
    /// The timestamp, in milliseconds since 1970.
    Timestamp,
}

/// A record under `--json`. Fields are only added.
#[derive(Serialize)]
struct JsonRecord<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    timestamp: i64,
    #[serde(flatten)]
    key: JsonBytes<'a>,
    #[serde(flatten)]
    value: JsonBytes<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<JsonHeader<'a>>,
}

/// A header of a record under `--json`.
#[derive(Serialize)]
struct JsonHeader<'a> {
    name: String,
    #[serde(flatten)]
    value: JsonBytes<'a>,
}

/// Bytes under a name: as text when they are text, else in base64 under another name.
struct JsonBytes<'a> {
    name: &'static str,
    base64_name: &'static str,
    bytes: Option<&'a [u8]>,
}

impl Serialize for JsonBytes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(1))?;
        match self.bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
            None => map.serialize_entry(self.name, &None::<&str>)?,
            Some((_, Ok(text))) => map.serialize_entry(self.name, text)?,
            Some((bytes, Err(_))) => map.serialize_entry(self.base64_name, &base64(bytes))?,
        }
        map.end()
    }
}

impl Format {
    /// The value and a newline.
    pub(super) fn values() -> Format {
        Format::Template(vec![Piece::Value, Piece::Text(b"\n".to_vec())])
    }

    /// Writes one record.
    pub(super) fn write(
        &self,
        out: &mut impl Write,
        topic: &str,
        fetched: &Fetched,
    ) -> io::Result<()> {
        let record = &fetched.record;
        let value = record.value.as_deref();
        match self {
            Format::Json => output::json_line(out, &json(topic, fetched)),
            Format::LengthPrefixed => {
                let value = value.unwrap_or_default();
                let length = u32::try_from(value.len())
                    .map_err(|_| io::Error::other("a value is too long for its length"))?;
                out.write_all(&length.to_be_bytes())?;
                out.write_all(value)
            }
            Format::Template(pieces) => pieces.iter().try_for_each(|piece| match piece {
                Piece::Text(text) => out.write_all(text),
                Piece::Value => out.write_all(value.unwrap_or_default()),
                Piece::Key => out.write_all(record.key.as_deref().unwrap_or_default()),
                Piece::Offset => write!(out, "{}", record.offset),
                Piece::Partition => write!(out, "{}", fetched.partition),
                Piece::Topic => out.write_all(topic.as_bytes()),
                Piece::Timestamp => write!(out, "{}", record.timestamp),
            }),
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let literal = match c {
                '%' => match field(chars.next())? {
                    Some(piece) => {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                        pieces.push(piece);
                        continue;
                    }
                    None => '%',
                },
                '\\' => match chars.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('0') => '\0',
                    Some('\\') => '\\',
                    _ => return Err("after \\ write n, t, 0 or \\".to_owned()),
                },
                c => c,
            };
            plain.extend_from_slice(literal.encode_utf8(&mut [0; 4]).as_bytes());
        }
        pieces.push(Piece::Text(plain));
        pieces.retain(|piece| *piece != Piece::Text(Vec::new()));
        Ok(Format::Template(pieces))
    }
}

/// The field a letter after the percent sign stands for; `None` for the percent sign itself.
fn field(letter: Option<char>) -> Result<Option<Piece>, String> {
    match letter {
        Some('v' | 's') => Ok(Some(Piece::Value)),
        Some('k') => Ok(Some(Piece::Key)),
        Some('o') => Ok(Some(Piece::Offset)),
        Some('p') => Ok(Some(Piece::Partition)),
        Some('t') => Ok(Some(Piece::Topic)),
        Some('T') => Ok(Some(Piece::Timestamp)),
        Some('%') => Ok(None),
        _ => Err("after % write v, k, o, p, t, T or %".to_owned()),
    }
}

fn json<'a>(topic: &'a str, fetched: &'a Fetched) -> JsonRecord<'a> {
    let record = &fetched.record;
    let value =
        |bytes: Option<&'a [u8]>| JsonBytes { name: "value", base64_name: "value_base64", bytes };
    JsonRecord {
        topic,
        partition: fetched.partition,
        offset: record.offset,
        timestamp: record.timestamp,
        key: JsonBytes { name: "key", base64_name: "key_base64", bytes: record.key.as_deref() },
        value: value(record.value.as_deref()),
        headers: record
            .headers
            .iter()
            .map(|header| JsonHeader {
                name: String::from_utf8_lossy(&header.key).into_owned(),
                value: value(header.value.as_deref()),
            })
            .collect(),
    }
}

/// Base64 with the standard alphabet and padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let letter = (bits >> (18 - 6 * index)) & 0x3f;
            let letter = usize::try_from(letter).map_or(b'=', |letter| ALPHABET[letter]);
            text.push(if index <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use thetis_kafka::records::{Header, Record};

    use super::*;

    fn written(format: &Format, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
        let bytes = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
        let record = Record {
            offset: 7,
            timestamp: 1_000,
            key: key.map(bytes),
            value: value.map(bytes),
            headers: vec![Header { key: Bytes::from("h"), value: None }],
        };
        let mut out = Vec::new();
        format.write(&mut out, "t", &Fetched { partition: 3, record }).unwrap();
        out
    }

    #[test]
    fn templates_place_fields() {
        let format: Format = "%t/%p/%o@%T %k=%v 100%%\\t\\n".parse().unwrap();
        assert_eq!(written(&format, Some(b"k"), Some(b"\xff")), b"t/3/7@1000 k=\xff 100%\t\n");
        for bad in ["%", "%x", "\\", "\\x"] {
            assert!(bad.parse::<Format>().unwrap_err().contains("write"), "{bad}");
        }
    }

    #[test]
    fn json_keeps_null_text_and_other_bytes_apart() {
        let text = String::from_utf8(written(&Format::Json, None, Some(b"\xff\x00"))).unwrap();
        assert_eq!(
            text,
            "{\"topic\":\"t\",\"partition\":3,\"offset\":7,\"timestamp\":1000,\"key\":null,\
             \"value_base64\":\"/wA=\",\"headers\":[{\"name\":\"h\",\"value\":null}]}\n"
        );
    }

    #[test]
    fn length_prefixed_values_hold_any_bytes() {
        assert_eq!(written(&Format::LengthPrefixed, None, Some(b"a\n")), b"\0\0\0\x02a\n");
    }

    #[test]
    fn base64_is_padded() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
