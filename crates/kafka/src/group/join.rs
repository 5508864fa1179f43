//! Joining, and the rebalance from its beginning to the next generation.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use thetis_types::clock::Entropy;

use super::Code;
use super::member::{Member, timeout};
use super::message::{Join, Joined, Protocol, Record, ReplyTo, Response, State, Synced};
use super::outbox::{Pending, StaticRejoin};
use super::record;
use super::settings::{
    GROUP_ID_BYTES_MAX, GROUP_RECORD_BYTES_MAX, INSTANCE_ID_BYTES_MAX, NEW_MEMBER_JOIN_TIMEOUT,
    PROTOCOLS_PER_MEMBER_MAX, Settings,
};
use super::state::{Group, Rebalance, Turn};

/// Bytes kept of a client's id and host: they are for people, and stand in every record.
const CLIENT_TEXT_BYTES_MAX: usize = 255;

/// Checks what can be said of a join without its group.
pub(super) fn check(join: &Join, settings: &Settings) -> Result<(), Code> {
    if join.group_id.is_empty() || join.group_id.len() > GROUP_ID_BYTES_MAX {
        return Err(Code::InvalidGroupId);
    }
    let bounds = settings.session_timeout_ms_min..=settings.session_timeout_ms_max;
    if !bounds.contains(&join.session_timeout_ms) {
        return Err(Code::InvalidSessionTimeout);
    }
    let mut names = BTreeSet::new();
    let text_max = i16::MAX as usize;
    let fits = join.protocol_type.len() <= text_max
        && join.protocols.len() <= PROTOCOLS_PER_MEMBER_MAX
        && join.protocols.iter().all(|p| p.name.len() <= text_max && names.insert(&p.name));
    if !fits {
        return Err(Code::InconsistentGroupProtocol);
    }
    let bytes: usize = join.protocols.iter().map(|p| p.metadata.len()).sum();
    if bytes > GROUP_RECORD_BYTES_MAX {
        return Err(Code::UnknownServerError);
    }
    let instance_bytes = join.group_instance_id.as_ref().map_or(1, String::len);
    if instance_bytes == 0 || instance_bytes > INSTANCE_ID_BYTES_MAX {
        return Err(Code::UnknownMemberId);
    }
    Ok(())
}

impl Group {
    /// Handles a join that passed [`check`].
    pub(super) fn join(&mut self, turn: &mut Turn<'_>, to: ReplyTo, join: Join) {
        let refused = if !self.has_room_for(&join.member_id, turn.settings) {
            let held = self.members.contains_key(&join.member_id);
            if held {
                self.expel(turn, &join.member_id, Code::GroupMaxSizeReached);
            }
            Some((Code::GroupMaxSizeReached, ""))
        } else if !self.admits(&join.protocol_type, &join.protocols) {
            Some((Code::InconsistentGroupProtocol, join.member_id.as_str()))
        } else {
            None
        };
        if let Some((code, member_id)) = refused {
            turn.outbox.reply(to, Response::Join(Joined::refused(code, member_id)));
        } else if join.member_id.is_empty() {
            self.join_unknown(turn, to, join);
        } else {
            self.join_known(turn, to, join);
        }
        self.complete_join_if_all_joined(turn);
    }

    /// Whether the size limit admits this join. While members rejoin, those who wait count, so
    /// that a limit that was lowered throws out those who come last.
    fn has_room_for(&self, member_id: &str, settings: &Settings) -> bool {
        let member = self.members.get(member_id);
        match self.state {
            State::Empty | State::Dead => true,
            State::PreparingRebalance => {
                member.is_some_and(|m| m.awaiting_join.is_some())
                    || self.awaiting_join_count() < settings.group_size_max
            }
            State::CompletingRebalance | State::Stable => {
                member.is_some() || self.members.len() < settings.group_size_max
            }
        }
    }

    fn join_unknown(&mut self, turn: &mut Turn<'_>, to: ReplyTo, join: Join) {
        let named = join.group_instance_id.as_deref().unwrap_or(&join.client_id);
        let member_id = new_member_id(named, turn.entropy);
        let holder = join.group_instance_id.as_ref().and_then(|i| self.static_members.get(i));
        if let Some(holder) = holder.cloned() {
            self.replace_static_member(turn, to, join, holder, member_id);
        } else if join.requires_known_member_id && join.group_instance_id.is_none() {
            let refused = if self.pending_members.len() < turn.settings.group_size_max {
                let lapses = turn.now.monotonic + timeout(join.session_timeout_ms);
                self.pending_members.insert(member_id.clone(), lapses);
                Joined::refused(Code::MemberIdRequired, &member_id)
            } else {
                Joined::refused(Code::CoordinatorLoadInProgress, "")
            };
            turn.outbox.reply(to, Response::Join(refused));
        } else {
            self.add_and_rebalance(turn, to, join, member_id);
        }
    }

