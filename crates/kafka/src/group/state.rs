//! One group: members, generation, and the rules that hold for them whatever the request.
//!
//! Owns membership. What requests do with it is in `join.rs`, `sync.rs` and `commit.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use thetis_types::clock::Entropy;

use super::Code;
use super::member::Member;
use super::message::{
    DescribedMember, Description, JoinedMember, Listing, Now, Protocol, ReplyTo, Request, State,
};
use super::offsets::OffsetTable;
use super::outbox::Outbox;
use super::record::{self, GroupValue};
use super::settings::Settings;

/// Type of the protocols of ordinary consumers; the only one whose metadata is understood here.
const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// What a handler works with besides the group.
pub(super) struct Turn<'a> {
    pub(super) now: Now,
    pub(super) settings: &'a Settings,
    pub(super) entropy: &'a dyn Entropy,
    pub(super) outbox: &'a mut Outbox,
}

/// A rebalance that waits for members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rebalance {
    /// When those who have not joined are left behind.
    pub(super) deadline: Duration,
    /// The group was empty: wait for the deadline even when all have joined, and put it off by
    /// at most this much more while members keep arriving.
    pub(super) extendable_by: Option<Duration>,
}

/// A group that exists; [`State::Dead`] is the state of those that do not.
///
/// ```text
///          join                 all joined, or timeout            assignment durable
///  Empty ------> Preparing ------------------------> Completing ------------------> Stable
///    ^           |   ^  ^                                 |                           |
///    +-----------+   |  +---------------------------------+                           |
///     nobody joined  +----------------------------------------------------------------+
///                       a member joins anew, leaves, falls silent, or does not sync
/// ```
///
/// INVARIANT: without members the group is `Empty` or `PreparingRebalance`; with members it is not
/// `Empty`, has a leader, and the leader is one of them. See [`Group::validate`].
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<String>,
    /// Start of the present generation, by the wall clock; as recorded.
    pub(super) state_since_ms: Option<i64>,
    pub(super) members: BTreeMap<String, Member>,
    /// Instance id to member id; exactly the members that have one.
    pub(super) static_members: BTreeMap<String, String>,
    /// Ids given out but not yet joined with, and when they lapse.
    pub(super) pending_members: BTreeMap<String, Duration>,
    /// Present exactly in `PreparingRebalance`.
    pub(super) rebalance: Option<Rebalance>,
    /// A member came since the initial delay was last put off.
    pub(super) member_added: bool,
    /// Members that have joined the generation but not yet synced.
    pub(super) pending_sync: BTreeSet<String>,
    /// When those are thrown out.
    pub(super) sync_deadline: Option<Duration>,
    pub(super) offsets: OffsetTable,
    /// The group's value in the log, as far as it is known to be durable.
    pub(super) durable: Option<Bytes>,
    /// When to hand over again the record of a generation without members, which the log refused.
    /// Nobody was answered on its strength, so nothing else waits for it.
    pub(super) record_due: Option<Duration>,
    /// A record of the group is on its way: requests wait in `deferred`, timers stand still.
    ///
    /// That no request meets a group between two durable states is what makes its refusals
    /// durable (law REFUSE-DURABLE), and lets every settlement find the group as it left it.
    pub(super) is_settling: bool,
    pub(super) deferred: VecDeque<(ReplyTo, Request)>,
    /// When the coordinator will look at the timers; never later than the earliest of them.
    pub(super) wake: Option<Duration>,
}

impl Group {
    pub(super) fn new(id: &str) -> Group {
        Group {
            id: id.to_owned(),
            state: State::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            state_since_ms: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_members: BTreeMap::new(),
            rebalance: None,
            member_added: false,
            pending_sync: BTreeSet::new(),
            sync_deadline: None,
            offsets: OffsetTable::default(),
            durable: None,
            record_due: None,
            is_settling: false,
            deferred: VecDeque::new(),
            wake: None,
        }
    }

