//! `cargo xtask bench ...`: builds the bench and what it drives as they are released, and becomes the
//! bench. What is measured is the bench's business.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{command, tidy};

/// The bench, and the server that it starts from its own directory.
const BENCH: [&str; 2] = ["--package", "thetis-bench"];
const SERVER: [&str; 2] = ["--package", "thetis-cli"];
/// Benches that start no server.
const WITHOUT_SERVER: [&str; 2] = ["embedded", "plot"];
/// Asks for the rivals of long build. It is taken here and not handed on.
const RIVALS: &str = "--rivals";
/// A workspace of its own, so that nobody builds it who does not ask for it.
const RIVALS_MANIFEST: &str = "bench/rivals/Cargo.toml";
/// Where the bench looks for their program.
const RIVALS_ENV: &str = "BENCH_RIVALS";

/// Builds, then runs the bench with `arguments` in place of this process; returns only on failure.
pub(crate) fn run(repository: &Path, arguments: &[&str]) -> Result<bool> {
    let mut build = cargo_build(repository);
    build.args(BENCH);
    if !arguments.iter().any(|argument| WITHOUT_SERVER.contains(argument)) {
        build.args(SERVER);
    }
    command::run(&mut build)?;
    let metadata: Value = tidy::metadata(repository)?;
    let target =
        metadata["target_directory"].as_str().context("cargo names no target directory")?;
    let target = Path::new(target);
    let bench = target.join("release/thetis-bench");
    let mut command = Command::new(&bench);
    if arguments.contains(&RIVALS) {
        command.env(RIVALS_ENV, build_rivals(repository, target)?);
    }
    let error = command.args(arguments.iter().filter(|argument| **argument != RIVALS)).exec();
    Err(error).with_context(|| format!("could not start {}", bench.display()))
}

/// Builds the rivals of long build; returns their program.
fn build_rivals(repository: &Path, target: &Path) -> Result<PathBuf> {
    // A directory of its own: what the two workspaces share has other features in each.
    let target = target.join("rivals");
    let mut build = cargo_build(repository);
    build.args(["--manifest-path", RIVALS_MANIFEST, "--target-dir"]).arg(&target);
    command::run(&mut build)?;
    Ok(target.join("release/thetis-rivals"))
}

fn cargo_build(repository: &Path) -> Command {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--release"]).current_dir(repository);
    build
}
