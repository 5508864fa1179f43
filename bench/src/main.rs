//! Measurements of Thetis beside rivals: in one run, in rounds that take turns, at equal durability, and
//! with everything that was written read back and compared. Owns the choice of the bench; nothing of
//! the product depends on this crate. What was found is in `docs/benchmarks.md`.

mod content;
mod embedded;
mod figures;
mod kafka;
mod process;
mod recovery;
mod report;
mod topics;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// Measurements of Thetis beside rivals.
#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The library beside the plain device and the Walrus engine.
    Embedded(embedded::EmbeddedArgs),
    /// The server over the wire, beside the plain device and Apache Kafka.
    Kafka(kafka::KafkaArgs),
    /// What many idle topics cost.
    Topics(topics::TopicsArgs),
    /// Opening again after a kill, and what idle streams cost.
    Recovery(recovery::RecoveryArgs),
    /// One work of one engine; started by the bench itself.
    #[command(hide = true)]
    Work {
        /// What to do, as JSON.
        work: String,
        /// An empty directory.
        dir: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().bench {
        Bench::Embedded(args) => embedded::run(&args),
        Bench::Kafka(args) => kafka::run(&args),
        Bench::Topics(args) => topics::run(&args),
        Bench::Recovery(args) => recovery::run(&args),
        Bench::Work { work, dir } => embedded::run_work(&work, &dir),
    }
}

/// The directory under which benches write: as given, or beside this program.
fn base_dir(given: Option<&Path>) -> Result<PathBuf> {
    let base = match given {
        Some(dir) => dir.to_owned(),
        None => std::env::current_exe()?.with_file_name("bench-data"),
    };
    std::fs::create_dir_all(&base)
        .with_context(|| format!("cannot write to {}", base.display()))?;
    Ok(base)
}
