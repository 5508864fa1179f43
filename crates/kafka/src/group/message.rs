//! What goes into the coordinator and what comes out of it: plain values, no wire types.
//!
//! Owns the vocabulary only. The front's map turns requests of the wire into these and these
//! answers into responses of the version that was asked.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::Code;

/// The time of an event. Timers run on monotonic time, so a jump of the wall clock throws no
/// member out; wall time stands in commits and decides retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since 1970.
    pub wall_ms: i64,
    /// Time since an arbitrary fixed point; never goes back.
    pub monotonic: Duration,
}

/// Whom an answer goes to; chosen by the caller, never looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo(pub u64);

/// Names one batch handed to the log. Rises with each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A record of the offsets log. A record without value is a tombstone: it removes the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the record is about; see `docs/formats/consumer-offsets.md`.
    pub key: Bytes,
    /// Its present value.
    pub value: Option<Bytes>,
}

/// What became of a batch handed to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Committed, and durable at the level the log's stream asks for.
    Durable,
    /// Certainly not in the log, now or after a restart. A caller that cannot be certain MUST NOT
    /// say so: it drops this coordinator and replays the log into a new one (law CERTAIN).
    Not,
}

/// What happens to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client or the front asks for something.
    Request {
        /// Whom to answer. Every request gets exactly one [`Effect::Reply`].
        reply_to: ReplyTo,
        /// What is asked.
        request: Request,
    },
    /// The log has settled a batch. May be told in any order; acted on in the order of tokens.
    Persisted {
        /// The batch, as named by [`Effect::Persist`].
        token: Token,
        /// What became of it.
        written: Written,
    },
    /// Time has passed: timers that are due fire. Wanted at [`super::Coordinator::next_deadline`].
    Tick,
}

/// What the caller has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this answer.
    Reply {
        /// Whom to.
        to: ReplyTo,
        /// What.
        response: Response,
    },
    /// Append these records to the log as one atomic batch, after all batches of lower tokens,
    /// and report with [`Event::Persisted`].
    Persist {
        /// Names the batch in the report.
        token: Token,
        /// At least one.
        records: Vec<Record>,
    },
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Become or stay a member. Answered when the group's next generation begins.
    Join(Join),
    /// Fetch one's assignment; the leader brings everybody's.
    Sync(Sync),
    /// Say that one is alive.
    Heartbeat(Heartbeat),
    /// Leave, one or several members.
    Leave(Leave),
    /// Commit offsets.
    Commit(Commit),
    /// Read committed offsets.
    FetchOffsets(FetchOffsets),
    /// Name all groups.
    List,
    /// Show one group.
    Describe {
        /// The group.
        group_id: String,
    },
    /// Delete an empty group and its offsets.
    DeleteGroup {
        /// The group.
        group_id: String,
    },
    /// Delete some offsets of a group.
    DeleteOffsets {
        /// The group.
        group_id: String,
        /// Topics and their partitions.
        topics: Vec<(String, Vec<i32>)>,
    },
    /// A topic was deleted: remove its offsets from all groups. Ask after the name has stopped
    /// resolving and before it may be created again.
    ForgetTopic {
        /// The topic.
        topic: String,
    },
}

impl Request {
    /// The one group this is about.
    #[must_use]
    pub fn group_id(&self) -> Option<&str> {
        match self {
            Request::Join(Join { group_id, .. })
            | Request::Sync(Sync { group_id, .. })
            | Request::Heartbeat(Heartbeat { group_id, .. })
            | Request::Leave(Leave { group_id, .. })
            | Request::Commit(Commit { group_id, .. })
            | Request::FetchOffsets(FetchOffsets { group_id, .. })
            | Request::Describe { group_id }
            | Request::DeleteGroup { group_id }
            | Request::DeleteOffsets { group_id, .. } => Some(group_id),
            Request::List | Request::ForgetTopic { .. } => None,
        }
    }
}

/// A protocol (assignment strategy) a member offers, most wanted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name.
    pub name: String,
    /// The member's metadata under it; its subscription, for consumers.
    pub metadata: Bytes,
}

/// JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The group.
    pub group_id: String,
    /// The member's id; empty when it has none yet.
    pub member_id: String,
    /// Name of a static member.
    pub group_instance_id: Option<String>,
    /// The client's name for itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// Milliseconds without heartbeat after which the member is gone.
    pub session_timeout_ms: i32,
    /// Milliseconds the member may take to rejoin; negative (version 0 has no such field): the
    /// session timeout.
    pub rebalance_timeout_ms: i32,
    /// Type of the protocols, such as `consumer` or `connect`.
    pub protocol_type: String,
    /// The protocols it offers.
    pub protocols: Vec<Protocol>,
    /// Version 4 and later: a new dynamic member is sent back once to learn its id, so that
    /// a client that disconnects leaves no member behind.
    pub requires_known_member_id: bool,
    /// Version 9 and later: the client knows the field `skip_assignment`.
    pub can_skip_assignment: bool,
}

/// SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The group.
    pub group_id: String,
    /// The member.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
    /// The generation it has joined.
    pub generation: i32,
    /// Checked when present (version 5 and later).
    pub protocol_type: Option<String>,
    /// Checked when present (version 5 and later).
    pub protocol: Option<String>,
    /// From the leader: the assignment of each member.
    pub assignments: Vec<(String, Bytes)>,
}

/// Heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The group.
    pub group_id: String,
    /// The member.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
    /// The generation it believes in.
    pub generation: i32,
}

/// A member of a group by either of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberIdentity {
    /// Its id; empty when it is named by instance id alone.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
}

/// LeaveGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The group.
    pub group_id: String,
    /// Who leaves.
    pub members: Vec<MemberIdentity>,
}

/// An offset to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPartition {
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record read, -1 when unknown.
    pub leader_epoch: i32,
    /// Text of the client's own.
    pub metadata: String,
    /// Time of the commit, milliseconds since 1970; `None`: now (only version 1 sends one).
    pub timestamp_ms: Option<i64>,
}

/// OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The group.
    pub group_id: String,
    /// The member; empty for a consumer that manages its partitions itself.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
    /// The generation; -1 for a consumer that manages its partitions itself.
    pub generation: i32,
    /// Milliseconds to keep the offsets (versions 2 to 4); `None`: the configured retention.
    pub retention_ms: Option<i64>,
    /// Topics with their offsets.
    pub topics: Vec<(String, Vec<CommitPartition>)>,
}

/// OffsetFetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOffsets {
    /// The group.
    pub group_id: String,
    /// Topics and partitions; `None`: all that have an offset.
    pub topics: Option<Vec<(String, Vec<i32>)>>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To [`Request::Join`].
    Join(Joined),
    /// To [`Request::Sync`].
    Sync(Synced),
    /// To [`Request::Heartbeat`].
    Heartbeat(Code),
    /// To [`Request::Leave`].
    Leave(Left),
    /// To [`Request::Commit`]: a code for every partition of the request, in its order.
    Commit(Vec<(String, Vec<(i32, Code)>)>),
    /// To [`Request::FetchOffsets`].
    FetchOffsets(Vec<(String, Vec<FetchedOffset>)>),
    /// To [`Request::List`], by name.
    List(Vec<Listing>),
    /// To [`Request::Describe`].
    Describe(Description),
    /// To [`Request::DeleteGroup`].
    DeleteGroup(Code),
    /// To [`Request::DeleteOffsets`].
    DeleteOffsets {
        /// About the group as a whole.
        code: Code,
        /// A code for every partition of the request; empty when `code` is an error.
        topics: Vec<(String, Vec<(i32, Code)>)>,
    },
    /// To [`Request::ForgetTopic`]: the offsets are durably gone, or they are not and the request
    /// has to be made again.
    ForgetTopic(Code),
}

/// A member as the leader is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
    /// Its metadata under the chosen protocol.
    pub metadata: Bytes,
}

/// Answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Result.
    pub code: Code,
    /// The generation; -1 on error.
    pub generation: i32,
    /// Type of the group's protocols.
    pub protocol_type: Option<String>,
    /// The protocol chosen.
    pub protocol: Option<String>,
    /// The leader's id; empty on error.
    pub leader: String,
    /// The leader is not to assign: the group is stable and keeps its assignment.
    pub skip_assignment: bool,
    /// The member's own id.
    pub member_id: String,
    /// All members, for the leader alone.
    pub members: Vec<JoinedMember>,
}

impl Joined {
    /// A refusal.
    #[must_use]
    pub fn refused(code: Code, member_id: &str) -> Joined {
        Joined {
            code,
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }
}

/// Answer to a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Result.
    pub code: Code,
    /// Type of the group's protocols.
    pub protocol_type: Option<String>,
    /// The protocol chosen.
    pub protocol: Option<String>,
    /// The member's assignment.
    pub assignment: Bytes,
}

impl Synced {
    /// A refusal.
    #[must_use]
    pub fn refused(code: Code) -> Synced {
        Synced { code, protocol_type: None, protocol: None, assignment: Bytes::new() }
    }
}

/// Answer to a leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// About the request as a whole.
    pub code: Code,
    /// A code for each member of the request, in its order.
    pub members: Vec<(MemberIdentity, Code)>,
}

/// A committed offset as read; offset and epoch are -1 and the text empty when there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    /// The partition.
    pub partition: i32,
    /// The committed offset.
    pub offset: i64,
    /// Its leader epoch.
    pub leader_epoch: i32,
    /// Its text.
    pub metadata: String,
}

/// State of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No members; it may have offsets.
    Empty,
    /// Waiting for members to join.
    PreparingRebalance,
    /// Waiting for the leader's assignment and for its record to be durable.
    CompletingRebalance,
    /// Members have their assignments.
    Stable,
    /// No such group.
    Dead,
}

impl State {
    /// The name Kafka's tools know.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
            State::Dead => "Dead",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its name.
    pub group_id: String,
    /// Type of its protocols; empty when it never had members.
    pub protocol_type: String,
    /// Its state.
    pub state: State,
}

/// A member as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// Its id.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
    /// The client's name for itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// Its metadata under the chosen protocol; empty unless the group is stable.
    pub metadata: Bytes,
    /// Its assignment; empty unless the group is stable.
    pub assignment: Bytes,
}

/// A group as shown. One that does not exist is shown as [`State::Dead`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Result; also [`Code::None`] for a group that does not exist.
    pub code: Code,
    /// Its name.
    pub group_id: String,
    /// Its state.
    pub state: State,
    /// Type of its protocols.
    pub protocol_type: String,
    /// The protocol chosen; empty unless the group is stable.
    pub protocol: String,
    /// Its members, by id.
    pub members: Vec<DescribedMember>,
}
