//! One connection: opened, told what the server speaks, then one request and one answer at a time.
//! Owns sockets, deadlines and the choice of versions. Never retries.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thetis_kafka::wire::{
    ApiKey, ApiVersionsRequest, Call, ErrorCode, FRAME_BYTES_MAX, FrameError, decode_response,
    encode_request,
};
use thetis_net::Socket;
use thetis_net::tls::ClientConfig;

use super::ANSWER_WAIT;
use super::error::ClientError;
use crate::config::value::Address;

/// What this client calls itself.
const CLIENT_ID: &str = "thetis-cli";

/// A connection on which nothing is under way.
pub(super) struct Connection {
    address: Address,
    stream: Socket,
    correlation_id: i32,
    /// Versions the server speaks, by API number.
    versions: BTreeMap<i16, RangeInclusive<i16>>,
}

impl Connection {
    /// Connects and asks what the server speaks.
    pub(super) fn open(
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Connection, ClientError> {
        let unreachable =
            |error| ClientError::Unreachable { address: address.clone(), error, named_by: None };
        let stream = Socket::connect(&address.host, address.port, tls).map_err(unreachable)?;
        let mut connection = Connection {
            address: address.clone(),
            stream,
            correlation_id: 0,
            versions: BTreeMap::new(),
        };
        // Version 0 is the one that every server answers.
        let not_kafka = |reason: String| ClientError::NotKafka { address: address.clone(), reason };
        let answer = connection
            .exchange(&ApiVersionsRequest::default(), 0, Duration::ZERO)
            .map_err(|error| not_kafka(error.to_string()))?;
        if answer.error_code != ErrorCode::None {
            return Err(not_kafka(answer.error_code.to_string()));
        }
        let spoken = answer.api_keys.iter();
        connection.versions =
            spoken.map(|api| (api.api_key, api.min_version..=api.max_version)).collect();
        Ok(connection)
    }

    /// Sends a request in the highest version both sides know, up to `version_max`, and waits for
    /// its answer: `wait` is what the request allows the server, to which [`ANSWER_WAIT`] is added.
    ///
    /// # Errors
    /// After one that [`ClientError::ends_connection`] the connection must be dropped.
    pub(super) fn call<R: Call>(
        &mut self,
        request: &R,
        version_max: i16,
        wait: Duration,
    ) -> Result<R::Response, ClientError> {
        let (min, max) = (R::API.version_min(), R::API.version_max().min(version_max));
        let theirs = self.versions.get(&R::API.key());
        let version = theirs.map(|theirs| max.min(*theirs.end()));
        match (version, theirs) {
            (Some(version), Some(theirs)) if version >= min && version >= *theirs.start() => {
                self.exchange(request, version, wait)
            }
            _ => Err(ClientError::Version {
                address: self.address.clone(),
                api: R::API,
                theirs: theirs.map_or("no version".to_owned(), |range| {
                    format!("versions {} to {}", range.start(), range.end())
                }),
                min,
                max,
            }),
        }
    }

    fn exchange<R: Call>(
        &mut self,
        request: &R,
        version: i16,
        wait: Duration,
    ) -> Result<R::Response, ClientError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let segments = encode_request(version, self.correlation_id, Some(CLIENT_ID), request)
            .map_err(|error| ClientError::Encode { api: R::API, error })?;
        let deadline = self.stream.set_timeouts(Some(ANSWER_WAIT + wait), Some(ANSWER_WAIT));
        deadline.map_err(|error| self.lost(R::API, error))?;
        let sent = segments.iter().try_for_each(|segment| self.stream.write_all(segment));
        sent.map_err(|error| self.lost(R::API, error))?;
        let frame = self.read_frame(R::API)?;
        let (found, answer) = decode_response::<R>(version, frame).map_err(|error| {
            ClientError::Garbled { address: self.address.clone(), api: R::API, error }
        })?;
        if found != self.correlation_id {
            let (address, expected) = (self.address.clone(), self.correlation_id);
            return Err(ClientError::OutOfStep { address, expected, found });
        }
        Ok(answer)
    }

    fn read_frame(&mut self, api: ApiKey) -> Result<Bytes, ClientError> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(|error| self.lost(api, error))?;
        let length = i32::from_be_bytes(length);
        let bad_frame = |error| ClientError::Frame { address: self.address.clone(), api, error };
        let bytes = usize::try_from(length).map_err(|_| bad_frame(FrameError::Negative(length)))?;
        if bytes > FRAME_BYTES_MAX {
            return Err(bad_frame(FrameError::TooLarge { bytes, max: FRAME_BYTES_MAX }));
        }
        // Grows with what arrives, so that a length alone costs nothing.
        let mut frame = Vec::new();
        let read =
            (&mut self.stream).take(u64::from(length.unsigned_abs())).read_to_end(&mut frame);
        match read {
            Ok(read) if read == bytes => Ok(Bytes::from(frame)),
            Ok(_) => Err(self.lost(api, io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.lost(api, error)),
        }
    }

    fn lost(&self, api: ApiKey, error: io::Error) -> ClientError {
        let error = match error.kind() {
            // What a socket says when its read timeout is over.
            io::ErrorKind::WouldBlock => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} s", ANSWER_WAIT.as_secs()),
            ),
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")
            }
            _ => error,
        };
        ClientError::Lost { address: self.address.clone(), api, error }
    }
}
