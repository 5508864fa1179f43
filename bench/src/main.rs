//! Measurements of Thetis beside rivals: in one run, in rounds that take turns, at equal durability, and
//! with everything that was written read back and compared. Owns the choice of the bench; nothing of
//! the product depends on this crate. What was found is in `docs/benchmarks.md`.

mod embedded;
mod kafka;
mod plot;
mod process;
mod recovery;
mod report;
mod text;
mod topics;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
// Used by all benches under these names.
use thetis_bench::{content, figures};

/// Measurements of Thetis beside rivals.
#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The library beside the plain device and other logs.
    Embedded(embedded::EmbeddedArgs),
    /// The server over the wire, beside the plain device and Apache Kafka.
    Kafka(kafka::KafkaArgs),
    /// The server in the text protocol, beside a Walrus node.
    Text(text::TextArgs),
    /// What many idle topics cost.
    Topics(topics::TopicsArgs),
    /// Draws what `bench embedded --json` printed.
    Plot(plot::PlotArgs),
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
        Bench::Text(args) => text::run(&args),
        Bench::Topics(args) => topics::run(&args),
        Bench::Plot(args) => plot::run(&args),
        Bench::Recovery(args) => recovery::run(&args),
        Bench::Work { work, dir } => thetis_bench::work::run(&work, &dir, embedded::open),
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
