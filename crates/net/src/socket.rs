//! The other end: a blocking connection to a listener, encrypted when asked for. Owns how a server is
//! reached and believed; knows no protocol.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// How long one address may take to accept.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long a server may take to agree on TLS.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// A connection. Reads and writes block.
#[derive(Debug)]
pub struct Socket(Kind);

#[derive(Debug)]
enum Kind {
    /// As it is.
    Plain(TcpStream),
    /// Under TLS; the server has proved its name.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    /// Connects to one of the addresses that `host` stands for; an IPv6 address has no brackets.
    /// Small-packet delay is off. Each address has 5 s to accept, and 10 s to agree on TLS.
    ///
    /// # Errors
    /// No address accepts, where the last failure is the one told, or the server does not prove to
    /// be `host`.
    pub fn connect(host: &str, port: u16, tls: Option<&Arc<ClientConfig>>) -> io::Result<Socket> {
        let mut socket = dial(host, port)?;
        socket.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Socket(Kind::Plain(socket))) };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut session = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
        socket.set_read_timeout(Some(HANDSHAKE_WAIT))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|error| not_agreed(&error))?;
        }
        socket.set_read_timeout(None)?;
        Ok(Socket(Kind::Tls(Box::new(StreamOwned::new(session, socket)))))
    }

    /// How long a read and a write may take; without end unless said.
    ///
    /// # Errors
    /// A wait of nothing, or the system refuses.
    pub fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        let socket = match &self.0 {
            Kind::Plain(socket) => socket,
            Kind::Tls(stream) => &stream.sock,
        };
        socket.set_read_timeout(read)?;
        socket.set_write_timeout(write)
    }
}

impl Drop for Socket {
    /// Says that nothing more comes, which a socket that was cut off does not.
    fn drop(&mut self) {
        if let Kind::Tls(stream) = &mut self.0 {
            stream.conn.send_close_notify();
            // The other side finds out either way.
            let _ = stream.flush();
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.read(buffer),
            Kind::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.write(bytes),
            Kind::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.flush(),
            Kind::Tls(stream) => stream.flush(),
        }
    }
}

fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    for candidate in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, CONNECT_WAIT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Why TLS was not agreed on, in words that say what to change.
fn not_agreed(error: &io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let why = match cause {
        Some(rustls::Error::InvalidMessage(_)) => {
            "it does not speak TLS; connect without".to_owned()
        }
        _ => format!("no TLS was agreed on: {error}"),
    };
    io::Error::new(error.kind(), why)
}
