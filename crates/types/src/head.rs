//! The head of a stream and the receipt of an append.

use crate::{Durability, Epoch, HeadVersion, Offset, OffsetRange, StreamId};

/// The head of a stream. A record is committed exactly when the head advances over it by a
/// compare-and-set on `version` (law ONE-HEAD).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// Commits so far.
    pub version: HeadVersion,
    /// Epoch of the last commit.
    pub epoch: Epoch,
    /// First offset not committed.
    pub end: Offset,
    /// Entry bytes ever committed to the stream; trimming does not lower it.
    pub bytes: u64,
}

/// What an acknowledged append holds in hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The stream appended to.
    pub stream: StreamId,
    /// The offsets the append's records got.
    pub range: OffsetRange,
    /// The head's version after the commit of this append.
    pub version: HeadVersion,
    /// The epoch it was committed under.
    pub epoch: Epoch,
    /// The durability reached before the receipt was handed out.
    pub durability: Durability,
}
