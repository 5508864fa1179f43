//! A blocking client of the protocol: one connection, one request and one answer at a time. Owns how
//! answers are told from refusals, and what is known when a connection breaks. Never retries.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use thetis_text::client::{Client, Error};
//! use thetis_text::command::From;
//!
//! # fn main() -> Result<(), Error> {
//! let mut client = Client::connect("localhost", 9091, None)?;
//! client.register("orders", None)?;
//! client.put("orders", "one order")?;
//! let written = client.append("orders", &["any bytes\0", "and more"])?;
//! if let Some(records) = client.read("orders", &From::At(written.start), Duration::ZERO)? {
//!     assert_eq!(records.values.len(), 2);
//! }
//! while let Some(record) = client.get("orders")? {
//!     println!("{}", String::from_utf8_lossy(&record));
//! }
//! # Ok(())
//! # }
//! ```

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use thetis_net::Socket;
use thetis_net::tls::ClientConfig;
use thetis_types::{Durability, ErrorKind, Offset, OffsetRange, Outcome};

use crate::command::From;
use crate::map;
use crate::reply::{Records, records};
use crate::wire::{LENGTH_BYTES, REQUEST_BYTES_MAX, frame};

/// Bytes read at a time, so that memory follows what arrives and not what is announced.
const READ_BYTES: u64 = 1 << 20;

/// What the first version puts before the error of a PUT.
const PUT_FAILED: &str = "forward append failed: ";

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody accepts at the address.
    #[error("no server at {host}:{port}: {error}")]
    Unreachable {
        /// The host as it was named.
        host: String,
        /// The port.
        port: u16,
        /// What the system says.
        error: io::Error,
    },
    /// Not sent: the server could only refuse it, or misread it.
    #[error("not sent: {fault}")]
    Unsent {
        /// What is wrong.
        fault: String,
    },
    /// The server said no.
    #[error("the server answers: ERR {0}")]
    Refused(Refusal),
    /// The connection ended, or the wait for the answer did.
    #[error("the connection broke before the reply: {0}")]
    Broken(io::Error),
    /// An earlier request ended the connection; connect again.
    #[error("the connection broke earlier; connect again")]
    Gone,
    /// An answer that this request does not have.
    #[error("the server answers {answer:?}, which is no answer to {command}")]
    Strange {
        /// The request's first word.
        command: String,
        /// How the answer begins.
        answer: String,
    },
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Unreachable { .. } | Error::Broken(_) | Error::Gone => ErrorKind::Unavailable,
            Error::Unsent { .. } => ErrorKind::Invalid,
            Error::Refused(refusal) => refusal.kind(),
            Error::Strange { .. } => ErrorKind::Internal,
        }
    }

    /// Whether what was asked happened (law CERTAIN).
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Unreachable { .. } | Error::Unsent { .. } | Error::Gone => Outcome::NotCommitted,
            Error::Refused(refusal) => refusal.outcome(),
            Error::Broken(_) | Error::Strange { .. } => Outcome::MayHaveCommitted,
        }
    }
}

/// What followed `ERR `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// As the server said it.
    pub text: String,
}

impl Refusal {
    /// The refusal that this answer is, if it is one.
    #[must_use]
    pub fn of(answer: &[u8]) -> Option<Refusal> {
        let text = answer.strip_prefix(b"ERR ")?;
        Some(Refusal { text: String::from_utf8_lossy(text).into_owned() })
    }

    /// The word that programs may act on, if it has one. Texts of the first version have none.
    fn word(&self) -> &str {
        let text = self.text.strip_prefix(PUT_FAILED).unwrap_or(&self.text);
        text.split(' ').next().unwrap_or_default()
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match (self.word(), map::kind(self.word())) {
            (_, Some(kind)) => kind,
            ("uncertain", None) => ErrorKind::Unavailable,
            (_, None) if self.text.starts_with("unknown topic ") => ErrorKind::NotFound,
            (_, None) => ErrorKind::Invalid,
        }
    }

    /// Whether what was asked happened (law CERTAIN). A PUT that failed for a reason without a word,
    /// as another server may say it, may have.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let is_put_without_word =
            self.text.starts_with(PUT_FAILED) && map::kind(self.word()).is_none();
        if self.word() == "uncertain" || is_put_without_word {
            Outcome::MayHaveCommitted
        } else {
            Outcome::NotCommitted
        }
    }
}

/// A connection to a text listener. Calls block until their answer is there; an
/// [`Error::Broken`] ends the connection, any refusal leaves it as it was.
#[derive(Debug)]
pub struct Client {
    /// Nothing once it broke: a late answer must never be taken for the next request's.
    socket: Option<Socket>,
}

