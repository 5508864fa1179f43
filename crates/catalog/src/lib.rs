//! Topics: names bound to streams, with partitions and configurations. Shared by all fronts.
//!
//! Owns which topics exist, what they are made of and which configuration keys there are. Knows
//! no protocol and nothing of storage beneath the stream core. The record of a topic is described
//! in docs/formats/topic-record.md.
//!
//! A name is bound by one conditional put of its topic record; what was created for a topic that
//! certainly never got its name is deleted at once or with the next act, and, after a crash or an
//! unknown outcome, found by its label and deleted at the next open.

pub mod config;
mod error;
mod record;
mod retain;
mod topic;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use thetis_meta::{
    Condition, Key, KeyRange, MetaError, PAGE_ITEMS_MAX, Resolved, Version, Versioned, Write,
    WriteOutcome, resolve,
};
use thetis_stream::{CREATE_STREAMS_MAX, Store, Stream, StreamError, StreamSpec};
use thetis_types::limits::TOPIC_NAME_BYTES_MAX;
use thetis_types::{Durability, StreamId};

pub use config::{ConfigKey, Configs, Defaults};
pub use error::CatalogError;
pub use record::{Format, TopicRecord};
pub use topic::{Topic, TopicId};

/// Partitions of one topic: its record must fit a metadata value.
pub const PARTITIONS_MAX: u32 = 10_000;

/// What a new topic is to be.
#[derive(Clone, Debug)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// Its partitions, at least one.
    pub partitions: u32,
    /// Who writes it: the form of its entries.
    pub format: Format,
    /// Configuration that differs from the defaults.
    pub configs: BTreeMap<String, String>,
}

/// All topics of a store.
pub struct Catalog {
    store: Arc<Store>,
    defaults: Defaults,
    topics: RwLock<Topics>,
    /// Serialises the acts that change topics. Holds the streams that no topic has and that could
    /// not be deleted yet; each act tries again.
    acts: Mutex<Vec<StreamId>>,
}

#[derive(Default)]
struct Topics {
    by_name: BTreeMap<String, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
}

impl Topics {
    fn insert(&mut self, topic: Arc<Topic>) {
        self.by_id.insert(topic.id, topic.clone());
        self.by_name.insert(topic.name.clone(), topic);
    }

    fn remove(&mut self, topic: &Topic) {
        self.by_id.remove(&topic.id);
        self.by_name.remove(&topic.name);
    }
}

impl Catalog {
    /// Loads all topics, and deletes the streams of topics that never got their name.
    ///
    /// # Errors
    /// Metadata failed or cannot be understood.
    pub fn open(store: Arc<Store>, defaults: Defaults) -> Result<Catalog, CatalogError> {
        let mut topics = Topics::default();
        let mut range = Some(KeyRange::under(Key::of("topic")));
        while let Some(part) = range {
            let page = store.meta().range(&part, PAGE_ITEMS_MAX)?;
            for item in page.items {
                let topic = topic_at(&item.key, &item.stored, &store, &defaults)?;
                topics.insert(Arc::new(topic));
            }
            range = page.next;
        }
        delete_unbound(&store, &topics)?;
        Ok(Catalog { store, defaults, topics: RwLock::new(topics), acts: Mutex::default() })
    }

