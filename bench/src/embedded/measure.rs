//! Starting one work in a process of its own, and taking what it measured. The other side is
//! `thetis_bench::work::run`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use thetis_bench::work::engine::Name;
use thetis_bench::work::{Measured, Work};

use super::engine;

/// Where works are done, and by which programs.
pub(super) struct Place<'a> {
    /// Directories are made under it, and are gone afterwards.
    pub(super) base: PathBuf,
    /// The program that brings the rivals of long build, if there is one.
    pub(super) rivals: Option<&'a Path>,
}

impl Place<'_> {
    /// Whether there is a program for this engine.
    pub(super) fn has(&self, name: Name) -> bool {
        !is_of_long_build(name) || self.rivals.is_some()
    }

    /// Does a work in a process of its own.
    pub(super) fn measure(&self, work: &Work) -> Result<Measured> {
        let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(&self.base)?;
        let text = serde_json::to_string(work)?;
        let program = match self.rivals {
            Some(rivals) if is_of_long_build(work.engine) => rivals.to_owned(),
            _ => std::env::current_exe()?,
        };
        let mut child = Command::new(&program);
        child.arg("work").arg(&text).arg(dir.path());
        child.env(engine::WALRUS_DIR_ENV, dir.path()).env(engine::WALRUS_QUIET_ENV, "1");
        child.env("RUST_BACKTRACE", "0");
        let output = child.output();
        let output = output.with_context(|| format!("could not start {}", program.display()))?;
        // Neither side pays for what the other left to be written.
        dir.close()?;
        rustix::fs::sync();
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            bail!("{text} ended with {}\n{complaint}", output.status);
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let result = printed.lines().last().unwrap_or_default();
        serde_json::from_str(result).with_context(|| format!("{text} printed {result:?}"))
    }
}

fn is_of_long_build(name: Name) -> bool {
    matches!(name, Name::Rocksdb | Name::RaftEngine)
}
