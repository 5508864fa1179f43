//! Batches on their way to the log, and the effects of the event being handled.
//!
//! Owns tokens and what waits for them. What happens when a batch settles is in `settle.rs`.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::member::Member;
use super::message::{Effect, Record, ReplyTo, Response, Token, Written};
use super::record::OffsetValue;

/// One partition of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OffsetName {
    pub(super) group_id: String,
    pub(super) topic: String,
    pub(super) partition: i32,
}

/// What is to happen when a batch has settled.
#[derive(Debug)]
pub(super) enum Pending {
    /// The leader's assignment: the group becomes stable and its members are answered.
    Assignment { group_id: String, value: Bytes, assignments: BTreeMap<String, Bytes> },
    /// A generation without members.
    Emptied { group_id: String, value: Bytes },
    /// A static member came back to a stable group under a new id.
    StaticRejoin(Box<StaticRejoin>),
    /// Offsets committed.
    Commit {
        group_id: String,
        reply_to: ReplyTo,
        offsets: Vec<(OffsetName, OffsetValue)>,
        /// The answer when the batch is durable.
        codes: Vec<(String, Vec<(i32, super::Code)>)>,
    },
    /// A group with all its offsets.
    DeleteGroup { group_id: String, reply_to: Option<ReplyTo> },
    /// Offsets that expired.
    Expired { offsets: Vec<OffsetName> },
    /// Offsets that a client deleted.
    DeleteOffsets {
        reply_to: ReplyTo,
        offsets: Vec<OffsetName>,
        topics: Vec<(String, Vec<(i32, super::Code)>)>,
    },
    /// Some offsets of a deleted topic; the rest follows.
    ForgetTopic { topic: String, reply_to: ReplyTo, offsets: Vec<OffsetName> },
}

/// A static member's return, kept until it is durable so that it can be undone.
#[derive(Debug)]
pub(super) struct StaticRejoin {
    pub(super) group_id: String,
    pub(super) value: Bytes,
    pub(super) reply_to: ReplyTo,
    /// The member as it was, under its old id.
    pub(super) before: Member,
    pub(super) member_id: String,
    /// The leader as it was.
    pub(super) leader_before: Option<String>,
    pub(super) can_skip_assignment: bool,
}

/// Batches not yet settled, by token, and the effects gathered so far.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    next_token: u64,
    in_flight: BTreeMap<Token, (Pending, Option<Written>)>,
    effects: Vec<Effect>,
}

impl Outbox {
    pub(super) fn reply(&mut self, to: ReplyTo, response: Response) {
        self.effects.push(Effect::Reply { to, response });
    }

    pub(super) fn persist(&mut self, records: Vec<Record>, pending: Pending) {
        assert!(!records.is_empty(), "an empty batch would wait for nothing");
        let token = Token(self.next_token);
        self.next_token += 1;
        self.in_flight.insert(token, (pending, None));
        self.effects.push(Effect::Persist { token, records });
    }

    /// Notes the fate of a batch; a token that is not in flight is not known and changes nothing.
    pub(super) fn settle(&mut self, token: Token, written: Written) {
        if let Some((_, fate)) = self.in_flight.get_mut(&token) {
            fate.get_or_insert(written);
        }
    }

    /// The oldest batch, if its fate is known.
    ///
    /// SUBTLE: acting on reports as they arrive looks right, but the log's order is the order of
    /// tokens. If a tombstone were acted on before a commit that stands before it in the log, the
    /// offset would live here and be gone after a restart.
    pub(super) fn next_settled(&mut self) -> Option<(Pending, Written)> {
        let oldest = self.in_flight.first_entry()?;
        let written = oldest.get().1?;
        Some((oldest.remove().0, written))
    }

    pub(super) fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}
