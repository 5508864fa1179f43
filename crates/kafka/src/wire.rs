//! The Kafka wire codec: bytes to messages and back, for brokers and for clients. Pure: no I/O, no
//! async, no knowledge of storage. Who answers what is the session's business.
//!
//! ```text
//! frame     length (i32) | header | body
//! request   api key, version, correlation id, client id | tags when flexible | body
//! response  correlation id | tags when flexible, but never for ApiVersions | body
//! ```
//!
//! - this file: frames, headers and [`ApiKey`], the one table of what is served;
//! - `reader`, `writer`: bytes of one frame, and every bound on what it may cost;
//! - `primitives`: integers, strings, payloads, arrays;
//! - `table`: the macro in which messages are written down;
//! - `produce`, `fetch`, `cluster`, `group`, `offsets`, `topics`: the messages, by family;
//! - `errors`: the error codes.

mod cluster;
#[cfg(test)]
mod document_test;
mod errors;
mod fetch;
#[cfg(test)]
mod golden_test;
mod group;
mod offsets;
#[cfg(test)]
mod oracle_test;
mod primitives;
mod produce;
mod reader;
#[cfg(test)]
mod round_trip_test;
#[cfg(test)]
mod sample;
mod table;
mod topics;
mod writer;

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use thetis_types::ErrorKind;

pub use cluster::*;
pub use errors::ErrorCode;
pub use fetch::*;
pub use group::*;
pub use offsets::*;
pub use primitives::{Records, STRING_BYTES_MAX, Uuid, Wire};
pub use produce::*;
pub(crate) use reader::read_varint;
pub use reader::{DecodeError, DecodeFault, FRAME_ALLOC_BYTES_MAX, Reader};
pub use topics::*;
pub(crate) use writer::write_varint;
pub use writer::{EncodeError, PAYLOAD_COPY_BYTES_MAX, Writer};

/// Bytes of one frame after its length, unless the listener sets less.
pub const FRAME_BYTES_MAX: usize = 100 << 20;

/// Fewest bytes of a request: key, version and correlation id.
const REQUEST_BYTES_MIN: usize = 8;

table::messages! {
    /// A leader and its term; -1 and -1 when not said.
    pub struct LeaderIdAndEpoch {
        leader_id: i32 [0..] = -1,
        leader_epoch: i32 [0..] = -1,
    }
    /// Where a broker listens.
    pub struct NodeEndpoint {
        node_id: i32 [0..],
        host: String [0..],
        port: i32 [0..],
        rack: Option<String> [0.., nullable 0],
    }
}

/// A request of a client, with its answer: what [`encode_request`] and [`decode_response`] go by.
pub trait Call: Wire {
    /// The API it belongs to.
    const API: ApiKey;
    /// What answers it.
    type Response: Wire;
}

