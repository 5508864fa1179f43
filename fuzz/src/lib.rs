//! What each fuzz target does with its bytes: one function a target, by the target's name. They
//! stand in a library so that a test replays the seeds through all of them without libFuzzer.
//!
//! A target asks more than that nothing panics: what was decoded must read back the same when it is
//! encoded again, and what a store accepted must still be accepted after it was opened and used.
//!
//! Owns no format: bytes are repaired and cut here only as far as a checksum would otherwise keep a
//! fuzzer in front of the door.

mod batches;
mod config;
mod groups;
mod input;
mod journal;
mod messages;
mod metadata;
mod model;
mod plain;
pub mod seeds;

pub use batches::record_batches;
pub use config::{config_file, config_value};
pub use groups::{group_log, producer_snapshot};
pub use journal::journal;
pub use messages::{kafka_request, kafka_response};
pub use metadata::{metadata_key, stream_record, topic_record};
pub use model::stream_model;
pub use plain::plain_records;

/// A target: its name and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("kafka_request", kafka_request),
    ("kafka_response", kafka_response),
    ("record_batches", record_batches),
    ("group_log", group_log),
    ("producer_snapshot", producer_snapshot),
    ("journal", journal),
    ("metadata_key", metadata_key),
    ("stream_record", stream_record),
    ("topic_record", topic_record),
    ("plain_records", plain_records),
    ("config_file", config_file),
    ("config_value", config_value),
    ("stream_model", stream_model),
];
