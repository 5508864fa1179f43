//! Requests: what the body of a frame asks for. Pure. Owns the grammar and its limits; what a
//! command does is `map`'s.
//!
//! The commands of the first version of the protocol are read as they always were: the body is
//! text, its end is trimmed, and it comes apart at single spaces into at most three parts. All
//! others have one header line of words and, behind its newline, bytes that nobody looks into.

use std::time::Duration;

use bytes::Bytes;
use thetis_stream::Session;
use thetis_types::{AttemptId, Durability, Epoch, Offset};

use crate::cursor::CURSOR_NAME_BYTES_MAX;

/// Records in one APPEND.
pub const APPEND_RECORDS_MAX: usize = 4_096;

/// Records in one answer to READ and FOLLOW.
pub const READ_RECORDS_MAX: usize = 10_000;

/// Records in one answer when the request does not say.
pub const READ_RECORDS_DEFAULT: usize = 1_000;

/// Bytes of records in one answer to READ and FOLLOW; a larger record comes alone.
pub const READ_BYTES_MAX: usize = 8 << 20;

/// Bytes in one answer when the request does not say.
pub const READ_BYTES_DEFAULT: usize = 1 << 20;

/// How long a READ may wait for records.
pub const READ_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest lease of a session.
pub const LEASE_MAX: Duration = Duration::from_secs(3_600);

/// One row of the table of commands, for help and completion.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The command's word.
    pub word: &'static str,
    /// Its arguments.
    pub arguments: &'static str,
    /// What it does.
    pub about: &'static str,
}

const fn spec(word: &'static str, arguments: &'static str, about: &'static str) -> Spec {
    Spec { word, arguments, about }
}

/// All commands, those of the first version first.
pub const COMMANDS: &[Spec] = &[
    spec("REGISTER", "<topic> [durability=disk|os|memory]", "make a topic unless it exists"),
    spec("PUT", "<topic> <text>", "append one record of text, its end trimmed"),
    spec("GET", "<topic>", "take the next record from the topic's shared queue"),
    spec("STATE", "<topic>", "the topic's state, as JSON"),
    spec("METRICS", "", "the node's state, as JSON"),
    spec("FETCH", "<topic> <segment> <offset>", "one record by offset; the segment is always 1"),
    spec("HELLO", "", "allow requests of up to 8 MiB on this connection"),
    spec("AUTH", "<token>", "prove to be allowed here"),
    spec(
        "APPEND",
        "<topic> [expect=<offset>] [session=<session>] [attempt=<attempt>] <length>...\\n<bytes>",
        "append records that become readable together or not at all",
    ),
    spec(
        "READ",
        "<topic> <place>|@<cursor> [records=<n>] [bytes=<n>] [wait=<ms>]",
        "read records from an offset on",
    ),
    spec(
        "FOLLOW",
        "<topic> <place>|@<cursor> [records=<n>] [bytes=<n>]",
        "have records pushed until the next request",
    ),
    spec("STOP", "", "end a FOLLOW"),
    spec("CURSOR", "<topic> <name> [<place>]", "make a cursor unless it exists"),
    spec("CURSORS", "<topic>", "list cursors and their positions"),
    spec("ACK", "<topic> <name> <offset> [relaxed]", "move a cursor forward"),
    spec("SEEK", "<topic> <name> <place>", "move a cursor anywhere"),
    spec("FORGET", "<topic> <name>", "delete a cursor"),
    spec("ACQUIRE", "<topic> <lease-ms>", "take the exclusive right to append"),
    spec("RENEW", "<topic> <session> <lease-ms>", "keep a session"),
    spec("RELEASE", "<topic> <session>", "let go of a session"),
    spec("ATTEMPT", "<topic>", "name an attempt to append, to be asked about later"),
    spec("RESOLVE", "<topic> <attempt>", "what became of an attempt"),
    spec("TOPICS", "", "list topics"),
    spec("TRIM", "<topic> <offset>", "give up all records below an offset"),
    spec("DROP", "<topic>", "delete a topic with all its records"),
    spec("LIMITS", "", "list limits with their units"),
];

