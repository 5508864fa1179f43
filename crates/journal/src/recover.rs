//! Opening what is there: footers are read, files without one are scanned, a torn tail is cut,
//! damage is fenced off and kept.
//!
//! The rows `@A`.. are those of the crash table in `docs/formats/journal.md`, section 7. Only this
//! module decides which applies; [`Recovery::rows`] says which did.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thetis_types::{Head, Offset, OffsetRange, StreamId};

use crate::disk::{Disk, File, read_vec};
use crate::error::OpenError;
use crate::files::{Handles, JournalFile};
use crate::format::file::{self, FRAMES_AT, FileHeader};
use crate::format::footer::{Fence, Footer, TRAILER, Trailer};
use crate::format::frame::{FrameHeader, Kind};
use crate::format::{BLOCK, Flaw};
use crate::index::{Rows, Run, Streams, push_entry};
use crate::progress::{self, Progress};
use crate::scan::{Scan, ScanError, ScanFlaw, scan};
use crate::worker;

/// A row of the crash table in `docs/formats/journal.md`. Row @M is [`OpenError::Unsupported`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the table in docs/formats/journal.md is their text")]
pub enum CrashRow {
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
    I,
    J,
    K,
    L,
    N,
}

impl fmt::Display for CrashRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{self:?}")
    }
}

/// A stream found in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredStream {
    /// The stream.
    pub stream: StreamId,
    /// First offset of the first entry found; the owner's trim offset may be higher.
    pub start: Offset,
    /// Its head, from the last frame.
    pub head: Head,
}

/// A torn tail that was cut: bytes that were never promised to anybody.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TornTail {
    /// The file.
    pub file: String,
    /// Byte at which it was cut.
    pub at: u64,
    /// Bytes cut off.
    pub bytes: u64,
}

/// Bytes that were durable once and are damaged. They are fenced off and kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// First damaged byte.
    pub at: u64,
    /// Bytes of it.
    pub len: u64,
    /// The stream and offsets lost, when the frame's header tells.
    pub lost: Option<(StreamId, OffsetRange)>,
    /// What contradicts.
    pub why: String,
}

/// What an open found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// All streams with entries, by id.
    pub streams: Vec<RecoveredStream>,
    /// The torn tail that was cut, if there was one.
    pub cut: Option<TornTail>,
    /// All damage known; that found by an earlier open included.
    pub damage: Vec<Damage>,
    /// Files found.
    pub files: usize,
    /// Files without a valid footer, read from end to end.
    pub scanned_files: usize,
    /// Bytes of them.
    pub scanned_bytes: u64,
    /// The rows of the crash table that applied.
    pub rows: BTreeSet<CrashRow>,
}

/// What an open goes on with.
pub(crate) struct Found {
    pub(crate) recovery: Recovery,
    pub(crate) streams: Streams,
    pub(crate) files: BTreeMap<u64, Arc<JournalFile>>,
    /// Files that could not be sealed because the disk is full.
    pub(crate) unsealed: Vec<Arc<JournalFile>>,
    pub(crate) next_sequence: u64,
    pub(crate) next_base: u64,
}

/// One file as found.
pub(crate) struct Candidate {
    pub(crate) file: Arc<JournalFile>,
    pub(crate) io: Arc<dyn File>,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Sealed(Footer),
    Scanned(Scan),
}

/// What was decided about a scanned file.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Flaws that are damage.
    pub(crate) fenced: Vec<ScanFlaw>,
    /// Where to cut, if the tail is torn.
    pub(crate) cut: Option<u64>,
}

/// Recovers the journal on `disk`, whose lock is held.
pub(crate) fn recover(disk: &dyn Disk, handles: &Handles) -> Result<Found, OpenError> {
    progress::logging(|progress| recover_telling(disk, handles, progress))
}

