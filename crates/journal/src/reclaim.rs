//! Giving space back: files in which nothing is live are removed; mostly dead ones are evacuated
//! first. What is live is the owner's word (`trim`, `discard`), never a guess of this module.
//!
//! Order, and what a crash between two steps leaves:
//!
//! 1. Live entries of the file are appended again as copies; trim marks are appended where the
//!    file's absence would look like a hole. (Crash: copies and originals both there, row @N.)
//! 2. Both are made durable. (Crash: the same.)
//! 3. The index goes over to the copies, and forgets the dead runs.
//! 4. The file is removed and the directory synced. (Crash before the sync: the file may be back,
//!    row @N, or its dead entries are; the next reclaim removes it again.)
//!
//! On a full disk nothing can be appended. Then files go that need neither copy nor mark.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thetis_types::Durability;

use crate::error::{AppendError, ReclaimError};
use crate::files::JournalFile;
use crate::format::file::FRAMES_AT;
use crate::format::frame::{FrameHeader, Kind};
use crate::index::{Run, Stream};
use crate::journal::{Journal, Log, Position};
use crate::read::{Part, Piece, view};

/// A file is evacuated when at most this share of its frames is live, in percent: a quarter
/// copied frees three.
const EVACUATE_LIVE_PERCENT_MAX: u64 = 25;
/// Files evacuated in one call: bounds the bytes one call writes.
const EVACUATE_FILES_MAX: usize = 4;
/// Payload bytes read at once while copying.
const COPY_BYTES_MAX: u64 = 1 << 20;

/// What a reclaim did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReclaimReport {
    /// Files removed.
    pub removed_files: usize,
    /// Their bytes.
    pub freed_bytes: u64,
    /// Entries copied out of files before.
    pub relocated_entries: u64,
    /// Payload bytes of them.
    pub relocated_bytes: u64,
    /// Files kept because a live entry of theirs cannot be read.
    pub kept_damaged: usize,
}

/// Runs with their streams.
type Runs = Vec<(Arc<Stream>, Run)>;
/// Runs by the sequence number of their file.
type FileRuns = BTreeMap<u64, Runs>;
/// A file to remove, and the runs in it.
type Victim = (Arc<JournalFile>, Runs);

