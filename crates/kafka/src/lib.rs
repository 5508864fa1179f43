//! The Kafka front: wire codec, session, mapping to the core.
