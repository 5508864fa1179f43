//! End-to-end tests: the server is a process of its own, its clients are real ones or raw bytes.
//!
//! Run one at a time (`--test-threads=1`): each starts a server and most load the machine. What each
//! expects was first seen on Apache Kafka 4.1.1; how to do that again is in `tests/README.md`.

mod bad_input;
mod crash;
mod directory;
mod fetch;
mod files;
mod full_disk;
mod groups;
mod idempotence;
mod log_file;
mod lookups;
mod records;
mod text;
mod text_losses;
mod tls;
mod topics;
