//! Sync, heartbeat, leave, and the timers of members.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::Code;
use super::message::{
    Heartbeat, Leave, Left, MemberIdentity, ReplyTo, Response, State, Sync, Synced,
};
use super::outbox::Pending;
use super::settings::GROUP_RECORD_BYTES_MAX;
use super::state::{Group, Turn};

impl Group {
    pub(super) fn sync(&mut self, turn: &mut Turn<'_>, to: ReplyTo, sync: Sync) {
        let in_time = match self.state {
            State::Empty | State::Dead => Err(Code::UnknownMemberId),
            State::PreparingRebalance => Err(Code::RebalanceInProgress),
            State::CompletingRebalance | State::Stable => Ok(()),
        };
        let checked = self.check_sync(&sync).and(in_time);
        if let Err(code) = checked {
            turn.outbox.reply(to, Response::Sync(Synced::refused(code)));
            return;
        }
        self.pending_sync.remove(&sync.member_id);
        let stable = self.state == State::Stable;
        let Some(member) = self.members.get_mut(&sync.member_id) else { return };
        if stable {
            member.touch(turn.now.monotonic);
            let assignment = member.assignment.clone();
            let response = Response::Sync(self.synced(assignment));
            turn.outbox.reply(to, response);
            return;
        }
        if let Some(superseded) = member.awaiting_sync.replace(to) {
            let answer = Synced::refused(Code::RebalanceInProgress);
            turn.outbox.reply(superseded, Response::Sync(answer));
        }
        if self.is_leader(&sync.member_id) {
            self.assign(turn, sync.assignments);
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), Code> {
        self.check_member(&sync.member_id, sync.group_instance_id.as_deref())?;
        if sync.generation != self.generation {
            return Err(Code::IllegalGeneration);
        }
        let differs = |said: &Option<String>, is: &Option<String>| said.is_some() && said != is;
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol, &self.protocol)
        {
            return Err(Code::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// Records the leader's assignment. Members it left out get an empty one; ids it made up are
    /// dropped.
    fn assign(&mut self, turn: &mut Turn<'_>, assignments: Vec<(String, Bytes)>) {
        let assignments: BTreeMap<String, Bytes> = assignments
            .into_iter()
            .filter(|(id, _)| self.members.contains_key(id))
            .map(|(id, bytes)| (id, Bytes::copy_from_slice(&bytes)))
            .collect();
        let bytes: usize = assignments.values().map(Bytes::len).sum();
        let value = (bytes <= GROUP_RECORD_BYTES_MAX)
            .then(|| self.to_record(|m| assignments.get(&m.id).cloned().unwrap_or_default()))
            .filter(|value| value.len() <= GROUP_RECORD_BYTES_MAX);
        let Some(value) = value else {
            self.assignment_failed(turn, Code::UnknownServerError);
            return;
        };
        let group_id = self.id.clone();
        let pending = Pending::Assignment { group_id, value: value.clone(), assignments };
        self.persist_group(turn, value, pending);
    }

    /// The assignment is durable: the group is stable, and those who wait get their part.
    pub(super) fn assigned(
        &mut self,
        turn: &mut Turn<'_>,
        mut assignments: BTreeMap<String, Bytes>,
    ) {
        self.state = State::Stable;
        let mut answers = Vec::new();
        for member in self.members.values_mut() {
            member.assignment = assignments.remove(&member.id).unwrap_or_default();
            if let Some(to) = member.awaiting_sync.take() {
                member.touch(turn.now.monotonic);
                answers.push((to, member.assignment.clone()));
            }
        }
        for (to, assignment) in answers {
            let response = Response::Sync(self.synced(assignment));
            turn.outbox.reply(to, response);
        }
    }

    /// The assignment could not be recorded: everybody joins anew.
    pub(super) fn assignment_failed(&mut self, turn: &mut Turn<'_>, code: Code) {
        self.fail_waiting_syncs(turn, code);
        self.prepare_rebalance(turn);
    }

    fn synced(&self, assignment: Bytes) -> Synced {
        Synced {
            code: Code::None,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment,
        }
    }

    pub(super) fn heartbeat(&mut self, turn: &mut Turn<'_>, to: ReplyTo, beat: &Heartbeat) {
        let checked = self.check_member(&beat.member_id, beat.group_instance_id.as_deref());
        let code = match checked {
            Err(code) => code,
            Ok(()) if beat.generation != self.generation => Code::IllegalGeneration,
            Ok(()) => {
                self.touch(turn, &beat.member_id);
                match self.state {
                    State::PreparingRebalance => Code::RebalanceInProgress,
                    State::CompletingRebalance | State::Stable => Code::None,
                    State::Empty | State::Dead => Code::UnknownMemberId,
                }
            }
        };
        turn.outbox.reply(to, Response::Heartbeat(code));
    }

    /// Starts a member's session anew.
    pub(super) fn touch(&mut self, turn: &Turn<'_>, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.touch(turn.now.monotonic);
        }
    }

    pub(super) fn leave(&mut self, turn: &mut Turn<'_>, to: ReplyTo, leave: Leave) {
        let mut members = Vec::with_capacity(leave.members.len());
        for identity in leave.members {
            let code = match self.find_leaving(&identity) {
                Ok(member_id) => {
                    self.take_leaving(turn, &member_id);
                    Code::None
                }
                Err(code) => code,
            };
            members.push((identity, code));
        }
        // Drawn once for the whole batch: with a member's leaving taken by itself, the last but
        // one could end a rebalance that the last is about to disturb.
        self.complete_join_if_all_joined(turn);
        turn.outbox.reply(to, Response::Leave(Left { code: Code::None, members }));
    }

    /// The id of a member that leaves. An operator names a static member by instance id alone.
    fn find_leaving(&self, identity: &MemberIdentity) -> Result<String, Code> {
        let instance = identity.group_instance_id.as_deref();
        if identity.member_id.is_empty() {
            let holder = instance.and_then(|i| self.static_members.get(i));
            return holder.cloned().ok_or(Code::UnknownMemberId);
        }
        if !self.pending_members.contains_key(&identity.member_id) {
            self.check_member(&identity.member_id, instance)?;
        }
        Ok(identity.member_id.clone())
    }

    fn take_leaving(&mut self, turn: &mut Turn<'_>, member_id: &str) {
        if self.pending_members.remove(member_id).is_some() {
            return;
        }
        self.answer_waiting(turn, member_id, Code::UnknownMemberId);
        self.take_member(member_id);
        if matches!(self.state, State::Stable | State::CompletingRebalance) {
            self.prepare_rebalance(turn);
        }
    }

    /// Fires the timers that are due, until a record of the group is under way.
    pub(super) fn fire_timers(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let due = |deadline: Option<Duration>| deadline.is_some_and(|at| at <= now);
        self.pending_members.retain(|_, lapses| *lapses > now);
        self.complete_join_if_all_joined(turn);

        let silent: Vec<String> = self
            .members
            .values()
            .filter(|m| due(m.session_deadline))
            .map(|m| m.id.clone())
            .collect();
        for member_id in silent {
            if self.is_settling {
                return;
            }
            let Some(member) = self.members.get_mut(&member_id) else { continue };
            let waits_for_us = member.awaiting_join.is_some() || member.awaiting_sync.is_some();
            if !due(member.session_deadline) {
                // An earlier one's end completed the rebalance, which started this one's session.
            } else if waits_for_us && !member.is_new {
                // It cannot speak before we do; its session starts anew with our answer.
                member.session_deadline = None;
            } else {
                self.expel(turn, &member_id, Code::UnknownMemberId);
            }
        }
        if !self.is_settling && due(self.rebalance.map(|r| r.deadline)) {
            self.rebalance_due(turn);
        }
        if !self.is_settling && due(self.record_due) {
            self.record_due = None;
            self.record_emptied(turn);
        }
        if !self.is_settling && due(self.sync_deadline) {
            self.sync_deadline = None;
            let late: Vec<String> = self.pending_sync.iter().cloned().collect();
            for member_id in &late {
                self.answer_waiting(turn, member_id, Code::UnknownMemberId);
                self.take_member(member_id);
            }
            if !late.is_empty() {
                self.prepare_rebalance(turn);
                self.complete_join_if_all_joined(turn);
            }
        }
    }
}
