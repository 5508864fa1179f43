//! Bytes to records: lines, keyed lines, length-prefixed, or all in one. Owns the limit on one
//! record and the messages that name the place in the input.

use std::io::{BufRead, ErrorKind, Read};

use bytes::Bytes;

use crate::exit::{Exit, Failure};

/// Bytes of one record; no server takes larger ones in one frame.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// How the input falls into records.
pub(super) enum Split {
    /// Each line is a value; the line's end (LF or CR LF) is not part of it.
    Lines,
    /// Each line is a key, this separator and a value.
    KeyedLines(Bytes),
    /// Each record is its length, four bytes, big-endian, and its bytes.
    LengthPrefixed,
    /// Everything is one value.
    Whole,
}

/// One record of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) key: Option<Bytes>,
    pub(super) value: Bytes,
}

/// The records of an input, in order.
pub(super) struct Input<R> {
    source: Watched<R>,
    split: Split,
    /// Records read so far, for messages.
    count: u64,
    ended: bool,
}

/// A reader that knows whether what it has read from the system is used up.
struct Watched<R> {
    inner: R,
    buffered: usize,
}

impl<R: BufRead> Input<R> {
    /// The records of `source`.
    pub(super) fn new(source: R, split: Split) -> Input<R> {
        Input { source: Watched { inner: source, buffered: 0 }, split, count: 0, ended: false }
    }

    /// Whether reading on means asking the system for more, which may wait.
    pub(super) fn would_wait(&self) -> bool {
        self.source.buffered == 0
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Item>, Failure> {
        if self.ended {
            return Ok(None);
        }
        let item = match &self.split {
            Split::Lines => self.line()?.map(|value| Item { key: None, value }),
            Split::KeyedLines(separator) => {
                let separator = separator.clone();
                match self.line()? {
                    Some(line) => Some(self.keyed(&separator, &line)?),
                    None => None,
                }
            }
            Split::LengthPrefixed => self.prefixed()?.map(|value| Item { key: None, value }),
            Split::Whole => {
                self.ended = true;
                let value = self.up_to(|source, value| source.read_to_end(value))?;
                Some(Item { key: None, value: Bytes::from(value) })
            }
        };
        self.count += 1;
        Ok(item)
    }

    fn line(&mut self) -> Result<Option<Bytes>, Failure> {
        let mut line = self.up_to(|source, line| source.read_until(b'\n', line))?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        Ok(Some(Bytes::from(line)))
    }

    fn keyed(&self, separator: &[u8], line: &Bytes) -> Result<Item, Failure> {
        let at = line.windows(separator.len()).position(|window| window == separator);
        let Some(at) = at else {
            let shown = String::from_utf8_lossy(separator);
            let message = format!("line {} has no separator {shown:?}", self.count + 1);
            return Err(Failure::new(Exit::Failed, message)
                .hint("write KEY, the separator and VALUE on each line, or leave the flag out"));
        };
        let value = line.slice(at + separator.len()..);
        Ok(Item { key: Some(line.slice(..at)), value })
    }

    fn prefixed(&mut self) -> Result<Option<Bytes>, Failure> {
        let mut length = [0; 4];
        let first = self.source.read(&mut length).map_err(|error| self.unreadable(&error))?;
        if first == 0 {
            return Ok(None);
        }
        self.source.read_exact(&mut length[first..]).map_err(|error| self.unreadable(&error))?;
        let length = u32::from_be_bytes(length);
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes > RECORD_BYTES_MAX {
            return Err(self.too_large(&format!("{bytes} bytes")));
        }
        let mut value = Vec::new();
        let read = (&mut self.source).take(u64::from(length)).read_to_end(&mut value);
        match read {
            Ok(read) if read == bytes => Ok(Some(Bytes::from(value))),
            Ok(_) => Err(self.unreadable(&ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    /// Reads with `read`, and no more than one record may hold.
    fn up_to(
        &mut self,
        read: impl FnOnce(&mut std::io::Take<&mut Watched<R>>, &mut Vec<u8>) -> std::io::Result<usize>,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(RECORD_BYTES_MAX + 1).unwrap_or(u64::MAX);
        let outcome = read(&mut (&mut self.source).take(limit), &mut bytes);
        outcome.map_err(|error| self.unreadable(&error))?;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(self.too_large("more bytes"));
        }
        Ok(bytes)
    }

    fn too_large(&self, found: &str) -> Failure {
        let number = self.count + 1;
        let message = format!("record {number} has {found} than the {RECORD_BYTES_MAX} allowed");
        Failure::new(Exit::Failed, message.replace(" bytes than", " bytes, more than"))
            .hint("split the input into smaller records")
    }

    fn unreadable(&self, error: &std::io::Error) -> Failure {
        let number = self.count + 1;
        let message = if error.kind() == ErrorKind::UnexpectedEof {
            format!("the input ends inside record {number}")
        } else {
            format!("could not read record {number}: {error}")
        };
        Failure::new(Exit::Failed, message)
    }
}

impl<R: BufRead> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let taken = self.fill_buf()?.read(buffer)?;
        self.consume(taken);
        Ok(taken)
    }
}

impl<R: BufRead> BufRead for Watched<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        let bytes = self.inner.fill_buf()?;
        self.buffered = bytes.len();
        Ok(bytes)
    }

