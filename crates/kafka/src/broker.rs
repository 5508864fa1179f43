//! What all connections of one node share: the catalog, the settings a client can see, the state of
//! producers and groups. Owns no socket and no bytes of the wire.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thetis_catalog::{Catalog, CatalogError, Format, Topic, TopicSpec};
use thetis_meta::record::RecordKind;
use thetis_meta::{BATCH_WRITES_MAX, Condition, Key, MetaError, Refusal, Write};
use thetis_net::tls::Tls;
use thetis_stream::Stream;
use thetis_types::StreamId;

use crate::coordinator::Groups;
use crate::group;
use crate::partition::Partition;

/// The envelope of the smallest producer id never given to a producer.
const NEXT_PRODUCER: RecordKind = RecordKind { kind: 0x0401, schema: 1 };

/// The envelope of the cluster's name for itself.
const CLUSTER_ID: RecordKind = RecordKind { kind: 0x0402, schema: 1 };

/// Producer ids reserved with one metadata write.
const PRODUCER_IDS_PER_BLOCK: i64 = 1_000;

/// What clients of this node see and what it keeps to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's number.
    pub node_id: i32,
    /// Where clients are told to connect: host and port.
    pub advertised: (String, u16),
    /// Partitions of a topic that does not say.
    pub default_partitions: u32,
    /// Whether asking for metadata of an unknown topic creates it.
    pub auto_create_topics: bool,
    /// Partitions of the offsets topic when it is created.
    pub offsets_partitions: u32,
    /// How long an idle producer is remembered.
    pub producer_expiration: Duration,
    /// How long a connection may be silent.
    pub connection_idle_max: Duration,
    /// Connections at a time.
    pub connections_max: usize,
    /// The listener's certificate; without one nothing is encrypted.
    pub tls: Option<Tls>,
    /// Bytes of one request.
    pub request_bytes_max: usize,
    /// Bytes of records in one Fetch answer, whatever the client asks.
    pub fetch_bytes_max: usize,
    /// Settings of groups.
    pub groups: group::Settings,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            node_id: 1,
            advertised: ("127.0.0.1".into(), 9092),
            default_partitions: 4,
            auto_create_topics: true,
            offsets_partitions: 50,
            producer_expiration: Duration::from_secs(24 * 3_600),
            connection_idle_max: Duration::from_secs(600),
            connections_max: 10_000,
            tls: None,
            request_bytes_max: 100 << 20,
            fetch_bytes_max: 55 << 20,
            groups: group::Settings::default(),
        }
    }
}

/// One node as Kafka clients know it.
pub struct Broker {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) settings: Settings,
    /// The cluster's name for itself: made once, kept in metadata.
    pub(crate) cluster_id: String,
    pub(crate) groups: Groups,
    partitions: Mutex<HashMap<StreamId, Arc<Partition>>>,
    producer_ids: Mutex<std::ops::Range<i64>>,
}

impl Broker {
    /// A node over `catalog`. Reads the offsets topic, if there is one. Needs a tokio runtime with
    /// more than one thread, on which it keeps the groups' timers.
    ///
    /// # Errors
    /// The offsets topic cannot be read.
    pub fn open(catalog: Arc<Catalog>, settings: Settings) -> Result<Arc<Broker>, CatalogError> {
        let cluster_id = cluster_id(&catalog)?;
        let groups = Groups::open(&catalog, &settings)?;
        Ok(Arc::new(Broker {
            cluster_id,
            catalog,
            settings,
            groups,
            partitions: Mutex::new(HashMap::new()),
            producer_ids: Mutex::new(0..0),
        }))
    }

    /// What this front keeps beside a partition's stream.
    pub(crate) fn partition(&self, stream: &Stream) -> Arc<Partition> {
        let mut partitions = self.partitions.lock();
        let made = || Arc::new(Partition::new(stream.clone(), self.settings.producer_expiration));
        partitions.entry(stream.id()).or_insert_with(made).clone()
    }

    /// The topic of this name, created if that is allowed and it does not exist.
    pub(crate) fn topic_or_create(&self, name: &str) -> Result<Arc<Topic>, CatalogError> {
        if let Some(topic) = self.catalog.get(name) {
            return Ok(topic);
        }
        let spec = TopicSpec {
            name: name.to_owned(),
            partitions: self.settings.default_partitions,
            format: Format::Kafka,
            configs: Default::default(),
        };
        match self.catalog.create(spec) {
            // Someone else was faster.
            Err(CatalogError::Exists { .. }) => self
                .catalog
                .get(name)
                .ok_or_else(|| CatalogError::NotFound { name: name.to_owned() }),
            made => made,
        }
    }

