//! One member of a group.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::message::{JoinedMember, Protocol, ReplyTo};
use super::record::MemberValue;

/// A member. At most one of its join and its sync waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) group_instance_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    /// Never empty; names are distinct.
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    /// Its first join has not been answered, so it sends no heartbeats yet.
    pub(super) is_new: bool,
    pub(super) awaiting_join: Option<ReplyTo>,
    pub(super) awaiting_sync: Option<ReplyTo>,
    /// When it is taken for gone; `None` while it waits for an answer of ours.
    pub(super) session_deadline: Option<Duration>,
}

impl Member {
    pub(super) fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        self.protocols.iter().find(|p| p.name == protocol).map(|p| &p.metadata)
    }

    pub(super) fn supports(&self, protocol: &str) -> bool {
        self.metadata(protocol).is_some()
    }

    /// The candidate it wants most.
    pub(super) fn vote<'a>(&self, candidates: &BTreeSet<&'a str>) -> Option<&'a str> {
        self.protocols.iter().find_map(|p| candidates.get(p.name.as_str()).copied())
    }

    pub(super) fn touch(&mut self, now: Duration) {
        self.session_deadline = Some(now + self.session_timeout);
    }

    pub(super) fn as_joined(&self, protocol: &str) -> JoinedMember {
        JoinedMember {
            member_id: self.id.clone(),
            group_instance_id: self.group_instance_id.clone(),
            metadata: self.metadata(protocol).cloned().unwrap_or_default(),
        }
    }

    pub(super) fn to_record(&self, protocol: &str, assignment: Bytes) -> MemberValue {
        MemberValue {
            member_id: self.id.clone(),
            group_instance_id: self.group_instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: milliseconds(self.rebalance_timeout),
            session_timeout_ms: milliseconds(self.session_timeout),
            subscription: self.metadata(protocol).cloned().unwrap_or_default(),
            assignment,
        }
    }

    /// A member as replayed. It offers only the protocol the log knows of; its session starts
    /// when the coordinator does.
    pub(super) fn from_record(value: MemberValue, protocol: &str) -> Member {
        let session_timeout = timeout(value.session_timeout_ms);
        Member {
            id: value.member_id,
            group_instance_id: value.group_instance_id,
            client_id: value.client_id,
            client_host: value.client_host,
            session_timeout,
            rebalance_timeout: timeout(value.rebalance_timeout_ms),
            protocols: vec![Protocol { name: protocol.to_owned(), metadata: value.subscription }],
            assignment: value.assignment,
            is_new: false,
            awaiting_join: None,
            awaiting_sync: None,
            session_deadline: None,
        }
    }
}

/// Milliseconds of the wire as a duration; negative ones as zero.
pub(super) fn timeout(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn milliseconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
