//! Reading everything and believing nothing: every header, payload, filler and footer of a journal
//! directory, and whether each stream is dense. No lock, nothing written, nothing repaired.

use std::collections::{BTreeMap, HashMap};
use std::io;

use thetis_types::{Epoch, Offset, OffsetRange, StreamId};

use crate::disk::{Disk, read_vec};
use crate::error::OpenError;
use crate::format::file;
use crate::format::footer::{self, Footer, Row, RunRecord};
use crate::format::frame::{FrameHeader, Kind};
use crate::format::{all_zero, block_ceil};
use crate::index::{Index, Run};
use crate::recover::{
    Candidate, Content, Damage, RecoveredStream, Recovery, TornTail, Verdict, examine, judge,
    scanned_runs,
};
use crate::scan::{Scan, ScanError, scan};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FindingKind {
    /// Bytes that were durable are damaged.
    Damage,
    /// A tail that a crash tore and the next open will cut. Nobody was promised these bytes.
    Torn,
    /// A footer contradicts the frames it lists.
    Index,
    /// Offsets of a stream are in no file, although later ones are.
    Gap,
    /// Versions, epochs or byte counts of a stream do not follow one another.
    Order,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// The file; empty for findings about a stream as a whole.
    pub file: String,
    /// First byte in the file.
    pub at: u64,
    /// Bytes of it.
    pub len: u64,
    /// The stream, when known.
    pub stream: Option<StreamId>,
    /// The offsets, when known.
    pub range: Option<OffsetRange>,
    /// What contradicts.
    pub why: String,
}

/// How far a verification is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Files read.
    pub files: usize,
    /// Files to read in all.
    pub files_total: usize,
    /// Bytes read.
    pub bytes: u64,
}

/// What a verification saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Files read.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Good frames, pads included.
    pub frames: u64,
    /// Good entries, copies included.
    pub entries: u64,
    /// All streams, with their heads.
    pub streams: Vec<RecoveredStream>,
    /// What is wrong, file by file, then stream by stream.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong. A torn tail is what a crash leaves and no wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.kind == FindingKind::Torn)
    }
}

/// Verifies the journal on `disk`. On a journal in use, the end of the last file may be seen torn.
///
/// # Errors
/// [`OpenError`] when the disk fails or a file is of a newer format.
pub fn verify(disk: &dyn Disk, mut progress: impl FnMut(Progress)) -> Result<Report, OpenError> {
    let names = disk.list().map_err(OpenError::io("listing the directory"))?;
    let mut sequences: Vec<u64> = names.iter().filter_map(|it| file::sequence(it)).collect();
    sequences.sort_unstable();
    let files_total = sequences.len();
    let mut report = Report::default();
    let mut recovery = Recovery::default();
    let mut candidates = Vec::new();
    for sequence in sequences {
        candidates.extend(examine(disk, sequence, &mut recovery)?);
    }
    let verdicts = judge(&candidates, &mut recovery);
    report.findings.extend(recovery.damage.iter().map(Finding::damage));
    report.findings.extend(recovery.cut.iter().map(Finding::torn));
    let mut streams = BTreeMap::new();
    // What stands behind a torn place goes with it at the next open.
    let whole = verdicts.iter().position(|verdict| verdict.cut.is_some());
    let whole = whole.map_or(candidates.len(), |torn| torn + 1);
    for (candidate, verdict) in candidates.iter().zip(&verdicts).take(whole) {
        verify_file(candidate, verdict, &mut report, &mut streams)?;
        report.files += 1;
        report.bytes += candidate.file.disk_bytes();
        progress(Progress { files: report.files, files_total, bytes: report.bytes });
    }
    for (id, index) in streams {
        verify_stream(id, index, &mut report);
    }
    Ok(report)
}

impl Finding {
    fn damage(damage: &Damage) -> Finding {
        Finding {
            kind: FindingKind::Damage,
            file: damage.file.clone(),
            at: damage.at,
            len: damage.len,
            stream: damage.lost.map(|(stream, _)| stream),
            range: damage.lost.map(|(_, range)| range),
            why: damage.why.clone(),
        }
    }