macro_rules! apis {
    ($(
        $name:ident = $key:literal, served $min:literal to $max:literal,
        advertised from $advertised:literal, flexible from $flexible:literal,
        $request:ident => $response:ident;
    )*) => {
        /// The APIs spoken, and the one place that says in which versions.
        #[allow(missing_docs, reason = "the names are the protocol's")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i16)]
        pub enum ApiKey {
            $( $name = $key, )*
        }

        impl ApiKey {
            /// All APIs, by number.
            pub const ALL: &[ApiKey] = &[$(ApiKey::$name),*];

            /// The API with this number.
            #[must_use]
            pub const fn from_key(key: i16) -> Option<ApiKey> {
                match key {
                    $( $key => Some(ApiKey::$name), )*
                    _ => None,
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn key(self) -> i16 {
                self as i16
            }

            /// The protocol's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( ApiKey::$name => stringify!($name), )*
                }
            }

            /// Lowest version with a table here; below it a request is refused.
            #[must_use]
            pub const fn version_min(self) -> i16 {
                match self {
                    $( ApiKey::$name => $min, )*
                }
            }

            /// Highest version with a table here; above it a request is refused.
            #[must_use]
            pub const fn version_max(self) -> i16 {
                match self {
                    $( ApiKey::$name => $max, )*
                }
            }

            /// Lowest version an ApiVersions answer names.
            ///
            /// SUBTLE: for Produce this is 0, which is refused. Clients on librdkafka look for the
            /// old versions in the list before they compress, and never send them.
            #[must_use]
            pub const fn version_advertised_min(self) -> i16 {
                match self {
                    $( ApiKey::$name => $advertised, )*
                }
            }

            /// Whether this version has compact lengths and tagged fields.
            #[must_use]
            pub const fn flexible(self, version: i16) -> bool {
                match self {
                    $( ApiKey::$name => version >= $flexible, )*
                }
            }
        }

        /// A request with its body.
        #[allow(missing_docs, reason = "the names are the protocol's")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Request {
            $( $name($request), )*
        }

        impl Request {
            /// Reads the body of a request.
            ///
            /// Bytes after the body are left alone, as Apache Kafka does.
            ///
            /// # Errors
            /// [`DecodeError`], also for a version that is not served. `at` counts from the start
            /// of `body`.
            pub fn decode(api: ApiKey, version: i16, body: Bytes) -> Result<Request, DecodeError> {
                let mut reader = body_reader(api, version, body)?;
                match api {
                    $( ApiKey::$name => Wire::decode(&mut reader, false).map(Request::$name), )*
                }
            }

            /// The API it belongs to.
            #[must_use]
            pub fn api(&self) -> ApiKey {
                match self {
                    $( Request::$name(_) => ApiKey::$name, )*
                }
            }
        }

        /// An answer with its body.
        #[allow(missing_docs, reason = "the names are the protocol's")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Response {
            $( $name($response), )*
        }

        impl Response {
            /// The API it belongs to.
            #[must_use]
            pub fn api(&self) -> ApiKey {
                match self {
                    $( Response::$name(_) => ApiKey::$name, )*
                }
            }

            /// The frame that answers the request `correlation_id`, as segments to be sent in
            /// order.
            ///
            /// # Errors
            /// [`EncodeError`], also for a version that is not served.
            pub fn encode(
                &self,
                version: i16,
                correlation_id: i32,
            ) -> Result<Vec<Bytes>, EncodeError> {
                match self {
                    $( Response::$name(body) => {
                        encode_response(ApiKey::$name, version, correlation_id, body)
                    } )*
                }
            }
        }

        $(
            impl Call for $request {
                const API: ApiKey = ApiKey::$name;
                type Response = $response;
            }
            impl From<$request> for Request {
                fn from(body: $request) -> Request {
                    Request::$name(body)
                }
            }
            impl From<$response> for Response {
                fn from(body: $response) -> Response {
                    Response::$name(body)
                }
            }
        )*
    };
}

apis! {
    Produce = 0, served 3 to 11, advertised from 0, flexible from 9,
        ProduceRequest => ProduceResponse;
    Fetch = 1, served 4 to 16, advertised from 4, flexible from 12,
        FetchRequest => FetchResponse;
    ListOffsets = 2, served 1 to 9, advertised from 1, flexible from 6,
        ListOffsetsRequest => ListOffsetsResponse;
    Metadata = 3, served 0 to 12, advertised from 0, flexible from 9,
        MetadataRequest => MetadataResponse;
    OffsetCommit = 8, served 2 to 9, advertised from 2, flexible from 8,
        OffsetCommitRequest => OffsetCommitResponse;
    OffsetFetch = 9, served 1 to 9, advertised from 1, flexible from 6,
        OffsetFetchRequest => OffsetFetchResponse;
    FindCoordinator = 10, served 0 to 6, advertised from 0, flexible from 3,
        FindCoordinatorRequest => FindCoordinatorResponse;
    JoinGroup = 11, served 0 to 9, advertised from 0, flexible from 6,
        JoinGroupRequest => JoinGroupResponse;
    Heartbeat = 12, served 0 to 4, advertised from 0, flexible from 4,
        HeartbeatRequest => HeartbeatResponse;
    LeaveGroup = 13, served 0 to 5, advertised from 0, flexible from 4,
        LeaveGroupRequest => LeaveGroupResponse;
    SyncGroup = 14, served 0 to 5, advertised from 0, flexible from 4,
        SyncGroupRequest => SyncGroupResponse;
    DescribeGroups = 15, served 0 to 5, advertised from 0, flexible from 5,
        DescribeGroupsRequest => DescribeGroupsResponse;
    ListGroups = 16, served 0 to 5, advertised from 0, flexible from 3,
        ListGroupsRequest => ListGroupsResponse;
    ApiVersions = 18, served 0 to 4, advertised from 0, flexible from 3,
        ApiVersionsRequest => ApiVersionsResponse;
    CreateTopics = 19, served 2 to 7, advertised from 2, flexible from 5,
        CreateTopicsRequest => CreateTopicsResponse;
    DeleteTopics = 20, served 1 to 6, advertised from 1, flexible from 4,
        DeleteTopicsRequest => DeleteTopicsResponse;
    DeleteRecords = 21, served 0 to 2, advertised from 0, flexible from 2,
        DeleteRecordsRequest => DeleteRecordsResponse;
    InitProducerId = 22, served 0 to 5, advertised from 0, flexible from 2,
        InitProducerIdRequest => InitProducerIdResponse;
    OffsetForLeaderEpoch = 23, served 2 to 4, advertised from 2, flexible from 4,
        OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse;
    DescribeConfigs = 32, served 1 to 4, advertised from 1, flexible from 4,
        DescribeConfigsRequest => DescribeConfigsResponse;
    AlterConfigs = 33, served 0 to 2, advertised from 0, flexible from 2,
        AlterConfigsRequest => AlterConfigsResponse;
    CreatePartitions = 37, served 0 to 3, advertised from 0, flexible from 2,
        CreatePartitionsRequest => CreatePartitionsResponse;
    DeleteGroups = 42, served 0 to 2, advertised from 0, flexible from 2,
        DeleteGroupsRequest => DeleteGroupsResponse;
    IncrementalAlterConfigs = 44, served 0 to 1, advertised from 0, flexible from 1,
        IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse;
    DescribeCluster = 60, served 0 to 2, advertised from 0, flexible from 0,
        DescribeClusterRequest => DescribeClusterResponse;
}

