//! The nouns of Thetis: ids, offsets, entries, heads, outcomes, limits and the ports for time and
//! randomness. No I/O, no async, no serialisation framework.
//!
//! The ruler of a stream (all marks are exclusive upper bounds):
//!
//! ```text
//! offset  0          40            90            120          131          140
//!         |  trimmed |  generations |  WAL only   |  in flight |  accepted  |
//!                    ^              ^             ^            ^            ^
//!                    trim           materialized  committed    durable      accepted
//! trim <= materialized <= committed <= durable <= accepted
//! ```

pub mod clock;
mod durability;
mod entry;
mod error;
mod head;
mod ids;
pub mod limits;
mod profile;
mod records;
pub mod spelling;

pub use durability::Durability;
pub use entry::{Entry, EntryFormat, StoredEntry};
pub use error::{ErrorKind, Outcome};
pub use head::{Head, Receipt};
pub use ids::{AttemptId, Epoch, HeadVersion, Offset, OffsetRange, StreamId};
pub use profile::Profile;
pub use records::{BatchError, Records, SplitError};