    fn torn(cut: &TornTail) -> Finding {
        Finding {
            kind: FindingKind::Torn,
            file: cut.file.clone(),
            at: cut.at,
            len: cut.bytes,
            stream: None,
            range: None,
            why: "torn tail; the next open cuts it".to_owned(),
        }
    }
}

fn verify_file(
    candidate: &Candidate,
    verdict: &Verdict,
    report: &mut Report,
    streams: &mut BTreeMap<StreamId, Index>,
) -> Result<(), OpenError> {
    let (own, flaws);
    let mut verdict = verdict;
    let scan = match &candidate.content {
        Content::Scanned(scan) => scan,
        Content::Sealed(footer) => {
            let id = candidate.file.header.id;
            own = match scan(&*candidate.io, id, Some(footer.data_end)) {
                Ok(scan) => scan,
                Err(ScanError::Io(error)) => return Err(OpenError::io("scanning a file")(error)),
                Err(ScanError::Unsupported(flaw)) => {
                    let file = candidate.file.name();
                    return Err(OpenError::Unsupported { file, flaw });
                }
            };
            report_flaws(candidate, footer, &own, report);
            let checked = verify_footer(candidate, footer, &own, report);
            checked.map_err(OpenError::io("reading a footer"))?;
            // Damaged entries are reported as such, not again as gaps.
            flaws = Verdict { fenced: own.flaws.clone(), cut: None };
            verdict = &flaws;
            &own
        }
    };
    let kept = scan.frames.iter().filter(|(at, _)| verdict.cut.is_none_or(|cut| *at < cut));
    for (_, header) in kept {
        report.frames += 1;
        report.entries += u64::from(header.kind.is_entry());
    }
    for ((id, _), runs) in scanned_runs(&candidate.file, scan, verdict) {
        streams.entry(id).or_default().runs.extend(runs);
    }
    for (id, trim) in candidate.file.trims.lock().iter() {
        let index = streams.entry(*id).or_default();
        index.trim = index.trim.max(*trim);
    }
    Ok(())
}

/// Flaws among the frames of a sealed file, except those it says were fenced off before.
fn report_flaws(candidate: &Candidate, footer: &Footer, scan: &Scan, report: &mut Report) {
    for flaw in &scan.flaws {
        let known = footer
            .fences
            .iter()
            .any(|fence| fence.at <= flaw.at && flaw.at + flaw.bytes <= fence.at + fence.bytes);
        if known {
            continue;
        }
        let lost = flaw.header.filter(|header| header.kind.is_entry());
        report.findings.push(Finding {
            kind: FindingKind::Damage,
            file: candidate.file.name(),
            at: flaw.at,
            len: flaw.bytes,
            stream: lost.map(|header| header.stream),
            range: lost.map(|it| OffsetRange::at(it.base_offset, u64::from(it.record_count))),
            why: flaw.why.to_owned(),
        });
    }
}

