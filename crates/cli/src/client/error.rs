//! What can go wrong between a command and a server, as facts; the message names the value and
//! `hint` the remedy.

use std::io;

use thetis_kafka::records::BatchError;
use thetis_kafka::wire::{ApiKey, DecodeError, EncodeError, ErrorCode, FrameError};
use thetis_types::{ErrorKind, Outcome};

use crate::config::value::Address;
use crate::exit::{Exit, Failure};

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No connection.
    #[error("nothing answers at {address}: {error}")]
    Unreachable {
        /// Where.
        address: Address,
        /// What the system says.
        error: io::Error,
        /// The server that named this address, when it is not the user's own.
        named_by: Option<Address>,
    },
    /// What answers is no Kafka server.
    #[error("what answers at {address} does not speak the Kafka protocol: {reason}")]
    NotKafka {
        /// Where.
        address: Address,
        /// What came instead.
        reason: String,
    },
    /// The connection ended before the answer; the request may have been carried out.
    #[error("{address} went away before it answered {api}: {error}")]
    Lost {
        /// Where.
        address: Address,
        /// What was asked.
        api: ApiKey,
        /// What the system says.
        error: io::Error,
    },
    /// The answer is not one.
    #[error("the answer of {address} to {api} makes no sense: {error}")]
    Garbled {
        /// Where.
        address: Address,
        /// What was asked.
        api: ApiKey,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A frame that cannot be an answer.
    #[error("the answer of {address} to {api} cannot be read: {error}")]
    Frame {
        /// Where.
        address: Address,
        /// What was asked.
        api: ApiKey,
        /// What is wrong with it.
        error: FrameError,
    },
    /// An answer to something else.
    #[error("{address} answered request {found} where {expected} was asked")]
    OutOfStep {
        /// Where.
        address: Address,
        /// Number of the request that was sent.
        expected: i32,
        /// Number in the answer.
        found: i32,
    },
    /// No version in common.
    #[error("{address} speaks {api} in {theirs}, this client in {min} to {max}")]
    Version {
        /// Where.
        address: Address,
        /// What was to be asked.
        api: ApiKey,
        /// `no version` or `versions 0 to 2`.
        theirs: String,
        /// Lowest of ours.
        min: i16,
        /// Highest of ours.
        max: i16,
    },
    /// A request that has no place on the wire.
    #[error("could not write {api}: {error}")]
    Encode {
        /// What was to be asked.
        api: ApiKey,
        /// Why not.
        error: EncodeError,
    },
    /// The server refused.
    #[error("could not {what}: {code}{}", Detail(message.as_deref()))]
    Refused {
        /// What was asked, such as `create topic a`.
        what: String,
        /// The server's code.
        code: ErrorCode,
        /// The server's own words.
        message: Option<String>,
    },
    /// The topic is not there.
    #[error("topic {topic} does not exist on {address}")]
    UnknownTopic {
        /// The name asked for.
        topic: String,
        /// Where.
        address: Address,
        /// A topic with a name like it.
        nearest: Option<String>,
    },
    /// The partition is not there.
    #[error("topic {topic} has partitions 0 to {last}, not {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition asked for.
        partition: i32,
        /// Its last one.
        last: i32,
    },
    /// The offset asked for is not there.
    #[error("partition {partition} of {topic} has offsets from {start} up to {end}, not {offset}")]
    OffsetOutOfRange {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset asked for.
        offset: i64,
        /// First offset there.
        start: i64,
        /// First offset not there yet.
        end: i64,
    },
    /// Stored records that cannot be read.
    #[error("could not read partition {partition} of {topic} at offset {offset}: {error}")]
    Records {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Where in it.
        offset: i64,
        /// What is wrong.
        error: BatchError,
    },
    /// Records that do not make a batch.
    #[error("could not make a batch of records: {error}")]
    Unsealed {
        /// Why not.
        error: BatchError,
    },
    /// Records whose fate is unknown after every attempt to resolve it.
    #[error(
        "{records} records for partition {partition} of {topic} may or may not have been written: \
         {cause}"
    )]
    Uncertain {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// How many.
        records: u32,
        /// Why it could not be resolved.
        cause: Box<ClientError>,
    },
}

/// Shows the server's own words, when there are any.
struct Detail<'a>(Option<&'a str>);

impl std::fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |words| write!(f, ": {words}"))
    }
}

