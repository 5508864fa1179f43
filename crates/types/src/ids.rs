//! Identifiers and coordinates. `stream + offset` is the only coordinate of a record.

use std::fmt;
use std::str::FromStr;

/// A stream, for ever: deleting and creating a name again gives a new id. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// Position of a record in its stream. Dense, in commit order, from zero. At most `i64::MAX`,
/// because that is what the Kafka and Pulsar protocols can carry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub u64);

/// One term of ownership of a stream. Raised by each takeover; nothing done under a lower epoch
/// becomes visible after the first durable act of a higher one (law FENCE).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u32);

/// Number of commits the head of a stream has seen; what its compare-and-set compares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HeadVersion(pub u64);

/// Half-open range of offsets, `[start, end)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OffsetRange {
    /// First offset inside.
    pub start: Offset,
    /// First offset after.
    pub end: Offset,
}

/// Names one attempt to append, so that its fate can be found after a lost answer or a crash.
///
/// `since` bounds the search: the attempt cannot have committed below it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AttemptId {
    /// Committed end of the stream when the attempt was named.
    pub since: Offset,
    /// Random; zero only in [`AttemptId::NONE`].
    pub nonce: u64,
}

impl AttemptId {
    /// An append nobody will ask about again.
    pub const NONE: AttemptId = AttemptId { since: Offset(0), nonce: 0 };
}

impl Offset {
    /// The offset `count` records later.
    ///
    /// # Panics
    /// Past `u64::MAX`, which no stream reaches.
    #[must_use]
    pub fn plus(self, count: u64) -> Offset {
        Offset(self.0.checked_add(count).expect("offsets end far below u64::MAX"))
    }

    /// Records between `earlier` and here; zero when `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Offset) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl HeadVersion {
    /// The version after one more commit.
    #[must_use]
    pub fn next(self) -> HeadVersion {
        HeadVersion(self.0 + 1)
    }
}

impl Epoch {
    /// The epoch of the next takeover.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl OffsetRange {
    /// `[start, end)`.
    ///
    /// # Panics
    /// When `end < start`.
    #[must_use]
    pub fn new(start: Offset, end: Offset) -> OffsetRange {
        assert!(start <= end, "range ends before it starts: {start}..{end}");
        OffsetRange { start, end }
    }

    /// `count` offsets from `start`.
    #[must_use]
    pub fn at(start: Offset, count: u64) -> OffsetRange {
        OffsetRange { start, end: start.plus(count) }
    }

    /// Number of offsets inside.
    #[must_use]
    pub fn count(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether `offset` lies inside.
    #[must_use]
    pub fn contains(self, offset: Offset) -> bool {
        self.start <= offset && offset < self.end
    }
}

macro_rules! show {
    ($type:ty, $prefix:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                text.strip_prefix($prefix)
                    .and_then(|digits| digits.parse().ok())
                    .map(Self)
                    .ok_or_else(|| {
                        format!(concat!("expected ", $prefix, "<number>, got {:?}"), text)
                    })
            }
        }
    };
}
show!(StreamId, "s");
show!(Offset, "o");
show!(Epoch, "e");
show!(HeadVersion, "v");

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}
impl fmt::Debug for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a{}-{:016x}", self.since.0, self.nonce)
    }
}
impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl FromStr for AttemptId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (since, nonce) = text.strip_prefix('a')?.split_once('-')?;
            Some(AttemptId {
                since: Offset(since.parse().ok()?),
                nonce: u64::from_str_radix(nonce, 16).ok()?,
            })
        };
        parse().ok_or_else(|| format!("expected a<offset>-<16 hex digits>, got {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_what_they_show() {
        assert_eq!("s17".parse(), Ok(StreamId(17)));
        assert_eq!(Offset(9).to_string().parse(), Ok(Offset(9)));
        let attempt = AttemptId { since: Offset(40), nonce: 0xfeed };
        assert_eq!(attempt.to_string().parse(), Ok(attempt));
        assert!("17".parse::<StreamId>().is_err());
        assert!("a17".parse::<AttemptId>().is_err());
    }

    #[test]
    fn ranges_are_half_open() {
        let range = OffsetRange::at(Offset(3), 2);
        assert!(!range.contains(Offset(2)));
        assert!(range.contains(Offset(3)) && range.contains(Offset(4)));
        assert!(!range.contains(Offset(5)));
        assert_eq!(range.count(), 2);
    }
}