    fn consume(&mut self, count: usize) {
        self.buffered = self.buffered.saturating_sub(count);
        self.inner.consume(count);
    }
}

/// Reads a separator from the command line; `\t` is a tab.
pub(super) fn separator(text: &str) -> Result<Bytes, String> {
    if text.is_empty() {
        return Err("the separator is empty; name at least one character, such as \\t".to_owned());
    }
    Ok(Bytes::from(text.replace("\\t", "\t")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(source: &[u8], split: Split) -> Vec<(Option<Bytes>, Bytes)> {
        let mut input = Input::new(source, split);
        let mut items = Vec::new();
        while let Some(item) = input.next().unwrap() {
            items.push((item.key, item.value));
        }
        items
    }

    #[test]
    fn lines_lose_their_ends_and_keep_everything_else() {
        let found = items(b"a\r\n\n\xff\x00\nlast", Split::Lines);
        let values: Vec<&[u8]> = found.iter().map(|(_, value)| value.as_ref()).collect();
        assert_eq!(values, [&b"a"[..], b"", b"\xff\x00", b"last"]);
    }

    #[test]
    fn keyed_lines_split_at_the_first_separator_and_need_one() {
        let tab = separator("\\t").unwrap();
        let found = items(b"k\tv\tw\n\t\n", Split::KeyedLines(tab.clone()));
        assert_eq!(found[0], (Some(Bytes::from("k")), Bytes::from("v\tw")));
        assert_eq!(found[1], (Some(Bytes::new()), Bytes::new()));
        let mut input = Input::new(&b"k\tv\nnone\n"[..], Split::KeyedLines(tab));
        input.next().unwrap();
        let failure = format!("{:?}", input.next().unwrap_err());
        assert!(failure.contains("line 2 has no separator"), "{failure}");
    }

    #[test]
    fn length_prefixed_records_hold_any_bytes_and_end_where_they_say() {
        let found = items(b"\0\0\0\x03a\nb\0\0\0\0", Split::LengthPrefixed);
        let values: Vec<&[u8]> = found.iter().map(|(_, value)| value.as_ref()).collect();
        assert_eq!(values, [&b"a\nb"[..], b""]);
        for cut in [&b"\0\0"[..], b"\0\0\0\x03a", b"\xff\xff\xff\xffa"] {
            assert!(Input::new(cut, Split::LengthPrefixed).next().is_err(), "{cut:?}");
        }
    }

    #[test]
    fn the_whole_input_is_one_record() {
        assert_eq!(items(b"a\nb\n", Split::Whole), [(None, Bytes::from("a\nb\n"))]);
    }

    #[test]
    fn the_end_of_what_was_read_is_seen() {
        let source = std::io::BufReader::with_capacity(4, &b"a\nb\nc\n"[..]);
        let mut input = Input::new(source, Split::Lines);
        let mut waits = Vec::new();
        while input.next().unwrap().is_some() {
            waits.push(input.would_wait());
        }
        assert_eq!(waits, [false, true, true]);
    }
}
