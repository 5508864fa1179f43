//! The shell around the group coordinators: performs their effects on the offsets topic, keeps
//! their timers, and brings each answer to who asked. Decides nothing; see [`crate::group`].
//!
//! The offsets topic is an ordinary topic. A group belongs to the partition that Apache Kafka would
//! put it in, and the coordinator of a partition is a pure replay of its stream. When much has been
//! appended since the last time, all live records are written again and what is before them is
//! trimmed, so that a replay is bounded by what lives.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use thetis_catalog::{Catalog, CatalogError, Format, Topic, TopicSpec};
use thetis_stream::{Append, AppendError, Appending, Read, Stream, StreamError};
use thetis_types::clock::Clock;
use thetis_types::{Entry, EntryFormat, Outcome};
use tokio::sync::{Notify, oneshot};

use crate::broker::{Broker, Settings};
use crate::group::{
    Coordinator, Effect, Event, Loading, Now, Record, ReplyTo, Request, Response, Token, Written,
};
use crate::records::{Attributes, BatchBuilder, BatchError, Batches, Codec};

/// The topic that holds group state.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Records appended to a partition of the offsets topic before its live records are written again.
const SNAPSHOT_AFTER_RECORDS: u64 = 50_000;

/// Records of one batch of a snapshot.
const SNAPSHOT_BATCH_RECORDS: usize = 1_000;

/// Bytes of one read while a partition is loaded.
const LOAD_READ_BYTES: usize = 4 << 20;

/// Bytes the records of one batch of the offsets topic may expand to.
const LOAD_EXPANDED_BYTES_MAX: usize = 64 << 20;

/// All groups of this node.
pub(crate) struct Groups {
    shards: OnceLock<Vec<Arc<Shard>>>,
    creating: Mutex<()>,
}

/// Nobody answers for groups now.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the coordinator of the group is not available; retry")]
pub(crate) struct NotAvailable;

impl Groups {
    /// Loads the offsets topic, if it exists.
    pub(crate) fn open(
        catalog: &Arc<Catalog>,
        settings: &Settings,
    ) -> Result<Groups, CatalogError> {
        let groups = Groups { shards: OnceLock::new(), creating: Mutex::new(()) };
        if let Some(topic) = catalog.get(OFFSETS_TOPIC) {
            let _ = groups.shards.set(load(catalog, settings, &topic)?);
        }
        Ok(groups)
    }

    /// Sees to it that the offsets topic exists and is loaded.
    pub(crate) fn ready(&self, broker: &Broker) -> Result<(), CatalogError> {
        if self.shards.get().is_some() {
            return Ok(());
        }
        let _creating = self.creating.lock();
        if self.shards.get().is_some() {
            return Ok(());
        }
        let catalog = &broker.catalog;
        let topic = match catalog.get(OFFSETS_TOPIC) {
            Some(topic) => topic,
            None => catalog.create(TopicSpec {
                name: OFFSETS_TOPIC.into(),
                partitions: broker.settings.offsets_partitions,
                format: Format::Kafka,
                configs: BTreeMap::from([("cleanup.policy".into(), "compact".into())]),
            })?,
        };
        let _ = self.shards.set(load(catalog, &broker.settings, &topic)?);
        Ok(())
    }

    /// Asks the coordinator of the request's group.
    pub(crate) async fn ask(
        &self,
        broker: &Broker,
        request: Request,
    ) -> Result<Response, NotAvailable> {
        if let Err(error) = tokio::task::block_in_place(|| self.ready(broker)) {
            tracing::warn!(%error, "the offsets topic is not available");
            return Err(NotAvailable);
        }
        let shards = self.shards.get().ok_or(NotAvailable)?;
        let group_id = request.group_id().unwrap_or_default();
        let shard = &shards[partition_of(group_id, shards.len())];
        shard.ask(request).await.map_err(|_dropped| NotAvailable)
    }

    /// Asks all coordinators the same; none if there is no offsets topic yet.
    pub(crate) async fn ask_all(&self, request: &Request) -> Result<Vec<Response>, NotAvailable> {
        let mut responses = Vec::new();
        for shard in self.shards.get().into_iter().flatten() {
            responses.push(shard.ask(request.clone()).await.map_err(|_dropped| NotAvailable)?);
        }
        Ok(responses)
    }

    /// Removes what groups committed for a topic that is gone.
    pub(crate) async fn forget_topic(&self, topic: &str) {
        let request = Request::ForgetTopic { topic: topic.to_owned() };
        if self.ask_all(&request).await.is_err() {
            tracing::warn!(topic, "offsets committed for a deleted topic could not be removed");
        }
    }
}

/// The partition Apache Kafka keeps a group in: the hash of a Java string, made positive.
fn partition_of(group_id: &str, count: usize) -> usize {
    let hash = group_id
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    (hash & i32::MAX) as usize % count
}

