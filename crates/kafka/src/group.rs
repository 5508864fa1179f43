//! The group coordinator: who is in which group, which generation it is in, and how far each has
//! read. A pure state machine; the front performs its effects.
//!
//! Owns Kafka's classic group protocol and the committed offsets of one node's groups, as a replay
//! of the offsets log (`docs/formats/consumer-offsets.md`). Does not own: bytes of the wire, the
//! log itself, whether a topic exists or a client may read it, the clock.
//!
//! ```text
//!               request                      persist(token, records)
//!   front  ----------------->  Coordinator  ------------------------>  log
//!          <-----------------               <------------------------
//!               reply                        persisted(token, written)
//! ```
//!
//! An answer that rests on new state waits until that state is durable (law ACK-DURABLE), a
//! refusal likewise (REFUSE-DURABLE). Offset commits go to the log side by side. A record of a
//! group's members makes requests to that one group wait, so between two durable states nobody
//! sees it.
//!
//! What is as soft as in Apache Kafka: membership during a rebalance. A generation enters the log
//! with its assignment, so after a crash in a rebalance the group is as in the generation before,
//! and members it does not know join anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use thetis_types::clock::Entropy;

mod code;
mod commit;
mod join;
mod member;
pub mod message;
mod offsets;
mod outbox;
pub mod record;
mod replay;
pub mod settings;
mod settle;
mod state;
mod sync;

#[cfg(test)]
mod offsets_test;
#[cfg(test)]
mod property_test;
#[cfg(test)]
mod rebalance_test;
#[cfg(test)]
mod record_test;
#[cfg(test)]
mod scene;

pub use code::Code;
pub use message::{Effect, Event, Now, Record, ReplyTo, Request, Response, Token, Written};
pub use replay::{InFlight, Loading};
pub use settings::Settings;

use message::{Commit, Description, Joined, Left, State, Synced};
use outbox::{OffsetName, Outbox, Pending};
use settings::{
    GROUP_ID_BYTES_MAX, GROUPS_PER_RETENTION_STEP_MAX, RETENTION_RESUME_DELAY,
    TOMBSTONES_PER_BATCH_MAX,
};
use state::{Group, Turn};

/// All groups of one node, or of one partition of the offsets log. Made by [`Loading`].
pub struct Coordinator {
    settings: Settings,
    entropy: Arc<dyn Entropy>,
    groups: BTreeMap<String, Group>,
    outbox: Outbox,
    /// When to look at which group's timers; one entry for each group that has any.
    timers: BTreeSet<(Duration, String)>,
    /// When to look for expired offsets next.
    retention_due: Duration,
    /// The group at which the look goes on; `None`: from the first.
    retention_cursor: Option<String>,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("groups", &self.groups)
            .field("outbox", &self.outbox)
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    fn empty(settings: Settings, entropy: Arc<dyn Entropy>) -> Coordinator {
        Coordinator {
            settings,
            entropy,
            groups: BTreeMap::new(),
            outbox: Outbox::default(),
            timers: BTreeSet::new(),
            retention_due: Duration::ZERO,
            retention_cursor: None,
        }
    }

    /// Takes an event; the result is to be performed in order. Leaves every group valid.
    ///
    /// An event that is late changes nothing but when its consequences come: timers fire on the
    /// first [`Event::Tick`] after they are due.
    pub fn apply(&mut self, now: Now, event: Event) -> Vec<Effect> {
        match event {
            Event::Request { reply_to, request } => self.request(now, reply_to, request),
            Event::Persisted { token, written } => {
                self.outbox.settle(token, written);
                self.settle(now);
            }
            Event::Tick => self.tick(now),
        }
        self.outbox.take_effects()
    }