impl Journal {
    /// Removes sealed files in which nothing is live, after copying out what little is live in
    /// mostly dead ones. One call at a time; safe beside appends and reads. Files with fenced-off
    /// damage are kept as evidence.
    ///
    /// # Errors
    /// [`ReclaimError`]; what was removed before stays removed, nothing live is lost. A later call
    /// goes on.
    pub fn reclaim(&self) -> Result<ReclaimReport, ReclaimError> {
        let _one = self.shared.reclaiming.lock();
        let mut report = ReclaimReport::default();
        // SUBTLE: sealed before their runs are listed. A file sealed later, while others are
        // evacuated into it, holds copies that the list does not know, and would look dead.
        let sealed = |file: &&Arc<JournalFile>| file.sealed.load(Ordering::Acquire);
        let files: Vec<_> = self.shared.files.read().values().filter(sealed).cloned().collect();
        let mut by_file = self.runs_by_file();
        let mut victims = Vec::new();
        let mut evacuated = 0;
        let mut full = None;
        for file in files {
            if !file.fences.lock().is_empty() {
                continue;
            }
            let runs = by_file.remove(&file.header.sequence).unwrap_or_default();
            let live: u64 =
                runs.iter().map(|(stream, run)| stream.index.lock().live_bytes(run)).sum();
            if live > 0 {
                let share = live.saturating_mul(100) / (file.data_end() - FRAMES_AT).max(1);
                if share > EVACUATE_LIVE_PERCENT_MAX || evacuated >= EVACUATE_FILES_MAX {
                    continue;
                }
                evacuated += 1;
                match self.evacuate(&file, &runs, &mut report) {
                    Ok(true) => {}
                    Ok(false) => {
                        report.kept_damaged += 1;
                        continue;
                    }
                    Err(error) if is_full(&error) => {
                        evacuated = EVACUATE_FILES_MAX;
                        full = Some(error);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            victims.push((file, runs));
        }
        match self.mark_trims(&victims) {
            Ok(()) => self.remove(victims, &mut report)?,
            Err(error) if is_full(&error) => {
                full = Some(error);
                self.remove_oldest(victims, &mut report)?;
            }
            Err(error) => return Err(error),
        }
        self.shared.streams.forget_empty();
        // With room made, a later call does the rest.
        full.filter(|_| report.removed_files == 0).map_or(Ok(report), Err)
    }

    fn runs_by_file(&self) -> FileRuns {
        let mut by_file = FileRuns::new();
        for stream in self.shared.streams.all() {
            let index = stream.index.lock();
            for run in &index.runs {
                // The rows stay behind: a sealed file has them in its footer.
                let run = view(run, run.record.end, 0).run;
                let sequence = run.file.header.sequence;
                by_file.entry(sequence).or_default().push((Arc::clone(&stream), run));
            }
        }
        by_file
    }

    /// Copies the live entries of a file to the end of the journal and makes them durable; false
    /// when one of them cannot be read.
    fn evacuate(
        &self,
        file: &Arc<JournalFile>,
        runs: &[(Arc<Stream>, Run)],
        report: &mut ReclaimReport,
    ) -> Result<bool, ReclaimError> {
        let readable = self.copy_runs(runs, report);
        if readable.is_err() {
            // What was copied so far is nobody's: its file may be removed like any dead one.
            for (stream, _) in runs {
                stream.index.lock().moving.clear();
            }
        }
        let readable = readable?;
        for (stream, _) in runs {
            let mut guard = stream.index.lock();
            let index = &mut *guard;
            if readable {
                index.runs.retain(|run| !Arc::ptr_eq(&run.file, file));
            }
            index.runs.append(&mut index.moving);
            index.settle();
        }
        Ok(readable)
    }

    /// Copies what is live of all runs, durably; false when an entry cannot be read.
    fn copy_runs(
        &self,
        runs: &[(Arc<Stream>, Run)],
        report: &mut ReclaimReport,
    ) -> Result<bool, ReclaimError> {
        let mut last = None;
        let mut readable = true;
        for (stream, run) in runs {
            if !stream.index.lock().is_live(run) {
                continue;
            }
            match self.copy_run(stream, run, report)? {
                Some(at) => last = last.max(Some(at)),
                None => readable = false,
            }
        }
        if let Some(at) = last {
            self.wait(at, Durability::Disk).map_err(ReclaimError::Flush)?;
        }
        Ok(readable)
    }

    /// Copies what is live of one run. `None` when an entry cannot be read.
    fn copy_run(
        &self,
        stream: &Arc<Stream>,
        run: &Run,
        report: &mut ReclaimReport,
    ) -> Result<Option<Position>, ReclaimError> {
        let log = Log { journal: self.clone(), stream: Arc::clone(stream) };
        let seen = view(run, run.record.first, usize::MAX);
        let Ok(rows) = log.rows(&seen) else { return Ok(None) };
        let trim = stream.index.lock().trim;
        let live = rows.partition_point(|row| row.end() <= trim);
        // All dead, yet live: the last entry carries the head.
        let live = live.min(rows.len().saturating_sub(1));
        let sum = |rows: &[crate::format::footer::Row]| -> u64 {
            rows.iter().map(|row| u64::from(row.payload_bytes)).sum()
        };
        let mut stream_bytes = run.record.bytes_before + sum(&rows[..live]);
        let mut last = None;
        let mut place = live;
        while place < rows.len() {
            let mut pieces = Vec::new();
            let mut bytes = 0;
            while place < rows.len() && (pieces.is_empty() || bytes < COPY_BYTES_MAX) {
                bytes += u64::from(rows[place].payload_bytes);
                pieces.push(Piece::new(&seen, rows[place], place));
                place += 1;
            }
            let mut copies = Vec::with_capacity(pieces.len());
            let fetched = log.fetch(&pieces, Part::Whole, |_, header, payload| {
                copies.push((header, payload));
                Some(())
            });
            if fetched.is_err() {
                return Ok(None);
            }
            for (header, payload) in copies {
                stream_bytes += payload.len() as u64;
                let mut header = FrameHeader { kind: Kind::Relocated, stream_bytes, ..header };
                let mut index = stream.index.lock();
                let at = self.shared.append_copy(&mut index, &mut header, &payload);
                last =
                    Some(at.map_err(|source| ReclaimError::Append {
                        file: run.file.name(),
                        source,
                    })?);
                report.relocated_entries += 1;
                report.relocated_bytes += payload.len() as u64;
            }
        }
        Ok(last)
    }

    /// Writes trim marks for streams that keep dead entries elsewhere: without the mark, the next
    /// open could not tell the removed ones between them from lost ones.
    fn mark_trims(&self, victims: &[Victim]) -> Result<(), ReclaimError> {
        let mut last = None;
        let mut marks = Vec::new();
        let gone = |sequence: u64| victims.iter().any(|(file, _)| file.header.sequence == sequence);
        let with_marks = victims.iter().flat_map(|(file, _)| file.trims.lock().clone());
        let with_marks = with_marks.filter_map(|(id, _)| self.shared.streams.get(id));
        let with_runs =
            victims.iter().flat_map(|(_, runs)| runs.iter().map(|(stream, _)| Arc::clone(stream)));
        let mut streams: Vec<_> = with_runs.chain(with_marks).collect();
        streams.sort_by_key(|stream| stream.id);
        streams.dedup_by_key(|stream| stream.id);
        for stream in streams {
            let (trim, marked) = {
                let index = stream.index.lock();
                let trim = index.dead_below();
                let below = |run: &Run| run.record.first < trim;
                let outside = index.runs.iter().filter(|run| below(run));
                let outside = outside.filter(|run| !gone(run.file.header.sequence)).count();
                // As listed before: those of evacuated files are out of the index by now, but
                // the files may be back after a crash.
                let inside = victims.iter().filter(|(_, runs)| {
                    runs.iter().any(|(owner, run)| owner.id == stream.id && below(run))
                });
                let inside = inside.count();
                // Of several removed files, a crash may bring any one back; also one whose dead
                // entries stand before a hole that a mark among the removed ones explains.
                let unmarked = index.mark.is_some_and(|(_, file)| gone(file));
                let alone = inside < if unmarked { 1 } else { 2 };
                // Copies that are not listed may stand before the hole, too.
                if outside == 0 && alone && !index.shadowed {
                    continue;
                }
                (trim, index.mark)
            };
            if marked.is_some_and(|(offset, file)| offset >= trim && !gone(file)) {
                continue;
            }
            let appended = self.shared.append_trim(stream.id, trim);
            let (file, at) = appended
                .map_err(|source| ReclaimError::Append { file: victims[0].0.name(), source })?;
            last = last.max(Some(at));
            marks.push((stream, trim, file));
        }
        if let Some(at) = last {
            self.wait(at, Durability::Disk).map_err(ReclaimError::Flush)?;
        }
        for (stream, trim, file) in marks {
            stream.index.lock().mark = Some((trim, file));
        }
        Ok(())
    }

    fn remove(&self, victims: Vec<Victim>, report: &mut ReclaimReport) -> Result<(), ReclaimError> {
        let Some((last, _)) = victims.last() else { return Ok(()) };
        let name = last.name();
        for (file, runs) in victims {
            self.remove_file(&file, &runs, report)?;
        }
        let synced = self.shared.disk.sync_dir();
        synced.map_err(|source| ReclaimError::Remove { file: name, source })
    }

    /// Removes those files whose absence needs no mark, because nothing of their streams stands
    /// before what they hold; one by one, so that this holds for whatever a crash leaves.
    fn remove_oldest(
        &self,
        victims: Vec<Victim>,
        report: &mut ReclaimReport,
    ) -> Result<(), ReclaimError> {
        for (file, runs) in victims {
            let first = runs.iter().all(|(stream, run)| {
                let before = |other: &Run| other.record.first < run.record.first;
                !stream.index.lock().runs.iter().any(before)
            });
            let explains = file.trims.lock().iter().any(|(id, trim)| {
                let before =
                    |other: &Run| other.record.first < *trim && !Arc::ptr_eq(&other.file, &file);
                let stream = self.shared.streams.get(*id);
                stream.is_some_and(|stream| stream.index.lock().runs.iter().any(before))
            });
            if first && !explains {
                self.remove(vec![(file, runs)], report)?;
            }
        }
        Ok(())
    }

    fn remove_file(
        &self,
        file: &Arc<JournalFile>,
        runs: &Runs,
        report: &mut ReclaimReport,
    ) -> Result<(), ReclaimError> {
        for (stream, _) in runs {
            stream.index.lock().runs.retain(|run| !Arc::ptr_eq(&run.file, file));
        }
        for (id, _) in file.trims.lock().iter() {
            let Some(stream) = self.shared.streams.get(*id) else { continue };
            let mut index = stream.index.lock();
            index.mark = index.mark.filter(|(_, at)| *at != file.header.sequence);
        }
        self.shared.files.write().remove(&file.header.sequence);
        self.shared.writer.lock().forget_chunks(file);
        let name = file.name();
        let removed = self.shared.disk.remove(&name);
        removed.map_err(|source| ReclaimError::Remove { file: name, source })?;
        report.removed_files += 1;
        report.freed_bytes += file.disk_bytes();
        Ok(())
    }
}

/// Whether nothing could be appended for want of room.
fn is_full(error: &ReclaimError) -> bool {
    matches!(error, ReclaimError::Append { source: AppendError::Full { .. }, .. })
}
