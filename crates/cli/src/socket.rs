//! A blocking connection to a listener of a node, encrypted when asked for. Owns how a server is
//! reached and believed; knows no protocol.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::config::value::Address;
use crate::exit::{Exit, Failure};

/// How long one address may take to accept.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long a server may take to agree on TLS.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// The flag of commands that talk to a listener.
#[derive(Args, Debug, Default)]
pub(crate) struct TlsArgs {
    /// Speak TLS, and believe servers whose certificate is in this PEM file or signed by one in it.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// What a client of such a listener needs; `None` without the flag.
    pub(crate) fn load(&self) -> Result<Option<Arc<ClientConfig>>, Failure> {
        let config = self.tls_ca.as_deref().map(thetis_net::tls::client).transpose();
        config.map_err(|error| Failure::new(Exit::Usage, format!("--tls-ca: {error}")))
    }
}

/// A connection.
pub(crate) enum Socket {
    /// As it is.
    Plain(TcpStream),
    /// Under TLS; the server has proved its name.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Socket {
    /// Connects to one of the addresses that a name stands for; the last failure is the one told.
    /// Small-packet delay is off.
    pub(crate) fn connect(
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Socket> {
        let mut socket = dial(address)?;
        socket.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Socket::Plain(socket)) };
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        let mut session = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
        socket.set_read_timeout(Some(HANDSHAKE_WAIT))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|error| not_agreed(&error))?;
        }
        socket.set_read_timeout(None)?;
        Ok(Socket::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    /// How long a read and a write may take; without end unless said.
    pub(crate) fn set_timeouts(
        &self,
        read: Option<Duration>,
        write: Option<Duration>,
    ) -> io::Result<()> {
        let socket = match self {
            Socket::Plain(socket) => socket,
            Socket::Tls(stream) => &stream.sock,
        };
        socket.set_read_timeout(read)?;
        socket.set_write_timeout(write)
    }
}

impl Drop for Socket {
    /// Says that nothing more comes, which a socket that was cut off does not.
    fn drop(&mut self) {
        if let Socket::Tls(stream) = self {
            stream.conn.send_close_notify();
            // The other side finds out either way.
            let _ = stream.flush();
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(socket) => socket.read(buffer),
            Socket::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(socket) => socket.write(bytes),
            Socket::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(socket) => socket.flush(),
            Socket::Tls(stream) => stream.flush(),
        }
    }
}

fn dial(address: &Address) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    for candidate in (address.host.as_str(), address.port).to_socket_addrs()? {
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
            "it does not speak TLS; leave out --tls-ca".to_owned()
        }
        _ => format!("no TLS was agreed on: {error}"),
    };
    io::Error::new(error.kind(), why)
}
