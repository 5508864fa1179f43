//! `bench embedded`: the library inside one process, beside the plain device and other logs. Owns the
//! rounds; which works are compared and what was promised of each is in `embedded/cases.rs`, and how one
//! is done in `thetis_bench::work`.
//!
//! ```text
//! round 1:  ours, rival, rival   round 2:  ours, rival, rival   ...   medians of the rounds
//! ```

mod cases;
mod engine;
mod measure;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use thetis_bench::work::{Kind, Measured, Work};

use crate::plot;
use crate::report::{Cell, Line, Subject};
use cases::{Case, View};
pub(crate) use engine::open;
use measure::Place;

/// Arguments of `bench embedded`.
#[derive(Args, Debug)]
pub(crate) struct EmbeddedArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// How often each side does each work; the sustained ones are done once.
    #[arg(long)]
    rounds: Option<usize>,
    /// How long each writes.
    #[arg(long)]
    seconds: Option<f64>,
    /// How long each writes in the sustained works.
    #[arg(long)]
    sustained_seconds: Option<f64>,
    /// Short and few: 1 round of 0.3 s, 5 s sustained. Shows that all works, and no figure to trust.
    #[arg(long)]
    quick: bool,
    /// Every combination of threads, sizes, batches and streams, instead of the table's.
    #[arg(long)]
    every: bool,
    /// Only works whose name contains this. A name ends with the level: "8 writers, 1 KiB, os".
    #[arg(long, default_value = "")]
    only: String,
    /// Streams in the case of many.
    #[arg(long, default_value_t = 1_000)]
    topics: usize,
    /// The program that brings RocksDB and raft-engine; `cargo xtask bench` takes `--rivals` and builds it.
    #[arg(long, env = "BENCH_RIVALS", hide_env_values = true)]
    rivals_program: Option<PathBuf>,
    /// Draw what was measured into this directory.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Print the names of the works and do none.
    #[arg(long)]
    list: bool,
    /// Where to write; beside this program unless given. Its file system is what is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl EmbeddedArgs {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    fn sizes(&self) -> cases::Sizes {
        cases::Sizes {
            seconds: self.seconds.unwrap_or(if self.quick { 0.3 } else { 1.0 }),
            sustained_seconds: self.sustained_seconds.unwrap_or(if self.quick {
                5.0
            } else {
                60.0
            }),
            topics: self.topics,
            every: self.every,
        }
    }
}

/// Runs all cases.
pub(crate) fn run(args: &EmbeddedArgs) -> Result<()> {
    let place = Place {
        base: crate::base_dir(args.dir.as_deref())?,
        rivals: args.rivals_program.as_deref(),
    };
    let mut cases = cases::cases(&args.sizes());
    cases.retain(|case| case.full_name().contains(&args.only));
    let mut lines = Vec::new();
    for case in &mut cases {
        case.keep_rivals(|name| place.has(name));
        if args.list {
            println!("{}", case.full_name());
            continue;
        }
        for line in compare(case, args.rounds(), &place)? {
            line.print(args.json)?;
            lines.push(serde_json::to_value(&line)?);
        }
    }
    match &args.plots {
        Some(dir) => plot::draw(&lines, "", dir),
        None => Ok(()),
    }
}

/// What each side measured: ours first, then the rivals, a list of rounds of each.
type Rounds = Vec<Vec<Measured>>;

fn compare(case: &Case, rounds: usize, place: &Place<'_>) -> Result<Vec<Line>> {
    let rounds = if matches!(case.work.kind, Kind::Sustained { .. }) { 1 } else { rounds };
    let works: Vec<&Work> =
        std::iter::once(&case.work).chain(case.rivals.iter().map(|rival| &rival.work)).collect();
    let mut results: Rounds = vec![Vec::new(); works.len()];
    for _ in 0..rounds {
        for (side, (work, results)) in works.iter().zip(&mut results).enumerate() {
            match place.measure(work) {
                Err(error) if side > 0 => {
                    let name = case.full_name();
                    eprintln!("{name}: {} gives no result: {error:#}", work.engine.text());
                }
                measured => results.push(measured?),
            }
        }
    }
    Ok(case.views.iter().flat_map(|view| lines(case, view, &results)).collect())
}

fn lines(case: &Case, view: &View, results: &Rounds) -> Vec<Line> {
    let work = format!("{}, {}", case.name, view.what);
    let durability = case.work.level.text();
    let subject = Subject { work: &work, durability, unit: view.unit, better: view.better };
    let figures = |side: usize, scale: f64| -> Vec<f64> {
        results[side].iter().map(|measured| (view.figure)(measured) * scale).collect()
    };
    let seconds = |side: usize| {
        let last = results[side].last().filter(|_| view.has_seconds);
        last.map(|measured| measured.seconds.clone()).unwrap_or_default()
    };
    let ours = figures(0, 1.0);
    let mut lines = Vec::new();
    for (at, rival) in case.rivals.iter().enumerate() {
        let side = at + 1;
        let Some(bar) = view.against(rival) else { continue };
        let theirs = figures(side, rival.scale);
        let line = Line::beside(&subject, &ours, rival.name, &theirs, bar);
        lines.push(line.with_seconds(&seconds(0), &seconds(side)));
    }
    if let Some(bar) = view.promised {
        lines.push(Line::alone(&subject, &ours).promised(bar));
    } else if lines.is_empty() {
        lines.push(Line::alone(&subject, &ours));
    }
    lines.into_iter().map(|line| line.of(cell(case, view))).collect()
}

fn cell(case: &Case, view: &View) -> Cell {
    let work = &case.work;
    let kind = match work.kind {
        Kind::Write => "write",
        Kind::Window { .. } => "window",
        Kind::Sustained { .. } => "sustained",
        Kind::Tail => "tail",
        Kind::Topics => "topics",
    };
    Cell {
        what: view.what,
        kind,
        writers: work.writers,
        streams: work.streams(),
        record_bytes: work.record_bytes,
        batch: work.batch,
    }
}
