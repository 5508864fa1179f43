//! State from the log, and the log from state.
//!
//! Owns the rule that the coordinator's durable state is a pure replay of its log: nothing else is
//! read at start, and [`Coordinator::snapshot`] is a log that replays to the same state.

use std::sync::Arc;

use thetis_types::ErrorKind;
use thetis_types::clock::Entropy;

use super::Coordinator;
use super::message::{Now, Record};
use super::record::{self, Key, RecordError};
use super::settings::Settings;
use super::state::Group;

/// A coordinator that is still reading its log.
#[derive(Debug)]
pub struct Loading {
    coordinator: Coordinator,
}

/// A snapshot was asked for while batches were under way: it would be appended after them and
/// hide them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} batches are on their way to the log; take the snapshot when they have settled")]
pub struct InFlight {
    /// How many.
    pub count: usize,
}

impl InFlight {
    /// What the caller should do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Conflict
    }
}

impl Loading {
    /// An empty coordinator. `entropy` makes member ids.
    #[must_use]
    pub fn new(settings: Settings, entropy: Arc<dyn Entropy>) -> Loading {
        Loading { coordinator: Coordinator::empty(settings, entropy) }
    }

    /// Takes the next record of the log, from its beginning (or from the beginning of a snapshot)
    /// to its end, in order.
    ///
    /// # Errors
    /// When it is not a record of the offsets log; then nothing is taken over. The caller decides
    /// whether to go on without it; it should not do so silently.
    pub fn replay(&mut self, record: &Record) -> Result<(), RecordError> {
        let groups = &mut self.coordinator.groups;
        match record::decode_key(&record.key)? {
            Key::Offset { group_id, topic, partition } => {
                let value = record.value.as_ref().map(record::decode_offset_value).transpose()?;
                let group =
                    groups.entry(group_id).or_insert_with_key(|group_id| Group::new(group_id));
                group.offsets.set(&topic, partition, value);
            }
            Key::Group { group_id } => {
                let value = record.value.as_ref().map(record::decode_group_value).transpose()?;
                let group =
                    groups.entry(group_id).or_insert_with_key(|group_id| Group::new(group_id));
                match value {
                    Some(value) => group.restore(value),
                    None => group.forget_members(),
                }
            }
        }
        Ok(())
    }

    /// Ends the replay: sessions of all members start anew, and timers run.
    ///
    /// CRASH(@C), CRASH(@D): a rebalance that was under way is not in the log; a group that is
    /// there is stable or empty.
    #[must_use]
    pub fn start(self, now: Now) -> Coordinator {
        let mut coordinator = self.coordinator;
        coordinator.retention_due = now.monotonic + coordinator.settings.retention_check_interval;
        let group_ids: Vec<String> = coordinator.groups.keys().cloned().collect();
        for group_id in group_ids {
            coordinator.with_group(now, &group_id, |group, turn| {
                for member in group.members.values_mut() {
                    member.touch(now.monotonic);
                }
                if group.members.len() > turn.settings.group_size_max {
                    group.prepare_rebalance(turn);
                }
            });
        }
        coordinator
    }
}

impl Coordinator {
    /// All live records. The caller appends them to the log before the records of any later event;
    /// once they are durable, everything before them may be trimmed.
    ///
    /// A group in the middle of a rebalance is given as its last durable record: the rebalance
    /// itself is not in the log and does not survive a restart, with a snapshot or without.
    ///
    /// # Errors
    /// [`InFlight`] while batches are not settled.
    pub fn snapshot(&self) -> Result<Vec<Record>, InFlight> {
        let count = self.outbox.in_flight_count();
        if count > 0 {
            return Err(InFlight { count });
        }
        let mut records = Vec::new();
        for (group_id, group) in &self.groups {
            if let Some(value) = &group.durable {
                records
                    .push(Record { key: record::group_key(group_id), value: Some(value.clone()) });
            }
            records.extend(group.offsets.slots().filter_map(|(topic, partition, slot)| {
                let value = record::offset_value(slot.committed.as_ref()?);
                Some(Record {
                    key: record::offset_key(group_id, topic, partition),
                    value: Some(value),
                })
            }));
        }
        Ok(records)
    }
}
