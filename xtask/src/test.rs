//! `cargo xtask test`: installs what is needed, runs every check and test in an order that fails fast
//! on what is cheap, and goes on after failures so that one run shows all of them.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::count::Count;
use crate::{command, tidy, tools};

/// The crate whose tests start the release binary.
const E2E: &str = "thetis-e2e";
/// The crate whose binary is the server.
const SERVER: &str = "thetis-cli";
/// What the random inputs of property tests are drawn from, so that one commit passes or fails the
/// same way everywhere. Fresh inputs: CONTRIBUTING.md.
const PROPERTY_SEED: &str = "20261201";
/// How long the list of known vulnerabilities may take to come.
const ADVISORY_SECONDS_MAX: &str = "120";

/// Runs everything; true when nothing failed.
pub(crate) fn run(repository: &Path) -> Result<bool> {
    tools::install(repository)?;
    let mut count = Count::default();
    count.step("tidy", tidy::run(repository)?);
    let mut step = |name: &str, cargo: &mut Command| {
        let passed = command::run(cargo).inspect_err(|error| eprintln!("{error:#}")).is_ok();
        count.step(name, passed);
    };
    step("fmt", cargo(repository).args(["fmt", "--all", "--check"]));
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    step("clippy", cargo(repository).args(clippy));
    // The binary and the library share the name `thetis`, so their pages must not meet in one run.
    for (name, packages) in [
        ("rustdoc", ["--workspace", "--exclude", SERVER].as_slice()),
        ("rustdoc of the binary", &["--package", SERVER]),
    ] {
        let mut doc = cargo(repository);
        doc.args(["doc", "--no-deps", "--document-private-items"]).args(packages);
        step(name, doc.env("RUSTDOCFLAGS", "-D warnings"));
    }
    let deny = ["check", "bans", "licenses", "sources"];
    step("cargo-deny bans, licenses, sources", deny_command(repository).args(deny));
    advisories(repository, &mut count);
    let mut units = cargo(repository);
    units.args(["test", "--workspace", "--exclude", E2E, "--no-fail-fast"]);
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        units.env("PROPTEST_RNG_SEED", PROPERTY_SEED);
    }
    tests(&mut units, "cargo test", &mut count)?;
    // The fuzz targets compile and take their seeds; libFuzzer and a nightly compiler are not needed.
    let seeds = ["test", "--manifest-path", "fuzz/Cargo.toml", "--no-default-features"];
    tests(cargo(repository).args(seeds), "seeds of the fuzz targets", &mut count)?;
    let harness = ["test", "--package", E2E, "--lib"];
    tests(cargo(repository).args(harness), "cargo test of the harness", &mut count)?;
    end_to_end(repository, &mut count)?;
    Ok(count.conclude())
}

/// Builds the release binary once and drives it from outside, one test at a time.
fn end_to_end(repository: &Path, count: &mut Count) -> Result<()> {
    let build = ["build", "--release", "--package", SERVER];
    if let Err(error) = command::run(cargo(repository).args(build)) {
        eprintln!("{error:#}");
        count.fail("release build");
        return Ok(());
    }
    let options = ["test", "--package", E2E, "--test", "e2e", "--", "--test-threads=1"];
    tests(cargo(repository).args(options), "end-to-end tests", count)
}

/// Runs cargo's tests, shows them, and counts them.
fn tests(cargo: &mut Command, name: &str, count: &mut Count) -> Result<()> {
    let failed_before = count.failed();
    let succeeded = command::watch(cargo, |line| {
        println!("{line}");
        count.test_line(line);
    })?;
    // Failed tests are in the runner's summaries; what did not build has none.
    if !succeeded && count.failed() == failed_before {
        count.fail(name);
    }
    Ok(())
}

/// Known vulnerabilities of our dependencies. Their list lives in a git repository of its own; where
/// that cannot be reached, this is not checked, and the last lines say so.
fn advisories(repository: &Path, count: &mut Count) {
    // A network that swallows packets must not hold up the rest.
    let mut fetch = Command::new("timeout");
    fetch.arg(ADVISORY_SECONDS_MAX).arg(tools::cargo_deny(repository)).args(["fetch", "db"]);
    if let Err(error) = command::run(fetch.current_dir(repository)) {
        eprintln!("{error:#}");
        count.skip("advisories: the RustSec database cannot be reached from here");
        return;
    }
    let check = deny_command(repository).args(["--offline", "check", "advisories"]).status();
    count.step("cargo-deny advisories", check.is_ok_and(|status| status.success()));
}

fn deny_command(repository: &Path) -> Command {
    let mut command = Command::new(tools::cargo_deny(repository));
    command.arg("--workspace").current_dir(repository);
    command
}

/// The cargo that runs us, in the repository.
fn cargo(repository: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository);
    command
}