    /// When the next [`Event::Tick`] is wanted, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Duration {
        self.timers.first().map_or(self.retention_due, |(at, _)| self.retention_due.min(*at))
    }

    /// Batches handed to the log and not settled.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.outbox.in_flight_count()
    }

    /// Checks what must hold between events, for tests and simulation.
    ///
    /// # Panics
    /// When it does not: a fault in this module.
    pub fn validate(&self) {
        for (group_id, group) in &self.groups {
            group.validate();
            assert!(!group.is_vacant(), "{group_id}: kept without reason");
            let entry = group.wake.map(|at| self.timers.contains(&(at, group_id.clone())));
            assert_ne!(entry, Some(false), "{group_id}: timer lost");
            if !group.is_settling {
                assert!(group.wake <= group.earliest_timer().or(group.wake), "{group_id}: late");
                assert_eq!(group.wake.is_some(), group.earliest_timer().is_some(), "{group_id}");
            }
        }
        assert_eq!(self.timers.len(), self.groups.values().filter(|g| g.wake.is_some()).count());
    }

    fn request(&mut self, now: Now, to: ReplyTo, request: Request) {
        let group = request.group_id().and_then(|id| self.groups.get_mut(id));
        // Committed offsets are readable at any time: the table holds durable ones only.
        let reads_only = matches!(request, Request::FetchOffsets(_));
        if let Some(group) = group.filter(|g| g.is_settling && !reads_only) {
            if group.deferred.len() < self.settings.deferred_requests_max {
                group.deferred.push_back((to, request));
            } else {
                self.outbox.reply(to, refuse(request, Code::CoordinatorLoadInProgress));
            }
            return;
        }
        match request {
            Request::Join(join) => {
                if let Err(code) = self.admit_join(&join) {
                    let member_id =
                        if code == Code::UnknownServerError { "" } else { &join.member_id };
                    self.outbox.reply(to, Response::Join(Joined::refused(code, member_id)));
                    return;
                }
                let group_id = join.group_id.clone();
                self.with_group(now, &group_id, |group, turn| group.join(turn, to, join));
            }
            Request::Commit(commit) => {
                if let Err(code) = self.admit_commit(&commit) {
                    self.outbox.reply(to, refuse(Request::Commit(commit), code));
                    return;
                }
                let group_id = commit.group_id.clone();
                self.with_group(now, &group_id, |group, turn| group.commit(turn, to, &commit));
            }
            Request::List => {
                let listings = self.groups.values().map(Group::listing).collect();
                self.outbox.reply(to, Response::List(listings));
            }
            Request::ForgetTopic { topic } => self.forget_topic(to, topic),
            request => self.request_of_existing(now, to, request),
        }
    }

    /// Requests that never bring a group into being.
    fn request_of_existing(&mut self, now: Now, to: ReplyTo, request: Request) {
        let group_id = request.group_id().unwrap_or_default().to_owned();
        if !self.groups.contains_key(&group_id) {
            let response = refuse_without_group(request);
            self.outbox.reply(to, response);
            return;
        }
        self.with_group(now, &group_id, |group, turn| match request {
            Request::Sync(sync) => group.sync(turn, to, sync),
            Request::Heartbeat(beat) => group.heartbeat(turn, to, &beat),
            Request::Leave(leave) => group.leave(turn, to, leave),
            Request::FetchOffsets(fetch) => {
                let offsets = &group.offsets;
                let topics = match fetch.topics {
                    None => offsets.fetch_all(),
                    Some(topics) => read_offsets(topics, |t, p| offsets.fetch(t, p)),
                };
                turn.outbox.reply(to, Response::FetchOffsets(topics));
            }
            Request::Describe { .. } => {
                turn.outbox.reply(to, Response::Describe(group.description()));
            }
            Request::DeleteGroup { .. } => {
                if group.state != State::Empty {
                    turn.outbox.reply(to, Response::DeleteGroup(Code::NonEmptyGroup));
                } else if !group.delete(turn, Some(to)) {
                    group.forget();
                    turn.outbox.reply(to, Response::DeleteGroup(Code::None));
                }
            }
            Request::DeleteOffsets { topics, .. } => group.delete_offsets(turn, to, topics),
            Request::Join(_) | Request::Commit(_) | Request::List | Request::ForgetTopic { .. } => {
                unreachable!("handled before")
            }
        });
    }

    /// Makes the group a first join comes to. An id that no group knows is not a first join.
    fn admit_join(&mut self, join: &message::Join) -> Result<(), Code> {
        join::check(join, &self.settings)?;
        if self.groups.contains_key(&join.group_id) {
            Ok(())
        } else if !join.member_id.is_empty() {
            Err(Code::UnknownMemberId)
        } else {
            self.create(&join.group_id)
        }
    }

    /// Makes the group of a consumer that manages its partitions itself. A generation of a group
    /// that does not exist is an old one.
    fn admit_commit(&mut self, commit: &Commit) -> Result<(), Code> {
        if commit.group_id.len() > GROUP_ID_BYTES_MAX {
            Err(Code::InvalidGroupId)
        } else if self.groups.contains_key(&commit.group_id) {
            Ok(())
        } else if commit.generation >= 0 {
            Err(Code::IllegalGeneration)
        } else {
            self.create(&commit.group_id)
        }
    }

    fn create(&mut self, group_id: &str) -> Result<(), Code> {
        if self.groups.len() >= self.settings.groups_max {
            return Err(Code::CoordinatorLoadInProgress);
        }
        self.groups.insert(group_id.to_owned(), Group::new(group_id));
        Ok(())
    }

    /// Lets `act` change a group, if there is one; then drops it if nothing is left of it, or sees
    /// to its timers.
    fn with_group(
        &mut self,
        now: Now,
        group_id: &str,
        act: impl FnOnce(&mut Group, &mut Turn<'_>),
    ) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let mut turn = Turn {
            now,
            settings: &self.settings,
            entropy: &*self.entropy,
            outbox: &mut self.outbox,
        };
        act(group, &mut turn);
        let vacant = group.is_vacant();
        // PERF: a heartbeat puts a deadline off, and an early look costs little, so an entry is
        // replaced only when it would come too late.
        let wanted = if group.is_settling || vacant { None } else { group.earliest_timer() };
        let keeps =
            group.wake.is_some_and(|at| wanted.is_some_and(|w| at <= w && at > now.monotonic));
        if !keeps && wanted != group.wake {
            if let Some(at) = group.wake.take() {
                self.timers.remove(&(at, group_id.to_owned()));
            }
            if let Some(at) = wanted {
                group.wake = Some(at);
                self.timers.insert((at, group_id.to_owned()));
            }
        }
        if vacant {
            self.groups.remove(group_id);
        }
    }

    fn tick(&mut self, now: Now) {
        // Each group once, so that a timer of zero cannot hold the tick for ever.
        let due: Vec<String> = self
            .timers
            .iter()
            .take_while(|(at, _)| *at <= now.monotonic)
            .map(|(_, group_id)| group_id.clone())
            .collect();
        for group_id in due {
            self.with_group(now, &group_id, |group, turn| group.fire_timers(turn));
        }
        if self.retention_due <= now.monotonic {
            self.expire_offsets(now);
        }
    }

    /// One step of the look for expired offsets and unused groups.
    fn expire_offsets(&mut self, now: Now) {
        let from = self.retention_cursor.take().map_or(Bound::Unbounded, Bound::Included);
        let mut ids = self.groups.range::<String, _>((from, Bound::Unbounded)).map(|(id, _)| id);
        let step: Vec<String> = ids.by_ref().take(GROUPS_PER_RETENTION_STEP_MAX).cloned().collect();
        self.retention_cursor = ids.next().cloned();
        let mut left = TOMBSTONES_PER_BATCH_MAX;
        for group_id in step {
            if left == 0 {
                self.retention_cursor = Some(group_id);
                break;
            }
            let mut expired = 0;
            self.with_group(now, &group_id, |group, turn| {
                if group.is_settling {
                    return;
                }
                let offsets = group.expired(turn.now, turn.settings, left);
                expired = offsets.len();
                if expired > 0 {
                    let records = group.bury(&offsets);
                    turn.outbox.persist(records, Pending::Expired { offsets });
                }
            });
            self.delete_if_unused(now, &group_id);
            left -= expired;
        }
        self.retention_due = now.monotonic
            + if self.retention_cursor.is_some() {
                RETENTION_RESUME_DELAY
            } else {
                self.settings.retention_check_interval
            };
    }

    /// Removes a deleted topic's offsets, a batch at a time; answers when none is left.
    fn forget_topic(&mut self, to: ReplyTo, topic: String) {
        let mut offsets: Vec<OffsetName> = Vec::new();
        let mut records = Vec::new();
        for (group_id, group) in &mut self.groups {
            let room = TOMBSTONES_PER_BATCH_MAX - offsets.len();
            let of_group: Vec<OffsetName> = group
                .offsets
                .partitions_of(&topic)
                .take(room)
                .map(|partition| OffsetName {
                    group_id: group_id.clone(),
                    topic: topic.clone(),
                    partition,
                })
                .collect();
            records.extend(group.bury(&of_group));
            offsets.extend(of_group);
        }
        if offsets.is_empty() {
            self.outbox.reply(to, Response::ForgetTopic(Code::None));
        } else {
            self.outbox.persist(records, Pending::ForgetTopic { topic, reply_to: to, offsets });
        }
    }
}

