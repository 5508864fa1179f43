//! Replies: the bodies the server sends, and how a client takes them apart again. Pure.

use bytes::{BufMut, Bytes, BytesMut};
use thetis_types::Offset;

/// The body of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(Bytes);

impl Reply {
    /// `OK`, nothing more.
    #[must_use]
    pub fn ok() -> Reply {
        Reply(Bytes::from_static(b"OK"))
    }

    /// `OK` and words, or lines.
    #[must_use]
    pub fn ok_with(text: impl std::fmt::Display) -> Reply {
        Reply(format!("OK {text}").into())
    }

    /// `OK` and lines, each on its own.
    #[must_use]
    pub fn ok_lines(lines: impl IntoIterator<Item = String>) -> Reply {
        let mut text = "OK".to_owned();
        for line in lines {
            text.push('\n');
            text.push_str(&line);
        }
        Reply(text.into())
    }

    /// `OK`, words and a record's bytes.
    #[must_use]
    pub fn ok_record(words: &str, record: &[u8]) -> Reply {
        let mut body = BytesMut::with_capacity(3 + words.len() + record.len());
        body.put_slice(b"OK ");
        body.put_slice(words.as_bytes());
        body.put_slice(record);
        Reply(body.freeze())
    }

    /// `OK <first> <next> <length>...`, a newline, and the records one after the other.
    #[must_use]
    pub fn ok_records(first: Offset, values: &[Bytes]) -> Reply {
        let next = first.0 + values.len() as u64;
        let mut header = format!("OK {} {next}", first.0);
        for value in values {
            header.push_str(&format!(" {}", value.len()));
        }
        let bytes: usize = values.iter().map(Bytes::len).sum();
        let mut body = BytesMut::with_capacity(header.len() + 1 + bytes);
        body.put_slice(header.as_bytes());
        body.put_u8(b'\n');
        values.iter().for_each(|value| body.put_slice(value));
        Reply(body.freeze())
    }

    /// `EMPTY`, as GET and FETCH answer.
    #[must_use]
    pub fn empty() -> Reply {
        Reply(Bytes::from_static(b"EMPTY"))
    }

    /// `EMPTY` and where the topic ends.
    #[must_use]
    pub fn empty_at(end: Offset) -> Reply {
        Reply(format!("EMPTY {}", end.0).into())
    }

    /// `END` and where a FOLLOW stopped.
    #[must_use]
    pub fn end_at(next: Offset) -> Reply {
        Reply(format!("END {}", next.0).into())
    }

    /// Text as it is, such as JSON.
    #[must_use]
    pub fn bare(text: String) -> Reply {
        Reply(text.into())
    }

    /// `ERR` and what is wrong.
    #[must_use]
    pub fn error(text: impl std::fmt::Display) -> Reply {
        Reply(format!("ERR {text}").into())
    }

    /// The bytes.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.0
    }
}

/// Records as READ and FOLLOW send them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// Offset of the first.
    pub first: Offset,
    /// The records, at least one; their offsets follow one another.
    pub values: Vec<Bytes>,
}

/// Takes an answer of [`Reply::ok_records`] apart; `None` when it is something else.
#[must_use]
pub fn records(body: &Bytes) -> Option<Records> {
    let end = body.iter().position(|byte| *byte == b'\n')?;
    let header = std::str::from_utf8(&body[..end]).ok()?;
    let mut words = header.strip_prefix("OK ")?.split(' ');
    let first: u64 = words.next()?.parse().ok()?;
    let next: u64 = words.next()?.parse().ok()?;
    let mut rest = body.slice(end + 1..);
    let mut values = Vec::new();
    for word in words {
        let length: usize = word.parse().ok()?;
        if length > rest.len() {
            return None;
        }
        values.push(rest.split_to(length));
    }
    let is_whole = rest.is_empty() && !values.is_empty();
    let adds_up = first.checked_add(values.len() as u64) == Some(next);
    (is_whole && adds_up).then_some(Records { first: Offset(first), values })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_come_back(
            first in 0_u64..1 << 40,
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..20),
        ) {
            let values: Vec<Bytes> = values.into_iter().map(Bytes::from).collect();
            let reply = Reply::ok_records(Offset(first), &values);
            prop_assert_eq!(records(reply.body()), Some(Records { first: Offset(first), values }));
            let cut = reply.body().slice(..reply.body().len() - 1);
            prop_assert_ne!(records(&cut), records(reply.body()));
        }

        #[test]
        fn random_bytes_are_no_records_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(records(&Bytes::from(bytes)), None);
        }
    }
}
