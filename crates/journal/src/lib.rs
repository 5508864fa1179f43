//! The journal: one durable log for all streams of a machine.
//!
//! Entries of all streams go into the same files, so that one write and one flush make the appends
//! of everybody durable. Synchronous; a few threads of its own; no async runtime. Knows streams,
//! offsets and frames; nothing of names, protocols or retention: what is live is the owner's word.
//!
//! ```text
//! Log::append -> writer (buffer) -> flush (group commit) -> disk
//!                   |                                        |
//!                 index <---------- recover (open) ----------+
//!                   |
//! Log::read ---> rows -> buffer or file
//! ```
//!
//! The bytes on disk are described in `docs/formats/journal.md`.

mod append;
mod chunk;
pub mod disk;
mod error;
mod files;
mod flush;
mod format;
mod gather;
mod index;
pub mod inspect;
mod journal;
mod mapping;
mod marks;
mod parked;
#[cfg(test)]
mod parked_test;
mod primitive;
mod progress;
mod read;
mod reclaim;
mod recover;
mod scan;
pub mod sim;
pub mod verify;
mod worker;
mod writer;

pub use disk::{Disk, File, IoChoice, IoPath, OsDisk};
pub use error::{AppendError, FlushError, OpenError, ReadError, ReclaimError};
pub use format::Flaw;
pub use format::frame::{FrameHeader, Kind};
pub use journal::{Append, Journal, Log, Options, Position, Stats};
pub use read::EntryHeader;
pub use reclaim::ReclaimReport;
pub use recover::{CrashRow, Damage, RecoveredStream, Recovery, TornTail};