    /// Deletes a topic and what this front keeps beside it.
    pub(crate) fn delete_topic(&self, name: &str) -> Result<Arc<Topic>, CatalogError> {
        let topic = self.catalog.delete(name)?;
        let ids: Vec<StreamId> = topic.partitions.iter().map(Stream::id).collect();
        {
            let mut partitions = self.partitions.lock();
            ids.iter().for_each(|id| drop(partitions.remove(id)));
        }
        self.write_all(ids.into_iter().map(Partition::removal).collect());
        Ok(topic)
    }

    /// Saves or removes snapshots; a failure costs a longer walk at the next start, or a few bytes.
    fn write_all(&self, writes: Vec<Write>) {
        for chunk in writes.chunks(BATCH_WRITES_MAX) {
            // A snapshot can be large: should a batch be too large as a whole, each goes alone.
            let meta = self.catalog.store().meta();
            let failed = match meta.batch(chunk.to_vec()) {
                Err(MetaError::Refused(Refusal::BatchTooLarge { .. })) => {
                    chunk.iter().find_map(|write| meta.write(write.clone()).err())
                }
                answer => answer.err(),
            };
            if let Some(error) = failed {
                tracing::warn!(%error, "snapshots of producers were not written");
            }
        }
    }

    /// A producer id that nobody had before, across restarts too.
    pub(crate) fn next_producer_id(&self) -> Result<i64, MetaError> {
        let mut ids = self.producer_ids.lock();
        if ids.is_empty() {
            *ids = self.reserve_producer_ids()?;
        }
        let id = ids.start;
        ids.start += 1;
        Ok(id)
    }

    /// A lost answer costs a block of ids, of which there are enough: the next try reads what is
    /// there and goes on behind it.
    fn reserve_producer_ids(&self) -> Result<std::ops::Range<i64>, MetaError> {
        let meta = self.catalog.store().meta();
        let key = Key::of("kafka").word("next-producer");
        loop {
            let stored = meta.get(&key)?;
            let (next, condition) = match &stored {
                None => (0, Condition::Absent),
                Some(stored) => {
                    let next = NEXT_PRODUCER.open(&stored.value).ok().and_then(|(_, payload)| {
                        Some(i64::from_le_bytes(payload[..].try_into().ok()?))
                    });
                    let next = next.ok_or_else(|| Refusal::Corrupt {
                        what: "the record kafka/next-producer is not a number".into(),
                    })?;
                    (next, Condition::Version(stored.version))
                }
            };
            let end = next + PRODUCER_IDS_PER_BLOCK;
            let write = Write::put(key.clone(), NEXT_PRODUCER.seal(&end.to_le_bytes()));
            if meta.write(write.only_if(condition))?.done().is_some() {
                return Ok(next..end);
            }
        }
    }

    /// Saves what would otherwise have to be found by walking the log at the next start.
    pub fn close(&self) {
        let now_ms = self.catalog.store().clock().wall_ms();
        let partitions: Vec<_> = self.partitions.lock().values().cloned().collect();
        let writes = partitions.iter().filter_map(|partition| partition.snapshot(now_ms));
        self.write_all(writes.collect());
    }
}

/// The cluster's name for itself, as metadata has it; 22 characters, as Apache Kafka's are.
fn cluster_id(catalog: &Catalog) -> Result<String, MetaError> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (meta, entropy) = (catalog.store().meta(), catalog.store().entropy());
    let key = Key::of("kafka").word("cluster-id");
    loop {
        if let Some(stored) = meta.get(&key)? {
            let opened = CLUSTER_ID.open(&stored.value).ok();
            let text = opened.and_then(|(_, payload)| String::from_utf8(payload.to_vec()).ok());
            return text.ok_or_else(|| {
                let what = "the record kafka/cluster-id is not text".to_owned();
                Refusal::Corrupt { what }.into()
            });
        }
        let digit = |_| char::from(ALPHABET[(entropy.next_u64() >> 58) as usize]);
        let made: String = (0..22).map(digit).collect();
        let put = Write::put(key.clone(), CLUSTER_ID.seal(made.as_bytes()));
        // Whoever was first, what is stored is read next.
        let _ = meta.write(put.only_if(Condition::Absent))?;
    }
}