fn recover_telling(
    disk: &dyn Disk,
    handles: &Handles,
    progress: &Progress,
) -> Result<Found, OpenError> {
    let mut recovery = Recovery::default();
    let mut sequences = list(disk, &mut recovery)?;
    sequences.sort_unstable();
    recovery.files = sequences.len();
    let next_sequence = sequences.last().map_or(1, |last| last + 1);
    progress.files_total.store(recovery.files, Ordering::Relaxed);
    let mut candidates = Vec::new();
    for sequence in sequences {
        candidates.extend(examine(disk, sequence, &mut recovery)?);
        progress.files.fetch_add(1, Ordering::Relaxed);
        progress.scanned_bytes.store(recovery.scanned_bytes, Ordering::Relaxed);
    }
    let next_base = candidates
        .iter()
        .map(|it| it.file.header.base.saturating_add(it.file.disk_bytes()).next_multiple_of(BLOCK))
        .max()
        .unwrap_or(0);
    let verdicts = judge(&candidates, &mut recovery);
    let (candidates, verdicts) = cut_behind(disk, candidates, verdicts, &mut recovery)?;
    let streams = Streams::default();
    let mut files = BTreeMap::new();
    let mut unsealed = Vec::new();
    let touched = index(&streams, &candidates, &verdicts);
    for ((candidate, verdict), touched) in candidates.iter().zip(&verdicts).zip(touched) {
        let file = &candidate.file;
        files.insert(file.header.sequence, Arc::clone(file));
        if let Content::Scanned(scan) = &candidate.content {
            let end = verdict.cut.unwrap_or_else(|| data_end(scan, verdict));
            seal(&streams, candidate, end, &touched, &mut unsealed)?;
        }
        handles.opened(file);
    }
    settle(&streams, &mut recovery);
    recovery.streams = recovered(&streams);
    log(&recovery);
    Ok(Found { recovery, streams, files, unsealed, next_sequence, next_base })
}

/// The sequence numbers of all files; removes what was being prepared.
fn list(disk: &dyn Disk, recovery: &mut Recovery) -> Result<Vec<u64>, OpenError> {
    let names = disk.list().map_err(OpenError::io("listing the directory"))?;
    let mut sequences = Vec::new();
    for name in names {
        if let Some(sequence) = file::sequence(&name) {
            sequences.push(sequence);
        } else if name.ends_with(file::TEMPORARY) {
            // CRASH(@I): never renamed, so never written to.
            recovery.rows.insert(CrashRow::I);
            disk.remove(&name).map_err(OpenError::io("removing an unfinished file"))?;
        }
    }
    Ok(sequences)
}

/// Reads a file's header and footer, or scans it; `None` when it must be left alone.
pub(crate) fn examine(
    disk: &dyn Disk,
    sequence: u64,
    recovery: &mut Recovery,
) -> Result<Option<Candidate>, OpenError> {
    let name = file::name(sequence);
    let io = disk.open(&name).map_err(OpenError::io("opening a file"))?;
    let bytes = io.len().map_err(OpenError::io("reading a file's length"))?;
    let unsupported = |flaw| OpenError::Unsupported { file: name.clone(), flaw };
    let header = match read_header(&*io, bytes, sequence) {
        Ok(Ok((header, None))) => header,
        Ok(Ok((header, Some(flaw)))) => {
            recovery.rows.insert(CrashRow::J);
            recovery.damage.push(damage(&name, 0, BLOCK, flaw.to_string()));
            header
        }
        Ok(Err(flaw @ Flaw::Unsupported { .. })) => return Err(unsupported(flaw)),
        Ok(Err(flaw)) => {
            // CRASH(@K): a file gets its name only after its header is durable, so this is damage.
            recovery.rows.insert(CrashRow::K);
            recovery.damage.push(damage(&name, 0, bytes, flaw.to_string()));
            return Ok(None);
        }
        Err(error) => return Err(OpenError::io("reading a file header")(error)),
    };
    let content = match read_footer(&*io, header.id, bytes) {
        Ok(Ok(footer)) => Content::Sealed(footer),
        Ok(Err(flaw @ Flaw::Unsupported { .. })) => return Err(unsupported(flaw)),
        Ok(Err(_)) => {
            recovery.scanned_files += 1;
            recovery.scanned_bytes += bytes;
            // PERF: the kernel then fetches it in large pieces, several at once: the end of a file
            // written directly is in no cache, and most of what is read.
            io.will_read(0..bytes);
            match scan(&*io, header.id, None) {
                Ok(scan) => Content::Scanned(scan),
                Err(ScanError::Unsupported(flaw)) => return Err(unsupported(flaw)),
                Err(ScanError::Io(error)) => return Err(OpenError::io("scanning a file")(error)),
            }
        }
        Err(error) => return Err(OpenError::io("reading a footer")(error)),
    };
    let file = Arc::new(JournalFile::new(header, Some(Arc::clone(&io))));
    file.size.store(bytes, Ordering::Release);
    if let Content::Sealed(footer) = &content {
        file.set_data_end(footer.data_end);
        file.sealed.store(true, Ordering::Release);
    }
    Ok(Some(Candidate { file, io, content }))
}

