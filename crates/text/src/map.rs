//! From commands to the core and back: what each command does, and the one table from kinds of
//! errors to the words clients see.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use thetis_catalog::{CatalogError, Format, TopicSpec};
use thetis_meta::MetaError;
use thetis_stream::{AppendError, Appending, Fate, ReadError, Stream, StreamError};
use thetis_types::{
    AttemptId, BatchError, Durability, Entry, ErrorKind, Offset, Outcome, Receipt, SplitError,
};

use crate::command::{self, Append, Command, From, Read};
use crate::cursor::{CURSORS_MAX, Cursor, TooMany};
use crate::front::Front;
use crate::queue::Handed;
use crate::reply::Reply;
use crate::wire::{REQUEST_BYTES_MAX, REQUEST_BYTES_MAX_FIRST};

/// The number of this node, and of the one segment each topic has, in STATE, METRICS and FETCH.
const ONE: u64 = 1;

/// Names shown in one answer to TOPICS: 249 bytes each, well below what a frame can carry.
const TOPICS_SHOWN_MAX: usize = 1_000_000;

/// Why a command was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No such topic. The first version's wording.
    #[error("unknown topic {name}")]
    UnknownTopic {
        /// The name.
        name: String,
    },
    /// The topic is another protocol's.
    #[error("topic {name} has {partitions} partitions or records of another protocol; use that")]
    Unserved {
        /// The topic.
        name: String,
        /// Its partitions.
        partitions: u32,
    },
    /// The topic exists and differs.
    #[error("topic {name} exists with durability {have}")]
    Differs {
        /// The topic.
        name: String,
        /// What it has.
        have: Durability,
    },
    /// No such cursor.
    #[error("topic {topic} has no cursor {name}; make it with CURSOR")]
    UnknownCursor {
        /// The topic.
        topic: String,
        /// The cursor.
        name: String,
    },
    /// An acknowledgement of what does not exist.
    #[error("offset {} is past the end {} of the topic", .at.0, .end.0)]
    PastEnd {
        /// What was asked.
        at: Offset,
        /// Where the topic ends.
        end: Offset,
    },
    /// The records are gone.
    #[error("offset {} is trimmed; the topic begins at {}", .at.0, .start.0)]
    Trimmed {
        /// What was asked.
        at: Offset,
        /// Where reading can go on.
        start: Offset,
    },
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error(transparent)]
    Cursors(#[from] TooMany),
}

impl Error {
    /// What the client should do.
    fn kind(&self) -> ErrorKind {
        match self {
            Error::UnknownTopic { .. } | Error::UnknownCursor { .. } => ErrorKind::NotFound,
            Error::Unserved { .. } | Error::PastEnd { .. } | Error::Batch(_) => ErrorKind::Invalid,
            Error::Differs { .. } => ErrorKind::Exists,
            Error::Trimmed { .. } => ErrorKind::Trimmed,
            Error::Append(error) => error.kind(),
            Error::Read(error) => error.kind(),
            Error::Split(SplitError::Framing { .. }) => ErrorKind::Corrupt,
            Error::Split(SplitError::Foreign { .. }) => ErrorKind::Invalid,
            Error::Stream(error) => error.kind(),
            Error::Catalog(error) => error.kind(),
            Error::Meta(error) => error.kind(),
            Error::Cursors(TooMany) => ErrorKind::Throttled,
        }
    }

    /// Whether what was asked happened (law CERTAIN).
    fn outcome(&self) -> Outcome {
        match self {
            Error::Append(error) => error.outcome(),
            Error::Meta(error)
            | Error::Catalog(CatalogError::Meta(error))
            | Error::Stream(StreamError::Meta { source: error, .. }) => error.outcome(),
            Error::Stream(StreamError::Flush { source, .. }) => source.outcome(),
            _ => Outcome::NotCommitted,
        }
    }

    /// What follows `ERR `.
    fn text(&self) -> String {
        match (self, self.outcome()) {
            (Error::UnknownTopic { .. }, _) => self.to_string(),
            (_, Outcome::MayHaveCommitted) => format!("uncertain {self}"),
            (_, Outcome::NotCommitted | Outcome::Committed) => {
                format!("{} {self}", word(self.kind()))
            }
        }
    }

