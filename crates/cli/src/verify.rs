//! `thetis verify`: reads every byte of a journal and says what is wrong. Owns the progress bar and
//! the words; what is right and wrong is decided in the journal's crate.

use std::io::{self, IsTerminal};
use std::path::Path;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use thetis_journal::verify::{Finding, FindingKind, Progress, Report};

use crate::data::DataArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};

/// Arguments of `thetis verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads and changes nothing, and takes no lock. Beside a running node the end of the newest file may
look torn. Exits with 3 when something is damaged or missing; a torn tail alone is what a crash
leaves and no damage.")]
pub(crate) struct VerifyArgs {
    /// Print each finding, then a summary, as lines of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

/// A line under `--json`: findings first, one summary last. Fields are only added.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Finding {
        kind: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        file: &'a str,
        at: u64,
        bytes: u64,
        stream: Option<u64>,
        start: Option<u64>,
        end: Option<u64>,
        why: &'a str,
    },
    Summary {
        sound: bool,
        files: usize,
        bytes: u64,
        frames: u64,
        entries: u64,
        streams: usize,
        findings: usize,
    },
}

/// Verifies a journal.
pub(crate) fn run(config: Option<&Path>, args: &VerifyArgs) -> Result<Exit, Failure> {
    let disk = args.data.journal(config)?;
    let bar = bar();
    let report = thetis_journal::verify::verify(&disk, |progress| advance(&bar, progress));
    bar.finish_and_clear();
    let report = report.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    if args.json {
        output::json(report.findings.iter().map(line).chain([summary(&report)]))?;
    } else {
        output::text(&text(&report))?;
    }
    Ok(if report.is_sound() { Exit::Done } else { Exit::Damaged })
}

/// A bar on stderr; hidden when nobody looks.
fn bar() -> ProgressBar {
    let target = if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("verifying {bar:32} {pos}/{len} files  {msg}")
        .expect("the template is a constant that the tests draw");
    ProgressBar::with_draw_target(Some(0), target).with_style(style)
}

fn advance(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.files_total.try_into().unwrap_or(u64::MAX));
    bar.set_position(progress.files.try_into().unwrap_or(u64::MAX));
    bar.set_message(output::bytes(progress.bytes));
}

fn kind_name(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Damage => "damage",
        FindingKind::Torn => "torn",
        FindingKind::Index => "index",
        FindingKind::Gap => "gap",
        FindingKind::Order => "order",
    }
}

fn line(finding: &Finding) -> Line<'_> {
    Line::Finding {
        kind: kind_name(finding.kind),
        file: &finding.file,
        at: finding.at,
        bytes: finding.len,
        stream: finding.stream.map(|stream| stream.0),
        start: finding.range.map(|range| range.start.0),
        end: finding.range.map(|range| range.end.0),
        why: &finding.why,
    }
}

fn summary(report: &Report) -> Line<'static> {
    Line::Summary {
        sound: report.is_sound(),
        files: report.files,
        bytes: report.bytes,
        frames: report.frames,
        entries: report.entries,
        streams: report.streams.len(),
        findings: report.findings.len(),
    }
}

/// The findings as a table, then one line on the whole.
fn text(report: &Report) -> String {
    let mut text = String::new();
    if !report.findings.is_empty() {
        let mut table =
            Table::new(&["FINDING", "FILE", "BYTE", "LENGTH", "STREAM", "OFFSETS", "WHY"]);
        let dash = || "-".to_owned();
        for finding in &report.findings {
            let named = !finding.file.is_empty();
            table.row([
                kind_name(finding.kind).to_owned(),
                if named { finding.file.clone() } else { dash() },
                if named { finding.at.to_string() } else { dash() },
                if named { finding.len.to_string() } else { dash() },
                finding.stream.map_or_else(dash, |stream| stream.to_string()),
                finding.range.map_or_else(dash, |range| range.to_string()),
                finding.why.clone(),
            ]);
        }
        text = table.text();
        text.push('\n');
    }
    let verdict = if report.is_sound() { "sound" } else { "DAMAGED" };
    text.push_str(&format!(
        "{verdict}: {} files, {}, {} entries of {} streams, {} findings\n",
        report.files,
        output::bytes(report.bytes),
        report.entries,
        report.streams.len(),
        report.findings.len(),
    ));
    text
}

#[cfg(test)]
mod tests {
    use thetis_types::{Offset, OffsetRange, StreamId};

    use super::*;

    fn report(kind: FindingKind) -> Report {
        let finding = Finding {
            kind,
            file: "j".to_owned(),
            at: 4096,
            len: 64,
            stream: Some(StreamId(7)),
            range: Some(OffsetRange::at(Offset(3), 2)),
            why: "checksum".to_owned(),
        };
        Report { files: 1, bytes: 1 << 20, findings: vec![finding], ..Report::default() }
    }

    #[test]
    fn the_progress_template_is_valid() {
        advance(&bar(), Progress { files: 1, files_total: 2, bytes: 3 });
    }

    #[test]
    fn findings_name_file_stream_and_offsets() {
        let text = text(&report(FindingKind::Damage));
        assert!(text.contains("damage   j     4096      64  s7      [o3, o5)  checksum"), "{text}");
        assert!(text.ends_with("DAMAGED: 1 files, 1.0 MiB, 0 entries of 0 streams, 1 findings\n"));
    }

    #[test]
    fn json_lines_are_stable() {
        let report = report(FindingKind::Gap);
        assert_eq!(
            serde_json::to_string(&line(&report.findings[0])).unwrap(),
            "{\"type\":\"finding\",\"kind\":\"gap\",\"file\":\"j\",\"at\":4096,\"bytes\":64,\
             \"stream\":7,\"start\":3,\"end\":5,\"why\":\"checksum\"}"
        );
        let summary = serde_json::to_value(summary(&report)).unwrap();
        assert_eq!(summary["type"], "summary");
        assert_eq!(summary["sound"], false);
    }
}
