//! Accepting: each connection gets a session of its own, until told to stop.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::Connection;
use crate::tls::Tls;

/// Pause after an accept that failed, such as for want of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long a client may take to agree on TLS.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long answers that are on their way may take when the listener stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes read from a client that is refused, so that it sees the refusal.
const PLAIN_BYTES_MAX: u64 = 64 << 10;

/// How every handshake of TLS begins: the type of the record and the first half of its version.
const HANDSHAKE_START: [u8; 2] = [22, 3];

/// How a listener behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is spoken here, for log lines.
    pub protocol: &'static str,
    /// Connections at a time; more are closed at once.
    pub connections_max: usize,
    /// The certificate; without one nothing is encrypted.
    pub tls: Option<Tls>,
    /// What is said, in the protocol's own form, to a client that does not begin with TLS where it
    /// has to; nothing when empty. The connection is closed then.
    pub plain_refusal: &'static [u8],
}

/// Why there was no session.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("no TLS was agreed on: {0}")]
    Failed(#[from] io::Error),
    #[error("the client does not begin with TLS, which is asked for here")]
    Plain,
    #[error("the client did not agree on TLS within {HANDSHAKE_MAX:?}")]
    Slow,
}

/// Waits until `stop` becomes true or its sender is gone. Cancel safe.
pub async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    // The guard that comes back must not live across an await of the caller.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Gives each connection of `socket` a session until `stop` becomes true or its sender is gone; then
/// accepts no more, gives sessions, which are to watch `stop` themselves, a few seconds to end, and
/// returns. Small-packet delay is turned off on every connection.
pub async fn serve<S, F, E>(
    socket: TcpListener,
    options: Options,
    mut stop: watch::Receiver<bool>,
    session: S,
) where
    S: Fn(Connection, SocketAddr, watch::Receiver<bool>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<(), E>> + Send,
    E: Display,
{
    let options = Arc::new(options);
    let permits = Arc::new(Semaphore::new(options.connections_max));
    let mut sessions = JoinSet::new();
    let session_stop = stop.clone();
    let protocol = options.protocol;
    loop {
        tokio::select! {
            () = told_to_stop(&mut stop) => break,
            Some(_) = sessions.join_next() => {}
            accepted = socket.accept() => match accepted {
                Ok((socket, peer)) => {
                    let Ok(permit) = permits.clone().try_acquire_owned() else {
                        let max = options.connections_max;
                        tracing::warn!(protocol, %peer, max, "refused: too many connections");
                        continue;
                    };
                    let (options, session) = (options.clone(), session.clone());
                    let stop = session_stop.clone();
                    sessions.spawn(async move {
                        one(&options, socket, peer, stop, session).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(protocol, %error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
    drop(socket);
    let drained = async { while sessions.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        sessions.shutdown().await;
    }
}

/// One connection from its first byte to its last.
async fn one<S, F, E>(
    options: &Options,
    socket: TcpStream,
    peer: SocketAddr,
    mut stop: watch::Receiver<bool>,
    session: S,
) where
    S: Fn(Connection, SocketAddr, watch::Receiver<bool>) -> F,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let protocol = options.protocol;
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(protocol, %peer, %error, "could not turn off small-packet delay");
    }
    let connection = match &options.tls {
        None => Connection::Plain(socket),
        Some(tls) => {
            let agreed = tokio::select! {
                () = told_to_stop(&mut stop) => return,
                agreed = tokio::time::timeout(HANDSHAKE_MAX, shake_hands(options, tls, socket)) => agreed,
            };
            match agreed.unwrap_or(Err(HandshakeError::Slow)) {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::info!(protocol, %peer, %error, "connection closed");
                    return;
                }
            }
        }
    };
    match session(connection, peer, stop).await {
        Ok(()) => tracing::debug!(protocol, %peer, "connection ended"),
        Err(error) => tracing::info!(protocol, %peer, %error, "connection closed"),
    }
}

/// Agrees on TLS, or tells the client that it has to.
async fn shake_hands(
    options: &Options,
    tls: &Tls,
    mut socket: TcpStream,
) -> Result<Connection, HandshakeError> {
    let mut first = [0; HANDSHAKE_START.len()];
    let seen = socket.peek(&mut first).await?;
    if seen == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    if first[..seen] != HANDSHAKE_START[..seen] {
        socket.write_all(options.plain_refusal).await?;
        socket.shutdown().await?;
        // A socket that is closed with bytes unread takes back what it said last.
        tokio::io::copy(&mut socket.take(PLAIN_BYTES_MAX), &mut tokio::io::sink()).await?;
        return Err(HandshakeError::Plain);
    }
    Ok(Connection::Tls(Box::new(tls.acceptor().accept(socket).await?)))
}
