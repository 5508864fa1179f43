//! The two questions every error answers: what kind is it, and did the thing happen?

use std::fmt;

/// Whether a mutation happened (law CERTAIN).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Certainly not: retry freely.
    NotCommitted,
    /// Perhaps: resolve the same attempt, never guess with a new one.
    MayHaveCommitted,
    /// It did, although something after it failed.
    Committed,
}

/// What a caller should do about an error: coarse, and a promise. Messages and variants of the
/// errors themselves may change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// The request can never succeed as it is; change it.
    Invalid,
    /// What was named does not exist.
    NotFound,
    /// What was to be created exists.
    Exists,
    /// Lost a compare-and-set; read again and decide.
    Conflict,
    /// A higher epoch has taken over; stop.
    Fenced,
    /// The offset is below the trim offset; continue at the trim offset.
    Trimmed,
    /// The stream is sealed or deleted; it takes no more.
    Sealed,
    /// A limit was met; wait and retry.
    Throttled,
    /// A part is out of order for now, such as a full disk; retry later.
    Unavailable,
    /// Stored bytes are damaged. Never retried blindly, never served.
    Corrupt,
    /// A fault of ours.
    Internal,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::NotCommitted => "not committed",
            Outcome::MayHaveCommitted => "may have committed",
            Outcome::Committed => "committed",
        })
    }
}