    fn join_known(&mut self, turn: &mut Turn<'_>, to: ReplyTo, join: Join) {
        let member_id = join.member_id.clone();
        if self.pending_members.contains_key(&member_id) && join.group_instance_id.is_none() {
            self.add_and_rebalance(turn, to, join, member_id);
            return;
        }
        if let Err(code) = self.check_member(&member_id, join.group_instance_id.as_deref()) {
            turn.outbox.reply(to, Response::Join(Joined::refused(code, &member_id)));
            return;
        }
        let unchanged = self.members.get(&member_id).is_some_and(|m| m.protocols == join.protocols);
        let answered_from_present = match self.state {
            State::CompletingRebalance => unchanged,
            // The leader joins anew to have partitions assigned again, for a reason of its own.
            State::Stable => unchanged && !self.is_leader(&member_id),
            State::PreparingRebalance | State::Empty | State::Dead => false,
        };
        if answered_from_present {
            let response = Response::Join(self.joined(&member_id));
            turn.outbox.reply(to, response);
        } else {
            self.update_member(turn, &member_id, &join, Some(to));
            self.prepare_rebalance(turn);
        }
    }

    /// The answer to a member of the present generation.
    pub(super) fn joined(&self, member_id: &str) -> Joined {
        Joined {
            code: Code::None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: if self.is_leader(member_id) { self.joined_members() } else { Vec::new() },
        }
    }

    fn add_and_rebalance(
        &mut self,
        turn: &mut Turn<'_>,
        to: ReplyTo,
        join: Join,
        member_id: String,
    ) {
        if self.state == State::PreparingRebalance && self.generation == 0 {
            self.member_added = true;
        }
        let member = Member {
            id: member_id,
            client_id: clipped(&join.client_id),
            client_host: clipped(&join.client_host),
            session_timeout: timeout(join.session_timeout_ms),
            rebalance_timeout: rebalance_timeout(&join),
            protocols: detached(&join.protocols),
            assignment: Bytes::new(),
            is_new: true,
            awaiting_join: Some(to),
            awaiting_sync: None,
            session_deadline: Some(turn.now.monotonic + NEW_MEMBER_JOIN_TIMEOUT),
            group_instance_id: join.group_instance_id,
        };
        // An empty group keeps the type of its past members; the delay for it is still the
        // initial one, so the state is looked at before the member is in.
        let was_empty = self.state == State::Empty;
        self.add_member(member, &join.protocol_type);
        if was_empty {
            self.begin_initial_rebalance(turn);
        } else {
            self.prepare_rebalance(turn);
        }
    }

