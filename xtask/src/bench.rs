//! `cargo xtask bench ...`: builds the bench and the server it drives as they are released, and becomes
//! the bench. What is measured is the bench's business.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{command, tidy};

/// The bench, and the server that it starts from its own directory.
const PACKAGES: [&str; 4] = ["--package", "thetis-bench", "--package", "thetis-cli"];

/// Builds, then runs the bench with `arguments` in place of this process; returns only on failure.
pub(crate) fn run(repository: &Path, arguments: &[&str]) -> Result<bool> {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--release"]).args(PACKAGES).current_dir(repository);
    command::run(&mut build)?;
    let metadata: Value = tidy::metadata(repository)?;
    let target =
        metadata["target_directory"].as_str().context("cargo names no target directory")?;
    let bench = Path::new(target).join("release/thetis-bench");
    let error = Command::new(&bench).args(arguments).exec();
    Err(error).with_context(|| format!("could not start {}", bench.display()))
}
