//! The listener: accepts connections, gives each a session, and ends them when told to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::front::Front;
use crate::session;

/// Pause after an accept that failed, such as for want of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long answers that are on their way may take when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A bound text listener.
pub struct Server {
    listener: TcpListener,
    front: Arc<Front>,
}

impl Server {
    /// Serves `front` on a bound socket.
    #[must_use]
    pub fn new(listener: TcpListener, front: Arc<Front>) -> Server {
        Server { listener, front }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` becomes true or its sender is gone; then takes no more requests, sends
    /// the answers that are on their way, and returns. Needs tokio's runtime of several threads.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let permits = Arc::new(Semaphore::new(self.front.settings.connections_max));
        let mut sessions = JoinSet::new();
        let session_stop = stop.clone();
        loop {
            tokio::select! {
                () = session::told_to_stop(&mut stop) => break,
                Some(_) = sessions.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, peer)) => {
                        let Ok(permit) = permits.clone().try_acquire_owned() else {
                            let max = self.front.settings.connections_max;
                            tracing::warn!(%peer, max, "refused: too many text connections");
                            continue;
                        };
                        let session = serve(self.front.clone(), socket, peer, session_stop.clone());
                        sessions.spawn(async move {
                            session.await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a text connection");
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
    front: Arc<Front>,
    socket: TcpStream,
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, %error, "could not turn off small-packet delay");
    }
    match session::run(front, socket, stop).await {
        Ok(()) => tracing::debug!(%peer, "text connection ended"),
        Err(error) => tracing::info!(%peer, %error, "text connection closed"),
    }
}
