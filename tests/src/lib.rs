//! What the end-to-end tests stand on: a server as a process, client programs as processes, raw
//! Kafka bytes, a large real file and seeded chance. The tests themselves are in `e2e/`, the client
//! programs in `clients/`.
//!
//! Nothing here may use a crate of the product: this is the outside view, and an oracle that shared
//! the product's codec would share its mistakes.
//!
//! A failure of the harness is a panic with the facts, because its only caller is a test.

pub mod corpus;
pub mod driver;
pub mod seed;
pub mod server;
pub mod wire;

use std::io::Write as _;

/// Writes one line to the standard error of the process, past the capture of the test runner: what
/// was skipped and how to reproduce must be readable also when a test passes.
pub fn say(line: &str) {
    let mut stderr = std::io::stderr().lock();
    // A closed standard error is no reason to fail a test.
    let _ignored = writeln!(stderr, "{line}");
}

/// The directory of the repository.
#[must_use]
pub fn repository() -> std::path::PathBuf {
    let mut path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// The command that runs one test alone; every test prints it first.
pub fn reproduce(test: &str) {
    let seed = seed::process_seed();
    say(&format!(
        "{test}: to reproduce: THETIS_E2E_SEED={seed} cargo test -p thetis-e2e --test e2e -- \
         --exact {test} --nocapture"
    ));
}