    /// Takes over what a member says of itself in a join, and whom to answer. An earlier join of
    /// the same member that still waits is answered: its sender has given it up.
    fn update_member(
        &mut self,
        turn: &mut Turn<'_>,
        member_id: &str,
        join: &Join,
        awaiting_join: Option<ReplyTo>,
    ) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        member.protocols = detached(&join.protocols);
        member.session_timeout = timeout(join.session_timeout_ms);
        member.rebalance_timeout = rebalance_timeout(join);
        if let Some(superseded) = std::mem::replace(&mut member.awaiting_join, awaiting_join) {
            let answer = Joined::refused(Code::RebalanceInProgress, member_id);
            turn.outbox.reply(superseded, Response::Join(answer));
        }
    }

    /// A static member without id comes back: it takes the place of the one that holds its
    /// instance id, which is fenced.
    fn replace_static_member(
        &mut self,
        turn: &mut Turn<'_>,
        to: ReplyTo,
        join: Join,
        holder: String,
        member_id: String,
    ) {
        let leader_before = self.leader.clone();
        self.answer_waiting(turn, &holder, Code::FencedInstanceId);
        let Some(before) = self.members.get(&holder).cloned() else { return };
        self.rename_member(&holder, &member_id);
        // In a stable group the answer goes out when the new id is durable, not by a rebalance.
        self.update_member(turn, &member_id, &join, None);
        if let Some(member) = self.members.get_mut(&member_id) {
            member.client_id = clipped(&join.client_id);
            member.client_host = clipped(&join.client_host);
            member.touch(turn.now.monotonic);
        }
        if self.state == State::Stable && self.select_protocol() == self.protocol {
            let value = self.to_record(|m| m.assignment.clone());
            if value.len() > GROUP_RECORD_BYTES_MAX {
                self.undo_static_rejoin(&member_id, before, leader_before);
                let answer = Joined::refused(Code::UnknownServerError, "");
                turn.outbox.reply(to, Response::Join(answer));
                return;
            }
            let rejoin = StaticRejoin {
                group_id: self.id.clone(),
                value: value.clone(),
                reply_to: to,
                before,
                member_id,
                leader_before,
                can_skip_assignment: join.can_skip_assignment,
            };
            self.persist_group(turn, value, Pending::StaticRejoin(Box::new(rejoin)));
            return;
        }
        if let Some(member) = self.members.get_mut(&member_id) {
            member.awaiting_join = Some(to);
        }
        self.prepare_rebalance(turn);
    }

    /// Answers a static member whose return to a stable group is durable.
    pub(super) fn static_rejoined(&mut self, turn: &mut Turn<'_>, rejoin: StaticRejoin) {
        let mut answer = self.joined(&rejoin.member_id);
        if rejoin.can_skip_assignment {
            answer.skip_assignment = self.is_leader(&rejoin.member_id);
        } else {
            // A client that does not know the field must not take itself for the leader: it would
            // assign, and a stable group would not hand that on. The old id is nobody's any more.
            answer.leader = rejoin.leader_before.unwrap_or_default();
            answer.members = Vec::new();
        }
        turn.outbox.reply(rejoin.reply_to, Response::Join(answer));
    }

    /// Puts a static member back as it was before its return, which the log did not take.
    pub(super) fn undo_static_rejoin(
        &mut self,
        member_id: &str,
        before: Member,
        leader_before: Option<String>,
    ) {
        let holder = before.id.clone();
        self.rename_member(member_id, &holder);
        self.members.insert(holder, before);
        self.leader = leader_before;
    }

    /// Hands a value of the group to the log; until it settles the group stands still.
    pub(super) fn persist_group(&mut self, turn: &mut Turn<'_>, value: Bytes, pending: Pending) {
        assert!(!self.is_settling, "{}: two records of one group under way", self.id);
        self.is_settling = true;
        let record = Record { key: record::group_key(&self.id), value: Some(value) };
        turn.outbox.persist(vec![record], pending);
    }

    /// Answers whatever a member waits for with an error.
    pub(super) fn answer_waiting(&mut self, turn: &mut Turn<'_>, member_id: &str, code: Code) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        if let Some(to) = member.awaiting_join.take() {
            turn.outbox.reply(to, Response::Join(Joined::refused(code, member_id)));
        }
        if let Some(to) = member.awaiting_sync.take() {
            turn.outbox.reply(to, Response::Sync(Synced::refused(code)));
        }
    }

    /// Removes a member, and draws the consequence: a rebalance, or the end of one.
    pub(super) fn expel(&mut self, turn: &mut Turn<'_>, member_id: &str, code: Code) {
        self.answer_waiting(turn, member_id, code);
        if self.take_member(member_id).is_none() {
            return;
        }
        match self.state {
            State::Stable | State::CompletingRebalance => self.prepare_rebalance(turn),
            State::PreparingRebalance => {}
            State::Empty | State::Dead => unreachable!("a member was in it"),
        }
        self.complete_join_if_all_joined(turn);
    }

    fn begin_initial_rebalance(&mut self, turn: &mut Turn<'_>) {
        // The record of the next generation takes its place.
        self.record_due = None;
        let delay = turn.settings.initial_rebalance_delay;
        self.rebalance = Some(Rebalance {
            deadline: turn.now.monotonic + delay,
            extendable_by: Some(self.rebalance_timeout().saturating_sub(delay)),
        });
        self.state = State::PreparingRebalance;
    }

    /// Begins a rebalance unless one is under way.
    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance {
            return;
        }
        self.fail_waiting_syncs(turn, Code::RebalanceInProgress);
        self.pending_sync.clear();
        self.sync_deadline = None;
        let deadline = turn.now.monotonic + self.rebalance_timeout();
        self.rebalance = Some(Rebalance { deadline, extendable_by: None });
        self.state = State::PreparingRebalance;
    }

    pub(super) fn fail_waiting_syncs(&mut self, turn: &mut Turn<'_>, code: Code) {
        for member in self.members.values_mut() {
            if let Some(to) = member.awaiting_sync.take() {
                turn.outbox.reply(to, Response::Sync(Synced::refused(code)));
                member.touch(turn.now.monotonic);
            }
        }
    }

    /// Ends the rebalance when there is nobody left to wait for.
    pub(super) fn complete_join_if_all_joined(&mut self, turn: &mut Turn<'_>) {
        let waits_for_members = self.rebalance.is_some_and(|r| r.extendable_by.is_none());
        let all_joined = self.awaiting_join_count() == self.members.len();
        if waits_for_members && all_joined && self.pending_members.is_empty() {
            self.complete_join(turn);
        }
    }

    /// The rebalance's timer is due.
    pub(super) fn rebalance_due(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        if let Some(Rebalance { extendable_by: Some(rest), .. }) = self.rebalance
            && self.member_added
            && !rest.is_zero()
        {
            self.member_added = false;
            let delay = turn.settings.initial_rebalance_delay.min(rest);
            self.rebalance = Some(Rebalance {
                deadline: now + delay,
                extendable_by: Some(rest.saturating_sub(delay)),
            });
            return;
        }
        self.complete_join(turn);
    }

    /// Leaves behind the dynamic members that have not joined, and begins the next generation.
    fn complete_join(&mut self, turn: &mut Turn<'_>) {
        let absent: Vec<String> = self
            .members
            .values()
            .filter(|m| m.awaiting_join.is_none() && m.group_instance_id.is_none())
            .map(|m| m.id.clone())
            .collect();
        for member_id in absent {
            self.take_member(&member_id);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            // Only static members, none of them back: wait on, until they come or their sessions end.
            let deadline = turn.now.monotonic + self.rebalance_timeout().max(MIN_REBALANCE_WAIT);
            self.rebalance = Some(Rebalance { deadline, extendable_by: None });
            return;
        }
        self.rebalance = None;
        self.member_added = false;
        self.pending_sync.clear();
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.state_since_ms = Some(turn.now.wall_ms);
        self.protocol = self.select_protocol();
        if self.members.is_empty() {
            self.state = State::Empty;
            self.record_emptied(turn);
            return;
        }
        self.state = State::CompletingRebalance;
        self.sync_deadline = Some(turn.now.monotonic + self.rebalance_timeout());
        self.pending_sync = self.members.keys().cloned().collect();
        let answers: Vec<(ReplyTo, Joined)> = self
            .members
            .values()
            .filter_map(|m| Some((m.awaiting_join?, self.joined(&m.id))))
            .collect();
        for member in self.members.values_mut() {
            member.awaiting_join = None;
            member.is_new = false;
            member.touch(turn.now.monotonic);
        }
        for (to, answer) in answers {
            turn.outbox.reply(to, Response::Join(answer));
        }
    }

    /// Records a generation without members.
    pub(super) fn record_emptied(&mut self, turn: &mut Turn<'_>) {
        assert!(self.state == State::Empty, "{}: {}", self.id, self.state);
        let value = self.to_record(|_| Bytes::new());
        let pending = Pending::Emptied { group_id: self.id.clone(), value: value.clone() };
        self.persist_group(turn, value, pending);
    }

    /// Makes sure that the leader is one of those who have joined; false when nobody has.
    fn elect_joined_leader(&mut self) -> bool {
        let joined = |m: &&Member| m.awaiting_join.is_some();
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id)).filter(joined);
        let leader = leader.or_else(|| self.members.values().find(joined)).map(|m| m.id.clone());
        let elected = leader.is_some();
        if elected {
            self.leader = leader;
        }
        elected
    }
}

