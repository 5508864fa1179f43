//! Committing, deleting and expiring offsets.

use std::collections::BTreeSet;

use thetis_types::limits::TOPIC_NAME_BYTES_MAX;

use super::Code;
use super::message::{Commit, Now, Record, ReplyTo, Response, State};
use super::outbox::{OffsetName, Pending};
use super::record::{self, OffsetValue};
use super::settings::Settings;
use super::state::{Group, Turn};

/// Topics of an answer, each with a code for its partitions.
pub(super) type Codes = Vec<(String, Vec<(i32, Code)>)>;

impl Group {
    pub(super) fn commit(&mut self, turn: &mut Turn<'_>, to: ReplyTo, commit: &Commit) {
        let overloaded = turn.outbox.in_flight_count() >= turn.settings.commits_in_flight_max;
        let checked = match self.check_commit(commit) {
            Ok(()) if overloaded => Err(Code::CoordinatorLoadInProgress),
            checked => checked,
        };
        if let Err(code) = checked {
            turn.outbox.reply(to, Response::Commit(refuse_commit(commit, code)));
            return;
        }
        if self.members.contains_key(&commit.member_id) {
            self.touch(turn, &commit.member_id);
        }
        let (mut records, mut offsets, mut codes) = (Vec::new(), Vec::new(), Vec::new());
        for (topic, partitions) in &commit.topics {
            let mut of_topic = Vec::with_capacity(partitions.len());
            for asked in partitions {
                let code =
                    self.check_offset(turn.settings, topic, asked.partition, &asked.metadata);
                of_topic.push((asked.partition, code));
                if code != Code::None {
                    continue;
                }
                let expires = |kept: i64| turn.now.wall_ms.saturating_add(kept);
                let expire_timestamp_ms = commit.retention_ms.filter(|ms| *ms >= 0).map(expires);
                let value = OffsetValue {
                    offset: asked.offset,
                    // The record of an offset with an expiry has no room for the epoch; clients
                    // that send the one do not know the other.
                    leader_epoch: expire_timestamp_ms.map_or(asked.leader_epoch, |_| -1),
                    metadata: asked.metadata.clone(),
                    commit_timestamp_ms: asked.timestamp_ms.unwrap_or(turn.now.wall_ms),
                    expire_timestamp_ms,
                };
                records.push(Record {
                    key: record::offset_key(&self.id, topic, asked.partition),
                    value: Some(record::offset_value(&value)),
                });
                self.offsets.begin(topic, asked.partition);
                offsets.push((self.offset_name(topic, asked.partition), value));
            }
            codes.push((topic.clone(), of_topic));
        }
        if records.is_empty() {
            turn.outbox.reply(to, Response::Commit(codes));
        } else {
            let group_id = self.id.clone();
            turn.outbox
                .persist(records, Pending::Commit { group_id, reply_to: to, offsets, codes });
        }
    }

    fn check_commit(&self, commit: &Commit) -> Result<(), Code> {
        if self.state == State::Empty && commit.generation < 0 {
            return Ok(());
        }
        let by_itself = commit.generation < 0
            && commit.member_id.is_empty()
            && commit.group_instance_id.is_none();
        if by_itself {
            // While the group has members, only they commit.
            return Err(Code::UnknownMemberId);
        }
        self.check_member(&commit.member_id, commit.group_instance_id.as_deref())?;
        if commit.generation != self.generation {
            return Err(Code::IllegalGeneration);
        }
        match self.state {
            // A member that has not rejoined still holds its partitions and says how far it came.
            State::Stable | State::PreparingRebalance | State::Empty => Ok(()),
            State::CompletingRebalance => Err(Code::RebalanceInProgress),
            State::Dead => Err(Code::CoordinatorNotAvailable),
        }
    }

    fn check_offset(
        &self,
        settings: &Settings,
        topic: &str,
        partition: i32,
        metadata: &str,
    ) -> Code {
        let metadata_bytes_max = settings.offset_metadata_bytes_max.min(i16::MAX as usize);
        if topic.len() > TOPIC_NAME_BYTES_MAX {
            Code::UnknownTopicOrPartition
        } else if metadata.len() > metadata_bytes_max {
            Code::OffsetMetadataTooLarge
        } else if self.offsets.count() >= settings.offsets_per_group_max
            && !self.offsets.contains(topic, partition)
        {
            Code::CoordinatorLoadInProgress
        } else {
            Code::None
        }
    }

    fn offset_name(&self, topic: &str, partition: i32) -> OffsetName {
        OffsetName { group_id: self.id.clone(), topic: topic.to_owned(), partition }
    }