/// Words whose requests are read in the manner of the first version.
const FIRST: [&str; 5] = ["REGISTER", "PUT", "GET", "STATE", "METRICS"];

/// Where reading begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// At the first record there is.
    Start,
    /// Behind the last one.
    End,
    /// Here.
    At(Offset),
    /// Where this cursor stands.
    Cursor(String),
}

/// What READ and FOLLOW ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The topic.
    pub topic: String,
    /// From where on.
    pub from: From,
    /// At most so many records; at least one.
    pub records_max: usize,
    /// At most so many bytes, but never less than one record.
    pub bytes_max: usize,
    /// How long to wait when there is none.
    pub wait: Duration,
}

/// What APPEND asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The topic.
    pub topic: String,
    /// Only if the topic ends here.
    pub expected: Option<Offset>,
    /// Who appends.
    pub session: Option<Session>,
    /// Names the attempt.
    pub attempt: AttemptId,
    /// The records.
    pub values: Vec<Bytes>,
}

/// A request, as [`COMMANDS`] describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table of commands describes them")]
pub enum Command {
    Register { topic: String, durability: Option<Durability> },
    Put { topic: String, value: Bytes },
    Get { topic: String },
    State { topic: String },
    Metrics,
    Fetch { topic: String, offset: Offset },
    Hello,
    Auth { token: String },
    Append(Append),
    Read(Read),
    Follow(Read),
    Stop,
    Cursor { topic: String, name: String, at: From },
    Cursors { topic: String },
    Ack { topic: String, name: String, offset: Offset, is_relaxed: bool },
    Seek { topic: String, name: String, to: From },
    Forget { topic: String, name: String },
    Acquire { topic: String, lease: Duration },
    Renew { topic: String, session: Session, lease: Duration },
    Release { topic: String, session: Session },
    Attempt { topic: String },
    Resolve { topic: String, attempt: AttemptId },
    Topics,
    Trim { topic: String, before: Offset },
    Drop { topic: String },
    Limits,
}

/// A body that is no request. The text is what follows `ERR `.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// No such command.
    #[error("unknown command")]
    Unknown,
    /// Text was expected.
    #[error("invalid utf-8")]
    NotText,
    /// A command of the first version lacks an argument.
    #[error("{word} requires a {what}")]
    Requires {
        /// The command.
        word: &'static str,
        /// The argument.
        what: &'static str,
    },
    /// A command's arguments are not as they should be.
    #[error("invalid {word}: {fault}")]
    Arguments {
        /// The command.
        word: &'static str,
        /// What is wrong.
        fault: String,
    },
}

/// Reads the body of a frame.
///
/// # Errors
/// It is no request; nothing was done.
pub fn parse(body: &Bytes) -> Result<Command, Malformed> {
    let is_end = |byte: &u8| *byte == b' ' || *byte == b'\n';
    let word = body.split(is_end).next().unwrap_or_default();
    let known = COMMANDS.iter().map(|spec| spec.word).find(|known| known.as_bytes() == word);
    match known {
        Some(word) if !FIRST.contains(&word) => Arguments::of(word, body)?.command(),
        _ => parse_first(body),
    }
}

/// Reads a request of the first version.
fn parse_first(body: &Bytes) -> Result<Command, Malformed> {
    let text = std::str::from_utf8(body).map_err(|_| Malformed::NotText)?.trim_end();
    let mut parts = text.splitn(3, ' ');
    let word = parts.next().unwrap_or_default();
    let word = FIRST.into_iter().find(|first| *first == word).ok_or(Malformed::Unknown)?;
    if word == "METRICS" {
        return Ok(Command::Metrics);
    }
    let topic = parts.next().filter(|topic| !topic.is_empty());
    let topic = topic.ok_or(Malformed::Requires { word, what: "topic" })?.to_owned();
    let rest = parts.next();
    match word {
        "REGISTER" => {
            // Words that mean nothing were always passed over.
            let words = rest.unwrap_or_default().split(' ');
            let level = words.filter_map(|word| word.strip_prefix("durability=")).next_back();
            let durability = level.map(str::parse).transpose();
            let durability =
                durability.map_err(|fault| Malformed::Arguments { word: "REGISTER", fault })?;
            Ok(Command::Register { topic, durability })
        }
        "PUT" => {
            let value = rest.ok_or(Malformed::Requires { word, what: "payload" })?;
            Ok(Command::Put { topic, value: body.slice_ref(value.as_bytes()) })
        }
        "GET" => Ok(Command::Get { topic }),
        _ => Ok(Command::State { topic }),
    }
}

