//! Reading: find the rows, fetch the frames, check them. Recent entries are slices of the write
//! buffer; older ones come from their file, neighbours in one read.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use thetis_types::{AttemptId, Epoch, HeadVersion, Offset, StoredEntry, StreamId};

use crate::chunk::CHUNK;
use crate::error::ReadError;
use crate::files::{JournalFile, Trust};
use crate::format::footer::Row;
use crate::format::frame::{FrameHeader, HEADER, Salt};
use crate::format::mem;
use crate::index::{Index, Rows, Run};
use crate::journal::{Log, Shared};

/// Frames of one file this far apart are still fetched in one read.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// Bytes fetched in one read, unless a single frame is larger.
const FETCH_BYTES_MAX: u64 = 2 << 20;

/// Rows copied out of the lock at once (128 KiB); a longer read goes on with the next ones.
const ROWS_MAX: usize = 4096;

/// What the header of a stored entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryHeader {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offsets covered; at least one.
    pub record_count: u32,
    /// Epoch it was committed under.
    pub epoch: Epoch,
    /// The head's version after its commit.
    pub version: HeadVersion,
    /// The attempt that appended it.
    pub attempt: AttemptId,
    /// Largest timestamp of its records, milliseconds since 1970; negative when they have none.
    pub max_timestamp: i64,
    /// Bytes of the entry.
    pub payload_bytes: u32,
}

/// An entry to fetch: its row, and what its run adds.
pub(crate) struct Piece {
    file: Arc<JournalFile>,
    row: Row,
    epoch: Epoch,
    version: HeadVersion,
}

/// How much of each frame a fetch is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Header,
    Whole,
}

impl Piece {
    /// The piece of row `place` of a view.
    pub(crate) fn new(view: &RunView, row: Row, place: usize) -> Piece {
        Piece {
            file: Arc::clone(&view.run.file),
            row,
            epoch: view.run.record.epoch,
            version: HeadVersion(view.run.record.first_version.0 + (view.skipped + place) as u64),
        }
    }

    fn len(&self, part: Part) -> u64 {
        match part {
            Part::Header => HEADER as u64,
            Part::Whole => HEADER as u64 + u64::from(self.row.payload_bytes),
        }
    }
}

/// The part of a run a reader needs, taken out of the lock.
pub(crate) struct RunView {
    pub(crate) run: Run,
    rows: Arc<Vec<Row>>,
    /// Row of the run that `rows` begins with.
    skipped: usize,
}

impl Log {
    /// Whole entries covering `[from, until)` in offset order, the one that contains `from` first:
    /// at most `bytes_max` of payload, but at least one entry. `until` is the committed end the
    /// caller vouches for: no entry that reaches above it is returned. Empty when `from >= until`.
    ///
    /// # Errors
    /// [`ReadError`] when the first entry cannot be had. When a later one cannot, those before it
    /// are returned, and the next read tells.
    pub fn read(
        &self,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<StoredEntry>, ReadError> {
        match self.read_once(from, until, bytes_max) {
            // A file evacuated between finding the entry and opening the file: its copy is known.
            Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.read_once(from, until, bytes_max)
            }
            other => other,
        }
    }

    fn read_once(
        &self,
        from: Offset,
        until: Offset,
        bytes_max: usize,
    ) -> Result<Vec<StoredEntry>, ReadError> {
        let budget = Budget { entries: usize::MAX, bytes: bytes_max as u64 };
        let pieces = self.plan(from, until, budget)?;
        let mut entries = Vec::with_capacity(pieces.len());
        let fetched = self.fetch(&pieces, Part::Whole, |piece, header, payload| {
            entries.push(StoredEntry {
                base_offset: piece.row.base,
                record_count: piece.row.record_count,
                epoch: piece.epoch,
                version: piece.version,
                max_timestamp: piece.row.max_timestamp,
                attempt: header.attempt,
                format: header.format?,
                payload,
            });
            Some(())
        });
        match fetched {
            Err(error) if entries.is_empty() => Err(error),
            _ => Ok(entries),
        }
    }