/// Shortest wait for static members that are all away, so that a rebalance timeout of zero does
/// not make a timer that is always due.
const MIN_REBALANCE_WAIT: Duration = Duration::from_secs(1);

fn rebalance_timeout(join: &Join) -> Duration {
    let given = join.rebalance_timeout_ms;
    timeout(if given < 0 { join.session_timeout_ms } else { given })
}

/// SUBTLE: the bytes of a request are slices of its frame; kept as they are, a member would hold
/// the whole frame in memory.
fn detached(protocols: &[Protocol]) -> Vec<Protocol> {
    let detach = |p: &Protocol| Protocol {
        name: p.name.clone(),
        metadata: Bytes::copy_from_slice(&p.metadata),
    };
    protocols.iter().map(detach).collect()
}

/// The client's or the instance's name, for people, and 122 random bits in the shape of a UUID.
fn new_member_id(named: &str, entropy: &dyn Entropy) -> String {
    let (high, low) = (entropy.next_u64(), entropy.next_u64());
    let random = (u128::from(high) << 64) | u128::from(low);
    let version = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{version:032x}");
    format!(
        "{}-{}-{}-{}-{}-{}",
        clipped(named),
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

fn clipped(text: &str) -> String {
    text[..text.floor_char_boundary(CLIENT_TEXT_BYTES_MAX)].to_owned()
}
