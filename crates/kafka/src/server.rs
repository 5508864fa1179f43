//! The listener of the Kafka front.

use std::net::SocketAddr;
use std::sync::Arc;

use thetis_net::Connection;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::broker::Broker;
use crate::session::{self, SessionError};

/// Serves `broker` on a bound socket until `stop` becomes true or its sender is gone; then takes no
/// more requests, sends the answers that are on their way, and returns.
pub async fn serve(broker: Arc<Broker>, socket: TcpListener, stop: watch::Receiver<bool>) {
    let options = thetis_net::Options {
        protocol: "kafka",
        connections_max: broker.settings.connections_max,
        tls: broker.settings.tls.clone(),
        // There is no answer before a request that was understood.
        plain_refusal: b"",
    };
    let session = move |connection, peer, stop| talk(broker.clone(), connection, peer, stop);
    thetis_net::serve(socket, options, stop, session).await;
}

/// Answers go out while requests come in.
async fn talk(
    broker: Arc<Broker>,
    connection: Connection,
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
) -> Result<(), SessionError> {
    match connection {
        Connection::Plain(socket) => session::run(broker, socket.into_split(), peer, stop).await,
        Connection::Tls(stream) => session::run(broker, tokio::io::split(stream), peer, stop).await,
    }
}