fn load(
    catalog: &Arc<Catalog>,
    settings: &Settings,
    topic: &Topic,
) -> Result<Vec<Arc<Shard>>, CatalogError> {
    let store = catalog.store();
    let shard = |stream: &Stream| {
        let mut loading = Loading::new(settings.groups.clone(), store.entropy().clone());
        let records = replay(stream, &mut loading)?;
        Ok(Shard::start(stream.clone(), loading, records, store.clock().clone()))
    };
    topic.partitions.iter().map(shard).collect()
}

/// Reads a partition of the offsets topic from its start; returns the number of records.
fn replay(stream: &Stream, loading: &mut Loading) -> Result<u64, CatalogError> {
    let mut at = stream.trim_offset();
    let mut count = 0;
    loop {
        let entries = match stream.read(at, LOAD_READ_BYTES).map_err(StreamError::from)? {
            Read::Entries(entries) => entries,
            Read::End(_) => return Ok(count),
            Read::Trimmed(to) => {
                at = to;
                continue;
            }
        };
        for entry in entries {
            at = entry.range().end;
            for record in records_of(entry.payload) {
                count += 1;
                let replayed = record
                    .map_err(|error| error.to_string())
                    .and_then(|record| loading.replay(&record).map_err(|error| error.to_string()));
                if let Err(error) = replayed {
                    tracing::warn!(stream = %stream.id(), before = %at, error, "a record of the offsets topic was passed over");
                }
            }
        }
    }
}

fn records_of(payload: Bytes) -> Vec<Result<Record, BatchError>> {
    let mut found = Vec::new();
    for batch in Batches::new(payload) {
        match batch.and_then(|batch| batch.records(LOAD_EXPANDED_BYTES_MAX)) {
            Ok(records) => found.extend(records.map(|record| {
                record.map(|record| Record {
                    key: record.key.unwrap_or_default(),
                    value: record.value,
                })
            })),
            Err(error) => found.push(Err(error)),
        }
    }
    found
}

fn batch_of(records: &[Record], wall_ms: i64) -> Result<Entry, BatchError> {
    let mut builder = BatchBuilder::new(Attributes::new(Codec::None));
    for record in records {
        builder.push(wall_ms, Some(&record.key), record.value.as_deref(), &[])?;
    }
    Ok(Entry {
        record_count: u32::try_from(records.len()).expect("the coordinator bounds its batches"),
        max_timestamp: wall_ms,
        format: EntryFormat::KafkaBatch,
        payload: builder.build()?,
    })
}

/// One partition of the offsets topic and its coordinator.
struct Shard {
    stream: Stream,
    clock: Arc<dyn Clock>,
    next_reply: AtomicU64,
    inner: Mutex<Inner>,
    /// The coordinator's next deadline has come nearer.
    deadline_moved: Arc<Notify>,
}

struct Inner {
    /// Gone when the log has failed under it: only a replay after a restart knows its state.
    coordinator: Option<Coordinator>,
    waiting: HashMap<ReplyTo, oneshot::Sender<Response>>,
    records_since_snapshot: u64,
}

