//! `bench embedded`: the library inside one process, beside the plain device and the Walrus engine.
//! Owns which works are compared and what was promised of each; doing one is in `embedded/work.rs`.
//!
//! ```text
//! round 1:  ours, rival, rival   round 2:  ours, rival, rival   ...   medians of the rounds
//! ```

mod engine;
mod work;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::report::{Bar, Better, Line, Subject};
use engine::{Level, Name};
pub(crate) use work::run as run_work;
use work::{Kind, Measured, Work};

/// Most that one work writes.
const BYTES_MAX: u64 = 1 << 30;

/// Arguments of `bench embedded`.
#[derive(Args, Debug)]
pub(crate) struct EmbeddedArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// How often each side does each work.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each writes.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Only works whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Where to write; beside this program unless given. Its file system is what is measured.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// A work and what of it is compared.
struct Case {
    name: &'static str,
    work: Work,
    views: Vec<View>,
}

/// One figure and the rivals it is held against.
struct View {
    what: &'static str,
    unit: &'static str,
    better: Better,
    figure: fn(&Measured) -> f64,
    rivals: Vec<(Name, Option<Bar>)>,
}

/// Runs all cases.
pub(crate) fn run(args: &EmbeddedArgs) -> Result<()> {
    let base = crate::base_dir(args.dir.as_deref())?;
    for case in cases(args.seconds) {
        if case.name.contains(&args.only) {
            compare(&case, args, &base)?;
        }
    }
    Ok(())
}

fn compare(case: &Case, args: &EmbeddedArgs, base: &Path) -> Result<()> {
    let mut engines = vec![Name::Thetis];
    for (rival, _) in case.views.iter().flat_map(|view| &view.rivals) {
        if !engines.contains(rival) {
            engines.push(*rival);
        }
    }
    let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); engines.len()];
    for _ in 0..args.rounds {
        for (engine, results) in engines.iter().zip(&mut rounds) {
            let measured = Work { engine: *engine, ..case.work.clone() }.measure(base);
            match measured {
                Err(error) if *engine != Name::Thetis => {
                    eprintln!("{}: {} gives no result: {error:#}", case.name, engine.text());
                }
                measured => results.push(measured?),
            }
        }
    }
    let figures = |name: Name, figure: fn(&Measured) -> f64| -> Vec<f64> {
        let results = engines.iter().position(|engine| *engine == name).map(|at| &rounds[at]);
        results.into_iter().flatten().map(figure).collect()
    };
    for View { what, unit, better, figure, rivals } in &case.views {
        let work = format!("{}, {what}", case.name);
        let durability = case.work.level.text();
        let subject = Subject { work: &work, durability, unit, better: *better };
        let ours = figures(Name::Thetis, *figure);
        for (rival, bar) in rivals {
            let theirs = figures(*rival, *figure);
            Line::beside(&subject, &ours, rival.text(), &theirs, *bar).print(args.json)?;
        }
        if rivals.is_empty() {
            Line::alone(&subject, &ours).print(args.json)?;
        }
    }
    Ok(())
}

fn rate(rivals: &[(Name, Option<Bar>)]) -> View {
    let figure = |measured: &Measured| measured.records_per_s;
    View { what: "rate", unit: "records/s", better: Better::More, figure, rivals: rivals.to_vec() }
}

fn latency(
    what: &'static str,
    figure: fn(&Measured) -> f64,
    rivals: &[(Name, Option<Bar>)],
) -> View {
    View { what, unit: "us", better: Better::Less, figure, rivals: rivals.to_vec() }
}

fn cases(seconds: f64) -> Vec<Case> {
    let work = |level: Level, writers: usize, record_bytes: usize| Work {
        engine: Name::Thetis,
        level,
        kind: Kind::Write,
        writers,
        one_stream: false,
        record_bytes,
        batch: 1,
        seconds,
        bytes_max: BYTES_MAX,
    };
    let mut cases = disk_cases(&work);
    cases.extend(os_cases(&work));
    cases
}