    pub(crate) fn reply(&self) -> Reply {
        Reply::error(self.text())
    }
}

/// The table from kinds of errors to their words on the wire.
const fn word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "invalid",
        ErrorKind::NotFound => "not-found",
        ErrorKind::Exists => "exists",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Fenced => "fenced",
        ErrorKind::Trimmed => "trimmed",
        ErrorKind::Sealed => "sealed",
        ErrorKind::Throttled => "throttled",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Internal => "internal",
    }
}

/// The kind that a word stands for.
pub(crate) fn kind(of: &str) -> Option<ErrorKind> {
    const KINDS: [ErrorKind; 11] = [
        ErrorKind::Invalid,
        ErrorKind::NotFound,
        ErrorKind::Exists,
        ErrorKind::Conflict,
        ErrorKind::Fenced,
        ErrorKind::Trimmed,
        ErrorKind::Sealed,
        ErrorKind::Throttled,
        ErrorKind::Unavailable,
        ErrorKind::Corrupt,
        ErrorKind::Internal,
    ];
    KINDS.into_iter().find(|kind| word(*kind) == of)
}

/// An append that has its place, or was refused one, and whose reply is not written yet.
pub(crate) struct Placed {
    appending: Result<Appending, Error>,
    is_for_disk: bool,
    is_put: bool,
}

impl Placed {
    /// Hands the record of a PUT to its stream.
    pub(crate) fn put(front: &Front, topic: String, value: Bytes) -> Placed {
        let (expected, session, attempt) = (None, None, AttemptId::NONE);
        let append = Append { topic, expected, session, attempt, values: vec![value] };
        Placed::of(place(front, &append), true)
    }

    /// Hands the records of an APPEND to their stream.
    pub(crate) fn append(front: &Front, append: &Append) -> Placed {
        Placed::of(place(front, append), false)
    }

    fn of(placed: Result<(Appending, Durability), Error>, is_put: bool) -> Placed {
        let is_for_disk = matches!(placed, Ok((_, Durability::Disk)));
        Placed { appending: placed.map(|(appending, _)| appending), is_for_disk, is_put }
    }

    /// Whether the reply has to wait for the device.
    pub(crate) fn is_for_disk(&self) -> bool {
        self.is_for_disk
    }

    /// Has it committed whether it is waited for or not: others of the connection join its flush.
    pub(crate) fn start(&mut self) {
        if let Ok(appending) = &mut self.appending {
            appending.start();
        }
    }

    /// The reply, once the records are committed and safe (law ACK-DURABLE).
    ///
    /// Cancel safety: the records are appended whether this is waited for or not.
    pub(crate) async fn reply(self) -> Reply {
        let receipt = match self.appending {
            Ok(appending) => appending.committed().await.map_err(Error::from),
            Err(error) => Err(error),
        };
        Placed::tell(receipt, self.is_put)
    }

    /// [`Placed::reply`] for a thread, which may be made to flush for others. Blocks.
    pub(crate) fn wait(self) -> Reply {
        let receipt = self.appending.and_then(|appending| Ok(appending.wait()?));
        Placed::tell(receipt, self.is_put)
    }

    fn tell(receipt: Result<Receipt, Error>, is_put: bool) -> Reply {
        match receipt {
            Ok(_) if is_put => Reply::ok(),
            Ok(Receipt { range, durability, .. }) => {
                Reply::ok_with(format_args!("{} {} {durability}", range.start.0, range.end.0))
            }
            Err(error @ Error::UnknownTopic { .. }) => error.reply(),
            Err(error) if is_put => {
                Reply::error(format_args!("forward append failed: {}", error.text()))
            }
            Err(error) => error.reply(),
        }
    }
}

/// Places an append, and tells what it waits for.
fn place(front: &Front, append: &Append) -> Result<(Appending, Durability), Error> {
    let stream = front.stream(&append.topic)?;
    let now_ms = front.catalog.store().clock().wall_ms();
    let entry = match append.values.as_slice() {
        [only] => Entry::of_record(only.clone(), now_ms),
        several => Entry::of_records(several, now_ms)?,
    };
    let appending = stream.append(&thetis_stream::Append {
        entry,
        expected: append.expected,
        session: append.session,
        attempt: append.attempt,
    })?;
    Ok((appending, stream.durability()))
}