    /// Takes the state that a record of the log describes.
    pub(super) fn restore(&mut self, value: GroupValue) {
        let protocol = value.protocol.clone().unwrap_or_default();
        self.state = if value.members.is_empty() { State::Empty } else { State::Stable };
        self.generation = value.generation;
        self.protocol_type = (!value.protocol_type.is_empty()).then_some(value.protocol_type);
        self.protocol = value.protocol;
        self.state_since_ms = value.state_since_ms;
        self.members = value
            .members
            .into_iter()
            .map(|m| (m.member_id.clone(), Member::from_record(m, &protocol)))
            .collect();
        self.static_members = self
            .members
            .values()
            .filter_map(|m| Some((m.group_instance_id.clone()?, m.id.clone())))
            .collect();
        self.leader = value
            .leader
            .filter(|id| self.members.contains_key(id))
            .or_else(|| self.members.keys().next().cloned());
        // In the present version, whatever version was read.
        self.durable = Some(self.to_record(|m| m.assignment.clone()));
    }

    /// As [`Group::restore`] for a tombstone: members and generation are gone, offsets are not.
    pub(super) fn forget_members(&mut self) {
        let offsets = std::mem::take(&mut self.offsets);
        *self = Group { offsets, ..Group::new(&self.id) };
    }

    /// The group is deleted. Records about it that are under way keep their places, and requests
    /// that waited go on to find the group gone.
    pub(super) fn forget(&mut self) {
        let deferred = std::mem::take(&mut self.deferred);
        let wake = self.wake;
        self.forget_members();
        self.offsets.clear();
        self.deferred = deferred;
        self.wake = wake;
    }

    /// Nothing of it is in the log, on its way there, or in use.
    pub(super) fn is_vacant(&self) -> bool {
        self.state == State::Empty
            && self.members.is_empty()
            && self.pending_members.is_empty()
            && self.offsets.is_empty()
            && self.durable.is_none()
            && self.record_due.is_none()
            && !self.is_settling
            && self.deferred.is_empty()
    }

    pub(super) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    /// Whether `member_id` is a member and, if it names an instance, the one that holds it.
    pub(super) fn check_member(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
    ) -> Result<(), Code> {
        if let Some(instance) = group_instance_id {
            match self.static_members.get(instance) {
                None => return Err(Code::UnknownMemberId),
                Some(holder) if holder != member_id => return Err(Code::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(Code::UnknownMemberId) }
    }

    pub(super) fn awaiting_join_count(&self) -> usize {
        self.members.values().filter(|m| m.awaiting_join.is_some()).count()
    }

    /// Longest rebalance timeout of its members.
    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|m| m.rebalance_timeout).max().unwrap_or_default()
    }

