//! Where the entries of each stream are. Derived from the frames, in memory; sealed files keep
//! their part in a footer and lend it back row by row.
//!
//! Owns the order of runs and what is live. Does no I/O.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use thetis_types::{Epoch, Head, HeadVersion, Offset, StreamId};

use crate::files::JournalFile;
use crate::format::footer::{Row, RunRecord};
use crate::format::frame::{FrameHeader, frame_bytes};

/// One stream's part of the journal.
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) index: Mutex<Index>,
}

/// All streams.
#[derive(Default)]
pub(crate) struct Streams(RwLock<HashMap<StreamId, Arc<Stream>>>);

/// The rows of a run.
#[derive(Clone)]
pub(crate) enum Rows {
    /// Here, because the file has no footer yet.
    Memory(Vec<Row>),
    /// In the footer of the file.
    Footer,
}

/// A dense run of entries of one epoch in one file.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) file: Arc<JournalFile>,
    /// What the footer says or will say; `rows_at` and `rows_crc` count only with [`Rows::Footer`].
    pub(crate) record: RunRecord,
    pub(crate) rows: Rows,
}

/// Everything known of one stream.
///
/// INVARIANT: `runs` is sorted by first offset and by end, both strictly; runs may overlap only
/// where one is a relocated copy, and copies are equal. `moving` holds copies that are not yet
/// durable, so nobody reads them and nothing is deleted on their account.
#[derive(Default)]
pub(crate) struct Index {
    pub(crate) runs: Vec<Run>,
    pub(crate) moving: Vec<Run>,
    /// Offsets below are dead.
    pub(crate) trim: Offset,
    /// The stream is deleted: everything is dead.
    pub(crate) discarded: bool,
    /// Set by the first entry.
    pub(crate) head: Option<Head>,
    /// Sequence of the file that last listed the stream as touched.
    pub(crate) touched: Option<u64>,
    /// Some file holds entries that another run stands for, so that `runs` does not list them.
    pub(crate) shadowed: bool,
    /// The newest durable trim mark, and the file it stands in.
    pub(crate) mark: Option<(Offset, u64)>,
}

impl Streams {
    pub(crate) fn get(&self, id: StreamId) -> Option<Arc<Stream>> {
        self.0.read().get(&id).cloned()
    }

    pub(crate) fn get_or_create(&self, id: StreamId) -> Arc<Stream> {
        if let Some(stream) = self.get(id) {
            return stream;
        }
        let mut streams = self.0.write();
        let fresh = || Arc::new(Stream { id, index: Mutex::new(Index::default()) });
        Arc::clone(streams.entry(id).or_insert_with(fresh))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        let mut all: Vec<_> = self.0.read().values().cloned().collect();
        all.sort_by_key(|stream| stream.id);
        all
    }

    /// Forgets streams that have neither entries nor a holder.
    pub(crate) fn forget_empty(&self) {
        self.0.write().retain(|_, stream| {
            Arc::strong_count(stream) > 1 || {
                let index = stream.index.lock();
                index.head.is_some() && !(index.discarded && index.runs.is_empty())
            }
        });
    }
}

impl Run {
    /// A run of one entry, whose frame `header` stands at `at`.
    pub(crate) fn begin(file: &Arc<JournalFile>, header: &FrameHeader, at: u64) -> Run {
        let bytes = u64::from(header.payload_bytes);
        Run {
            file: Arc::clone(file),
            record: RunRecord {
                stream: header.stream,
                first: header.base_offset,
                end: header.end(),
                epoch: header.epoch,
                rows: 1,
                first_version: header.version,
                bytes_before: header.stream_bytes.saturating_sub(bytes),
                bytes,
                max_timestamp: header.max_timestamp,
                rows_at: 0,
                rows_crc: 0,
                relocated: header.kind == crate::format::frame::Kind::Relocated,
            },
            rows: Rows::Memory(vec![row(header, at)]),
        }
    }

    /// Takes the entry in when it continues the run.
    pub(crate) fn extend(&mut self, file: &JournalFile, header: &FrameHeader, at: u64) -> bool {
        let record = &mut self.record;
        let continues = self.file.header.sequence == file.header.sequence
            && record.epoch == header.epoch
            && record.end == header.base_offset
            && record.first_version.0 + u64::from(record.rows) == header.version.0
            && record.rows < u32::MAX
            && record.relocated == (header.kind == crate::format::frame::Kind::Relocated);
        let Rows::Memory(rows) = &mut self.rows else { return false };
        if continues {
            rows.push(row(header, at));
            record.rows += 1;
            record.end = header.end();
            record.bytes += u64::from(header.payload_bytes);
            record.max_timestamp = record.max_timestamp.max(header.max_timestamp);
        }
        continues
    }