    /// The streams beneath.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What topics take where they set nothing.
    #[must_use]
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// The topic of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.topics.read().by_name.get(name).cloned()
    }

    /// The topic with this id. A deleted topic's id is never found again.
    #[must_use]
    pub fn get_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.topics.read().by_id.get(&id).cloned()
    }

    /// All topics, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Topic>> {
        self.topics.read().by_name.values().cloned().collect()
    }

    /// Whether a topic of this spec could be created now.
    ///
    /// # Errors
    /// What creating it would answer.
    pub fn check(&self, spec: &TopicSpec) -> Result<(), CatalogError> {
        check_name(&spec.name)?;
        if spec.partitions == 0 || spec.partitions > PARTITIONS_MAX {
            let (count, max) = (spec.partitions, PARTITIONS_MAX);
            return Err(CatalogError::PartitionCount { count, max });
        }
        Configs::parse(&spec.configs, &self.defaults)?;
        match self.get(&spec.name) {
            Some(_) => Err(CatalogError::Exists { name: spec.name.clone() }),
            None => Ok(()),
        }
    }

    /// Creates a topic; it exists durably when this returns.
    ///
    /// # Errors
    /// The name is taken or not allowed, the spec is invalid, or metadata failed.
    pub fn create(&self, spec: TopicSpec) -> Result<Arc<Topic>, CatalogError> {
        self.create_all(vec![spec]).pop().expect("one answer for each spec")
    }

    /// Creates many topics with few flushes, each with its own outcome, in order.
    pub fn create_all(&self, specs: Vec<TopicSpec>) -> Vec<Result<Arc<Topic>, CatalogError>> {
        let mut unbound = self.act();
        let mut names = HashSet::new();
        let checked: Vec<Result<TopicSpec, CatalogError>> = specs
            .into_iter()
            .map(|spec| {
                self.check(&spec)?;
                match names.insert(spec.name.clone()) {
                    true => Ok(spec),
                    false => Err(CatalogError::Exists { name: spec.name }),
                }
            })
            .collect();
        let good: Vec<&TopicSpec> = checked.iter().flatten().collect();
        let mut made = match self.bind(&good, &mut unbound) {
            Ok(made) => made.into_iter(),
            Err(error) => {
                return checked.into_iter().map(|spec| spec.and(Err(error.clone()))).collect();
            }
        };
        checked.into_iter().map(|spec| spec.and_then(|_| made.next().expect("bound"))).collect()
    }

    /// Begins an act: nobody else changes topics meanwhile. What earlier acts left is deleted.
    fn act(&self) -> MutexGuard<'_, Vec<StreamId>> {
        let mut unbound = self.acts.lock();
        self.delete_streams(&mut unbound);
        unbound
    }

    /// Deletes streams that no topic has; those that remain could not be deleted.
    fn delete_streams(&self, unbound: &mut Vec<StreamId>) {
        unbound.retain(|stream| match self.store.delete(*stream) {
            Ok(()) | Err(StreamError::NotFound { .. }) => false,
            Err(error) => {
                tracing::warn!(%stream, %error, "a stream of no topic is not deleted yet");
                true
            }
        });
    }

    /// Creates the streams of `specs`, then binds the names. Streams whose topic certainly has not
    /// got its name are deleted, or added to `unbound`.
    fn bind(
        &self,
        specs: &[&TopicSpec],
        unbound: &mut Vec<StreamId>,
    ) -> Result<Vec<Result<Arc<Topic>, CatalogError>>, CatalogError> {
        let ids: Vec<TopicId> =
            specs.iter().map(|_| TopicId::random(self.store.entropy())).collect();
        let mut streams = Vec::new();
        for (spec, id) in specs.iter().zip(&ids) {
            let durability = Configs::parse(&spec.configs, &self.defaults)?.durability();
            streams.extend((0..spec.partitions).map(|index| stream_spec(*id, index, durability)));
        }
        let mut streams = self.make_streams(&streams, unbound)?.into_iter();
        let mut made = Vec::with_capacity(specs.len());
        for (spec, id) in specs.iter().zip(ids) {
            let partitions: Vec<Stream> = streams.by_ref().take(spec.partitions as usize).collect();
            let record = TopicRecord {
                name: spec.name.clone(),
                id,
                format: spec.format,
                partitions: partitions.iter().map(|stream| stream.id().0).collect(),
                configs: spec.configs.clone(),
            };
            made.push((record, partitions));
        }
        let mut outcomes = Vec::with_capacity(made.len());
        for chunk in made.chunks(thetis_meta::BATCH_WRITES_MAX) {
            let puts: Vec<Write> =
                chunk.iter().map(|(record, _)| self.put(record, Condition::Absent)).collect();
            // A chunk that was refused does not undo those before it.
            match self.write_all(puts) {
                Ok(written) => outcomes.extend(written.into_iter().map(Ok)),
                Err(error) => outcomes.extend(chunk.iter().map(|_| Err(error.clone()))),
            }
        }
        let bound = made.into_iter().zip(outcomes).map(|((record, partitions), outcome)| {
            // After an unknown outcome the name may be bound to the streams, so they stay.
            if matches!(outcome, Ok(None) | Err(MetaError::Refused(_))) {
                unbound.extend(partitions.iter().map(Stream::id));
            }
            let Some(version) = outcome? else {
                self.look_again(&record.name)?;
                return Err(CatalogError::Exists { name: record.name });
            };
            let topic = Arc::new(Topic::made(record, version, partitions, &self.defaults)?);
            self.topics.write().insert(topic.clone());
            Ok(topic)
        });
        let bound = bound.collect();
        self.delete_streams(unbound);
        Ok(bound)
    }

    /// Creates streams, however many, all or none.
    fn make_streams(
        &self,
        specs: &[StreamSpec],
        unbound: &mut Vec<StreamId>,
    ) -> Result<Vec<Stream>, MetaError> {
        let mut made = Vec::with_capacity(specs.len());
        for part in specs.chunks(CREATE_STREAMS_MAX) {
            match self.store.create(part) {
                Ok(streams) => made.extend(streams),
                Err(error) => {
                    unbound.extend(made.iter().map(Stream::id));
                    self.delete_streams(unbound);
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    /// Takes over what metadata holds under `name`.
    ///
    /// A write of ours that lost has lost against one of ours, since nobody else writes here:
    ///
    /// 1. A change is written and its answer lost.
    /// 2. Reading back whether it happened fails, too, so its caller is told that this is unknown.
    /// 3. What is in memory stays as it was, and every later write would lose against the change.
    fn look_again(&self, name: &str) -> Result<Option<Arc<Topic>>, CatalogError> {
        let key = topic_key(name);
        let stored = self.store.meta().get(&key)?;
        let found = stored.map(|stored| topic_at(&key, &stored, &self.store, &self.defaults));
        let found = found.transpose()?.map(Arc::new);
        let before = self.get(name);
        let mut topics = self.topics.write();
        if let Some(before) = before {
            topics.remove(&before);
        }
        if let Some(found) = &found {
            topics.insert(found.clone());
        }
        Ok(found)
    }

    /// Deletes a topic: the name is free when this returns, and its bytes are given back later.
    ///
    /// # Errors
    /// No such topic, or metadata failed: call again.
    pub fn delete(&self, name: &str) -> Result<Arc<Topic>, CatalogError> {
        let mut unbound = self.act();
        let topic = self.get(name).ok_or_else(|| CatalogError::NotFound { name: name.into() })?;
        let write = Write::delete(topic_key(name)).only_if(Condition::Version(topic.version));
        let is_done = self.write_all(vec![write])?.pop().flatten().is_some();
        // A name that is gone was deleted by a call whose outcome was unknown; this one goes on.
        if !is_done && self.look_again(name)?.is_some() {
            return Err(CatalogError::Contended { name: name.into() });
        }
        self.topics.write().remove(&topic);
        unbound.extend(topic.partitions.iter().map(Stream::id));
        self.delete_streams(&mut unbound);
        Ok(topic)
    }

    /// Raises the number of partitions to `total`.
    ///
    /// # Errors
    /// No such topic, not more than it has, or metadata failed.
    pub fn add_partitions(&self, name: &str, total: u32) -> Result<Arc<Topic>, CatalogError> {
        let mut unbound = self.act();
        let topic = self.check_partitions(name, total)?;
        let have = topic.partition_count();
        let durability = topic.configs().durability();
        let specs: Vec<StreamSpec> =
            (have..total).map(|index| stream_spec(topic.id, index, durability)).collect();
        let added = self.make_streams(&specs, &mut unbound)?;
        let added_ids: Vec<StreamId> = added.iter().map(Stream::id).collect();
        let mut partitions = topic.partitions.clone();
        partitions.extend(added);
        let mut record = topic.record();
        record.partitions = partitions.iter().map(|stream| stream.id().0).collect();
        let replaced = self.replace(&topic, record, partitions);
        if let Err(CatalogError::Contended { .. } | CatalogError::Meta(MetaError::Refused(_))) =
            &replaced
        {
            unbound.extend(added_ids);
            self.delete_streams(&mut unbound);
        }
        replaced
    }

    /// Whether [`Catalog::add_partitions`] would be done.
    ///
    /// # Errors
    /// What it would answer.
    pub fn check_partitions(&self, name: &str, total: u32) -> Result<Arc<Topic>, CatalogError> {
        let topic = self.get(name).ok_or_else(|| CatalogError::NotFound { name: name.into() })?;
        let have = topic.partition_count();
        if total <= have {
            return Err(CatalogError::PartitionsNotMore { name: name.into(), have, asked: total });
        }
        if total > PARTITIONS_MAX {
            return Err(CatalogError::PartitionCount { count: total, max: PARTITIONS_MAX });
        }
        Ok(topic)
    }

    /// Replaces the configuration of a topic by `configs`.
    ///
    /// # Errors
    /// No such topic, an unknown key or a value that is not allowed, or metadata failed.
    pub fn set_configs(
        &self,
        name: &str,
        configs: BTreeMap<String, String>,
    ) -> Result<Arc<Topic>, CatalogError> {
        let _act = self.act();
        let topic = self.get(name).ok_or_else(|| CatalogError::NotFound { name: name.into() })?;
        self.replace_configs(&topic, configs)
    }

    /// Sets some keys of a topic's configuration, or takes them back with `None`; the others stay
    /// as they are, whoever else changes them.
    ///
    /// # Errors
    /// As [`Catalog::set_configs`].
    pub fn change_configs(
        &self,
        id: TopicId,
        changes: &[(&str, Option<&str>)],
    ) -> Result<Arc<Topic>, CatalogError> {
        let _act = self.act();
        let missing = || CatalogError::NotFound { name: id.to_string() };
        let topic = self.get_by_id(id).ok_or_else(missing)?;
        let mut configs = topic.configs().set().clone();
        for (key, value) in changes {
            match value {
                Some(value) => configs.insert((*key).into(), (*value).into()),
                None => configs.remove(*key),
            };
        }
        self.replace_configs(&topic, configs)
    }

    fn replace_configs(
        &self,
        topic: &Arc<Topic>,
        configs: BTreeMap<String, String>,
    ) -> Result<Arc<Topic>, CatalogError> {
        let parsed = Configs::parse(&configs, &self.defaults)?;
        let mut record = topic.record();
        record.configs = configs;
        let (wanted, default) = (parsed.durability(), self.store.limits().durability);
        let level = wanted.unwrap_or(default);
        // SUBTLE: these are several writes, and no stream may be weaker than its topic says after
        // any of them (law ACK-DURABLE). So what gets stronger does so before the topic says it,
        // what gets weaker after. A repeated call finds what is left to do by the streams' own
        // levels, not by what the topic said before.
        let is_said_anew = wanted != topic.configs().durability();
        for stream in &topic.partitions {
            if stream.durability() < level || (is_said_anew && stream.durability() == level) {
                stream.set_durability(wanted)?;
            }
        }
        let replaced = self.replace(topic, record, topic.partitions.clone())?;
        for stream in &topic.partitions {
            if stream.durability() > level {
                stream.set_durability(wanted)?;
            }
        }
        Ok(replaced)
    }

    fn replace(
        &self,
        topic: &Topic,
        record: TopicRecord,
        partitions: Vec<Stream>,
    ) -> Result<Arc<Topic>, CatalogError> {
        let put = self.put(&record, Condition::Version(topic.version));
        let Some(version) = self.write_all(vec![put])?.pop().flatten() else {
            self.look_again(&record.name)?;
            return Err(CatalogError::Contended { name: record.name });
        };
        let topic = Arc::new(Topic::made(record, version, partitions, &self.defaults)?);
        self.topics.write().insert(topic.clone());
        Ok(topic)
    }

    fn put(&self, record: &TopicRecord, condition: Condition) -> Write {
        Write::put(topic_key(&record.name), record.encode())
            .only_if(condition)
            .with_token(self.store.entropy().next_u64() | 1)
    }

    /// The versions of the writes that happened. Lost answers are resolved by reading back.
    fn write_all(&self, writes: Vec<Write>) -> Result<Vec<Option<Version>>, MetaError> {
        let meta = self.store.meta();
        match meta.batch(writes.clone()) {
            Ok(outcomes) => Ok(outcomes.iter().map(WriteOutcome::done).collect()),
            Err(MetaError::Unknown { cause }) => {
                let resolved = writes.iter().map(|write| match resolve(&**meta, write) {
                    Ok(Resolved::Done { version }) => Ok(Some(version)),
                    Ok(Resolved::Gone) => Ok(Some(Version::default())),
                    Ok(Resolved::Overtaken { .. }) => Ok(None),
                    // That a read was refused says nothing of the write (law CERTAIN).
                    Ok(Resolved::NotDone { .. }) | Err(_) => {
                        Err(MetaError::Unknown { cause: cause.clone() })
                    }
                });
                resolved.collect()
            }
            Err(refused) => Err(refused),
        }
    }
}

/// The topic whose record lies at `key`.
fn topic_at(
    key: &Key,
    stored: &Versioned,
    store: &Store,
    defaults: &Defaults,
) -> Result<Topic, CatalogError> {
    let record = TopicRecord::decode(&stored.value)?;
    if *key != topic_key(&record.name) {
        let detail = format!("the record at {key} is that of {:?}", record.name);
        return Err(CatalogError::Record { detail });
    }
    Topic::new(record, stored.version, store, defaults)
}

fn topic_key(name: &str) -> Key {
    Key::of("topic").text(name)
}

fn stream_spec(topic: TopicId, index: u32, durability: Option<Durability>) -> StreamSpec {
    StreamSpec { durability, label: format!("{topic}/{index}"), ..StreamSpec::default() }
}

fn check_name(name: &str) -> Result<(), CatalogError> {
    let fault = match name {
        "" => "it is empty",
        _ if name.len() > TOPIC_NAME_BYTES_MAX => "it is longer than 249 bytes",
        _ if name.chars().any(char::is_control) => "it has control characters",
        _ => return Ok(()),
    };
    Err(CatalogError::Name { name: name.into(), fault })
}

/// Deletes streams whose label names a topic that does not have them: what a crash between
/// creating streams and binding a name, or between freeing a name and deleting streams, left.
fn delete_unbound(store: &Store, topics: &Topics) -> Result<(), CatalogError> {
    let bound: HashSet<_> =
        topics.by_name.values().flat_map(|topic| topic.partitions.iter().map(Stream::id)).collect();
    if bound.len() == store.len() {
        return Ok(());
    }
    for (id, label) in store.labels()? {
        if !bound.contains(&id) && TopicId::of_label(&label).is_some() {
            tracing::info!(stream = %id, label, "deleting a stream of no topic");
            store.delete(id)?;
        }
    }
    Ok(())
}