fn read_offsets<T>(
    topics: Vec<(String, Vec<i32>)>,
    read: impl Fn(&str, i32) -> T,
) -> Vec<(String, Vec<T>)> {
    topics
        .into_iter()
        .map(|(topic, partitions)| {
            let values = partitions.into_iter().map(|p| read(&topic, p)).collect();
            (topic, values)
        })
        .collect()
}

/// The answer to a request about a group that does not exist.
fn refuse_without_group(request: Request) -> Response {
    match request {
        Request::FetchOffsets(fetch) => {
            let topics = fetch.topics.unwrap_or_default();
            Response::FetchOffsets(read_offsets(topics, |_, p| offsets::fetched(p, None)))
        }
        Request::Describe { group_id } => Response::Describe(Description {
            code: Code::None,
            group_id,
            state: State::Dead,
            protocol_type: String::new(),
            protocol: String::new(),
            members: Vec::new(),
        }),
        Request::Leave(leave) if !leave.group_id.is_empty() => {
            let unknown = |m| (m, Code::UnknownMemberId);
            Response::Leave(Left {
                code: Code::None,
                members: leave.members.into_iter().map(unknown).collect(),
            })
        }
        Request::DeleteGroup { .. } | Request::DeleteOffsets { .. } => {
            refuse(request, Code::GroupIdNotFound)
        }
        request => {
            let named = request.group_id().is_some_and(|id| !id.is_empty());
            refuse(request, if named { Code::UnknownMemberId } else { Code::InvalidGroupId })
        }
    }
}

/// The same code for whatever was asked.
fn refuse(request: Request, code: Code) -> Response {
    match request {
        Request::Join(join) => Response::Join(Joined::refused(code, &join.member_id)),
        Request::Sync(_) => Response::Sync(Synced::refused(code)),
        Request::Heartbeat(_) => Response::Heartbeat(code),
        Request::Leave(_) => Response::Leave(Left { code, members: Vec::new() }),
        Request::Commit(commit) => Response::Commit(commit::refuse_commit(&commit, code)),
        Request::Describe { group_id } => {
            let mut description = Group::new(&group_id).description();
            description.code = code;
            Response::Describe(description)
        }
        Request::DeleteGroup { .. } => Response::DeleteGroup(code),
        Request::DeleteOffsets { .. } => Response::DeleteOffsets { code, topics: Vec::new() },
        Request::FetchOffsets(_) | Request::List | Request::ForgetTopic { .. } => {
            unreachable!("waits for no group, so is never refused")
        }
    }
}