    pub(crate) fn last_version(&self) -> HeadVersion {
        HeadVersion(self.record.first_version.0 + u64::from(self.record.rows) - 1)
    }

    /// Bytes its frames take in the file, about: padding is taken at its mean.
    pub(crate) fn file_bytes(&self) -> u64 {
        let rows = u64::from(self.record.rows);
        self.record.bytes + rows * frame_bytes(4)
    }
}

fn row(header: &FrameHeader, at: u64) -> Row {
    Row {
        base: header.base_offset,
        at,
        payload_bytes: header.payload_bytes,
        record_count: header.record_count,
        max_timestamp: header.max_timestamp,
    }
}

/// Adds an entry to the last run of `runs`, or begins one behind it.
pub(crate) fn push_entry(
    runs: &mut Vec<Run>,
    file: &Arc<JournalFile>,
    header: &FrameHeader,
    at: u64,
) {
    let extended = runs.last_mut().is_some_and(|run| run.extend(file, header, at));
    if !extended {
        if runs.is_empty() {
            // Most of many idle streams have one run; room for four would double their memory.
            runs.reserve_exact(1);
        }
        runs.push(Run::begin(file, header, at));
    }
}

impl Index {
    /// Takes in an entry just appended.
    pub(crate) fn append(&mut self, file: &Arc<JournalFile>, header: &FrameHeader, at: u64) {
        push_entry(&mut self.runs, file, header, at);
        self.head = Some(Head {
            version: header.version,
            epoch: header.epoch,
            end: header.end(),
            bytes: header.stream_bytes,
        });
    }

    /// Puts runs of any origin in order, drops copies that add nothing, and finds the head.
    pub(crate) fn settle(&mut self) {
        // Where a copy and its original begin alike, the original comes first; the longer one
        // wins between copies.
        self.runs.sort_by_key(|run| {
            let record = &run.record;
            let end = std::cmp::Reverse(record.end);
            (record.first, record.relocated, end, run.file.header.sequence)
        });
        let mut settled: Vec<Run> = Vec::with_capacity(self.runs.len());
        for run in self.runs.drain(..) {
            let redundant = settled.last().is_some_and(|last| run.record.end <= last.record.end);
            if redundant {
                self.shadowed = true;
                continue;
            }
            if settled.last().is_some_and(|last| last.record.first == run.record.first) {
                self.shadowed = true;
                settled.pop();
            }
            settled.push(run);
        }
        settled.shrink_to_fit();
        self.runs = settled;
        if let Some(last) = self.runs.last() {
            self.head = Some(Head {
                version: last.last_version(),
                epoch: last.record.epoch,
                end: last.record.end,
                bytes: last.record.bytes_before + last.record.bytes,
            });
        }
    }

    /// Position in `runs` of the run to continue a read at `offset` with: the one that contains
    /// it, or else the first one above.
    pub(crate) fn seek(&self, offset: Offset) -> usize {
        let above = self.runs.partition_point(|run| run.record.first <= offset);
        match above.checked_sub(1) {
            Some(below) if offset < self.runs[below].record.end => below,
            _ => above,
        }
    }

    /// Where the stream goes on when the owner's word about dead offsets reaches above its end.
    pub(crate) fn jump(&self) -> Option<Offset> {
        self.head.filter(|head| head.end < self.trim).map(|_| self.trim)
    }

    /// First offset that is not dead by the owner's word.
    pub(crate) fn dead_below(&self) -> Offset {
        match self.head {
            Some(head) if self.discarded => head.end,
            _ => self.trim,
        }
    }

    /// Whether anything of the run is live. The last run of a stream that is not discarded always
    /// is: it carries the head, which must outlive the collection of everything below it.
    pub(crate) fn is_live(&self, run: &Run) -> bool {
        !self.discarded
            && (run.record.end > self.trim
                || self.head.is_some_and(|head| head.end == run.record.end))
    }

    /// Live bytes of a run, about: rows are taken to be equally long.
    pub(crate) fn live_bytes(&self, run: &Run) -> u64 {
        if !self.is_live(run) {
            return 0;
        }
        let all = run.file_bytes();
        let span = run.record.end.since(run.record.first).max(1);
        let live = run.record.end.since(self.trim.max(run.record.first)).clamp(1, span);
        u64::try_from(u128::from(all) * u128::from(live) / u128::from(span)).unwrap_or(all)
    }

    /// The largest epoch at most `asked` with entries in `[from, until)`, and the offset after
    /// its last entry there.
    pub(crate) fn epoch_end(
        &self,
        asked: Epoch,
        from: Offset,
        until: Offset,
    ) -> Option<(Epoch, Offset)> {
        let inside = self.runs.iter().filter(|run| {
            run.record.epoch <= asked && run.record.first < until && run.record.end > from
        });
        inside.map(|run| (run.record.epoch, run.record.end.min(until))).max()
    }
}