/// The words of a header and the bytes behind it.
struct Arguments<'a> {
    word: &'static str,
    words: std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>,
    bytes: Bytes,
}

impl Arguments<'_> {
    fn of<'a>(word: &'static str, body: &'a Bytes) -> Result<Arguments<'a>, Malformed> {
        let end = body.iter().position(|byte| *byte == b'\n');
        let header = &body[word.len()..end.unwrap_or(body.len())];
        let header = std::str::from_utf8(header).map_err(|_| Malformed::NotText)?;
        let bytes = end.map_or_else(Bytes::new, |end| body.slice(end + 1..));
        Ok(Arguments { word, words: header.split_ascii_whitespace().peekable(), bytes })
    }

    fn command(mut self) -> Result<Command, Malformed> {
        let command = match self.word {
            "APPEND" => return self.append(),
            "READ" => Command::Read(self.read(true)?),
            "FOLLOW" => Command::Follow(self.read(false)?),
            "FETCH" => {
                let topic = self.topic()?;
                let segment = self.number("segment")?;
                let offset = self.offset()?;
                match segment {
                    1 => Command::Fetch { topic, offset },
                    _ => return Err(self.fault(format!("segment {segment} does not exist; use 1"))),
                }
            }
            "HELLO" => Command::Hello,
            "AUTH" => Command::Auth { token: self.text("token")? },
            "STOP" => Command::Stop,
            "TOPICS" => Command::Topics,
            "LIMITS" => Command::Limits,
            word => self.of_topic(word)?,
        };
        self.finish(command)
    }

    /// Commands of one topic with fixed arguments.
    fn of_topic(&mut self, word: &str) -> Result<Command, Malformed> {
        let topic = self.topic()?;
        Ok(match word {
            "CURSOR" => {
                let name = self.cursor_name()?;
                let at = if self.words.peek().is_some() { self.place()? } else { From::Start };
                Command::Cursor { topic, name, at }
            }
            "CURSORS" => Command::Cursors { topic },
            "ACK" => {
                let (name, offset) = (self.cursor_name()?, self.offset()?);
                let is_relaxed = self.words.next_if_eq(&"relaxed").is_some();
                Command::Ack { topic, name, offset, is_relaxed }
            }
            "SEEK" => Command::Seek { topic, name: self.cursor_name()?, to: self.place()? },
            "FORGET" => Command::Forget { topic, name: self.cursor_name()? },
            "ACQUIRE" => Command::Acquire { topic, lease: self.lease()? },
            "RENEW" => Command::Renew { topic, session: self.session()?, lease: self.lease()? },
            "RELEASE" => Command::Release { topic, session: self.session()? },
            "ATTEMPT" => Command::Attempt { topic },
            "RESOLVE" => Command::Resolve { topic, attempt: self.attempt()? },
            "TRIM" => Command::Trim { topic, before: self.offset()? },
            "DROP" => Command::Drop { topic },
            _ => return Err(Malformed::Unknown),
        })
    }

    fn append(mut self) -> Result<Command, Malformed> {
        let topic = self.topic()?;
        let (mut expected, mut session, mut attempt) = (None, None, AttemptId::NONE);
        while let Some((name, value)) = self.words.peek().and_then(|word| word.split_once('=')) {
            match name {
                "expect" => expected = Some(Offset(self.parse("offset", value)?)),
                "session" => session = Some(self.parse_session(value)?),
                "attempt" => attempt = value.parse().map_err(|fault| self.fault(fault))?,
                _ => return Err(self.fault(format!("{name}= is not known here"))),
            }
            self.words.next();
        }
        let mut values = Vec::new();
        while self.words.peek().is_some() {
            let length = usize::try_from(self.number("length")?).unwrap_or(usize::MAX);
            if length > self.bytes.len() {
                let left = self.bytes.len();
                return Err(self.fault(format!("a length of {length} with {left} bytes left")));
            }
            if values.len() == APPEND_RECORDS_MAX {
                return Err(self.fault(format!("more than {APPEND_RECORDS_MAX} records")));
            }
            values.push(self.bytes.split_to(length));
        }
        if values.is_empty() {
            return Err(self.fault("a length is missing".to_owned()));
        }
        self.finish(Command::Append(Append { topic, expected, session, attempt, values }))
    }

    fn read(&mut self, may_wait: bool) -> Result<Read, Malformed> {
        let topic = self.topic()?;
        let from = match self.words.next_if(|word| word.starts_with('@')) {
            Some(name) => From::Cursor(name[1..].to_owned()),
            None => self.place()?,
        };
        let mut read = Read {
            topic,
            from,
            records_max: READ_RECORDS_DEFAULT,
            bytes_max: READ_BYTES_DEFAULT,
            wait: Duration::ZERO,
        };
        while let Some((name, value)) = self.words.peek().and_then(|word| word.split_once('=')) {
            match name {
                "records" => read.records_max = self.within(name, value, READ_RECORDS_MAX)?,
                "bytes" => read.bytes_max = self.within(name, value, READ_BYTES_MAX)?,
                "wait" if may_wait => {
                    read.wait = self.milliseconds(value, READ_WAIT_MAX)?;
                }
                _ => return Err(self.fault(format!("{name}= is not known here"))),
            }
            self.words.next();
        }
        Ok(read)
    }

    fn finish(&mut self, command: Command) -> Result<Command, Malformed> {
        if let Some(word) = self.words.next() {
            return Err(self.fault(format!("{word:?} is one word too many")));
        }
        match self.bytes.len() {
            0 => Ok(command),
            bytes => Err(self.fault(format!("{bytes} bytes too many behind the header"))),
        }
    }

    fn fault(&self, fault: String) -> Malformed {
        Malformed::Arguments { word: self.word, fault }
    }

    fn next(&mut self, what: &str) -> Result<&str, Malformed> {
        let missing =
            Malformed::Arguments { word: self.word, fault: format!("a {what} is missing") };
        self.words.next().ok_or(missing)
    }

    fn text(&mut self, what: &str) -> Result<String, Malformed> {
        self.next(what).map(str::to_owned)
    }

    fn topic(&mut self) -> Result<String, Malformed> {
        self.text("topic")
    }

    fn cursor_name(&mut self) -> Result<String, Malformed> {
        let name = self.text("cursor's name")?;
        if name.len() > CURSOR_NAME_BYTES_MAX {
            let fault = format!("a cursor's name is longer than {CURSOR_NAME_BYTES_MAX} bytes");
            return Err(self.fault(fault));
        }
        Ok(name)
    }

    fn number(&mut self, what: &str) -> Result<u64, Malformed> {
        let text = self.text(what)?;
        self.parse(what, &text)
    }

    fn parse(&self, what: &str, text: &str) -> Result<u64, Malformed> {
        text.parse().map_err(|_| self.fault(format!("{text:?} is not a {what}")))
    }

    fn offset(&mut self) -> Result<Offset, Malformed> {
        self.number("offset").map(Offset)
    }

    fn place(&mut self) -> Result<From, Malformed> {
        let text = self.text("offset")?;
        match text.as_str() {
            "start" => Ok(From::Start),
            "end" => Ok(From::End),
            text => self.parse("offset", text).map(Offset).map(From::At),
        }
    }

    fn within(&self, name: &str, text: &str, max: usize) -> Result<usize, Malformed> {
        let number = usize::try_from(self.parse("number", text)?).unwrap_or(usize::MAX);
        if number == 0 || number > max {
            return Err(self.fault(format!("{name}={text} is outside 1 to {max}")));
        }
        Ok(number)
    }

    fn milliseconds(&self, text: &str, max: Duration) -> Result<Duration, Malformed> {
        let time = Duration::from_millis(self.parse("number of milliseconds", text)?);
        if time > max {
            return Err(self.fault(format!("{text} ms is more than {} ms", max.as_millis())));
        }
        Ok(time)
    }

    fn lease(&mut self) -> Result<Duration, Malformed> {
        let text = self.text("lease in milliseconds")?;
        let lease = self.milliseconds(&text, LEASE_MAX)?;
        if lease.is_zero() {
            return Err(self.fault("a lease of 0 ms holds nothing".to_owned()));
        }
        Ok(lease)
    }

    fn session(&mut self) -> Result<Session, Malformed> {
        let text = self.text("session")?;
        self.parse_session(&text)
    }

    fn parse_session(&self, text: &str) -> Result<Session, Malformed> {
        let read = || {
            let (epoch, token) = text.split_once('-')?;
            let epoch: Epoch = epoch.parse().ok()?;
            Some(Session { epoch, token: u64::from_str_radix(token, 16).ok()? })
        };
        read().ok_or_else(|| self.fault(format!("{text:?} is not a session as ACQUIRE names it")))
    }

    fn attempt(&mut self) -> Result<AttemptId, Malformed> {
        let text = self.text("attempt")?;
        text.parse().map_err(|fault| self.fault(fault))
    }
}

