//! The Kafka front: wire codec, session, mapping to the core.

pub mod records;
pub mod wire;
