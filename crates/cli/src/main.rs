//! The one binary of Thetis: a node (`serve`), a client of any Kafka-speaking server (`topic`,
//! `produce`, `consume`) and the tools that look at a data directory (`inspect`, `verify`).
//!
//! This file turns an outcome into an exit code and a message. Data goes to stdout, everything
//! else to stderr. Commands are one module each; what they share is `output`, `exit`, `config`
//! and `client`.

mod cli;
mod client;
mod config;
mod consume;
mod data;
mod exit;
mod inspect;
mod output;
mod produce;
mod repl;
mod serve;
mod server;
mod tls;
mod topic;
mod verify;
mod version;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let outcome = cli::Cli::parse().run();
    outcome.unwrap_or_else(|failure| failure.report()).into()
}
