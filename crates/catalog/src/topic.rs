//! A topic as the fronts see it: an unchanging snapshot, replaced as a whole when the topic changes.

use std::fmt;
use std::sync::Arc;

use thetis_meta::Version;
use thetis_stream::{Store, Stream};
use thetis_types::StreamId;
use thetis_types::clock::Entropy;
use uuid::{Builder, Uuid};

use crate::config::{Configs, Defaults};
use crate::error::CatalogError;
use crate::record::{Format, TopicRecord};

/// A topic, for ever: creating a name again gives a new id. A random UUID, never zero.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct TopicId(pub Uuid);

impl TopicId {
    /// A new id.
    #[must_use]
    pub fn random(entropy: &Arc<dyn Entropy>) -> TopicId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&entropy.next_u64().to_le_bytes());
        bytes[8..].copy_from_slice(&entropy.next_u64().to_le_bytes());
        TopicId(Builder::from_random_bytes(bytes).into_uuid())
    }

    /// The id with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> TopicId {
        TopicId(Uuid::from_bytes(bytes))
    }

    /// The topic a stream's label names.
    pub(crate) fn of_label(label: &str) -> Option<TopicId> {
        label.split_once('/')?.0.parse().ok().map(TopicId)
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A topic.
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TopicId,
    /// The form of its entries.
    pub format: Format,
    /// Its streams, by partition index.
    pub partitions: Vec<Stream>,
    pub(crate) version: Version,
    configs: Configs,
}

impl Topic {
    pub(crate) fn new(
        record: TopicRecord,
        version: Version,
        store: &Store,
        defaults: &Defaults,
    ) -> Result<Topic, CatalogError> {
        let find = |id: &u64| {
            let missing =
                || CatalogError::MissingStream { name: record.name.clone(), stream: StreamId(*id) };
            store.get(StreamId(*id)).ok_or_else(missing)
        };
        let partitions = record.partitions.iter().map(find).collect::<Result<_, _>>()?;
        Topic::made(record, version, partitions, defaults)
    }

    pub(crate) fn made(
        record: TopicRecord,
        version: Version,
        partitions: Vec<Stream>,
        defaults: &Defaults,
    ) -> Result<Topic, CatalogError> {
        Ok(Topic {
            name: record.name,
            id: record.id,
            format: record.format,
            partitions,
            version,
            configs: Configs::parse(&record.configs, defaults)?,
        })
    }

    /// The stream of a partition.
    #[must_use]
    pub fn partition(&self, index: i32) -> Option<&Stream> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// Number of partitions.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("at most PARTITIONS_MAX")
    }

    /// Its configuration, defaults filled in.
    #[must_use]
    pub fn configs(&self) -> &Configs {
        &self.configs
    }

    /// Its record, to be changed and written back.
    pub(crate) fn record(&self) -> TopicRecord {
        TopicRecord {
            name: self.name.clone(),
            id: self.id,
            format: self.format,
            partitions: self.partitions.iter().map(|stream| stream.id().0).collect(),
            configs: self.configs.set().clone(),
        }
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic {} ({}, {} partitions)", self.name, self.id, self.partitions.len())
    }
}
