//! The stream core: append, commit, read, trim, seal, delete, recover.
//!
//! A stream is a dense sequence of records, each named by `stream + offset`. A record is committed
//! exactly when the head of its stream advances over it (law ONE-HEAD). Here the open segment's
//! authority is delegated to this process, so the compare-and-set happens in memory, in
//! [`state::StreamState`], and becomes durable by the very write that carries the data: each frame
//! of the WAL holds the head version it makes (a *fused commit*). No metadata I/O per append.
//!
//! ```text
//! life of a record
//!   Stream::append     the lane checks session and expected offset, assigns offsets, hands the
//!                      entry to the WAL                                       state.place
//!   Wal::wait, when    the WAL makes it safe at the stream's durability, for many at once
//!   settle             the head advances over everything safe, readers wake   state.safe
//!   Receipt            leaves only now                                        (law ACK-DURABLE)
//! ```
//!
//! Deciding is separate from doing: [`state`] is plain functions over a plain value, `lane` is
//! the shell that performs what they say. Time and randomness come in through ports.
//!
//! | module | owns |
//! |---|---|
//! | `store` | all streams of a process: open, create, find, delete |
//! | `lane` | one stream: the shell around its state |
//! | [`state`] | what a stream is and may do next |
//! | [`invariants`] | the laws as predicates |
//! | [`record`] | the stream's record in the metadata store |
//! | [`error`] | refusals and failures, each with its outcome |

pub mod error;
pub mod invariants;
mod lane;
pub mod record;
pub mod state;
mod store;

pub use error::{AppendError, ReadError, StreamError};
pub use lane::{Append, Appending, Fate, Read, Stream};
pub use record::{Lifecycle, StreamRecord};
pub use state::Session;
pub use store::{CREATE_STREAMS_MAX, Limits, OpenError, OpenReport, Store, StreamSpec};
