//! The listener: accepts connections, gives each a session, and ends them when told to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::broker::Broker;
use crate::session;

/// Pause after an accept that failed, such as for want of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long answers that are on their way may take when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A bound Kafka listener.
pub struct Server {
    listener: TcpListener,
    broker: Arc<Broker>,
}

impl Server {
    /// Serves `broker` on a bound socket.
    #[must_use]
    pub fn new(listener: TcpListener, broker: Arc<Broker>) -> Server {
        Server { listener, broker }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` becomes true or its sender is gone; then takes no more requests, sends
    /// the answers that are on their way, and returns.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let sessions_stop = stop.clone();
        let permits = Arc::new(Semaphore::new(self.broker.settings.connections_max));
        let mut sessions = JoinSet::new();
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                Some(_) = sessions.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, peer)) => {
                        let Ok(permit) = permits.clone().try_acquire_owned() else {
                            tracing::warn!(%peer, max = self.broker.settings.connections_max, "refused: too many connections");
                            continue;
                        };
                        let session = serve(self.broker.clone(), socket, peer, sessions_stop.clone());
                        sessions.spawn(async move {
                            session.await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a connection");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
            }
        }
        drop(self.listener);
        let drained = async { while sessions.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            sessions.shutdown().await;
        }
    }
}

async fn serve(
    broker: Arc<Broker>,
    socket: TcpStream,
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, %error, "could not turn off small-packet delay");
    }
    match session::run(broker, socket.into_split(), peer, stop).await {
        Ok(()) => tracing::debug!(%peer, "connection ended"),
        Err(error) => tracing::info!(%peer, %error, "connection closed"),
    }
}