/// Does any command but those the session does itself: PUT and APPEND, GET, READ and FOLLOW, HELLO,
/// AUTH and STOP. Blocks where metadata is written.
pub(crate) fn act(front: &Front, command: Command) -> Result<Reply, Error> {
    match command {
        Command::Register { topic, durability } => register(front, topic, durability),
        Command::State { topic } => state(front, &topic),
        Command::Metrics => Ok(metrics(front)),
        Command::Fetch { topic, offset } => fetch(front, &topic, offset),
        Command::Cursor { topic, name, at } => {
            let stream = front.stream(&topic)?;
            let at = place_of(front, &topic, &stream, &at)?;
            let cursor = front.cursors.get_or_make(stream.id(), &name, at)?;
            cursor.save()?;
            Ok(Reply::ok_with(cursor.position().0))
        }
        Command::Cursors { topic } => {
            let cursors = front.cursors.list(front.stream(&topic)?.id());
            Ok(Reply::ok_lines(cursors.into_iter().map(|(name, at)| format!("{name} {}", at.0))))
        }
        Command::Ack { topic, name, offset, is_relaxed } => {
            let (stream, cursor) = front.cursor(&topic, &name)?;
            acknowledge(&stream, &cursor, offset, is_relaxed)
        }
        Command::Seek { topic, name, to } => {
            let (stream, cursor) = front.cursor(&topic, &name)?;
            let to = place_of(front, &topic, &stream, &to)?;
            cursor.set(to);
            cursor.save()?;
            Ok(Reply::ok_with(to.0))
        }
        Command::Forget { topic, name } => {
            match front.cursors.forget(front.stream(&topic)?.id(), &name)? {
                true => Ok(Reply::ok()),
                false => Err(Error::UnknownCursor { topic, name }),
            }
        }
        Command::Topics => {
            let topics = front.catalog.list();
            let plain = topics.iter().filter(|topic| front.topic(&topic.name).is_ok());
            Ok(Reply::ok_lines(plain.take(TOPICS_SHOWN_MAX).map(|topic| topic.name.clone())))
        }
        Command::Trim { topic, before } => {
            Ok(Reply::ok_with(front.stream(&topic)?.trim(before)?.0))
        }
        Command::Drop { topic } => {
            let stream = front.stream(&topic)?;
            front.catalog.delete(&topic)?;
            // The name is free; what fails here is deleted at the next start.
            if let Err(error) = front.forget(stream.id()) {
                tracing::warn!(topic, %error, "cursors of a dropped topic are not deleted yet");
            }
            Ok(Reply::ok())
        }
        Command::Limits => Ok(limits(front)),
        command => exclusive(front, command),
    }
}

/// Sessions and attempts.
fn exclusive(front: &Front, command: Command) -> Result<Reply, Error> {
    match command {
        Command::Acquire { topic, lease } => {
            let session = front.stream(&topic)?.acquire(lease)?;
            Ok(Reply::ok_with(command::show_session(session)))
        }
        Command::Renew { topic, session, lease } => {
            front.stream(&topic)?.renew(session, lease)?;
            Ok(Reply::ok())
        }
        Command::Release { topic, session } => {
            front.stream(&topic)?.release(session)?;
            Ok(Reply::ok())
        }
        Command::Attempt { topic } => Ok(Reply::ok_with(front.stream(&topic)?.attempt())),
        Command::Resolve { topic, attempt } => {
            let stream = front.stream(&topic)?;
            Ok(Reply::ok_with(match stream.recover_append(attempt)? {
                Fate::Committed(range) => format!("committed {} {}", range.start.0, range.end.0),
                Fate::NotCommitted => "not-committed".to_owned(),
                Fate::Trimmed(start) => format!("trimmed {}", start.0),
            }))
        }
        command => unreachable!("the session does {command:?} itself"),
    }
}