    /// The headers of the entries covering `[from, until)`, at most `max` of them.
    ///
    /// # Errors
    /// [`ReadError`]; unlike [`Log::read`] also when only a later header cannot be had, because
    /// a search for an attempt must not end early.
    pub fn headers(
        &self,
        from: Offset,
        until: Offset,
        max: usize,
    ) -> Result<Vec<EntryHeader>, ReadError> {
        let pieces = self.plan(from, until, Budget { entries: max, bytes: u64::MAX })?;
        let mut headers = Vec::with_capacity(pieces.len());
        self.fetch(&pieces, Part::Header, |piece, header, _| {
            headers.push(EntryHeader {
                base_offset: piece.row.base,
                record_count: piece.row.record_count,
                epoch: piece.epoch,
                version: piece.version,
                attempt: header.attempt,
                max_timestamp: piece.row.max_timestamp,
                payload_bytes: piece.row.payload_bytes,
            });
            Some(())
        })?;
        Ok(headers)
    }

    /// Base offset of the first entry in `[from, until)`, in offset order, whose largest timestamp
    /// is at least `timestamp`.
    ///
    /// # Errors
    /// [`ReadError`] when the index of a file that may hold it cannot be read.
    pub fn first_at_time(
        &self,
        from: Offset,
        until: Offset,
        timestamp: i64,
    ) -> Result<Option<Offset>, ReadError> {
        let mut found = None;
        self.walk(from, until, |view| {
            if view.run.record.max_timestamp < timestamp {
                return Ok(true);
            }
            let rows = self.rows(view)?;
            let row = within(&rows, from, until).iter().find(|row| row.max_timestamp >= timestamp);
            found = row.map(|row| row.base);
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// Base offset and largest timestamp of the earliest entry in `[from, until)` with the largest
    /// timestamp of all; `None` when there is no entry.
    ///
    /// # Errors
    /// [`ReadError`] when the index of a file that may hold it cannot be read.
    pub fn max_time(
        &self,
        from: Offset,
        until: Offset,
    ) -> Result<Option<(Offset, i64)>, ReadError> {
        let mut best: Option<(Offset, i64)> = None;
        self.walk(from, until, |view| {
            if best.is_some_and(|(_, time)| view.run.record.max_timestamp <= time) {
                return Ok(true);
            }
            let rows = self.rows(view)?;
            for row in within(&rows, from, until) {
                if best.is_none_or(|(_, time)| row.max_timestamp > time) {
                    best = Some((row.base, row.max_timestamp));
                }
            }
            Ok(true)
        })?;
        Ok(best)
    }

    /// The largest epoch at most `epoch` that has entries in `[from, until)`, and the offset just
    /// after its last entry there.
    #[must_use]
    pub fn epoch_end(&self, epoch: Epoch, from: Offset, until: Offset) -> Option<(Epoch, Offset)> {
        self.stream.index.lock().epoch_end(epoch, from, until)
    }

    /// Payload bytes of the entries in `[from, until)`, for retention. An entry counts as a whole
    /// when any of its offsets lies inside.
    ///
    /// # Errors
    /// [`ReadError`] when the index of a file at the edge of the range cannot be read.
    pub fn bytes_between(&self, from: Offset, until: Offset) -> Result<u64, ReadError> {
        let mut bytes = 0;
        self.walk(from, until, |view| {
            let record = &view.run.record;
            if from <= record.first && record.end <= until {
                bytes += record.bytes;
                return Ok(true);
            }
            let rows = self.rows(view)?;
            let inside = within(&rows, from, until).iter();
            bytes += inside.map(|row| u64::from(row.payload_bytes)).sum::<u64>();
            Ok(true)
        })?;
        Ok(bytes)
    }

    /// Shows `visit` each run that touches `[from, until)`, in order, without the lock, until it
    /// says false.
    fn walk(
        &self,
        from: Offset,
        until: Offset,
        mut visit: impl FnMut(&RunView) -> Result<bool, ReadError>,
    ) -> Result<(), ReadError> {
        let mut next = from;
        while next < until {
            let view = {
                let index = self.stream.index.lock();
                match index.runs.get(index.seek(next)) {
                    Some(run) if run.record.first < until => view(run, next, usize::MAX),
                    _ => return Ok(()),
                }
            };
            // A copy that overlaps what was seen is passed over row by row.
            let end = view.run.record.end;
            if !visit(&view)? {
                return Ok(());
            }
            next = end.max(next);
        }
        Ok(())
    }

    /// The rows of a view, fetched when they are in a footer.
    pub(crate) fn rows(&self, view: &RunView) -> Result<Arc<Vec<Row>>, ReadError> {
        match view.run.rows {
            Rows::Memory(_) => Ok(Arc::clone(&view.rows)),
            Rows::Footer => {
                let shared = &self.journal.shared;
                let (file, record) = (&view.run.file, &view.run.record);
                shared.handles.rows(&*shared.disk, file, record).map_err(|error| {
                    match error.kind() {
                        io::ErrorKind::InvalidData => ReadError::Damaged {
                            stream: self.stream.id,
                            offset: record.first,
                            end: record.end,
                            file: file.name(),
                            at: record.rows_at,
                            why: error.to_string(),
                        },
                        _ => self.io_error(file, error),
                    }
                })
            }
        }
    }

    fn io_error(&self, file: &Arc<JournalFile>, source: io::Error) -> ReadError {
        ReadError::Io { stream: self.stream.id, file: file.name(), source }
    }

    /// The entries to fetch.
    fn plan(&self, from: Offset, until: Offset, budget: Budget) -> Result<Vec<Piece>, ReadError> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut next = from;
        let mut bytes = 0_u64;
        while next < until && pieces.len() < budget.entries {
            let view = {
                let index = self.stream.index.lock();
                match index.runs.get(index.seek(next)) {
                    Some(run) if run.record.first <= next => {
                        let entries = (budget.entries - pieces.len()).min(ROWS_MAX);
                        let bytes = budget.bytes.saturating_sub(bytes);
                        view_within(run, next, Budget { entries, bytes })
                    }
                    // Committed by the caller's word, yet not here: said, never passed over.
                    _ if pieces.is_empty() => return Err(missing(&self.stream.id, &index, next)),
                    _ => break,
                }
            };
            let rows = self.rows(&view)?;
            let skip = rows.partition_point(|row| row.end() <= next);
            for (place, row) in rows.iter().enumerate().skip(skip) {
                bytes = bytes.saturating_add(u64::from(row.payload_bytes));
                let over = bytes > budget.bytes && !pieces.is_empty();
                if over || row.end() > until || pieces.len() >= budget.entries {
                    return Ok(pieces);
                }
                pieces.push(Piece::new(&view, *row, place));
                next = row.end();
            }
            if rows.len() == skip {
                break;
            }
        }
        Ok(pieces)
    }

    /// Fetches the pieces in order and hands each to `take` once it is checked.
    pub(crate) fn fetch(
        &self,
        pieces: &[Piece],
        part: Part,
        mut take: impl FnMut(&Piece, FrameHeader, Bytes) -> Option<()>,
    ) -> Result<(), ReadError> {
        let mut rest = pieces;
        while let Some(piece) = rest.first() {
            let start = piece.row.at;
            let end_of = |group: &[Piece]| {
                group.iter().map(|it| it.row.at + it.len(part)).max().unwrap_or(start)
            };
            let (near, behind) = rest.split_at(in_one_chunk(rest, part));
            let (group, behind, bytes, trust) = match piece.file.cached(start..end_of(near)) {
                Some((bytes, trust)) => (near, behind, bytes, trust),
                None => {
                    let (group, behind) = rest.split_at(together(rest, part));
                    let bytes = self
                        .read_file(&piece.file, start, end_of(group))
                        .map_err(|error| self.short_or_io(piece, error))?;
                    (group, behind, bytes, Trust::Disk)
                }
            };
            for piece in group {
                let from = mem(piece.row.at - start);
                let bytes = bytes.slice(from..from + mem(piece.len(part)));
                self.check(piece, bytes, trust, &mut take)?;
            }
            rest = behind;
        }
        Ok(())
    }

    fn read_file(&self, file: &Arc<JournalFile>, start: u64, end: u64) -> io::Result<Bytes> {
        let shared: &Shared = &self.journal.shared;
        Ok(crate::disk::read_vec(&*shared.io(file)?, start, end - start)?.into())
    }

    fn short_or_io(&self, piece: &Piece, error: io::Error) -> ReadError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(piece, "the file ends before".to_owned()),
            _ => self.io_error(&piece.file, error),
        }
    }

