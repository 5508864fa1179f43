//! The text front: commands a person can type, in length-prefixed frames. The smallest complete
//! front, and the one to read first. The protocol is docs/protocols/text.md.
//!
//! ```text
//! net -> session -> map -> core        bytes: wire (frames), command (requests), reply
//!                    |
//!                    +-> cursor (durable positions) <- queue (GET)
//! ```
//!
//! Serves topics of one stream that hold plain records: those it makes itself and those of the
//! library. Knows nothing of storage. The other end, for programs that talk to a node, is [`client`].

pub mod client;
#[cfg(test)]
mod client_test;
pub mod command;
mod cursor;
mod front;
mod map;
mod queue;
pub mod reply;
mod session;
#[cfg(test)]
mod session_test;
pub mod wire;

pub use front::{Front, OpenError, Settings};
pub use session::serve;
