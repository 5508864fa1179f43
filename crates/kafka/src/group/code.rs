//! The result codes of the group coordinator: exactly those it can answer with.
//!
//! Owns the numbers, which are Kafka's. Which bytes carry them is the wire layer's concern.

use thetis_types::{ErrorKind, Outcome};

/// A result code of the Kafka protocol. The ordinal is the number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i16)]
pub enum Code {
    /// A fault of ours.
    UnknownServerError = -1,
    /// Done.
    None = 0,
    /// The topic does not exist.
    UnknownTopicOrPartition = 3,
    /// The text committed with an offset is longer than the limit.
    OffsetMetadataTooLarge = 12,
    /// A limit is met for the moment; wait and send the same request again.
    CoordinatorLoadInProgress = 14,
    /// The log took no record; find the coordinator again and retry.
    CoordinatorNotAvailable = 15,
    /// The generation is not the group's present one.
    IllegalGeneration = 22,
    /// No protocol in common with the group, or another type of protocol.
    InconsistentGroupProtocol = 23,
    /// The name of the group is empty or too long.
    InvalidGroupId = 24,
    /// The member is not in the group; join anew.
    UnknownMemberId = 25,
    /// The session timeout is outside the configured bounds.
    InvalidSessionTimeout = 26,
    /// The group is gathering members; join again.
    RebalanceInProgress = 27,
    /// The group has members, so it cannot be deleted.
    NonEmptyGroup = 68,
    /// There is no such group.
    GroupIdNotFound = 69,
    /// Join again with the member id in this answer.
    MemberIdRequired = 79,
    /// The group is full.
    GroupMaxSizeReached = 81,
    /// Another member has taken over this instance id.
    FencedInstanceId = 82,
    /// A member reads the topic, so its offsets cannot be deleted.
    GroupSubscribedToTopic = 86,
}

impl Code {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> i16 {
        self as i16
    }

    /// What the caller should do, in the terms of the house; `None` for [`Code::None`].
    #[must_use]
    pub const fn kind(self) -> Option<ErrorKind> {
        Some(match self {
            Code::None => return None,
            Code::UnknownServerError => ErrorKind::Internal,
            Code::OffsetMetadataTooLarge
            | Code::InconsistentGroupProtocol
            | Code::InvalidGroupId
            | Code::InvalidSessionTimeout => ErrorKind::Invalid,
            Code::CoordinatorLoadInProgress | Code::GroupMaxSizeReached => ErrorKind::Throttled,
            Code::CoordinatorNotAvailable => ErrorKind::Unavailable,
            Code::UnknownTopicOrPartition | Code::UnknownMemberId | Code::GroupIdNotFound => {
                ErrorKind::NotFound
            }
            Code::IllegalGeneration | Code::FencedInstanceId => ErrorKind::Fenced,
            Code::RebalanceInProgress
            | Code::NonEmptyGroup
            | Code::MemberIdRequired
            | Code::GroupSubscribedToTopic => ErrorKind::Conflict,
        })
    }

    /// Whether what was asked for happened. A refusal is certain: when the fate of a record is not
    /// known the coordinator gives no answer at all (see [`super::Written`]).
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Code::None => Outcome::Committed,
            _ => Outcome::NotCommitted,
        }
    }
}
