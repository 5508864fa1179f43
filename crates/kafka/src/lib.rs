//! The Kafka front: native wire protocol for unmodified clients.
//!
//! Owns Kafka's semantics (groups, idempotent producers, leader epochs as clients see them) and
//! knows nothing of storage: a partition is a stream of the core, a record batch is one entry.
//!
//! ```text
//! server -> session -> map -> core            bytes: wire (messages), records (batches)
//!                       |
//!                       +-> coordinator (shell) -> group (decides)
//!                       +-> partition   (shell) -> producers (decides)
//! ```

mod broker;
mod coordinator;
pub mod group;
mod map;
mod partition;
pub mod producers;
pub mod records;
mod server;
mod session;
pub mod wire;

pub use broker::{Broker, Settings};
pub use server::serve;
