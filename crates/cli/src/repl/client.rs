//! A blocking connection to a text listener: frames out, frames in. Owns how a broken connection
//! ends the program.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use thetis_text::wire::{LENGTH_BYTES, frame};

use crate::config::value::Address;
use crate::exit::{Exit, Failure};

/// Bytes read at a time, so that memory follows what arrives and not what is announced.
const READ_BYTES: u64 = 1 << 20;

/// A connection.
pub(super) struct Client {
    socket: TcpStream,
}

impl Client {
    /// Connects, and asks for the large limit of requests.
    pub(super) fn connect(address: &Address) -> Result<Client, Failure> {
        let unreachable =
            |error| Failure::new(Exit::Unreachable, format!("no server at {address}: {error}"));
        let socket =
            TcpStream::connect((address.host.as_str(), address.port)).map_err(unreachable)?;
        socket.set_nodelay(true).map_err(unreachable)?;
        let mut client = Client { socket };
        client.ask(b"HELLO")?;
        Ok(client)
    }

    /// Sends a request and waits for its reply. When the connection breaks in between, what the
    /// request asked for may have happened.
    pub(super) fn ask(&mut self, request: &[u8]) -> Result<Bytes, Failure> {
        if request.is_empty() || u32::try_from(request.len()).is_err() {
            return Err(Failure::new(Exit::Usage, "a request of no bytes, or of over 4 GiB"));
        }
        self.socket.write_all(&frame(request)).map_err(|error| broken(&error))?;
        self.receive()
    }

    /// The next reply.
    pub(super) fn receive(&mut self) -> Result<Bytes, Failure> {
        let mut length = [0; LENGTH_BYTES];
        self.socket.read_exact(&mut length).map_err(|error| broken(&error))?;
        let mut left = u64::from(u32::from_le_bytes(length));
        let mut body = Vec::new();
        while left > 0 {
            let mut part = (&self.socket).take(left.min(READ_BYTES));
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