    /// Whether a member that offers `protocols` could take part.
    pub(super) fn admits(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.members.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|p| self.members.values().all(|m| m.supports(&p.name)))
    }

    /// The protocol with the most votes among those all members support; of equals, the one the
    /// leader wants most. `None` without members.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let leader = self.members.get(self.leader.as_deref()?)?;
        let candidates: BTreeSet<&str> = leader
            .protocols
            .iter()
            .map(|p| p.name.as_str())
            .filter(|name| self.members.values().all(|m| m.supports(name)))
            .collect();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for vote in self.members.values().filter_map(|m| m.vote(&candidates)) {
            *votes.entry(vote).or_default() += 1;
        }
        let most = votes.values().max()?;
        let wanted = leader.protocols.iter().find(|p| votes.get(p.name.as_str()) == Some(most))?;
        Some(wanted.name.clone())
    }

    pub(super) fn add_member(&mut self, member: Member, protocol_type: &str) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.to_owned());
        }
        self.leader.get_or_insert_with(|| member.id.clone());
        self.pending_members.remove(&member.id);
        if let Some(instance) = &member.group_instance_id {
            self.static_members.insert(instance.clone(), member.id.clone());
        }
        self.members.insert(member.id.clone(), member);
    }

    /// Takes a member out; another leads if it was the leader. The caller answers what it awaited.
    pub(super) fn take_member(&mut self, member_id: &str) -> Option<Member> {
        let member = self.members.remove(member_id)?;
        if let Some(instance) = &member.group_instance_id {
            self.static_members.remove(instance);
        }
        self.pending_sync.remove(member_id);
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Gives a static member a new id, and with it the leadership if it had that.
    pub(super) fn rename_member(&mut self, from: &str, to: &str) {
        let was_leader = self.is_leader(from);
        let was_pending_sync = self.pending_sync.contains(from);
        let Some(mut member) = self.take_member(from) else { return };
        to.clone_into(&mut member.id);
        if let Some(instance) = &member.group_instance_id {
            self.static_members.insert(instance.clone(), to.to_owned());
        }
        self.members.insert(to.to_owned(), member);
        if was_leader {
            self.leader = Some(to.to_owned());
        }
        if was_pending_sync {
            self.pending_sync.insert(to.to_owned());
        }
    }

    /// The members as the leader is told of them.
    pub(super) fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        self.members.values().map(|m| m.as_joined(protocol)).collect()
    }

    /// The group as it would be recorded with these assignments.
    pub(super) fn to_record(&self, assignment: impl Fn(&Member) -> Bytes) -> Bytes {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        record::group_value(&GroupValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_since_ms: self.state_since_ms,
            members: self.members.values().map(|m| m.to_record(protocol, assignment(m))).collect(),
        })
    }

    /// Topics its members read; `None` when that cannot be known.
    pub(super) fn subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if self.protocol_type.as_deref() != Some(CONSUMER_PROTOCOL_TYPE) || self.members.is_empty()
        {
            return None;
        }
        let protocol = self.protocol.as_deref()?;
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(record::subscribed_topics(member.metadata(protocol)?)?);
        }
        Some(topics)
    }

    /// The earliest of its timers.
    pub(super) fn earliest_timer(&self) -> Option<Duration> {
        let sessions = self.members.values().filter_map(|m| m.session_deadline).min();
        let pending = self.pending_members.values().copied().min();
        let rebalance = self.rebalance.map(|r| r.deadline);
        [sessions, pending, rebalance, self.sync_deadline, self.record_due]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn listing(&self) -> Listing {
        Listing {
            group_id: self.id.clone(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state: self.state,
        }
    }

    pub(super) fn description(&self) -> Description {
        let stable = self.state == State::Stable;
        let protocol = self.protocol.as_deref().filter(|_| stable).unwrap_or_default();
        let members = self.members.values().map(|m| DescribedMember {
            member_id: m.id.clone(),
            group_instance_id: m.group_instance_id.clone(),
            client_id: m.client_id.clone(),
            client_host: m.client_host.clone(),
            metadata: m.metadata(protocol).cloned().unwrap_or_default(),
            assignment: if stable { m.assignment.clone() } else { Bytes::new() },
        });
        Description {
            code: Code::None,
            group_id: self.id.clone(),
            state: self.state,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: protocol.to_owned(),
            members: members.collect(),
        }
    }

    /// Checks what must hold between events.
    ///
    /// # Panics
    /// When it does not: a fault in this module.
    pub(super) fn validate(&self) {
        match self.state {
            State::Empty => assert!(self.members.is_empty(), "{}: empty with members", self.id),
            State::PreparingRebalance => {}
            State::CompletingRebalance | State::Stable => {
                assert!(!self.members.is_empty(), "{}: {} without members", self.id, self.state);
                assert!(self.protocol.is_some(), "{}: {} without protocol", self.id, self.state);
            }
            State::Dead => panic!("{}: a dead group is kept", self.id),
        }
        assert_eq!(
            self.rebalance.is_some(),
            self.state == State::PreparingRebalance,
            "{}: {} and its timer",
            self.id,
            self.state
        );
        let leads = self.leader.as_ref().map(|id| self.members.contains_key(id));
        assert_eq!(leads, (!self.members.is_empty()).then_some(true), "{}: leader", self.id);
        for (instance, id) in &self.static_members {
            let holder = self.members.get(id).and_then(|m| m.group_instance_id.as_ref());
            assert_eq!(holder, Some(instance), "{}: instance {instance}", self.id);
        }
        for (id, member) in &self.members {
            assert_eq!(id, &member.id);
            let may_wait_join = self.state == State::PreparingRebalance;
            let may_wait_sync = self.state == State::CompletingRebalance;
            assert!(may_wait_join || member.awaiting_join.is_none() || self.is_settling);
            assert!(may_wait_sync || member.awaiting_sync.is_none());
        }
        assert!(self.is_settling || self.deferred.is_empty(), "{}: forgotten requests", self.id);
        if !self.is_settling
            && self.record_due.is_none()
            && matches!(self.state, State::Stable | State::Empty)
            && let Some(durable) = &self.durable
        {
            let present = self.to_record(|m| m.assignment.clone());
            assert!(present == durable, "{}: state is not what the log says", self.id);
        }
    }
}