    fn check(
        &self,
        piece: &Piece,
        bytes: Bytes,
        trust: Trust,
        take: &mut impl FnMut(&Piece, FrameHeader, Bytes) -> Option<()>,
    ) -> Result<(), ReadError> {
        let salt = Salt { file: piece.file.header.id, at: piece.row.at };
        let header = FrameHeader::decode(&bytes, salt)
            .map_err(|flaw| self.damaged(piece, flaw.to_string()))?;
        let same = header.stream == self.stream.id
            && header.base_offset == piece.row.base
            && header.payload_bytes == piece.row.payload_bytes;
        if !same {
            return Err(self.damaged(piece, "the index points at another frame".to_owned()));
        }
        let payload = bytes.slice(HEADER..);
        let whole = payload.len() as u64 == u64::from(header.payload_bytes);
        if trust == Trust::Disk && whole && crc32c::crc32c(&payload) != header.payload_crc {
            return Err(self.damaged(piece, "payload checksum differs".to_owned()));
        }
        take(piece, header, payload)
            .ok_or_else(|| self.damaged(piece, "the frame carries no entry".to_owned()))
    }

    fn damaged(&self, piece: &Piece, why: String) -> ReadError {
        ReadError::Damaged {
            stream: self.stream.id,
            offset: piece.row.base,
            end: piece.row.end(),
            file: piece.file.name(),
            at: piece.row.at,
            why,
        }
    }
}

