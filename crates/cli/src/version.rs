//! `thetis version`: what this binary is.

use clap::Args;
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::output;

/// Arguments of `thetis version`.
#[derive(Args, Debug)]
pub(crate) struct VersionArgs {
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    os: &'static str,
    arch: &'static str,
    rust: &'static str,
}

/// Prints the version.
pub(crate) fn run(args: &VersionArgs) -> Result<Exit, Failure> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        rust: env!("CARGO_PKG_RUST_VERSION"),
    };
    if args.json {
        output::json([version])?;
    } else {
        output::text(&format!("thetis {} ({}, {})\n", version.version, version.os, version.arch))?;
    }
    Ok(Exit::Done)
}
