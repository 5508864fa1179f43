//! `bench plot`: pictures and tables out of the lines that `bench embedded --json` printed. Owns which
//! charts there are; how one is drawn is in `plot/chart.rs`.

mod chart;
mod svg;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;

use chart::{Bars, Lines, Scale, Series};

/// The name of our side, as rivals have theirs.
const OURS: &str = "thetis";
/// Weakest first, as they stand in charts.
const LEVELS: [&str; 3] = ["memory", "os", "disk"];
/// Writers whose memory and CPU time are shown.
const WRITERS_OF_COSTS: u64 = 8;

/// Arguments of `bench plot`.
#[derive(Args, Debug)]
pub(crate) struct PlotArgs {
    /// What `bench embedded --json` printed.
    file: PathBuf,
    /// Where pictures and tables go.
    #[arg(long, default_value = "docs/benchmarks")]
    plots: PathBuf,
    /// A sentence for the head of the tables: which machine, which load, which day.
    #[arg(long, default_value = "")]
    note: String,
}

/// Draws a file.
pub(crate) fn run(args: &PlotArgs) -> Result<()> {
    let name = args.file.display();
    let text = fs::read_to_string(&args.file).with_context(|| format!("could not read {name}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines: Result<Vec<Value>> = lines
        .map(|(at, line)| {
            serde_json::from_str(line).with_context(|| format!("{name}:{}: not JSON", at + 1))
        })
        .collect();
    draw(&lines?, &args.note, &args.plots)
}

/// Draws lines; a chart that none of them belongs to is not drawn.
pub(crate) fn draw(lines: &[Value], note: &str, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("could not make {}", dir.display()))?;
    for (name, text) in pages(lines, note) {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(())
}

/// Every file and what is in it.
fn pages(lines: &[Value], note: &str) -> Vec<(String, String)> {
    let mut pages = vec![("embedded.md".to_owned(), table::markdown(lines, note))];
    for level in LEVELS {
        let rates = rate_by_writers(lines, level).map(|chart| chart.draw());
        pages.extend(rates.map(|chart| (format!("rate-{level}.svg"), chart)));
        let latency = latency_by_writers(lines, level).map(|chart| chart.draw());
        pages.extend(latency.map(|chart| (format!("latency-{level}.svg"), chart)));
        for (name, chart) in sustained(lines, level) {
            pages.push((format!("{name}-{level}.svg"), chart.draw()));
        }
    }
    for (file, what, title, unit) in [
        ("memory.svg", "memory peak", "Memory at its peak, mapped files included", "MB"),
        ("cpu.svg", "CPU", "CPU time for each GB appended", "CPU s/GB"),
    ] {
        let costs = costs(lines, what, title, unit).map(|chart| chart.draw());
        pages.extend(costs.map(|chart| (file.to_owned(), chart)));
    }
    pages
}

/// Lines about one figure of single appends of 1 KiB to a stream of each writer.
fn base<'a>(lines: &'a [Value], level: &'a str, what: &'a str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| {
        let cell = &line["cell"];
        line["durability"] == level
            && cell["what"] == what
            && cell["kind"] == "write"
            && cell["record_bytes"] == 1024
            && cell["batch"] == 1
            && cell["streams"] == cell["writers"]
            // A row of its own, beside something else than the same work.
            && line["rival_name"] != "8 per flush"
    })
}

/// For each side, in the order in which they come, its figures by the number of writers.
fn by_writers<'a>(lines: impl Iterator<Item = &'a Value>) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut sides: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for line in lines {
        let Some(writers) = line["cell"]["writers"].as_f64() else { continue };
        let rival = line["rival_name"].as_str().unwrap_or_default();
        for (name, figure) in [(OURS, &line["ours"]), (rival, &line["rival"])] {
            // A rival that failed has no figure.
            let Some(figure) = figure.as_f64() else { continue };
            let at = sides.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                sides.push((name.to_owned(), Vec::new()));
                sides.len() - 1
            });
            let points = &mut sides[at].1;
            if points.iter().all(|(known, _)| *known != writers) {
                points.push((writers, figure));
            }
        }
    }
    // Known only for one writer, and so no line.
    sides.retain(|(_, points)| points.len() > 1);
    // Works may have been run in any order.
    sides.iter_mut().for_each(|(_, points)| points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    sides
}