impl Client {
    /// Connects, under TLS if `tls` (from [`thetis_net::tls::client`]) is there, and asks for
    /// requests of up to [`REQUEST_BYTES_MAX`]; a server of the first version goes on with
    /// its own limit. An IPv6 address has no brackets.
    ///
    /// # Errors
    /// Nobody accepts, TLS cannot be agreed on, or the server wants TLS.
    pub fn connect(
        host: &str,
        port: u16,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Client, Error> {
        let unreachable = |error| Error::Unreachable { host: host.to_owned(), port, error };
        let socket = Socket::connect(host, port, tls).map_err(unreachable)?;
        let mut client = Client { socket: Some(socket) };
        match Refusal::of(&client.ask(b"HELLO")?) {
            Some(refusal) if refusal.word() == "unauthenticated" => Err(Error::Refused(refusal)),
            _ => Ok(client),
        }
    }

    /// How long an answer may keep each call waiting; without end unless said. When it is over the
    /// call is [`Error::Broken`].
    ///
    /// # Errors
    /// The connection is gone, or `wait` is zero.
    pub fn set_wait(&mut self, wait: Option<Duration>) -> Result<(), Error> {
        let socket = self.socket.as_ref().ok_or(Error::Gone)?;
        let set = socket.set_timeouts(wait, wait);
        set.map_err(|error| Error::Unsent { fault: error.to_string() })
    }

    /// Sends a request as it is and gives its answer as it is, refusals too.
    ///
    /// # Errors
    /// [`Error::Unsent`] for a body of no bytes or over [`REQUEST_BYTES_MAX`]; else the connection
    /// broke, and what was asked for may have happened.
    pub fn ask(&mut self, body: &[u8]) -> Result<Bytes, Error> {
        if body.is_empty() || body.len() > REQUEST_BYTES_MAX {
            let fault = format!(
                "a request has 1 to {REQUEST_BYTES_MAX} bytes, and this one {}",
                body.len()
            );
            return Err(Error::Unsent { fault });
        }
        self.on_socket(|socket| {
            socket.write_all(&frame(body))?;
            socket.flush()?;
            receive(socket)
        })
    }

    /// The next answer without a request, as FOLLOW has them.
    ///
    /// # Errors
    /// The connection broke.
    pub fn receive(&mut self) -> Result<Bytes, Error> {
        self.on_socket(receive)
    }

    /// Says the token that the server wants to hear first.
    ///
    /// # Errors
    /// As all calls, and the token is wrong.
    pub fn authenticate(&mut self, token: &str) -> Result<(), Error> {
        self.done(&format!("AUTH {}", word("a token", token)?))
    }

    /// Makes a topic unless it exists, at the server's durability unless one is given.
    ///
    /// # Errors
    /// As all calls, and the topic has another durability.
    pub fn register(&mut self, topic: &str, durability: Option<Durability>) -> Result<(), Error> {
        let level = durability.map_or_else(String::new, |level| format!(" durability={level}"));
        self.done(&format!("REGISTER {}{level}", word("a topic", topic)?))
    }

    /// Appends a record of text, whose end the server trims; safe at the topic's durability when
    /// this returns.
    ///
    /// # Errors
    /// As all calls, and the topic is unknown.
    pub fn put(&mut self, topic: &str, text: &str) -> Result<(), Error> {
        self.done(&format!("PUT {} {text}", word("a topic", topic)?))
    }

    /// The next record of the topic's shared queue; `None` when there is none. Delivered when the
    /// answer was written, so [`Error::Broken`] may have taken a record.
    ///
    /// # Errors
    /// As all calls, and the topic is unknown.
    pub fn get(&mut self, topic: &str) -> Result<Option<Bytes>, Error> {
        let request = format!("GET {}", word("a topic", topic)?);
        let answer = self.answer(request.as_bytes())?;
        match &answer[..] {
            b"EMPTY" => Ok(None),
            [b'O', b'K', b' ', ..] => Ok(Some(answer.slice(3..))),
            _ => Err(strange(&request, &answer)),
        }
    }

    /// The topic's state.
    ///
    /// # Errors
    /// As all calls, and the topic is unknown.
    pub fn state(&mut self, topic: &str) -> Result<Value, Error> {
        self.json(&format!("STATE {}", word("a topic", topic)?))
    }

    /// The node's state.
    ///
    /// # Errors
    /// As all calls.
    pub fn metrics(&mut self) -> Result<Value, Error> {
        self.json("METRICS")
    }

    /// Appends records of any bytes, which become readable together or not at all.
    ///
    /// # Errors
    /// As all calls; the topic is unknown, or takes no more; there are no records, or too many.
    pub fn append(
        &mut self,
        topic: &str,
        values: &[impl AsRef<[u8]>],
    ) -> Result<OffsetRange, Error> {
        let mut body = format!("APPEND {}", word("a topic", topic)?).into_bytes();
        for value in values {
            body.extend_from_slice(format!(" {}", value.as_ref().len()).as_bytes());
        }
        body.push(b'\n');
        values.iter().for_each(|value| body.extend_from_slice(value.as_ref()));
        let answer = self.answer(&body)?;
        let text = std::str::from_utf8(&answer).ok().and_then(|text| text.strip_prefix("OK "));
        let mut offsets = text.into_iter().flat_map(|text| text.split(' ').map(str::parse));
        match (offsets.next(), offsets.next()) {
            (Some(Ok(start)), Some(Ok(end))) if start <= end => {
                Ok(OffsetRange { start: Offset(start), end: Offset(end) })
            }
            _ => Err(strange("APPEND", &answer)),
        }
    }

    /// Records from a place on, as many as the server gives at a time; after `wait` (30 s at most)
    /// without any, `None`.
    ///
    /// # Errors
    /// As all calls; the topic or the cursor is unknown, or the records are trimmed.
    pub fn read(
        &mut self,
        topic: &str,
        from: &From,
        wait: Duration,
    ) -> Result<Option<Records>, Error> {
        let place = match from {
            From::Start => "start".to_owned(),
            From::End => "end".to_owned(),
            From::At(offset) => offset.0.to_string(),
            From::Cursor(name) => format!("@{}", word("a cursor", name)?),
        };
        let topic = word("a topic", topic)?;
        let request = format!("READ {topic} {place} wait={}", wait.as_millis());
        let answer = self.answer(request.as_bytes())?;
        if answer.starts_with(b"EMPTY") {
            return Ok(None);
        }
        records(&answer).map(Some).ok_or_else(|| strange(&request, &answer))
    }

    /// Where a cursor stands; made at the topic's start unless it exists.
    ///
    /// # Errors
    /// As all calls; the topic is unknown, or there are too many cursors.
    pub fn cursor(&mut self, topic: &str, name: &str) -> Result<Offset, Error> {
        self.offset(&format!("CURSOR {} {}", word("a topic", topic)?, word("a cursor", name)?))
    }

    /// Says that everything below `offset` is done with, durably, and gives where the cursor stands:
    /// it never moves back.
    ///
    /// # Errors
    /// As all calls; the topic or the cursor is unknown, or the topic ends before.
    pub fn acknowledge(
        &mut self,
        topic: &str,
        name: &str,
        offset: Offset,
    ) -> Result<Offset, Error> {
        let (topic, name) = (word("a topic", topic)?, word("a cursor", name)?);
        self.offset(&format!("ACK {topic} {name} {}", offset.0))
    }

    /// The names of all topics that are served.
    ///
    /// # Errors
    /// As all calls.
    pub fn topics(&mut self) -> Result<Vec<String>, Error> {
        let answer = self.answer(b"TOPICS")?;
        let text = String::from_utf8_lossy(&answer);
        let mut lines = text.lines();
        match lines.next() {
            Some("OK") => Ok(lines.map(str::to_owned).collect()),
            _ => Err(strange("TOPICS", &answer)),
        }
    }

    /// The answer to a request, if it is no refusal.
    fn answer(&mut self, request: &[u8]) -> Result<Bytes, Error> {
        let answer = self.ask(request)?;
        match Refusal::of(&answer) {
            Some(refusal) => Err(Error::Refused(refusal)),
            None => Ok(answer),
        }
    }

    fn done(&mut self, request: &str) -> Result<(), Error> {
        let answer = self.answer(request.as_bytes())?;
        if answer == "OK" { Ok(()) } else { Err(strange(request, &answer)) }
    }

    fn json(&mut self, request: &str) -> Result<Value, Error> {
        let answer = self.answer(request.as_bytes())?;
        serde_json::from_slice(&answer).map_err(|_| strange(request, &answer))
    }

    fn offset(&mut self, request: &str) -> Result<Offset, Error> {
        let answer = self.answer(request.as_bytes())?;
        let text = std::str::from_utf8(&answer).ok().and_then(|text| text.strip_prefix("OK "));
        let offset = text.and_then(|text| text.parse().ok()).map(Offset);
        offset.ok_or_else(|| strange(request, &answer))
    }

    /// Does something with the socket, and lets go of it when that fails.
    fn on_socket<T>(&mut self, act: impl FnOnce(&mut Socket) -> io::Result<T>) -> Result<T, Error> {
        let mut socket = self.socket.take().ok_or(Error::Gone)?;
        let done = act(&mut socket).map_err(Error::Broken)?;
        self.socket = Some(socket);
        Ok(done)
    }
}

/// The body of the next frame.
fn receive(socket: &mut Socket) -> io::Result<Bytes> {
    let mut length = [0; LENGTH_BYTES];
    socket.read_exact(&mut length)?;
    let mut left = u64::from(u32::from_le_bytes(length));
    let mut body = Vec::new();
    while left > 0 {
        let read = socket.take(left.min(READ_BYTES)).read_to_end(&mut body)? as u64;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read;
    }
    Ok(body.into())
}

/// One word of a request: a space in it would make two.
fn word<'a>(what: &str, text: &'a str) -> Result<&'a str, Error> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Error::Unsent { fault: format!("{text:?} is not {what}: one word") });
    }
    Ok(text)
}

fn strange(request: &str, answer: &[u8]) -> Error {
    /// Characters that are shown.
    const SHOWN: usize = 80;
    Error::Strange {
        command: request.split(' ').next().unwrap_or_default().to_owned(),
        answer: String::from_utf8_lossy(answer).chars().take(SHOWN).collect(),
    }
}
