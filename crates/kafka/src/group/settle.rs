//! What happens when the log has settled a batch: state follows, then answers go out.
//!
//! Owns the order of those two (law ACK-DURABLE). CRASH(@A), CRASH(@B): before the first nobody
//! was answered, whether the record is in the log or not.

use super::Code;
use super::Coordinator;
use super::commit::Codes;
use super::message::{Joined, Now, ReplyTo, Response, State, Written};
use super::outbox::{OffsetName, Pending, StaticRejoin};
use super::record::OffsetValue;
use super::settings::RECORD_RETRY_DELAY;

impl Coordinator {
    /// Acts on all batches whose fate is known and whose predecessors are settled.
    pub(super) fn settle(&mut self, now: Now) {
        while let Some((pending, written)) = self.outbox.next_settled() {
            self.settle_one(now, pending, written);
        }
    }

    fn settle_one(&mut self, now: Now, pending: Pending, written: Written) {
        let durable = written == Written::Durable;
        match pending {
            Pending::Assignment { group_id, value, assignments } => {
                self.with_group(now, &group_id, |group, turn| {
                    group.is_settling = false;
                    if durable {
                        group.durable = Some(value);
                        group.assigned(turn, assignments);
                    } else {
                        group.assignment_failed(turn, Code::CoordinatorNotAvailable);
                    }
                });
                self.resume(now, &group_id);
            }
            Pending::Emptied { group_id, value } => {
                self.with_group(now, &group_id, |group, _| {
                    group.is_settling = false;
                    if durable {
                        group.durable = Some(value);
                    } else {
                        group.record_due = Some(now.monotonic + RECORD_RETRY_DELAY);
                    }
                });
                self.resume(now, &group_id);
            }
            Pending::StaticRejoin(rejoin) => self.settle_static_rejoin(now, *rejoin, durable),
            Pending::Commit { group_id, reply_to, offsets, codes } => {
                self.settle_commit(now, &group_id, offsets, durable);
                let codes = if durable { codes } else { refused(codes) };
                self.outbox.reply(reply_to, Response::Commit(codes));
            }
            Pending::DeleteGroup { group_id, reply_to } => {
                self.settle_delete(now, &group_id, reply_to, durable);
            }
            Pending::Expired { offsets } => {
                self.settle_tombstones(now, &offsets, durable);
                if let Some(name) = offsets.first() {
                    self.delete_if_unused(now, &name.group_id);
                }
            }
            Pending::DeleteOffsets { reply_to, offsets, topics } => {
                self.settle_tombstones(now, &offsets, durable);
                let response = if durable {
                    Response::DeleteOffsets { code: Code::None, topics }
                } else {
                    let code = Code::CoordinatorNotAvailable;
                    Response::DeleteOffsets { code, topics: Vec::new() }
                };
                self.outbox.reply(reply_to, response);
            }
            Pending::ForgetTopic { topic, reply_to, offsets } => {
                self.settle_tombstones(now, &offsets, durable);
                if durable {
                    self.forget_topic(reply_to, topic, offsets.last());
                } else {
                    let response = Response::ForgetTopic(Code::CoordinatorNotAvailable);
                    self.outbox.reply(reply_to, response);
                }
            }
        }
    }

    fn settle_static_rejoin(&mut self, now: Now, rejoin: StaticRejoin, durable: bool) {
        let group_id = rejoin.group_id.clone();
        self.with_group(now, &group_id, |group, turn| {
            group.is_settling = false;
            if durable {
                group.durable = Some(rejoin.value.clone());
                group.static_rejoined(turn, rejoin);
            } else {
                let holder = rejoin.before.id.clone();
                group.undo_static_rejoin(&rejoin.member_id, rejoin.before, rejoin.leader_before);
                group.touch(turn, &holder);
                let answer = Joined::refused(Code::CoordinatorNotAvailable, "");
                turn.outbox.reply(rejoin.reply_to, Response::Join(answer));
            }
        });
        self.resume(now, &group_id);
    }

    fn settle_commit(
        &mut self,
        now: Now,
        group_id: &str,
        offsets: Vec<(OffsetName, OffsetValue)>,
        durable: bool,
    ) {
        self.with_group(now, group_id, |group, _| {
            for (name, value) in offsets {
                if durable {
                    group.offsets.settle(&name.topic, name.partition, Some(value));
                } else {
                    group.offsets.give_up(&name.topic, name.partition);
                }
            }
        });
    }

    fn settle_tombstones(&mut self, now: Now, offsets: &[OffsetName], durable: bool) {
        for of_group in offsets.chunk_by(|a, b| a.group_id == b.group_id) {
            self.with_group(now, &of_group[0].group_id, |group, _| {
                for name in of_group {
                    if durable {
                        group.offsets.settle(&name.topic, name.partition, None);
                    } else {
                        group.offsets.give_up(&name.topic, name.partition);
                    }
                }
            });
        }
    }

    fn settle_delete(
        &mut self,
        now: Now,
        group_id: &str,
        reply_to: Option<ReplyTo>,
        durable: bool,
    ) {
        self.with_group(now, group_id, |group, turn| {
            group.is_settling = false;
            if durable {
                group.forget();
            }
            if let Some(to) = reply_to {
                let code = if durable { Code::None } else { Code::CoordinatorNotAvailable };
                turn.outbox.reply(to, Response::DeleteGroup(code));
            }
        });
        self.resume(now, group_id);
    }

    /// Handles what waited for the group's record, then the timers that stood still meanwhile.
    fn resume(&mut self, now: Now, group_id: &str) {
        let deferred = self.groups.get_mut(group_id).map(|g| std::mem::take(&mut g.deferred));
        // A group that is gone must be gone before they ask for it.
        self.with_group(now, group_id, |_, _| {});
        for (to, request) in deferred.into_iter().flatten() {
            self.request(now, to, request);
        }
        self.with_group(now, group_id, |group, turn| {
            if !group.is_settling {
                group.fire_timers(turn);
            }
        });
    }

    /// Deletes a group that has neither members nor offsets.
    pub(super) fn delete_if_unused(&mut self, now: Now, group_id: &str) {
        self.with_group(now, group_id, |group, turn| {
            let unused = group.state == State::Empty
                && !group.is_settling
                && group.offsets.is_empty()
                && group.pending_members.is_empty();
            if unused {
                group.delete(turn, None);
            }
        });
    }
}

fn refused(mut codes: Codes) -> Codes {
    for (_, code) in codes.iter_mut().flat_map(|(_, partitions)| partitions) {
        if *code == Code::None {
            *code = Code::CoordinatorNotAvailable;
        }
    }
    codes
}