fn register(front: &Front, topic: String, durability: Option<Durability>) -> Result<Reply, Error> {
    let level = durability.map(|level| ("thetis.durability".to_owned(), level.name().to_owned()));
    let spec = TopicSpec {
        name: topic.clone(),
        partitions: 1,
        format: Format::Plain,
        configs: level.into_iter().collect(),
    };
    match front.catalog.create(spec) {
        Ok(_) => Ok(Reply::ok()),
        Err(CatalogError::Exists { name }) => match durability {
            None => Ok(Reply::ok()),
            Some(wanted) => {
                let have = front.stream(&topic)?.durability();
                if have == wanted { Ok(Reply::ok()) } else { Err(Error::Differs { name, have }) }
            }
        },
        Err(error) => Err(error.into()),
    }
}

fn acknowledge(
    stream: &Stream,
    cursor: &Arc<Cursor>,
    offset: Offset,
    is_relaxed: bool,
) -> Result<Reply, Error> {
    let end = stream.committed_end();
    if offset > end {
        return Err(Error::PastEnd { at: offset, end });
    }
    let position = cursor.advance(offset);
    if is_relaxed {
        cursor.save_soon();
    } else {
        cursor.save()?;
    }
    Ok(Reply::ok_with(position.0))
}

/// The offset that a request names.
fn place_of(front: &Front, topic: &str, stream: &Stream, from: &From) -> Result<Offset, Error> {
    match from {
        From::Start => Ok(stream.trim_offset()),
        From::End => Ok(stream.committed_end()),
        From::At(at) => {
            let end = stream.committed_end();
            if *at > end { Err(Error::PastEnd { at: *at, end }) } else { Ok(*at) }
        }
        From::Cursor(name) => {
            let (_, cursor) = front.cursor(topic, name)?;
            Ok(cursor.position().max(stream.trim_offset()))
        }
    }
}

/// A place to read from, for READ and FOLLOW. It goes on where it stopped.
pub(crate) struct Reader {
    stream: Stream,
    at: Offset,
    records_max: usize,
    bytes_max: usize,
}

impl Reader {
    pub(crate) fn new(front: &Front, read: &Read) -> Result<Reader, Error> {
        let stream = front.stream(&read.topic)?;
        let at = place_of(front, &read.topic, &stream, &read.from)?;
        Ok(Reader { stream, at, records_max: read.records_max, bytes_max: read.bytes_max })
    }

    /// The offset read next.
    pub(crate) fn at(&self) -> Offset {
        self.at
    }

    /// Waits until there is something to read, or never will be: then false. Cancel safe.
    pub(crate) async fn ready(&self) -> bool {
        self.stream.wait_beyond(self.at).await > self.at
    }

    /// [`Reader::ready`], but no longer than `wait`. Cancel safe.
    pub(crate) async fn ready_within(&self, wait: Duration) {
        // What has not come by then is answered with EMPTY.
        let _ = tokio::time::timeout(wait, self.ready()).await;
    }

    /// What there is to read.
    pub(crate) fn read(&mut self) -> Result<Reply, Error> {
        let entries = match self.stream.read(self.at, self.bytes_max)? {
            thetis_stream::Read::Entries(entries) => entries,
            thetis_stream::Read::End(end) => return Ok(Reply::empty_at(end)),
            thetis_stream::Read::Trimmed(start) => {
                return Err(Error::Trimmed { at: self.at, start });
            }
        };
        let first = self.at;
        let (mut values, mut bytes) = (Vec::new(), 0);
        'full: for entry in &entries {
            for record in entry.records()? {
                let (offset, value) = record?;
                if offset < self.at {
                    continue;
                }
                bytes += value.len();
                if !values.is_empty()
                    && (values.len() == self.records_max || bytes > self.bytes_max)
                {
                    break 'full;
                }
                values.push(value);
                self.at = offset.plus(1);
            }
        }
        Ok(Reply::ok_records(first, &values))
    }
}

/// The record at an offset, and where the topic begins if it is not there any more.
fn record_at(stream: &Stream, offset: Offset) -> Result<Option<Bytes>, Error> {
    match stream.read(offset, 1)? {
        thetis_stream::Read::End(_) => Ok(None),
        thetis_stream::Read::Trimmed(start) => Err(Error::Trimmed { at: offset, start }),
        thetis_stream::Read::Entries(entries) => {
            let entry = entries.first().expect("a read that is not at the end has an entry");
            for record in entry.records()? {
                match record? {
                    (at, value) if at == offset => return Ok(Some(value)),
                    _ => {}
                }
            }
            Ok(None)
        }
    }
}

