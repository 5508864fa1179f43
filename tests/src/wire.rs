//! A small Kafka client of our own, for bytes that no ordinary client would send and answers that
//! ordinary clients hide: the requests the tests need, each in one fixed version.
//!
//! It is written apart from the product's codec, by the published protocol, and its expectations were
//! checked against Apache Kafka. Not for speed: one request at a time, unless a test pipelines by itself.

pub mod batch;
pub mod codec;
pub mod requests;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use codec::{Reader, Writer};

/// How long an answer may take. Long polls of the tests ask for more than this, so that only a
/// wake-up can answer them in time.
pub const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Bytes of one answer at most.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The APIs that the tests speak.
pub mod api {
    #![expect(missing_docs, reason = "the names are the protocol's")]
    pub const PRODUCE: i16 = 0;
    pub const FETCH: i16 = 1;
    pub const LIST_OFFSETS: i16 = 2;
    pub const METADATA: i16 = 3;
    pub const FIND_COORDINATOR: i16 = 10;
    pub const JOIN_GROUP: i16 = 11;
    pub const HEARTBEAT: i16 = 12;
    pub const SYNC_GROUP: i16 = 14;
    pub const API_VERSIONS: i16 = 18;
    pub const CREATE_TOPICS: i16 = 19;
    pub const DELETE_TOPICS: i16 = 20;
    pub const DELETE_RECORDS: i16 = 21;
    pub const INIT_PRODUCER_ID: i16 = 22;
}

/// The error codes that the tests expect.
pub mod code {
    #![expect(missing_docs, reason = "the names are the protocol's")]
    pub const NONE: i16 = 0;
    pub const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub const CORRUPT_MESSAGE: i16 = 2;
    pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub const MESSAGE_TOO_LARGE: i16 = 10;
    pub const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    pub const NOT_COORDINATOR: i16 = 16;
    pub const REBALANCE_IN_PROGRESS: i16 = 27;
    pub const UNSUPPORTED_VERSION: i16 = 35;
    pub const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
    pub const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
    pub const UNKNOWN_TOPIC_ID: i16 = 100;
    pub const INCONSISTENT_TOPIC_ID: i16 = 103;
}

/// One connection. Every failure to speak is an `io::Error`; tests that expect none unwrap it.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    correlation: i32,
}

impl Connection {
    /// Connects, with `ANSWER_WAIT` as the limit of every read.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn open(address: &str) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Connection { stream, correlation: 0 })
    }

    /// The bare socket, for bytes that are no request.
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a request and gives its correlation id.
    ///
    /// # Errors
    /// When the peer has closed.
    pub fn send(&mut self, key: i16, version: i16, body: &Writer) -> std::io::Result<i32> {
        self.correlation += 1;
        self.stream.write_all(&frame(key, version, self.correlation, body))?;
        Ok(self.correlation)
    }

    /// Receives one answer: its correlation id and all that follows it.
    ///
    /// # Errors
    /// When the peer closes, or stays silent for `ANSWER_WAIT`.
    pub fn receive(&mut self) -> std::io::Result<(i32, Reader)> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).expect("a length is positive");
        assert!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes is absurd");
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        let mut reader = Reader::new(bytes);
        let correlation = reader.i32();
        Ok((correlation, reader))
    }

    /// Sends a request and receives its answer, without the correlation id and, where the version is
    /// flexible, without the header's tags.
    ///
    /// # Errors
    /// As `send` and `receive`.
    ///
    /// # Panics
    /// When the answer is not the one to this request.
    pub fn call(&mut self, key: i16, version: i16, body: &Writer) -> std::io::Result<Reader> {
        let sent = self.send(key, version, body)?;
        let (received, mut reader) = self.receive()?;
        assert_eq!(received, sent, "answers must come in the order of the requests");
        if is_flexible(key, version) && key != api::API_VERSIONS {
            reader.tags();
        }
        Ok(reader)
    }
}

/// A whole request as bytes, length first.
#[must_use]
pub fn frame(key: i16, version: i16, correlation: i32, body: &Writer) -> Vec<u8> {
    let mut header = Writer::new();
    header.i16(key).i16(version).i32(correlation).string(Some("thetis-e2e"));
    if is_flexible(key, version) {
        header.tags();
    }
    let length = header.bytes.len() + body.bytes.len();
    let length = i32::try_from(length).expect("a request is smaller than 2 GiB");
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(&header.bytes);
    framed.extend_from_slice(&body.bytes);
    framed
}

/// Whether a version that the tests use has compact strings and tags.
fn is_flexible(key: i16, version: i16) -> bool {
    match key {
        api::API_VERSIONS => version >= 3,
        api::METADATA => version >= 9,
        api::FETCH => version >= 12,
        _ => false,
    }
}
