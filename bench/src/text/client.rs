//! A blocking client of the text protocol: one request at a time, each sent in one piece. Owns the
//! records, which are text: a source's bytes in hexadecimal digits.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::content::{Check, Source};

/// How long a node may be silent.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Bytes of a record before they are written as digits: 1 KiB of text.
pub(crate) const SOURCE_BYTES: usize = 512;
const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// How a client has its system acknowledge what arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acknowledge {
    /// As it comes: after some 40 ms, or with the next thing sent.
    AsItComes,
    /// At once (`TCP_QUICKACK`), which takes the stall out of a server that answers in two pieces.
    AtOnce,
}

/// A connection.
pub(crate) struct Client {
    socket: TcpStream,
    acknowledge: Acknowledge,
    frame: Vec<u8>,
    reply: Vec<u8>,
}

impl Client {
    pub(crate) fn open(address: SocketAddr, acknowledge: Acknowledge) -> Result<Client> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Client { socket, acknowledge, frame: Vec::new(), reply: Vec::new() })
    }

    /// The reply to a request of these parts.
    pub(crate) fn ask(&mut self, parts: &[&[u8]]) -> Result<&[u8]> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.frame.clear();
        self.frame.extend_from_slice(&u32::try_from(bytes)?.to_le_bytes());
        parts.iter().for_each(|part| self.frame.extend_from_slice(part));
        self.socket.write_all(&self.frame)?;
        let mut length = [0; 4];
        self.exactly(&mut length)?;
        let mut reply = std::mem::take(&mut self.reply);
        reply.resize(usize::try_from(u32::from_le_bytes(length))?, 0);
        self.exactly(&mut reply)?;
        self.reply = reply;
        Ok(&self.reply)
    }

    /// Sends a request whose reply must be `OK`.
    pub(crate) fn must(&mut self, parts: &[&[u8]]) -> Result<()> {
        match self.ask(parts)? {
            b"OK" => Ok(()),
            other => bail!("the node answers {}", String::from_utf8_lossy(other)),
        }
    }

    /// Takes the next record of a topic; false when there is none.
    pub(crate) fn get(&mut self, topic: &str, check: &mut Check) -> Result<bool> {
        match self.ask(&[b"GET ", topic.as_bytes()])? {
            b"EMPTY" => Ok(false),
            reply => {
                let digits = reply.strip_prefix(b"OK ").with_context(|| {
                    format!("the node answers {}", String::from_utf8_lossy(reply))
                })?;
                check.see(&from_digits(digits)?)?;
                Ok(true)
            }
        }
    }

    fn exactly(&mut self, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            if self.acknowledge == Acknowledge::AtOnce {
                // The system forgets it, so it is said before each wait.
                rustix::net::sockopt::set_tcp_quickack(&self.socket, true)?;
            }
            match self.socket.read(buffer)? {
                0 => bail!("the node closed the connection"),
                read => buffer = &mut buffer[read..],
            }
        }
        Ok(())
    }
}

/// The next record of a source, as text.
pub(crate) fn next_record(source: &mut Source, text: &mut Vec<u8>) {
    text.clear();
    for byte in source.next_record() {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// A record's text as the bytes it stands for.
pub(crate) fn from_digits(text: &[u8]) -> Result<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|v| u8::try_from(v).ok());
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    });
    pairs.collect::<Option<_>>().context("a record that nobody wrote: not hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_a_kibibyte_of_text_and_come_back() {
        let (mut source, mut text) = (Source::new(3, SOURCE_BYTES), Vec::new());
        let mut check = Check::new(4, SOURCE_BYTES);
        for _ in 0..2 {
            next_record(&mut source, &mut text);
            assert_eq!(text.len(), 1024);
            check.see(&from_digits(&text).unwrap()).unwrap();
        }
        assert!(from_digits(b"0").is_err() && from_digits(b"0x").is_err());
    }
}