impl ApiKey {
    /// Whether this version is served.
    #[must_use]
    pub const fn serves(self, version: i16) -> bool {
        self.version_min() <= version && version <= self.version_max()
    }

    /// What an ApiVersions answer lists.
    #[must_use]
    pub fn advertised() -> Vec<ApiVersion> {
        let advertise = |api: &ApiKey| ApiVersion {
            api_key: api.key(),
            min_version: api.version_advertised_min(),
            max_version: api.version_max(),
        };
        ApiKey::ALL.iter().map(advertise).collect()
    }

    /// SUBTLE: a client that asks for versions does not know yet whether the broker understands
    /// flexible headers, so the header of that answer never is.
    fn response_header_flexible(self, version: i16) -> bool {
        self != ApiKey::ApiVersions && self.flexible(version)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A frame that cannot be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A length below zero.
    #[error("frame length {0} is negative; the peer does not speak kafka")]
    Negative(i32),
    /// A length above the listener's limit.
    #[error("frame of {bytes} bytes is above the limit of {max}; raise it or send less")]
    TooLarge {
        /// Bytes announced.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
}

impl FrameError {
    /// What to do about it: send something else.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// Cuts the first frame off `buffer`, without its length and without copying. `None` when it has
/// not arrived completely.
///
/// # Errors
/// [`FrameError`], as soon as the length has arrived; nothing is allocated for it.
pub fn split_frame(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    let bytes = usize::try_from(length).map_err(|_negative| FrameError::Negative(length))?;
    if bytes > bytes_max {
        return Err(FrameError::TooLarge { bytes, max: bytes_max });
    }
    if buffer.len() - 4 < bytes {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(bytes).freeze()))
}

/// What stands in front of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Number of the API; see [`ApiKey::from_key`]. It may be one we do not know.
    pub api_key: i16,
    /// Version of the API; it may be one we do not serve.
    pub api_version: i16,
    /// Comes back in the answer.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<String>,
}

impl RequestHeader {
    /// The API, if it is one of ours.
    #[must_use]
    pub fn api(&self) -> Option<ApiKey> {
        ApiKey::from_key(self.api_key)
    }