impl Shard {
    fn start(stream: Stream, loading: Loading, records: u64, clock: Arc<dyn Clock>) -> Arc<Shard> {
        let coordinator = loading.start(now(&*clock));
        let shard = Arc::new(Shard {
            stream,
            clock,
            next_reply: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                coordinator: Some(coordinator),
                waiting: HashMap::new(),
                records_since_snapshot: records,
            }),
            deadline_moved: Arc::new(Notify::new()),
        });
        tokio::spawn(keep_time(Arc::downgrade(&shard), shard.deadline_moved.clone()));
        shard
    }

    /// The answer; an error when the coordinator is gone.
    fn ask(self: &Arc<Self>, request: Request) -> oneshot::Receiver<Response> {
        let (send, receive) = oneshot::channel();
        let reply_to = ReplyTo(self.next_reply.fetch_add(1, Ordering::Relaxed));
        let mut inner = self.inner.lock();
        if inner.coordinator.is_some() {
            inner.waiting.insert(reply_to, send);
            self.apply(&mut inner, Event::Request { reply_to, request });
        }
        receive
    }

    /// Tells the coordinator of an event and performs what it wants, in order.
    fn apply(self: &Arc<Self>, inner: &mut Inner, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let Some(coordinator) = &mut inner.coordinator else { return };
            let before = coordinator.next_deadline();
            let effects = coordinator.apply(now(&*self.clock), event);
            if coordinator.next_deadline() < before {
                self.deadline_moved.notify_one();
            }
            for effect in effects {
                match effect {
                    Effect::Reply { to, response } => {
                        if let Some(waiting) = inner.waiting.remove(&to) {
                            // Whoever asked may be gone.
                            let _ = waiting.send(response);
                        }
                    }
                    Effect::Persist { token, records } => match self.append(&records) {
                        Ok(appending) => {
                            inner.records_since_snapshot += records.len() as u64;
                            self.report(token, appending);
                        }
                        Err(outcome) => match outcome {
                            Outcome::NotCommitted => {
                                events.push(Event::Persisted { token, written: Written::Not });
                            }
                            Outcome::MayHaveCommitted | Outcome::Committed => {
                                return inner.give_up(&self.stream);
                            }
                        },
                    },
                }
            }
        }
        if inner.records_since_snapshot >= SNAPSHOT_AFTER_RECORDS {
            self.snapshot(inner);
        }
    }

    fn append(&self, records: &[Record]) -> Result<Appending, Outcome> {
        let entry = batch_of(records, self.clock.wall_ms()).map_err(|error| {
            tracing::error!(stream = %self.stream.id(), %error, "group records make no batch");
            Outcome::NotCommitted
        })?;
        let mut appending = self.stream.append(&Append::of(entry)).map_err(|error| {
            tracing::warn!(stream = %self.stream.id(), %error, "group records were not taken");
            error.outcome()
        })?;
        appending.start();
        Ok(appending)
    }

    /// Tells the coordinator what becomes of a batch.
    fn report(self: &Arc<Self>, token: Token, appending: Appending) {
        let shard = self.clone();
        tokio::spawn(async move {
            let result = appending.await;
            let mut inner = shard.inner.lock();
            match result.map_err(|error: AppendError| error.outcome()) {
                Ok(_receipt) => {
                    shard.apply(&mut inner, Event::Persisted { token, written: Written::Durable });
                }
                Err(Outcome::NotCommitted) => {
                    shard.apply(&mut inner, Event::Persisted { token, written: Written::Not });
                }
                Err(Outcome::MayHaveCommitted | Outcome::Committed) => inner.give_up(&shard.stream),
            }
        });
    }

    /// Writes all live records again, and trims what is before them once they are safe.
    fn snapshot(self: &Arc<Self>, inner: &mut Inner) {
        let Some(coordinator) = &inner.coordinator else { return };
        // While batches are on their way there is none; a later event tries again.
        let Ok(records) = coordinator.snapshot() else { return };
        let live = records.len() as u64;
        if inner.records_since_snapshot < 2 * live {
            return;
        }
        let start = self.stream.committed_end();
        let mut last = None;
        for chunk in records.chunks(SNAPSHOT_BATCH_RECORDS) {
            match self.append(chunk) {
                Ok(appending) => last = Some(appending),
                // Nothing is trimmed, so nothing is lost: the live records stand where they stood.
                Err(_outcome) => return,
            }
        }
        inner.records_since_snapshot = live;
        let stream = self.stream.clone();
        tokio::spawn(async move {
            let safe = match last {
                Some(appending) => appending.await.is_ok(),
                None => true,
            };
            if safe {
                let trimmed = tokio::task::spawn_blocking(move || stream.trim(start)).await;
                if let Ok(Err(error)) = trimmed {
                    tracing::warn!(%error, "the offsets topic was not trimmed");
                }
            }
        });
    }
}

impl Inner {
    /// The log has failed and may or may not hold a batch: nobody may be answered from this state.
    fn give_up(&mut self, stream: &Stream) {
        tracing::error!(stream = %stream.id(), "a group coordinator stops: its log failed");
        self.coordinator = None;
        self.waiting.clear();
    }
}

fn now(clock: &dyn Clock) -> Now {
    Now { wall_ms: clock.wall_ms(), monotonic: clock.monotonic() }
}

/// Ticks when the coordinator wants it, until the shard is gone.
async fn keep_time(shard: Weak<Shard>, moved: Arc<Notify>) {
    loop {
        let Some(wait) = shard.upgrade().and_then(|shard| {
            let inner = shard.inner.lock();
            let deadline = inner.coordinator.as_ref()?.next_deadline();
            Some(deadline.saturating_sub(shard.clock.monotonic()))
        }) else {
            return;
        };
        if !wait.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
                () = moved.notified() => {}
            }
            continue;
        }
        let Some(shard) = shard.upgrade() else { return };
        let mut inner = shard.inner.lock();
        shard.apply(&mut inner, Event::Tick);
    }
}

#[cfg(test)]
mod tests {
    use super::partition_of;

    #[test]
    fn groups_are_where_apache_kafka_puts_them() {
        // "test".hashCode() == 3556498 in Java.
        assert_eq!(partition_of("test", 50), 3_556_498 % 50);
        assert_eq!(partition_of("", 50), 0);
    }
}
