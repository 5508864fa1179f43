//! What all sessions of the front share: topics, cursors, queues, settings.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thetis_catalog::{Catalog, Format, Topic};
use thetis_meta::MetaError;
use thetis_net::tls::Tls;
use thetis_stream::Stream;
use thetis_types::{ErrorKind, StreamId};
use tokio::sync::Semaphore;

use crate::cursor::{Cursor, Cursors, QUEUE, TooMany};
use crate::map::Error;
use crate::queue::Queue;

/// How the front behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address clients reach the node at, as METRICS tells it.
    pub address: String,
    /// What AUTH must say before anything else is answered; `None` lets everybody in.
    pub token: Option<String>,
    /// The listener's certificate; without one nothing is encrypted.
    pub tls: Option<Tls>,
    /// Connections at a time; more are closed at once.
    pub connections_max: usize,
    /// How long a connection may say nothing, unless it follows a topic.
    pub connection_idle_max: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            address: String::new(),
            token: None,
            tls: None,
            connections_max: 10_000,
            connection_idle_max: Duration::from_secs(3_600),
        }
    }
}

/// Why the front did not open.
#[derive(Debug, thiserror::Error)]
#[error("the cursors cannot be loaded: {0}")]
pub struct OpenError(#[from] MetaError);

impl OpenError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind()
    }
}

/// The text front of one node.
pub struct Front {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) settings: Settings,
    pub(crate) cursors: Cursors,
    /// The turn to flush on a session's own thread.
    pub(crate) flush_turn: Semaphore,
    /// The queues of the topics that GET was asked about since the start.
    queues: Mutex<HashMap<StreamId, Arc<Queue>>>,
}

impl Front {
    /// Loads cursors. Blocks.
    ///
    /// # Errors
    /// Metadata failed or cannot be understood.
    pub fn open(catalog: Arc<Catalog>, settings: Settings) -> Result<Arc<Front>, OpenError> {
        let store = catalog.store();
        let cursors = Cursors::open(store.meta().clone(), |stream| store.get(stream).is_some())?;
        let flush_turn = Semaphore::new(1);
        Ok(Arc::new(Front { catalog, settings, cursors, flush_turn, queues: Mutex::default() }))
    }

    /// Makes the positions of all cursors durable. Blocks. What fails here is only that records are
    /// given out again.
    pub fn close(&self) {
        if let Err(error) = self.cursors.save_all() {
            tracing::warn!(%error, "cursors were not saved; some records will be given out again");
        }
    }

    /// The topic of this name and its one stream.
    pub(crate) fn topic(&self, name: &str) -> Result<(Arc<Topic>, Stream), Error> {
        let topic = self.catalog.get(name);
        let topic = topic.ok_or_else(|| Error::UnknownTopic { name: name.to_owned() })?;
        match topic.partitions.as_slice() {
            [only] if topic.format == Format::Plain => {
                let stream = only.clone();
                Ok((topic, stream))
            }
            _ => {
                Err(Error::Unserved { name: name.to_owned(), partitions: topic.partition_count() })
            }
        }
    }

    /// The stream of the topic of this name.
    pub(crate) fn stream(&self, topic: &str) -> Result<Stream, Error> {
        Ok(self.topic(topic)?.1)
    }

    /// The cursor of this name.
    pub(crate) fn cursor(&self, topic: &str, name: &str) -> Result<(Stream, Arc<Cursor>), Error> {
        let stream = self.stream(topic)?;
        let cursor = self.cursors.get(stream.id(), name);
        let unknown = || Error::UnknownCursor { topic: topic.to_owned(), name: name.to_owned() };
        Ok((stream, cursor.ok_or_else(unknown)?))
    }

    /// The queue GET takes from, if anything was ever taken from it.
    pub(crate) fn queue(&self, stream: &Stream) -> Result<Arc<Queue>, TooMany> {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(&stream.id()) {
            return Ok(queue.clone());
        }
        let cursor = self.cursors.get_or_make(stream.id(), QUEUE, stream.trim_offset())?;
        let queue = Arc::new(Queue::new(cursor, stream.committed_end()));
        queues.insert(stream.id(), queue.clone());
        Ok(queue)
    }

    /// Lets go of what was kept for a stream that is deleted. Blocks.
    pub(crate) fn forget(&self, stream: StreamId) -> Result<(), MetaError> {
        self.queues.lock().remove(&stream);
        self.cursors.forget_all(stream)
    }
}