/// The header of a file of `bytes` bytes named by `sequence`, and what is wrong with one copy.
pub(crate) fn read_header(
    io: &dyn File,
    bytes: u64,
    sequence: u64,
) -> io::Result<Result<(FileHeader, Option<Flaw>), Flaw>> {
    if bytes < BLOCK {
        return Ok(Err(Flaw::Incomplete { missing: BLOCK - bytes }));
    }
    let block = read_vec(io, 0, BLOCK)?;
    Ok(FileHeader::decode(&block).and_then(|block| {
        if block.header.sequence == sequence {
            Ok((block.header, block.damaged))
        } else {
            Err(Flaw::Corrupt { at: 24, why: "the file has the name of another" })
        }
    }))
}

/// The footer of the file with this id, of `bytes` bytes.
pub(crate) fn read_footer(io: &dyn File, id: u64, bytes: u64) -> io::Result<Result<Footer, Flaw>> {
    let trailer_bytes = TRAILER as u64;
    if bytes < FRAMES_AT + trailer_bytes {
        return Ok(Err(Flaw::Incomplete { missing: FRAMES_AT + trailer_bytes - bytes }));
    }
    let trailer = read_vec(io, bytes - trailer_bytes, trailer_bytes)?;
    let trailer = match Trailer::decode(&trailer, id, bytes) {
        Ok(trailer) => trailer,
        Err(flaw) => return Ok(Err(flaw)),
    };
    // The trailer was checked against the file's length, so this is at most the file.
    let tables = read_vec(io, trailer.tables_at, bytes - trailer_bytes - trailer.tables_at)?;
    Ok(trailer.tables(&tables))
}

/// Decides about every flaw of every scanned file. Walks from the newest file to the oldest,
/// because what is newer proves what was durable before it.
pub(crate) fn judge(candidates: &[Candidate], recovery: &mut Recovery) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    let mut proven = 0; // journal position known to have been durable
    let mut follows = None; // what the next file says about where this one's frames end
    for candidate in candidates.iter().rev() {
        let header = candidate.file.header;
        let mut verdict = Verdict::default();
        match &candidate.content {
            Content::Sealed(footer) => {
                proven = proven.max(header.base + footer.data_end);
                follows = None;
                for fence in &footer.fences {
                    recovery.rows.insert(CrashRow::D);
                    let why = "fenced off by an earlier recovery".to_owned();
                    recovery.damage.push(damage(
                        &candidate.file.name(),
                        fence.at,
                        fence.bytes,
                        why,
                    ));
                }
            }
            Content::Scanned(scan) => {
                let ends = follows.filter(|(sequence, _)| *sequence == header.sequence);
                let ends = ends.map(|(_, end)| end);
                verdict = judge_file(candidate, scan, proven, ends, recovery);
                let marks = scan.durable_behind(0);
                proven = proven.max(marks);
                follows = scan.follows();
            }
        }
        verdicts.push(verdict);
    }
    verdicts.reverse();
    verdicts
}

