//! A blocking connection to a text listener: frames out, frames in. Owns how a broken connection
//! ends the program.

use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use rustls::ClientConfig;
use thetis_text::wire::{LENGTH_BYTES, frame};

use crate::config::value::Address;
use crate::exit::{Exit, Failure};
use crate::socket::Socket;

/// Bytes read at a time, so that memory follows what arrives and not what is announced.
const READ_BYTES: u64 = 1 << 20;

/// A connection.
pub(super) struct Client {
    socket: Socket,
}

impl Client {
    /// Connects, and asks for the large limit of requests.
    pub(super) fn connect(
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Client, Failure> {
        let socket = Socket::connect(address, tls).map_err(|error| {
            Failure::new(Exit::Unreachable, format!("no server at {address}: {error}"))
        })?;
        let mut client = Client { socket };
        let reply = client.ask(b"HELLO")?;
        if reply.starts_with(b"ERR unauthenticated") {
            let reply = String::from_utf8_lossy(&reply).into_owned();
            let failure = Failure::new(Exit::Failed, format!("{address} answers: {reply}"));
            return Err(failure.hint("name the authority of its certificate: --tls-ca FILE"));
        }
        Ok(client)
    }

    /// Sends a request and waits for its reply. When the connection breaks in between, what the
    /// request asked for may have happened.
    pub(super) fn ask(&mut self, request: &[u8]) -> Result<Bytes, Failure> {
        if request.is_empty() || u32::try_from(request.len()).is_err() {
            return Err(Failure::new(Exit::Usage, "a request of no bytes, or of over 4 GiB"));
        }
        let sent = self.socket.write_all(&frame(request)).and_then(|()| self.socket.flush());
        sent.map_err(|error| broken(&error))?;
        self.receive()
    }

    /// The next reply.
    pub(super) fn receive(&mut self) -> Result<Bytes, Failure> {
        let mut length = [0; LENGTH_BYTES];
        self.socket.read_exact(&mut length).map_err(|error| broken(&error))?;
        let mut left = u64::from(u32::from_le_bytes(length));
        let mut body = Vec::new();
        while left > 0 {
            let mut part = (&mut self.socket).take(left.min(READ_BYTES));
            let read = part.read_to_end(&mut body).map_err(|error| broken(&error))? as u64;
            if read == 0 {
                return Err(broken(&std::io::ErrorKind::UnexpectedEof.into()));
            }
            left -= read;
        }
        Ok(body.into())
    }

    /// The names of topics, as far as they can be told.
    pub(super) fn topics(&mut self) -> Result<Vec<String>, Failure> {
        let reply = self.ask(b"TOPICS")?;
        let text = String::from_utf8_lossy(&reply);
        let names = text.strip_prefix("OK\n").unwrap_or_default().lines();
        Ok(names.map(str::to_owned).collect())
    }
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Uncertain, format!("the connection broke before the reply: {error}"))
        .hint("the last command may or may not have been done")
}