fn fetch(front: &Front, topic: &str, offset: Offset) -> Result<Reply, Error> {
    Ok(match record_at(&front.stream(topic)?, offset)? {
        Some(value) => Reply::ok_record(&format!("{} ", offset.0 + 1), &value),
        None => Reply::empty(),
    })
}

/// What GET answers; with a record, the record to be told of once the reply is written.
pub(crate) fn get(front: &Front, topic: &str) -> Result<(Reply, Option<Handed>), Error> {
    let stream = front.stream(topic)?;
    let queue = front.queue(&stream)?;
    loop {
        let (start, end) = (stream.trim_offset(), stream.committed_end());
        let Some(handed) = queue.take(start, end) else { return Ok((Reply::empty(), None)) };
        match record_at(&stream, handed.offset()) {
            Ok(Some(value)) => return Ok((Reply::ok_record("", &value), Some(handed))),
            Ok(None) => return Ok((Reply::empty(), None)),
            // Trimmed meanwhile; the next take passes over it.
            Err(Error::Trimmed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

fn state(front: &Front, topic: &str) -> Result<Reply, Error> {
    let stream = front.stream(topic)?;
    let queue = front.queue(&stream)?;
    let state = json!({
        "current_segment": ONE,
        "leader_node": ONE,
        "last_sealed_entry_offset": 0,
        "sealed_segments": {},
        "segment_leaders": { ONE.to_string(): ONE },
        "start": stream.trim_offset().0,
        "end": stream.committed_end().0,
        "queue": queue.position().0,
        "bytes": stream.head().bytes,
        "epoch": stream.epoch().0,
        "durability": stream.durability().name(),
    });
    Ok(Reply::bare(state.to_string()))
}

/// One node that leads itself. The index is the number of commits of all topics.
fn metrics(front: &Front) -> Reply {
    let topics = front.catalog.list();
    let streams = topics.iter().flat_map(|topic| &topic.partitions);
    let commits: u64 = streams.clone().map(|stream| stream.head().version.0).sum();
    let term = streams.map(|stream| stream.epoch().0).max().unwrap_or(0);
    let leader = json!({ "term": term, "node_id": ONE });
    let applied = json!({ "leader_id": leader, "index": commits });
    let metrics = json!({
        "running_state": { "Ok": null },
        "id": ONE,
        "current_term": term,
        "vote": { "leader_id": leader, "committed": true },
        "last_log_index": commits,
        "last_applied": applied,
        "snapshot": null,
        "purged": null,
        "state": "Leader",
        "current_leader": ONE,
        "millis_since_quorum_ack": 0,
        "last_quorum_acked": null,
        "membership_config": {
            "log_id": null,
            "membership": {
                "configs": [[ONE]],
                "nodes": { ONE.to_string(): { "addr": front.settings.address } },
            },
        },
        "heartbeat": { ONE.to_string(): null },
        "replication": { ONE.to_string(): applied },
        "topics": topics.len(),
    });
    Reply::bare(format!("{metrics:#}"))
}

fn limits(front: &Front) -> Reply {
    let rows = [
        ("request_bytes_max", REQUEST_BYTES_MAX_FIRST as u64, "bytes"),
        ("request_bytes_max_after_hello", REQUEST_BYTES_MAX as u64, "bytes"),
        ("append_records_max", command::APPEND_RECORDS_MAX as u64, "records"),
        ("read_records_max", command::READ_RECORDS_MAX as u64, "records"),
        ("read_bytes_max", command::READ_BYTES_MAX as u64, "bytes"),
        ("read_wait_max", command::READ_WAIT_MAX.as_secs(), "seconds"),
        ("lease_max", command::LEASE_MAX.as_secs(), "seconds"),
        ("cursors_max", CURSORS_MAX as u64, "cursors"),
        ("connections_max", front.settings.connections_max as u64, "connections"),
        ("connection_idle_max", front.settings.connection_idle_max.as_secs(), "seconds"),
    ];
    Reply::ok_lines(rows.into_iter().map(|(name, value, unit)| format!("{name} {value} {unit}")))
}