fn disk_cases(work: &dyn Fn(Level, usize, usize) -> Work) -> Vec<Case> {
    use Name::{Device, DevicePrewritten, Walrus};
    let p50 = |measured: &Measured| measured.append_p50_us;
    let p99 = |measured: &Measured| measured.append_p99_us;
    let disk = |writers| work(Level::Disk, writers, 1024);
    let with_flush = [(Walrus, None), (Device, None)];
    vec![
        Case {
            name: "1 writer, 1 KiB",
            work: disk(1),
            views: vec![
                latency(
                    "append p50",
                    p50,
                    &[(Device, Some(Bar::at_most(1.3))), (DevicePrewritten, None), (Walrus, None)],
                ),
                latency("append p99", p99, &[(Device, None), (Walrus, None)]),
            ],
        },
        Case {
            name: "8 writers, 1 KiB",
            work: disk(8),
            views: vec![rate(&with_flush), latency("append p99", p99, &[(Walrus, None)])],
        },
        Case {
            name: "8 writers on one stream, 1 KiB",
            work: Work { one_stream: true, ..disk(8) },
            views: vec![rate(&with_flush)],
        },
        Case {
            name: "64 writers, 1 KiB",
            work: disk(64),
            views: vec![
                rate(&[(Walrus, Some(Bar::at_least(3.0)))]),
                latency("append p99", p99, &[(Walrus, None)]),
            ],
        },
        Case {
            name: "1 writer, batches of 256 x 1 KiB",
            work: Work { batch: 256, ..disk(1) },
            views: vec![rate(&with_flush)],
        },
    ]
}

fn os_cases(work: &dyn Fn(Level, usize, usize) -> Work) -> Vec<Case> {
    use Name::{Device, Walrus, WalrusMmap};
    let os = |writers, bytes| work(Level::Os, writers, bytes);
    let beside_walrus = [(Walrus, None), (WalrusMmap, None)];
    let bar = Some(Bar::at_least(1.5));
    let read = |measured: &Measured| measured.read_mb_per_s;
    let reading = View {
        what: "then reading it",
        unit: "MB/s",
        better: Better::More,
        figure: read,
        rivals: vec![(Walrus, None), (WalrusMmap, None), (Device, None)],
    };
    let with_device = [(Walrus, None), (WalrusMmap, None), (Device, None)];
    let case =
        |name, work, rivals: &[(Name, Option<Bar>)]| Case { name, work, views: vec![rate(rivals)] };
    let tail = |what, figure| latency(what, figure, &beside_walrus);
    vec![
        Case {
            name: "1 writer, 1 KiB",
            work: os(1, 1024),
            views: vec![rate(&with_device), reading],
        },
        case("2 writers, 1 KiB", os(2, 1024), &beside_walrus),
        case("4 writers, 1 KiB", os(4, 1024), &beside_walrus),
        case("8 writers, 1 KiB", os(8, 1024), &[(Walrus, bar), (WalrusMmap, bar)]),
        case(
            "8 writers on one stream, 1 KiB",
            Work { one_stream: true, ..os(8, 1024) },
            &beside_walrus,
        ),
        case("1 writer, 100 B", os(1, 100), &beside_walrus),
        case("8 writers, 100 B", os(8, 100), &beside_walrus),
        case("1 writer, 64 KiB", os(1, 64 << 10), &beside_walrus),
        case("8 writers, 64 KiB", os(8, 64 << 10), &beside_walrus),
        case("1 writer, batches of 256 x 1 KiB", Work { batch: 256, ..os(1, 1024) }, &with_device),
        Case {
            name: "a reader at the tail, 1 KiB",
            work: Work { kind: Kind::Tail, ..os(1, 1024) },
            views: vec![
                tail("append to read p50", |measured| measured.tail_p50_us),
                tail("append to read p99", |measured| measured.tail_p99_us),
            ],
        },
    ]
}
