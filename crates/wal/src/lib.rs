//! The WAL port: where the bytes of a stream's open segment become durable.
//!
//! Owns the contract between the stream core and an engine. Knows no protocol, no head rules and no
//! metadata: it is handed entries whose offsets were already assigned, keeps them in order, says
//! when they are safe and gives them back.
//!
//! Engines: [`journal`] (one log file for all streams on a local disk) and [`memory`] (the model,
//! for tests and simulation).

pub mod conformance;
mod error;
pub mod journal;
pub mod memory;

use std::sync::Arc;

use thetis_types::{Durability, Epoch, Head, Offset, StoredEntry, StreamId};

pub use error::{AppendError, FlushError, ReadError};
pub use thetis_journal::{Append, EntryHeader, Position};

/// What to run when a position is safe, or when it is known that it never will be.
pub type Then = Box<dyn FnOnce(Result<(), FlushError>) + Send>;

/// What an engine found of one stream when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredStream {
    /// The stream.
    pub stream: StreamId,
    /// First offset the engine still holds.
    pub start: Offset,
    /// Head after the last whole entry: what was fused into the engine's own writes.
    pub head: Head,
}

/// A write-ahead log for many streams.
///
/// Order: entries of one stream become safe in the order of their appends, and so do the positions
/// of all streams: if a position is safe at a level, every smaller one is.
pub trait Wal: Send + Sync {
    /// The streams found at open, each with its head. MUST contain every entry for which
    /// [`Wal::wait`] returned at a level that survives what happened since.
    fn recovered(&self) -> Vec<RecoveredStream>;

    /// The part of the log that belongs to `stream`. Cheap; the stream need not exist yet.
    fn log(&self, stream: StreamId) -> Arc<dyn Log>;

    /// Blocks until everything up to `at` is safe at `level`. The caller may be made to do the
    /// flush itself, for others too.
    ///
    /// # Errors
    /// A failed flush: whether the entries are safe is unknown, and the engine accepts no more
    /// until it is opened again.
    fn wait(&self, at: Position, level: Durability) -> Result<(), FlushError>;

    /// Whether everything up to `at` is safe at `level` already. MUST NOT block and MAY say false
    /// of what is safe: then [`Wal::wait`] tells.
    fn reached(&self, at: Position, level: Durability) -> bool;

    /// Runs `then` once everything up to `at` is safe at `level`, or cannot be made so. It MUST
    /// run exactly once, perhaps on this call's own stack when nothing is to be waited for.
    fn when(&self, at: Position, level: Durability, then: Then);

    /// Gives back space that the owners of streams have declared dead by [`Log::trim`] and
    /// [`Log::discard`], and nothing else (law COLLECT-SAFE).
    ///
    /// # Errors
    /// Refused by the device; nothing that lives was touched, a later call goes on.
    fn reclaim(&self) -> Result<Reclaimed, AppendError>;

    /// Makes all entries safe at `disk` and lets go of the medium. Later appends are refused.
    ///
    /// # Errors
    /// A failed flush, as in [`Wal::wait`].
    fn close(&self) -> Result<(), FlushError>;
}

/// What one [`Wal::reclaim`] gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Files deleted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One stream's part of a WAL. Appends to one stream are made by one owner at a time, its lane.
pub trait Log: Send + Sync {
    /// Takes `entries` into the log, in order, right after one another. They are safe once
    /// [`Wal::wait`] says so for the returned position.
    ///
    /// # Errors
    /// The entries were not taken (outcome `NotCommitted`): too large, device full, closed, or the
    /// engine is poisoned by a failed flush.
    fn append(&self, entries: &[Append<'_>]) -> Result<Position, AppendError>;

    /// Whole entries covering `[from, until)` in offset order, the one containing `from` first:
    /// at most `bytes_max` bytes of payload, but never fewer than one entry. `until` is what the
    /// core vouches for as committed; entries at or above it are not returned.
    ///
    /// # Errors
    /// Damaged or missing bytes, with their place. Never an early end in their stead.
    fn read(
        &self,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<StoredEntry>, ReadError>;

    /// Like [`Log::read`] without the payloads, at most `entries_max`.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn headers(
        &self,
        from: Offset,
        until: Offset,
        entries_max: usize,
    ) -> Result<Vec<EntryHeader>, ReadError>;

    /// Base offset of the first entry, in offset order, whose largest timestamp is at least
    /// `timestamp` (milliseconds since 1970).
    ///
    /// # Errors
    /// As [`Log::read`].
    fn first_at_time(
        &self,
        from: Offset,
        until: Offset,
        timestamp: i64,
    ) -> Result<Option<Offset>, ReadError>;

    /// Base offset and timestamp of the earliest entry with the largest timestamp.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn max_time(&self, from: Offset, until: Offset) -> Result<Option<(Offset, i64)>, ReadError>;

    /// The largest epoch not above `epoch` that has entries, and the offset after its last one.
    fn epoch_end(&self, epoch: Epoch, from: Offset, until: Offset) -> Option<(Epoch, Offset)>;

    /// Bytes of payload in `[from, until)`, to the precision of whole entries.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn bytes_between(&self, from: Offset, until: Offset) -> Result<u64, ReadError>;

    /// Everything below `before` is dead. The core says so only after its metadata does. Where the
    /// log ends below `before`, the next append begins there, with any version above the last.
    fn trim(&self, before: Offset);

    /// The stream is deleted: all of it is dead.
    fn discard(&self);
}