    /// Deletes offsets on request: of an empty group any, of a group of consumers those of topics
    /// that nobody in it reads.
    pub(super) fn delete_offsets(
        &mut self,
        turn: &mut Turn<'_>,
        to: ReplyTo,
        asked: Vec<(String, Vec<i32>)>,
    ) {
        let has_members = self.state != State::Empty;
        let read = self.subscribed_topics();
        if has_members && read.is_none() {
            let refused = Response::DeleteOffsets { code: Code::NonEmptyGroup, topics: Vec::new() };
            turn.outbox.reply(to, refused);
            return;
        }
        let (mut topics, mut offsets) = (Codes::new(), Vec::new());
        for (topic, partitions) in asked {
            let is_read = has_members && read.as_ref().is_some_and(|r| r.contains(&topic));
            let code = if is_read { Code::GroupSubscribedToTopic } else { Code::None };
            if !is_read {
                let known: BTreeSet<i32> = partitions.iter().copied().collect();
                let known = known.into_iter().filter(|p| self.offsets.contains(&topic, *p));
                offsets.extend(known.map(|p| self.offset_name(&topic, p)));
            }
            topics.push((topic, partitions.into_iter().map(|p| (p, code)).collect()));
        }
        if offsets.is_empty() {
            turn.outbox.reply(to, Response::DeleteOffsets { code: Code::None, topics });
            return;
        }
        let records = self.bury(&offsets);
        turn.outbox.persist(records, Pending::DeleteOffsets { reply_to: to, offsets, topics });
    }

    /// Tombstones for these offsets of this group, which are noted as under way.
    pub(super) fn bury(&mut self, offsets: &[OffsetName]) -> Vec<Record> {
        offsets
            .iter()
            .map(|name| {
                self.offsets.begin(&name.topic, name.partition);
                record::tombstone(record::offset_key(&self.id, &name.topic, name.partition))
            })
            .collect()
    }

    /// Deletes the group with all its offsets. The group must be settled and empty. A group that
    /// has nothing in the log has nothing to wait for; then the result is false.
    pub(super) fn delete(&mut self, turn: &mut Turn<'_>, reply_to: Option<ReplyTo>) -> bool {
        assert!(self.state == State::Empty && !self.is_settling, "{}: {}", self.id, self.state);
        let names: Vec<OffsetName> =
            self.offsets.slots().map(|(t, p, _)| self.offset_name(t, p)).collect();
        let mut records: Vec<Record> = names
            .iter()
            .map(|n| record::tombstone(record::offset_key(&n.group_id, &n.topic, n.partition)))
            .collect();
        if self.durable.is_some() {
            records.push(record::tombstone(record::group_key(&self.id)));
        }
        if records.is_empty() {
            return false;
        }
        self.is_settling = true;
        let group_id = self.id.clone();
        turn.outbox.persist(records, Pending::DeleteGroup { group_id, reply_to });
        true
    }

    /// Up to `count_max` offsets that have outlived their retention.
    ///
    /// Without members an offset lives as long after the later of its commit and the group's
    /// becoming empty; with members of type `consumer`, it must also be of a topic nobody reads.
    pub(super) fn expired(
        &self,
        now: Now,
        settings: &Settings,
        count_max: usize,
    ) -> Vec<OffsetName> {
        let read = match (self.state, &self.protocol_type) {
            (State::Empty, _) => BTreeSet::new(),
            (State::Stable, Some(_)) => match self.subscribed_topics() {
                Some(topics) => topics,
                None => return Vec::new(),
            },
            _ => return Vec::new(),
        };
        let since = match (self.state, &self.protocol_type) {
            (State::Empty, Some(_)) => self.state_since_ms.unwrap_or(i64::MIN),
            _ => i64::MIN,
        };
        let kept = i64::try_from(settings.offsets_retention.as_millis()).unwrap_or(i64::MAX);
        let is_over = |value: &OffsetValue| {
            let expires = value
                .expire_timestamp_ms
                .unwrap_or_else(|| value.commit_timestamp_ms.max(since).saturating_add(kept));
            expires <= now.wall_ms
        };
        self.offsets
            .slots()
            .filter(|(topic, _, slot)| slot.in_flight == 0 && !read.contains(*topic))
            .filter(|(_, _, slot)| slot.committed.as_ref().is_some_and(is_over))
            .map(|(topic, partition, _)| self.offset_name(topic, partition))
            .take(count_max)
            .collect()
    }
}

/// The same code for every partition of a commit.
pub(super) fn refuse_commit(commit: &Commit, code: Code) -> Codes {
    let of = |(topic, partitions): &(String, Vec<super::message::CommitPartition>)| {
        (topic.clone(), partitions.iter().map(|p| (p.partition, code)).collect())
    };
    commit.topics.iter().map(of).collect()
}
