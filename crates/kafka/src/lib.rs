//! The Kafka front: wire codec, session, mapping to the core.

pub mod group;
pub mod producers;