/// What a plan may take.
#[derive(Clone, Copy)]
struct Budget {
    entries: usize,
    bytes: u64,
}

/// Rows of `run` from the one that contains `from` on, at most `max` of them when they are in
/// memory; copied, so that the lock is short.
pub(crate) fn view(run: &Run, from: Offset, max: usize) -> RunView {
    view_within(run, from, Budget { entries: max, bytes: u64::MAX })
}

/// [`view`] of no more rows than `budget` needs.
fn view_within(run: &Run, from: Offset, budget: Budget) -> RunView {
    let (rows, skipped) = match &run.rows {
        Rows::Footer => (Vec::new(), 0),
        Rows::Memory(rows) => {
            let skip = rows.partition_point(|row| row.end() <= from);
            let rows = &rows[skip..];
            let mut bytes = 0_u64;
            let needed = rows.iter().take(budget.entries).take_while(|row| {
                let needed = bytes <= budget.bytes;
                bytes = bytes.saturating_add(u64::from(row.payload_bytes));
                needed
            });
            let take = needed.count();
            (rows[..take].to_vec(), skip)
        }
    };
    let run = Run {
        file: Arc::clone(&run.file),
        record: run.record,
        rows: match run.rows {
            Rows::Footer => Rows::Footer,
            Rows::Memory(_) => Rows::Memory(Vec::new()),
        },
    };
    RunView { run, rows: Arc::new(rows), skipped }
}

fn missing(stream: &StreamId, index: &Index, offset: Offset) -> ReadError {
    let next = index.runs.get(index.seek(offset)).map(|run| run.record.first);
    ReadError::Missing { stream: *stream, offset, next }
}

/// The rows with an offset in `[from, until)`.
fn within(rows: &[Row], from: Offset, until: Offset) -> &[Row] {
    let start = rows.partition_point(|row| row.end() <= from);
    let stop = rows.partition_point(|row| row.base < until);
    &rows[start..stop.max(start)]
}

/// How many of `pieces` lie in one chunk, in order; one, wherever the first lies.
fn in_one_chunk(pieces: &[Piece], part: Part) -> usize {
    let first = &pieces[0];
    let chunk_end = (first.row.at / CHUNK as u64 + 1) * CHUNK as u64;
    let inside = pieces[1..].iter().take_while(|piece| {
        Arc::ptr_eq(&piece.file, &first.file)
            && piece.row.at >= first.row.at
            && piece.row.at + piece.len(part) <= chunk_end
    });
    // A first that crosses the border is looked for alone.
    if first.row.at + first.len(part) > chunk_end { 1 } else { 1 + inside.count() }
}

/// How many of `pieces` to fetch in one read.
fn together(pieces: &[Piece], part: Part) -> usize {
    let first = &pieces[0];
    let mut end = first.row.at + first.len(part);
    let near = pieces[1..].iter().take_while(|piece| {
        let at = piece.row.at;
        let near = Arc::ptr_eq(&piece.file, &first.file)
            && at >= end
            && at - end <= GAP_BYTES_MAX
            && at + piece.len(part) - first.row.at <= FETCH_BYTES_MAX;
        end = end.max(at + piece.len(part));
        near
    });
    1 + near.count()
}