impl ClientError {
    /// Refusal with the code and words of an answer; nothing when the code says all is well.
    pub(super) fn check(
        code: ErrorCode,
        message: Option<&str>,
        what: impl FnOnce() -> String,
    ) -> Result<(), ClientError> {
        if code == ErrorCode::None {
            return Ok(());
        }
        let message = message.filter(|words| !words.is_empty()).map(str::to_owned);
        Err(ClientError::Refused { what: what(), code, message })
    }

    /// Whether the connection cannot be used after this.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(
            self,
            ClientError::Lost { .. }
                | ClientError::Garbled { .. }
                | ClientError::Frame { .. }
                | ClientError::OutOfStep { .. }
        )
    }

    /// Whether the same request may succeed later. Repeating it must be safe.
    pub(super) fn retriable(&self) -> bool {
        match self {
            ClientError::Lost { .. } => true,
            // The one code that clients may retry and this one had better not: bytes that were
            // damaged on the way once are damaged on every way.
            ClientError::Refused { code, .. } => {
                code.retriable() && *code != ErrorCode::CorruptMessage
            }
            _ => false,
        }
    }

    /// What to do about it.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            ClientError::Unreachable { .. } | ClientError::Lost { .. } => ErrorKind::Unavailable,
            ClientError::NotKafka { .. }
            | ClientError::Version { .. }
            | ClientError::Encode { .. }
            | ClientError::Unsealed { .. }
            | ClientError::OffsetOutOfRange { .. } => ErrorKind::Invalid,
            ClientError::Garbled { .. }
            | ClientError::Frame { .. }
            | ClientError::OutOfStep { .. } => ErrorKind::Internal,
            ClientError::Refused { code: ErrorCode::TopicAlreadyExists, .. } => ErrorKind::Exists,
            ClientError::Refused { code, .. } if code.retriable() => ErrorKind::Unavailable,
            ClientError::Refused { .. } => ErrorKind::Invalid,
            ClientError::UnknownTopic { .. } | ClientError::UnknownPartition { .. } => {
                ErrorKind::NotFound
            }
            ClientError::Records { .. } => ErrorKind::Corrupt,
            ClientError::Uncertain { cause, .. } => cause.kind(),
        }
    }

    /// Whether the request was carried out (law CERTAIN).
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            ClientError::Uncertain { .. } => Outcome::MayHaveCommitted,
            error if error.ends_connection() => Outcome::MayHaveCommitted,
            // Refusals after which the leader may have written all the same.
            ClientError::Refused {
                code:
                    ErrorCode::RequestTimedOut
                    | ErrorCode::NotEnoughReplicasAfterAppend
                    | ErrorCode::UnknownServerError,
                ..
            } => Outcome::MayHaveCommitted,
            _ => Outcome::NotCommitted,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            ClientError::Unreachable { address, named_by: Some(by), .. } => Some(format!(
                "{by} tells its clients to come back to {address}; set its kafka.advertised to an \
                 address that can be reached from here"
            )),
            ClientError::Unreachable { address, .. } => Some(format!(
                "start a node with `thetis serve --kafka {address}`, or name another with --server"
            )),
            ClientError::NotKafka { .. } => {
                Some("name the Kafka listener of a node with --server HOST:PORT".to_owned())
            }
            ClientError::UnknownTopic { topic, nearest, .. } => Some(match nearest {
                Some(name) => format!("did you mean {name}? `thetis topic list` shows all"),
                None => format!("create it with `thetis topic create {topic}`"),
            }),
            ClientError::OffsetOutOfRange { .. } => {
                Some("start with --from beginning, --from end or an offset in between".to_owned())
            }
            ClientError::Refused { code: ErrorCode::MessageTooLarge, .. } => Some(
                "send smaller batches with --batch-bytes, or create the topic with a larger \
                 `--set max.message.bytes=`"
                    .to_owned(),
            ),
            ClientError::Uncertain { topic, partition, .. } => Some(format!(
                "look with `thetis consume {topic} --partition {partition} --from end-10` before \
                 sending again"
            )),
            _ => None,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let exit = match (&error, error.outcome(), error.kind()) {
            (ClientError::Unreachable { .. }, ..) => Exit::Unreachable,
            (_, Outcome::MayHaveCommitted, _) => Exit::Uncertain,
            (_, _, ErrorKind::Corrupt) => Exit::Damaged,
            _ => Exit::Failed,
        };
        let failure = Failure::new(exit, error.to_string());
        match error.remedy() {
            Some(remedy) => failure.hint(remedy),
            None => failure,
        }
    }
}
