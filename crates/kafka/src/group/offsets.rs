//! The committed offsets of one group.
//!
//! Owns the table and its count. Only what is durable is ever readable; what is under way is
//! counted, so that tombstones reach it too and expiry keeps away from it.

use std::collections::BTreeMap;

use super::message::FetchedOffset;
use super::record::OffsetValue;

/// One partition's place in the table. Kept while it has an offset or a record under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    /// The offset, durable.
    pub(super) committed: Option<OffsetValue>,
    /// Records about it (commits, tombstones) that are not settled.
    pub(super) in_flight: u32,
}

/// Offsets by topic and partition. No inner map is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OffsetTable {
    topics: BTreeMap<String, BTreeMap<i32, Slot>>,
    count: usize,
}

impl OffsetTable {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Partitions with an offset or a record under way.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn contains(&self, topic: &str, partition: i32) -> bool {
        self.topics.get(topic).is_some_and(|p| p.contains_key(&partition))
    }

    /// Notes that a record about a partition is under way.
    pub(super) fn begin(&mut self, topic: &str, partition: i32) {
        self.slot(topic, partition).in_flight += 1;
    }

    /// A record begun before is durable: `value` is the partition's offset, or it has none.
    pub(super) fn settle(&mut self, topic: &str, partition: i32, value: Option<OffsetValue>) {
        self.finish(topic, partition);
        self.set(topic, partition, value);
    }

    /// A record begun before is not in the log.
    pub(super) fn give_up(&mut self, topic: &str, partition: i32) {
        self.finish(topic, partition);
        self.prune(topic, partition);
    }

    /// Sets what the log says.
    pub(super) fn set(&mut self, topic: &str, partition: i32, value: Option<OffsetValue>) {
        if value.is_some() || self.contains(topic, partition) {
            self.slot(topic, partition).committed = value;
            self.prune(topic, partition);
        }
    }

    /// Nothing is committed any more; what is under way stays.
    pub(super) fn clear(&mut self) {
        for partitions in self.topics.values_mut() {
            partitions.values_mut().for_each(|slot| slot.committed = None);
            partitions.retain(|_, slot| slot.in_flight > 0);
        }
        self.topics.retain(|_, partitions| !partitions.is_empty());
        self.count = self.topics.values().map(BTreeMap::len).sum();
    }

    fn finish(&mut self, topic: &str, partition: i32) {
        let slot = self.slot(topic, partition);
        slot.in_flight = slot.in_flight.checked_sub(1).expect("each record settles once");
    }

    fn slot(&mut self, topic: &str, partition: i32) -> &mut Slot {
        if !self.topics.contains_key(topic) {
            self.topics.insert(topic.to_owned(), BTreeMap::new());
        }
        let partitions = self.topics.get_mut(topic).expect("inserted above");
        partitions.entry(partition).or_insert_with(|| {
            self.count += 1;
            Slot::default()
        })
    }

    fn prune(&mut self, topic: &str, partition: i32) {
        let Some(partitions) = self.topics.get_mut(topic) else { return };
        if partitions.get(&partition) == Some(&Slot::default()) {
            partitions.remove(&partition);
            self.count -= 1;
            if partitions.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    /// Partitions of a topic that are in the table.
    pub(super) fn partitions_of(&self, topic: &str) -> impl Iterator<Item = i32> + '_ {
        self.topics.get(topic).into_iter().flat_map(|p| p.keys().copied())
    }

    /// All places, by topic and partition.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&str, i32, &Slot)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |(partition, slot)| (topic.as_str(), *partition, slot))
        })
    }

    /// What is committed for one partition.
    pub(super) fn fetch(&self, topic: &str, partition: i32) -> FetchedOffset {
        let slot = self.topics.get(topic).and_then(|p| p.get(&partition));
        fetched(partition, slot.and_then(|s| s.committed.as_ref()))
    }

    /// All that is committed.
    pub(super) fn fetch_all(&self) -> Vec<(String, Vec<FetchedOffset>)> {
        let of_topic = |partitions: &BTreeMap<i32, Slot>| -> Vec<FetchedOffset> {
            let committed =
                |(p, slot): (&i32, &Slot)| Some(fetched(*p, Some(slot.committed.as_ref()?)));
            partitions.iter().filter_map(committed).collect()
        };
        self.topics
            .iter()
            .map(|(topic, partitions)| (topic.clone(), of_topic(partitions)))
            .filter(|(_, partitions)| !partitions.is_empty())
            .collect()
    }
}

/// An offset as read; the answer for a partition that has none.
pub(super) fn fetched(partition: i32, value: Option<&OffsetValue>) -> FetchedOffset {
    FetchedOffset {
        partition,
        offset: value.map_or(-1, |v| v.offset),
        leader_epoch: value.map_or(-1, |v| v.leader_epoch),
        metadata: value.map_or_else(String::new, |v| v.metadata.clone()),
    }
}