/// Compares a footer, row by row, with the frames of its file.
fn verify_footer(
    candidate: &Candidate,
    footer: &Footer,
    scan: &Scan,
    report: &mut Report,
) -> io::Result<()> {
    let file = candidate.file.name();
    let mut find = |at: u64, len: u64, run: Option<&RunRecord>, why: &str| {
        report.findings.push(Finding {
            kind: FindingKind::Index,
            file: file.clone(),
            at,
            len,
            stream: run.map(|run| run.stream),
            range: run.map(|run| OffsetRange { start: run.first, end: run.end }),
            why: why.to_owned(),
        });
    };
    let fenced = |at: u64| scan.flaws.iter().any(|it| it.at <= at && at < it.at + it.bytes);
    let (bytes, end) = (candidate.file.disk_bytes(), footer.data_end);
    // Zeros up to the footer, then its head.
    let footer_at = block_ceil(end);
    if footer_at + footer::HEAD as u64 > bytes {
        find(end, bytes.saturating_sub(end), None, "no room for a footer where it should stand");
        return Ok(());
    }
    if !all_zero(&read_vec(&*candidate.io, end, footer_at - end)?) {
        find(end, footer_at - end, None, "bytes before the footer are not zero");
    }
    let head = read_vec(&*candidate.io, footer_at, footer::HEAD as u64)?;
    if footer::decode_head(&head, candidate.file.header.id) != Some(bytes - footer_at) {
        find(footer_at, footer::HEAD as u64, None, "the footer's head is damaged");
    }
    let mut entries: HashMap<u64, &FrameHeader> = HashMap::new();
    let frames = scan.frames.iter().filter(|(_, header)| header.kind.is_entry());
    entries.extend(frames.map(|(at, header)| (*at, header)));
    for run in &footer.runs {
        let len = u64::from(run.rows) * footer::ROW as u64;
        let rows = match Row::decode_all(&read_vec(&*candidate.io, run.rows_at, len)?, run) {
            Ok(rows) => rows,
            Err(flaw) => {
                find(run.rows_at, len, Some(run), &flaw.to_string());
                continue;
            }
        };
        let mut stream_bytes = run.bytes_before;
        for (place, row) in rows.iter().enumerate() {
            stream_bytes += u64::from(row.payload_bytes);
            match entries.remove(&row.at) {
                Some(header) if matches(run, row, place, stream_bytes, header) => {}
                None if fenced(row.at) => {}
                _ => find(row.at, 0, Some(run), "a row of the footer fits no frame"),
            }
        }
    }
    let mut unlisted: Vec<_> =
        entries.into_iter().filter(|(_, header)| header.kind == Kind::Entry).collect();
    unlisted.sort_by_key(|(at, _)| *at);
    for (at, header) in unlisted {
        let why = format!("{} of {} is not in the footer", header.base_offset, header.stream);
        find(at, header.bytes(), None, &why);
    }
    Ok(())
}

fn matches(
    run: &RunRecord,
    row: &Row,
    place: usize,
    stream_bytes: u64,
    header: &FrameHeader,
) -> bool {
    header.stream == run.stream
        && header.epoch == run.epoch
        && header.version.0 == run.first_version.0 + place as u64
        && header.base_offset == row.base
        && header.record_count == row.record_count
        && header.payload_bytes == row.payload_bytes
        && header.max_timestamp == row.max_timestamp
        && header.stream_bytes == stream_bytes
        && (header.kind == Kind::Relocated) == run.relocated
}

/// Whether the stream is dense from its first live offset to its head, and its versions, epochs
/// and byte counts with it.
fn verify_stream(id: StreamId, mut index: Index, report: &mut Report) {
    index.settle();
    let Some(head) = index.head else { return };
    let mut find = |kind, range: OffsetRange, why: String| {
        report.findings.push(Finding {
            kind,
            file: String::new(),
            at: 0,
            len: 0,
            stream: Some(id),
            range: Some(range),
            why,
        });
    };
    for pair in index.runs.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let (end, first) = (before.record.end, after.record.first);
        if first > end {
            if first > index.trim {
                let range = OffsetRange { start: end.max(index.trim), end: first };
                find(FindingKind::Gap, range, "offsets are in no file".to_owned());
            }
            continue;
        }
        let range = OffsetRange { start: first, end: after.record.end };
        if after.record.epoch < before.record.epoch {
            let (was, is): (Epoch, Epoch) = (before.record.epoch, after.record.epoch);
            find(FindingKind::Order, range, format!("epoch {is} follows {was}"));
        }
        if first == end && !continues(before, after) {
            let why = format!("versions or bytes do not go on at {first}");
            find(FindingKind::Order, range, why);
        }
    }
    let start = index.runs.first().map_or(Offset(0), |run| run.record.first.max(index.trim));
    report.streams.push(RecoveredStream { stream: id, start: start.min(head.end), head });
}

fn continues(before: &Run, after: &Run) -> bool {
    let bytes = before.record.bytes_before + before.record.bytes;
    before.last_version().next() == after.record.first_version && bytes == after.record.bytes_before
}
