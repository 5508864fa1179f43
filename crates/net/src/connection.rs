//! A connection that was accepted: bytes in and out, encrypted or not.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// What a session talks over.
#[derive(Debug)]
pub enum Connection {
    /// The socket as it is.
    Plain(TcpStream),
    /// The socket under TLS, its handshake done.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Has the system acknowledge at once what arrives next. A client that sends a length and a body
    /// in two pieces, and delays small packets, holds the body back until then: some 40 ms. The
    /// system forgets the setting, so it is made before each wait for bytes.
    pub fn acknowledge_at_once(&self) {
        let socket = match self {
            Connection::Plain(socket) => socket,
            Connection::Tls(stream) => stream.get_ref().0,
        };
        // Without it the client is slower, not wrong.
        #[cfg(target_os = "linux")]
        let _ = rustix::net::sockopt::set_tcp_quickack(socket, true);
        #[cfg(not(target_os = "linux"))]
        let _ = socket;
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Connection::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Connection::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Connection::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Plain(socket) => Pin::new(socket).poll_flush(context),
            Connection::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Connection::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
