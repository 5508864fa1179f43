//! A connection to a broker on which several requests may be under way. Owns the socket and the order
//! of answers; retries nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use thetis_kafka::wire::{Call, FRAME_BYTES_MAX, decode_response, encode_request};

const CLIENT_ID: &str = "thetis-bench";
/// How long a broker may be silent.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// A connection; answers come in the order of the requests.
pub(crate) struct Connection {
    stream: TcpStream,
    sent: i32,
    received: i32,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Connection { stream, sent: 0, received: 0 })
    }

    /// Sends a request without waiting.
    pub(crate) fn send<R: Call>(&mut self, version: i16, request: &R) -> Result<()> {
        self.sent += 1;
        for segment in encode_request(version, self.sent, Some(CLIENT_ID), request)? {
            self.stream.write_all(&segment)?;
        }
        Ok(())
    }

    /// Waits for the answer to the oldest request without one, which was of type `R`.
    pub(crate) fn receive<R: Call>(&mut self, version: i16) -> Result<R::Response> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).context("the broker went away")?;
        let length = usize::try_from(i32::from_be_bytes(length))?;
        if length > FRAME_BYTES_MAX {
            bail!("an answer of {length} bytes");
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        let (correlation_id, answer) = decode_response::<R>(version, Bytes::from(frame))?;
        self.received += 1;
        if correlation_id != self.received {
            bail!("an answer to {correlation_id} where {} was due", self.received);
        }
        Ok(answer)
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn call<R: Call>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        self.send(version, request)?;
        self.receive::<R>(version)
    }
}