fn judge_file(
    candidate: &Candidate,
    scan: &Scan,
    proven: u64,
    ends: Option<u64>,
    recovery: &mut Recovery,
) -> Verdict {
    let mut verdict = Verdict::default();
    let name = candidate.file.name();
    let base = candidate.file.header.base;
    if let Some((at, bytes)) = scan.footer {
        // A footer's head, but no valid footer: sealing did not finish, or it was damaged since.
        if at + bytes == scan.bytes {
            recovery.rows.insert(CrashRow::G);
            recovery.damage.push(damage(&name, at, bytes, "the footer is damaged".to_owned()));
        } else {
            recovery.rows.insert(CrashRow::F);
        }
    }
    for flaw in &scan.flaws {
        if ends.is_some_and(|end| flaw.at >= end) {
            // CRASH(@F): behind the last frame stands only a footer that was being written.
            recovery.rows.insert(CrashRow::F);
            break;
        }
        let evident = proven.max(scan.durable_behind(flaw.at)) > base + flaw.at;
        let row = match (evident, flaw.one_bit) {
            (true, _) => CrashRow::D,
            (false, true) => CrashRow::E,
            (false, false) => {
                let more = scan.frames.last().is_some_and(|(at, _)| *at > flaw.at);
                recovery.rows.insert(if more { CrashRow::C } else { CrashRow::B });
                let bytes = (scan.end.max(flaw.at + flaw.bytes)).saturating_sub(flaw.at);
                recovery.cut = Some(TornTail { file: name, at: flaw.at, bytes });
                verdict.cut = Some(flaw.at);
                return verdict;
            }
        };
        recovery.rows.insert(row);
        let mut found = damage(&name, flaw.at, flaw.bytes, flaw.why.to_owned());
        found.lost = flaw
            .header
            .filter(|it| it.kind.is_entry())
            .map(|it| (it.stream, OffsetRange::at(it.base_offset, u64::from(it.record_count))));
        recovery.damage.push(found);
        verdict.fenced.push(flaw.clone());
    }
    if scan.flaws.is_empty() {
        recovery.rows.insert(CrashRow::A);
    }
    let at = data_end(scan, &verdict);
    if let Some(end) = ends.filter(|end| *end > at) {
        // The next file knows of frames that are zeros here: lost before they were durable, or
        // after.
        let (bytes, why) = (end - at, "zeros where frames were");
        if proven > base + at {
            recovery.rows.insert(CrashRow::D);
            recovery.damage.push(damage(&name, at, bytes, why.to_owned()));
            verdict.fenced.push(ScanFlaw { at, bytes, why, header: None, one_bit: false });
        } else {
            recovery.rows.insert(CrashRow::C);
            recovery.cut = Some(TornTail { file: name, at, bytes });
            verdict.cut = Some(at);
        }
    }
    verdict
}

fn damage(file: &str, at: u64, len: u64, why: String) -> Damage {
    Damage { file: file.to_owned(), at, len, lost: None, why }
}

/// Byte after the last frame, good or fenced.
fn data_end(scan: &Scan, verdict: &Verdict) -> u64 {
    let fenced = verdict.fenced.iter().map(|flaw| flaw.at + flaw.bytes).max().unwrap_or(0);
    scan.end.max(fenced).next_multiple_of(8)
}

/// Removes files that hold nothing: unused ones, and all behind a cut. What stands behind a cut
/// was written while the bytes before it were not yet durable, so it was promised to nobody; kept,
/// it would leave a hole in its streams.
fn cut_behind(
    disk: &dyn Disk,
    candidates: Vec<Candidate>,
    verdicts: Vec<Verdict>,
    recovery: &mut Recovery,
) -> Result<(Vec<Candidate>, Vec<Verdict>), OpenError> {
    let mut kept = Vec::new();
    let mut removed = Vec::new();
    let mut behind_cut = false;
    for (candidate, verdict) in candidates.into_iter().zip(verdicts) {
        let empty = match &candidate.content {
            Content::Sealed(_) => false,
            Content::Scanned(scan) => scan.frames.is_empty() && verdict.fenced.is_empty(),
        };
        if behind_cut || empty {
            let row = if empty { CrashRow::H } else { CrashRow::L };
            recovery.rows.insert(row);
            removed.push(candidate.file.name());
            // A file of which nothing is left may still have held frames that were lost.
            behind_cut |= verdict.cut.is_some();
            continue;
        }
        behind_cut = verdict.cut.is_some();
        kept.push((candidate, verdict));
    }
    // CRASH(@L): from the newest back, each durably before the next, and all before the cut itself
    // is sealed. Only the first frame of a file tells that the one before ended in zeros that were
    // frames: with a file in the middle gone, the next open would take the later ones for whole.
    for name in removed.iter().rev() {
        disk.remove(name).map_err(OpenError::io("removing an unused file"))?;
        disk.sync_dir().map_err(OpenError::io("syncing the directory"))?;
    }
    Ok(kept.into_iter().unzip())
}

