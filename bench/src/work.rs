//! One engine doing one work on an empty directory, in a process of its own: engines keep settings for a
//! whole process, leave threads behind and warm caches that the next one would profit from. What was
//! written is read back and compared, and only then is there a result.

mod cost;
pub mod engine;
mod tail;
mod topics;
mod writing;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::figures::Second;
use cost::Memory;
use engine::{Engine, Level, Name};

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    /// By whom.
    pub engine: Name,
    /// What an append that returned survives.
    pub level: Level,
    /// Which side is watched.
    pub kind: Kind,
    /// Threads that append; with [`Kind::Topics`], streams that one thread appends to in turn.
    pub writers: usize,
    /// All writers on one stream, instead of each on its own.
    pub one_stream: bool,
    /// Of each record.
    pub record_bytes: usize,
    /// Records appended together; 1 for single appends.
    pub batch: usize,
    /// Writing stops after so long...
    pub seconds: f64,
    /// ...or when this much was written, of all writers.
    pub bytes_max: u64,
}

/// Which side is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Write as fast as it goes, then read everything.
    Write,
    /// The same, with so many appends of each thread under way.
    Window {
        /// Appends under way.
        appends: usize,
    },
    /// Write for long, giving back all but the newest of each stream, then read what is left.
    Sustained {
        /// Records of a stream that are kept.
        records: u64,
    },
    /// One writer that pauses, one reader that follows it.
    Tail,
    /// One writer that goes round many streams.
    Topics,
}

/// What was measured; 0 where the work has no such figure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Records appended in a second, of all writers.
    pub records_per_s: f64,
    /// Time of one append; of one batch where there are batches.
    pub append_p50_us: f64,
    /// The same.
    pub append_p99_us: f64,
    /// Reading everything back, with the comparison.
    pub read_mb_per_s: f64,
    /// From before an append to a reader's having the record.
    pub tail_p50_us: f64,
    /// The same.
    pub tail_p99_us: f64,
    /// Most memory while writing, pages of mapped files included, above what the process had before.
    pub memory_peak_mb: f64,
    /// Of that, pages of its own.
    pub memory_own_mb: f64,
    /// CPU time of the process for each GB appended.
    pub cpu_s_per_gb: f64,
    /// Making a stream and its first append.
    pub create_us: f64,
    /// Each whole second of a sustained work.
    pub seconds: Vec<Second>,
}

impl Work {
    /// How many streams it is about.
    #[must_use]
    pub fn streams(&self) -> usize {
        if self.one_stream { 1 } else { self.writers }
    }

    /// The stream of a writer.
    fn stream_of(&self, writer: usize) -> usize {
        if self.one_stream { 0 } else { writer }
    }
}

/// Does the work given as JSON in `dir` with an engine that `open` opens, and prints what was measured
/// as JSON.
///
/// # Errors
/// The engine failed, or did not give back what was appended.
pub fn run(
    work: &str,
    dir: &Path,
    open: impl Fn(&Work, &Path) -> Result<Box<dyn Engine>>,
) -> Result<()> {
    let work: Work = serde_json::from_str(work).context("this command is for the bench itself")?;
    fs::create_dir_all(dir)?;
    let open = || open(&work, dir);
    let measured = match work.kind {
        Kind::Tail => tail::run(&work, open)?,
        Kind::Topics => topics::run(&work, open)?,
        Kind::Write | Kind::Window { .. } | Kind::Sustained { .. } => writing::run(&work, open)?,
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Memory beyond what there was before, MB: at its peak, and pages of its own.
fn grown(before: Memory, after: Memory, own_peak: f64) -> (f64, f64) {
    let peak = after.resident_peak - before.resident;
    (peak / 1e6, (own_peak - before.anonymous).max(0.0) / 1e6)
}
