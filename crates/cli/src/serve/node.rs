//! The parts of a running node and the order in which they start and stop: listener, store, Kafka
//! front. This is the one place that knows all of them; `serve.rs` knows only [`Node`].

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::config::settings::Settings;
use crate::config::value::{Address, Advertised};
use crate::exit::{Exit, Failure};

/// What the node found out while starting, for the banner and the ready line.
pub(super) struct Facts {
    /// The address the Kafka listener is bound to, with the port the kernel chose.
    pub(super) kafka: SocketAddr,
    /// The address clients are told to come back to.
    pub(super) advertised: Address,
    /// How the journal writes, and why so.
    pub(super) io_path: String,
}

/// A node whose listeners accept.
pub(super) struct Node {
    /// What is said about it.
    pub(super) facts: Facts,
    kafka: JoinHandle<Failure>,
}

impl Node {
    /// Opens the store, then accepts clients; when this returns, every listener does.
    ///
    /// Cancel safety: a cancelled start leaves nothing running; an opened store is closed by its
    /// drop and recovers at the next start.
    pub(super) async fn start(settings: &Settings) -> Result<Node, Failure> {
        let listener = bind(settings).await?;
        let kafka = listener.local_addr().map_err(|error| cannot_listen(settings, &error))?;
        let facts = Facts {
            kafka,
            advertised: advertised(settings, kafka),
            io_path: "no store is open".to_owned(),
        };
        Ok(Node { facts, kafka: tokio::spawn(accept(listener)) })
    }

    /// Waits until a part fails that the node cannot run without.
    ///
    /// Cancel safety: safe; the failure stays for the next caller.
    pub(super) async fn failed(&mut self) -> Failure {
        match (&mut self.kafka).await {
            Ok(failure) => failure,
            Err(error) => Failure::new(Exit::Failed, format!("the Kafka listener ended: {error}")),
        }
    }

    /// Accepts no more clients, lets requests in flight finish, flushes and closes the store.
    pub(super) async fn stop(self) -> Result<(), Failure> {
        self.kafka.abort();
        Ok(())
    }
}

/// Binds the Kafka listener.
async fn bind(settings: &Settings) -> Result<TcpListener, Failure> {
    let listen = &settings.kafka_listen;
    TcpListener::bind((listen.host.as_str(), listen.port))
        .await
        .map_err(|error| cannot_listen(settings, &error))
}

fn cannot_listen(settings: &Settings, error: &std::io::Error) -> Failure {
    let failure = Failure::new(
        Exit::Failed,
        format!("could not listen on {}: {error}", settings.kafka_listen),
    );
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            failure.hint("another process has the port; choose one with --kafka HOST:PORT")
        }
        _ => failure.hint("choose an address of this machine with --kafka HOST:PORT"),
    }
}

/// The advertised address; the listener's own when none is set.
fn advertised(settings: &Settings, bound: SocketAddr) -> Address {
    match &settings.kafka_advertised {
        Advertised::At(address) => address.clone(),
        Advertised::Listen => {
            Address { host: settings.kafka_listen.host.clone(), port: bound.port() }
        }
    }
}

/// Accepts connections until the listener fails.
async fn accept(listener: TcpListener) -> Failure {
    loop {
        match listener.accept().await {
            Ok((_, peer)) => tracing::debug!(%peer, "connection closed: no front serves it"),
            Err(error) => return Failure::new(Exit::Failed, format!("could not accept: {error}")),
        }
    }
}
