//! A small blocking Kafka client: what `topic`, `produce` and `consume` need and no more. It speaks
//! to any server of the protocol, not only to ours.
//!
//! Owns connections by address, the routing to leaders and the one retry policy. One request is in
//! flight at a time. Not for use inside a node.

mod batches;
mod connection;
mod consumer;
mod error;
mod partitioner;
mod producer;
mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use thetis_kafka::wire::Call;
use thetis_net::tls::ClientConfig;

use crate::config::value::Address;
use connection::Connection;

pub(crate) use batches::NewRecord;
pub(crate) use consumer::{Consumer, ConsumerOptions, Fetched, Start};
pub(crate) use error::ClientError;
pub(crate) use producer::{Producer, ProducerOptions, Written};
pub(crate) use topics::NewTopic;

/// How long a server may take to answer, beyond the time a request itself allows it to wait.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Times one request is tried, the first included. With the pauses below, about seven seconds:
/// enough for a node to be restarted.
const ATTEMPTS_MAX: u32 = 10;
/// Pause before the second attempt; doubled after each.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connections to the nodes of one cluster.
pub(crate) struct Client {
    bootstrap: Address,
    /// Where the nodes listen, by node id, as the cluster says.
    nodes: BTreeMap<i32, Address>,
    connections: BTreeMap<Address, Connection>,
    /// Whether any node has ever answered. Before that an unreachable server is the user's to fix;
    /// after it, it is probably restarting.
    met: bool,
    /// Set when the nodes are spoken to in TLS.
    tls: Option<Arc<ClientConfig>>,
}

impl Client {
    /// Connects to the server at `bootstrap` and learns what it speaks.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when nothing listens there, [`ClientError::NotKafka`] when
    /// something else does.
    pub(crate) fn connect(
        bootstrap: Address,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Client, ClientError> {
        let mut client = Client {
            bootstrap: bootstrap.clone(),
            nodes: BTreeMap::new(),
            connections: BTreeMap::new(),
            met: false,
            tls,
        };
        client.connection(&bootstrap)?;
        client.met = true;
        Ok(client)
    }

    /// Asks the bootstrap server, once.
    fn ask<R: Call>(&mut self, request: &R) -> Result<R::Response, ClientError> {
        let address = self.bootstrap.clone();
        self.ask_at(&address, request, i16::MAX, Duration::ZERO)
    }

    /// Asks the node `id`, once. `version_max` is the highest version whose meaning the caller
    /// knows; `wait` is how long the request allows the server to wait.
    fn ask_node<R: Call>(
        &mut self,
        id: i32,
        request: &R,
        version_max: i16,
        wait: Duration,
    ) -> Result<R::Response, ClientError> {
        let address = self.nodes.get(&id).unwrap_or(&self.bootstrap).clone();
        self.ask_at(&address, request, version_max, wait)
    }

    fn ask_at<R: Call>(
        &mut self,
        address: &Address,
        request: &R,
        version_max: i16,
        wait: Duration,
    ) -> Result<R::Response, ClientError> {
        let answer = self.connection(address)?.call(request, version_max, wait);
        if answer.as_ref().is_err_and(ClientError::ends_connection) {
            self.connections.remove(address);
        }
        answer
    }

    fn connection(&mut self, address: &Address) -> Result<&mut Connection, ClientError> {
        if !self.connections.contains_key(address) {
            let connection =
                Connection::open(address, self.tls.as_ref()).map_err(|error| match error {
                    ClientError::Unreachable { address, error, .. }
                        if address != self.bootstrap =>
                    {
                        ClientError::Unreachable {
                            address,
                            error,
                            named_by: Some(self.bootstrap.clone()),
                        }
                    }
                    other => other,
                })?;
            self.connections.insert(address.clone(), connection);
        }
        Ok(self.connections.get_mut(address).expect("inserted above when it was missing"))
    }

    /// Tries until it works, fails for good, or [`ATTEMPTS_MAX`] is reached. `act` must be safe to
    /// repeat: a lost answer is tried again.
    fn retrying<T>(
        &mut self,
        mut act: impl FnMut(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut pause = PAUSE_FIRST;
        for _ in 1..ATTEMPTS_MAX {
            match act(self) {
                Err(error) if self.may_retry(&error) => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                outcome => return outcome,
            }
        }
        act(self)
    }

    fn may_retry(&self, error: &ClientError) -> bool {
        match error {
            ClientError::Unreachable { .. } => self.met,
            other => other.retriable(),
        }
    }
}

#[cfg(test)]
#[path = "client_test.rs"]
mod tests;