/// A session as the protocol spells it.
#[must_use]
pub fn show_session(session: Session) -> String {
    format!("{}-{:016x}", session.epoch, session.token)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn first(text: &'static [u8]) -> Result<Command, Malformed> {
        parse(&Bytes::from_static(text))
    }

    #[test]
    fn requests_of_the_first_version_are_read_as_ever() {
        let put = |topic: &str, value: &'static [u8]| {
            Ok(Command::Put { topic: topic.into(), value: Bytes::from_static(value) })
        };
        assert_eq!(first(b"PUT t a b  c \n"), put("t", b"a b  c"));
        assert_eq!(first(b"PUT t  a"), put("t", b" a"));
        assert_eq!(first(b"GET t more words"), Ok(Command::Get { topic: "t".into() }));
        assert_eq!(first(b"PUT\nt a"), Err(Malformed::Unknown));
        assert_eq!(first(b"METRICS please"), Ok(Command::Metrics));
    }

    #[test]
    fn every_command_of_the_table_is_known_and_documented() {
        let document = include_str!("../../../docs/protocols/text.md");
        for spec in COMMANDS {
            let row = format!("| `{} {}", spec.word, spec.arguments.replace('|', "\\|"));
            let row = format!("{}`", row.trim_end());
            assert!(document.contains(&row), "docs/protocols/text.md has no {row}");
            let parsed = parse(&Bytes::from(spec.word));
            assert_ne!(parsed, Err(Malformed::Unknown), "{}", spec.word);
        }
    }

    proptest! {
        #[test]
        fn random_bytes_behind_any_word_are_read_without_panic(
            index in 0..COMMANDS.len(),
            rest in prop::collection::vec(prop::sample::select(b" \nt0123=@-ea\xff".to_vec()), 0..40),
        ) {
            let mut body = COMMANDS[index].word.as_bytes().to_vec();
            body.extend(rest);
            let body = Bytes::from(body);
            if let Ok(Command::Append(append)) = parse(&body) {
                let bytes: usize = append.values.iter().map(Bytes::len).sum();
                prop_assert!(bytes < body.len());
            }
        }

        #[test]
        fn records_of_an_append_are_cut_by_their_lengths(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..20),
        ) {
            let mut body = b"APPEND t expect=7".to_vec();
            values.iter().for_each(|value| body.extend(format!(" {}", value.len()).bytes()));
            body.push(b'\n');
            body.extend(values.concat());
            let append = Append {
                topic: "t".into(),
                expected: Some(Offset(7)),
                session: None,
                attempt: AttemptId::NONE,
                values: values.into_iter().map(Bytes::from).collect(),
            };
            prop_assert_eq!(parse(&body.into()), Ok(Command::Append(append)));
        }
    }
}