/// Fills the index from footers and scans; returns the streams each file holds.
fn index(streams: &Streams, candidates: &[Candidate], verdicts: &[Verdict]) -> Vec<Vec<StreamId>> {
    let mut all_touched = Vec::new();
    for (candidate, verdict) in candidates.iter().zip(verdicts) {
        let file = &candidate.file;
        let mut touched = Vec::new();
        match &candidate.content {
            Content::Sealed(footer) => {
                *file.trims.lock() = footer.trims.clone();
                *file.fences.lock() = footer.fences.clone();
                for record in &footer.runs {
                    let stream = streams.get_or_create(record.stream);
                    let (file, rows) = (Arc::clone(file), Rows::Footer);
                    stream.index.lock().runs.push(Run { file, record: *record, rows });
                }
            }
            Content::Scanned(scan) => {
                let fences = verdict.fenced.iter().map(|it| Fence { at: it.at, bytes: it.bytes });
                *file.fences.lock() = fences.collect();
                let runs = scanned_runs(file, scan, verdict);
                for ((id, _), runs) in runs {
                    streams.get_or_create(id).index.lock().runs.extend(runs);
                    touched.push(id);
                }
                touched.sort_unstable();
                touched.dedup();
            }
        }
        for (stream, trim) in file.trims.lock().iter() {
            let stream = streams.get_or_create(*stream);
            let mut index = stream.index.lock();
            index.trim = index.trim.max(*trim);
            if index.mark.is_none_or(|(marked, _)| marked <= *trim) {
                index.mark = Some((*trim, file.header.sequence));
            }
        }
        all_touched.push(touched);
    }
    all_touched
}

/// Puts each stream's runs in order, after the footers that list all of them are written.
fn settle(streams: &Streams, recovery: &mut Recovery) {
    for stream in streams.all() {
        let mut index = stream.index.lock();
        let found = index.runs.len();
        index.settle();
        if index.runs.len() < found {
            // CRASH(@N): copies were durable, or a removed file came back; both are the same bytes.
            recovery.rows.insert(CrashRow::N);
        }
    }
}

/// The runs of a scanned file, by stream, originals and copies apart.
pub(crate) fn scanned_runs(
    file: &Arc<JournalFile>,
    scan: &Scan,
    verdict: &Verdict,
) -> HashMap<(StreamId, Kind), Vec<Run>> {
    let cut = verdict.cut.unwrap_or(u64::MAX);
    // Damaged entries whose header is known are indexed too: a read of them says "damaged".
    let known = verdict.fenced.iter().filter_map(|flaw| Some((flaw.at, flaw.header?)));
    let good = scan.frames.iter().copied().filter(|(at, _)| *at < cut);
    let mut frames: Vec<(u64, FrameHeader)> = good.chain(known).collect();
    frames.sort_by_key(|(at, _)| *at);
    let mut runs: HashMap<(StreamId, Kind), Vec<Run>> = HashMap::new();
    let mut trims = Vec::new();
    for (at, header) in frames {
        match header.kind {
            Kind::Entry | Kind::Relocated => {
                push_entry(
                    runs.entry((header.stream, header.kind)).or_default(),
                    file,
                    &header,
                    at,
                );
            }
            Kind::Trim => trims.push((header.stream, header.base_offset)),
            Kind::Pad | Kind::Follows => {}
        }
    }
    *file.trims.lock() = trims;
    runs
}

/// Ends a scanned file for good: nothing is ever appended to it again.
///
/// CRASH(@B): the footer overwrites the torn tail and the file is cut off behind it; both are
/// durable before anybody reads. A crash before that leads here again.
fn seal(
    streams: &Streams,
    candidate: &Candidate,
    end: u64,
    touched: &[StreamId],
    unsealed: &mut Vec<Arc<JournalFile>>,
) -> Result<(), OpenError> {
    let file = &candidate.file;
    file.set_data_end(end);
    match worker::seal(streams, &*candidate.io, file, touched) {
        Ok(()) => Ok(()),
        Err(error) if worker::is_full(&error) => {
            // Without room for a footer, the cut alone does: a scan ends there next time.
            let cut = || candidate.io.truncate(end).and_then(|()| candidate.io.sync());
            cut().map_err(OpenError::io("cutting a torn tail"))?;
            *file.touched.lock() = touched.to_vec();
            unsealed.push(Arc::clone(file));
            Ok(())
        }
        Err(error) => Err(OpenError::io("sealing a recovered file")(error)),
    }
}

fn recovered(streams: &Streams) -> Vec<RecoveredStream> {
    let found = streams.all().into_iter().filter_map(|stream| {
        let index = stream.index.lock();
        let start = index.runs.first()?.record.first.max(index.trim);
        let head = index.head?;
        Some(RecoveredStream { stream: stream.id, start: start.min(head.end), head })
    });
    found.collect()
}

fn log(recovery: &Recovery) {
    for damage in &recovery.damage {
        let Damage { file, at, len, why, .. } = damage;
        tracing::error!(file, at, len, why, "journal bytes are damaged; they are fenced off");
    }
    if let Some(TornTail { file, at, bytes }) = &recovery.cut {
        tracing::warn!(file, at, bytes, "cut a torn tail");
    }
}