fn xs_and_ys(series: &[Series]) -> (Vec<f64>, Vec<f64>) {
    let mut xs: Vec<f64> = series.iter().flat_map(|one| &one.points).map(|point| point.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    (xs, series.iter().flat_map(|one| &one.points).map(|point| point.1).collect())
}

fn rate_by_writers(lines: &[Value], level: &str) -> Option<Lines> {
    let sides = by_writers(base(lines, level, "rate"));
    let series: Vec<Series> =
        sides.into_iter().map(|(name, points)| Series { name, points, is_dashed: false }).collect();
    let (xs, ys) = xs_and_ys(&series);
    (!series.is_empty()).then(|| Lines {
        title: format!("Appends at {level}, by threads"),
        note: "1 KiB records, a stream for each thread; more is better".into(),
        x_label: "threads that append".into(),
        y_label: "records/s".into(),
        x: Scale::doublings(&xs),
        y: Scale::from_zero(ys.into_iter().fold(0.0, f64::max)),
        series,
    })
}

fn latency_by_writers(lines: &[Value], level: &str) -> Option<Lines> {
    let mut series = Vec::new();
    for (what, is_dashed) in [("append p50", false), ("append p99", true)] {
        for (name, points) in by_writers(base(lines, level, what)) {
            series.push(Series { name, points, is_dashed });
        }
    }
    let (xs, ys) = xs_and_ys(&series);
    (!series.is_empty()).then(|| Lines {
        title: format!("Time of an append at {level}, by threads"),
        note: "1 KiB; solid and filled: p50; dashed and hollow: p99; less is better".into(),
        x_label: "threads that append".into(),
        y_label: "us (log)".into(),
        x: Scale::doublings(&xs),
        y: Scale::decades(&ys),
        series,
    })
}

/// Rate and p99 of each second, where there are seconds.
fn sustained(lines: &[Value], level: &str) -> Vec<(&'static str, Lines)> {
    let found = lines.iter().find(|line| {
        line["durability"] == level && !line["ours_seconds"].as_array().is_none_or(Vec::is_empty)
    });
    let Some(line) = found else { return Vec::new() };
    let record_bytes = line["cell"]["record_bytes"].as_f64().unwrap_or_default();
    let rival = line["rival_name"].as_str().unwrap_or_default();
    let series = |field: &str, scale: f64| -> Vec<Series> {
        [(OURS, "ours_seconds"), (rival, "rival_seconds")]
            .into_iter()
            .map(|(name, side)| Series {
                name: name.to_owned(),
                points: (1..)
                    .zip(line[side].as_array().into_iter().flatten())
                    .map(|(second, one)| {
                        (f64::from(second), one[field].as_f64().unwrap_or_default() * scale)
                    })
                    .collect(),
                is_dashed: false,
            })
            .collect()
    };
    let chart = |title: String, y_label: &str, series: Vec<Series>, is_log: bool| {
        let (xs, ys) = xs_and_ys(&series);
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let y = if is_log { Scale::decades(&ys) } else { Scale::from_zero(most(&ys)) };
        Lines {
            title,
            note: "1 writer, batches of 256 x 1 KiB, the newest 8 GiB are kept".into(),
            x_label: "second".into(),
            y_label: y_label.into(),
            x: Scale::from_zero(most(&xs)),
            y,
            series,
        }
    };
    let rates = series("records_per_s", record_bytes / 1e6);
    let p99 = series("p99_us", 1.0);
    vec![
        ("sustained", chart(format!("Sustained, each second, at {level}"), "MB/s", rates, false)),
        (
            "sustained-p99",
            chart(
                format!("Sustained, p99 of each second, at {level}"),
                "us of a batch (log)",
                p99,
                true,
            ),
        ),
    ]
}

fn costs(lines: &[Value], what: &str, title: &str, unit: &str) -> Option<Bars> {
    let mut groups = Vec::new();
    for level in LEVELS {
        let mut bars: Vec<(String, f64)> = Vec::new();
        let of_level = base(lines, level, what);
        for line in of_level.filter(|line| line["cell"]["writers"] == WRITERS_OF_COSTS) {
            let rival = line["rival_name"].as_str().unwrap_or_default();
            for (name, figure) in [(OURS, &line["ours"]), (rival, &line["rival"])] {
                let is_new = bars.iter().all(|(known, _)| known != name);
                if let Some(figure) = figure.as_f64().filter(|_| is_new) {
                    bars.push((name.to_owned(), figure));
                }
            }
        }
        if !bars.is_empty() {
            groups.push((level.to_owned(), bars));
        }
    }
    (!groups.is_empty()).then(|| Bars {
        title: title.to_owned(),
        note: format!("{WRITERS_OF_COSTS} threads, 1 KiB; less is better"),
        y_label: unit.to_owned(),
        groups,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(
        level: &str,
        what: &str,
        writers: u64,
        rival: &str,
        figures: (f64, Option<f64>),
    ) -> Value {
        json!({
            "work": format!("{writers} writers, {what}"), "durability": level, "unit": "records/s",
            "ours": figures.0, "rival": figures.1, "rival_name": rival, "ratio": null,
            "cell": {"what": what, "kind": "write", "writers": writers, "streams": writers,
                "record_bytes": 1024, "batch": 1},
        })
    }

    #[test]
    fn a_side_is_a_line_by_the_number_of_threads() {
        let lines = [
            line("os", "rate", 1, "device", (10.0, Some(5.0))),
            line("os", "rate", 1, "walrus", (10.0, Some(4.0))),
            line("os", "rate", 2, "device", (20.0, Some(6.0))),
            line("os", "rate", 2, "walrus", (20.0, None)),
            line("disk", "rate", 2, "device", (99.0, Some(99.0))),
            line("os", "append p50", 2, "device", (99.0, Some(99.0))),
            line("os", "rate", 8, "8 per flush", (99.0, Some(99.0))),
        ];
        let sides = by_writers(base(&lines, "os", "rate"));
        let expected = [
            ("thetis".to_owned(), vec![(1.0, 10.0), (2.0, 20.0)]),
            ("device".to_owned(), vec![(1.0, 5.0), (2.0, 6.0)]),
        ];
        assert_eq!(sides, expected, "walrus has one point and so no line");
        let backwards =
            by_writers(base(&lines, "os", "rate").collect::<Vec<_>>().into_iter().rev());
        assert!(backwards.iter().all(|(_, points)| points.is_sorted_by_key(|point| point.0)));
        assert_eq!(backwards.len(), 2);
    }

    #[test]
    fn every_page_is_there_and_well_formed() {
        let mut lines = Vec::new();
        for level in LEVELS {
            for what in ["rate", "append p50", "append p99", "memory peak", "CPU"] {
                for writers in [1, 8] {
                    lines.push(line(level, what, writers, "walrus", (10.0, Some(5.0))));
                }
            }
            let second = json!({"records_per_s": 5.0, "p50_us": 1.0, "p99_us": 2.0});
            let mut sustained = line(level, "rate", 1, "device", (5.0, Some(5.0)));
            sustained["cell"]["kind"] = "sustained".into();
            sustained["ours_seconds"] = json!([second, second]);
            sustained["rival_seconds"] = json!([second]);
            lines.push(sustained);
        }
        let dir = tempfile::tempdir().unwrap();
        draw(&lines, "a note", dir.path()).unwrap();
        let pages = pages(&lines, "a note");
        assert_eq!(pages.len(), 1 + 3 * 4 + 2);
        for (name, text) in pages {
            assert_eq!(fs::read_to_string(dir.path().join(&name)).unwrap(), text);
            assert!(name.ends_with(".md") || svg::is_well_formed(&text), "{name}");
        }
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(pages(&[], "").len(), 1, "the table");
    }
}