    /// Reads the header of a request; the rest is the body, a slice of the frame.
    ///
    /// For an API or version that is not served the body's start is unknown: what comes after the
    /// correlation id is then left in it, and `client_id` is `None`. That is enough to answer with
    /// UNSUPPORTED_VERSION.
    ///
    /// # Errors
    /// [`DecodeError`] when the frame is no request.
    pub fn decode(frame: Bytes) -> Result<(RequestHeader, Bytes), DecodeError> {
        let in_header = |error: DecodeError| error.in_field("request header");
        let mut reader = Reader::new(frame, 0, false);
        if reader.remaining() < REQUEST_BYTES_MIN {
            let have = reader.remaining();
            let fault = DecodeFault::Truncated { need: REQUEST_BYTES_MIN, have };
            return Err(DecodeError { at: 0, what: "request header", fault });
        }
        let mut header = RequestHeader {
            api_key: i16::decode(&mut reader, false).map_err(in_header)?,
            api_version: i16::decode(&mut reader, false).map_err(in_header)?,
            correlation_id: i32::decode(&mut reader, false).map_err(in_header)?,
            client_id: None,
        };
        let version = header.api_version;
        if let Some(api) = header.api().filter(|api| api.serves(version)) {
            // The client id keeps the older encoding in flexible headers too.
            header.client_id = Wire::decode(&mut reader, true).map_err(in_header)?;
            if api.flexible(version) {
                reader.set_flexible(true);
                reader.tagged_fields(|_tag, _reader| Ok(false)).map_err(in_header)?;
            }
        }
        Ok((header, reader.rest()))
    }
}

fn body_reader(api: ApiKey, version: i16, body: Bytes) -> Result<Reader, DecodeError> {
    if api.serves(version) {
        return Ok(Reader::new(body, version, api.flexible(version)));
    }
    let (min, max) = (api.version_min(), api.version_max());
    let fault = DecodeFault::Version { found: version, min, max };
    Err(DecodeError { at: 0, what: api.name(), fault })
}

fn body_writer(api: ApiKey, version: i16) -> Result<Writer, EncodeError> {
    if api.serves(version) {
        return Ok(Writer::framed(version, false));
    }
    let (min, max) = (api.version_min(), api.version_max());
    Err(EncodeError::Version { found: version, min, max })
}

/// The frame of a request, as segments to be sent in order.
///
/// # Errors
/// [`EncodeError`], also for a version this codec has no table for.
pub fn encode_request<R: Call>(
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    body: &R,
) -> Result<Vec<Bytes>, EncodeError> {
    let mut writer = body_writer(R::API, version)?;
    R::API.key().encode(&mut writer, false);
    version.encode(&mut writer, false);
    correlation_id.encode(&mut writer, false);
    client_id.map(str::to_owned).encode(&mut writer, true);
    if R::API.flexible(version) {
        writer.set_flexible(true);
        writer.tagged_fields(Vec::new());
    }
    body.encode(&mut writer, false);
    writer.frame()
}

fn encode_response<T: Wire>(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    body: &T,
) -> Result<Vec<Bytes>, EncodeError> {
    let mut writer = body_writer(api, version)?;
    correlation_id.encode(&mut writer, false);
    writer.set_flexible(api.flexible(version));
    if api.response_header_flexible(version) {
        writer.tagged_fields(Vec::new());
    }
    body.encode(&mut writer, false);
    writer.frame()
}

/// Reads the answer to a request of type `R`: correlation id and body.
///
/// An ApiVersions answer may come in version 0 although a later one was asked for: a broker that
/// does not serve the version asked for says so in version 0, with UNSUPPORTED_VERSION. It is read
/// as such.
///
/// # Errors
/// [`DecodeError`] when the frame is no such answer. `at` counts from the start of `frame`.
pub fn decode_response<R: Call>(
    version: i16,
    frame: Bytes,
) -> Result<(i32, R::Response), DecodeError> {
    let in_header = |error: DecodeError| error.in_field("response header");
    let refused = R::API == ApiKey::ApiVersions
        && frame.get(4..6) == Some(&ErrorCode::UnsupportedVersion.code().to_be_bytes());
    let version = if refused { 0 } else { version };
    let mut reader = body_reader(R::API, version, frame)?;
    let flexible = reader.flexible();
    reader.set_flexible(R::API.response_header_flexible(version));
    let correlation_id = i32::decode(&mut reader, false).map_err(in_header)?;
    reader.tagged_fields(|_tag, _reader| Ok(false)).map_err(in_header)?;
    reader.set_flexible(flexible);
    Ok((correlation_id, R::Response::decode(&mut reader, false)?))
}
