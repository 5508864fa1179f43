//! The write buffer: where appended frames go, in order, before and while they are flushed.
//!
//! Everything here happens under the one short lock of the journal and does no I/O. What flushes
//! and when is `flush`; preparing and sealing files is `worker`.
//!
//! All marks are journal positions (a file's base plus a byte in it):
//!
//! ```text
//! durable <= handed <= end        durable <= taken <= end
//! |  survives power loss |  survives the process |  in memory |
//! ```
//!
//! `taken` is where the next flush begins. Frames in a mapped file are handed by being copied.
//! Elsewhere, while direct flushes are in flight, nothing is handed
//! that is not durable, and the other way round: the page cache and direct writes never both hold
//! unwritten bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use thetis_types::{Offset, StreamId};

use crate::chunk::{CHUNK, Chunk, Pen};
use crate::disk::Mapping;
use crate::files::JournalFile;
use crate::flush::{Callback, Flight, Waiter};
use crate::format::file::FRAMES_AT;
use crate::format::frame::{self, FrameHeader, HEADER, Salt, frame_at};
use crate::format::{BLOCK, block_ceil, mem};
use crate::gather::Gather;
use crate::marks::Marks;

/// Chunks kept for reuse; the rest goes back to the allocator.
const POOL_CHUNKS_MAX: usize = 8;

/// The file being appended to.
pub(crate) struct Active {
    pub(crate) file: Arc<JournalFile>,
    /// The file as memory, if it is written so.
    mapping: Option<Arc<Mapping>>,
    pen: Pen,
    chunk: usize,
    /// Byte of the file where the last frame ends.
    pub(crate) end: u64,
}

/// The next file, prepared ahead.
pub(crate) enum Next {
    /// Nobody asked for one.
    Idle,
    /// A worker is to prepare one with room for so many bytes of frames.
    Wanted(u64),
    /// Here it is.
    Ready(Arc<JournalFile>),
    /// It could not be made, perhaps for want of room.
    Failed { full: bool, reason: Arc<str> },
}

/// State of the write buffer.
pub(crate) struct Writer {
    pub(crate) active: Option<Active>,
    /// Files no longer active whose last bytes are not durable, with the position of their end.
    pub(crate) closing: VecDeque<(Arc<JournalFile>, u64)>,
    /// Files whose bytes are all durable, waiting for their footer.
    pub(crate) unsealed: VecDeque<Arc<JournalFile>>,
    /// Prepared files that turned out too small, to be removed.
    pub(crate) unwanted: Vec<Arc<JournalFile>>,
    pub(crate) next: Next,
    pub(crate) next_sequence: u64,
    pub(crate) next_base: u64,

    pub(crate) end: u64,
    pub(crate) taken: u64,
    pub(crate) handed: u64,
    pub(crate) durable: u64,
    /// End of the last frame known durable: `durable`, unless that stepped over to the first byte
    /// of frames in the next file. What frames carry as proof.
    proven: u64,
    pub(crate) flights: VecDeque<Flight>,
    /// A write that shares the page cache is running; no other may start.
    pub(crate) exclusive: bool,
    /// A sync of handed bytes is running; no other may start. When one of two fails, the kernel
    /// may tell that one alone and call the pages clean for the other.
    pub(crate) syncing: bool,
    pub(crate) waiters: VecDeque<Waiter>,
    pub(crate) ready: VecDeque<Callback>,
    pub(crate) draining: bool,
    pub(crate) gather: Gather,
    /// The ticker sleeps until somebody appends.
    pub(crate) ticker_idle: bool,

    pub(crate) poisoned: Option<Arc<str>>,
    pub(crate) closed: bool,
    /// The workers are to end.
    pub(crate) stop: bool,

    cached: VecDeque<(Arc<JournalFile>, usize)>,
    cached_bytes_max: u64,
    pool: Vec<Arc<Chunk>>,
    /// Windows of mapped files nobody will read here any more, to be let go of elsewhere, and the
    /// byte of the file each begins at.
    pub(crate) evicted: Vec<(Arc<JournalFile>, u64, Arc<Chunk>)>,
    marks: Arc<Marks>,
    pub(crate) appended_bytes: u64,
    pub(crate) flushes: u64,
}

impl Writer {
    pub(crate) fn new(
        next_sequence: u64,
        next_base: u64,
        cached_bytes_max: u64,
        marks: Arc<Marks>,
    ) -> Writer {
        Writer {
            active: None,
            closing: VecDeque::new(),
            unsealed: VecDeque::new(),
            unwanted: Vec::new(),
            next: Next::Idle,
            next_sequence,
            next_base,
            end: next_base,
            taken: next_base,
            handed: next_base,
            durable: next_base,
            proven: next_base,
            flights: VecDeque::new(),
            exclusive: false,
            syncing: false,
            waiters: VecDeque::new(),
            ready: VecDeque::new(),
            draining: false,
            gather: Gather::default(),
            ticker_idle: false,
            poisoned: None,
            closed: false,
            stop: false,
            cached: VecDeque::new(),
            cached_bytes_max,
            pool: Vec::new(),
            evicted: Vec::new(),
            marks,
            appended_bytes: 0,
            flushes: 0,
        }
    }

    /// Whether frames of at most `bytes` fit into the active file.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.active.as_ref().is_some_and(|active| {
            // A pad may come behind; it ends on a block at the latest.
            active.end.saturating_add(BLOCK).saturating_add(bytes) <= active.file.header.bytes
        })
    }

    /// Whether the next file is mapped, the active one is not, and frames of at most `bytes` fit:
    /// a weaker level than the active file was made for was asked for, so it is left early.
    pub(crate) fn has_better(&self, bytes: u64) -> bool {
        let mapped = self.active.as_ref().is_some_and(|active| active.mapping.is_some());
        let Next::Ready(next) = &self.next else { return false };
        !mapped && next.is_mapped() && has_room(next, bytes)
    }

    /// Makes a prepared file the active one; the one before waits for its last flush and footer.
    pub(crate) fn install(&mut self, file: Arc<JournalFile>) {
        let before = self.active.as_ref().map(|it| (it.file.header.sequence, it.end));
        self.retire_active();
        let mapping = file.mapping();
        let pen = match mapping.as_ref().and_then(|it| Pen::on(it, mem(FRAMES_AT))) {
            Some(pen) => pen,
            None => {
                let mut pen = self.fresh_pen();
                pen.write(&[0; 4096]); // stands for the header block, not written from here
                pen
            }
        };
        file.keep_chunk(0, Arc::clone(pen.chunk()));
        self.cached.push_back((Arc::clone(&file), 0));
        // No bytes lie between the end of one file and the first frame of the next, so marks that
        // stand at the end move over.
        let at = file.header.base + FRAMES_AT;
        self.active = Some(Active { file, mapping, pen, chunk: 0, end: FRAMES_AT });
        for mark in [&mut self.taken, &mut self.handed, &mut self.durable] {
            if *mark == self.end {
                *mark = at;
            }
        }
        self.end = at;
        match before {
            Some((sequence, data_end)) => {
                self.put(&mut FrameHeader::follows(sequence, data_end), &[]);
            }
            // All files before were sealed by the open.
            None => self.proven = self.durable,
        }
        self.publish();
    }

    /// Notes that everything before `end` is durable.
    ///
    /// CRASH(@F): a mark at the first frame of a file would also prove the bytes between the end
    /// of the file before and that file, where sealing may have begun to write a footer.
    pub(crate) fn make_durable(&mut self, end: u64) {
        if end <= self.durable {
            return;
        }
        self.durable = end;
        let closing = self.closing.iter().map(|(file, end)| (file, *end));
        let active = self.active.iter().map(|active| (&active.file, self.end));
        let mut before = None;
        for (file, file_end) in closing.chain(active) {
            if end == file.header.base + FRAMES_AT {
                self.proven = before.unwrap_or(self.proven);
                return;
            }
            before = Some(file_end);
        }
        self.proven = end;
    }

    /// Lets those who look without the lock see how far things are.
    pub(crate) fn publish(&self) {
        self.marks.publish(self.handed.max(self.durable), self.durable);
    }

    /// Ends the active file where it is.
    pub(crate) fn retire_active(&mut self) {
        let Some(active) = self.active.take() else { return };
        active.file.set_data_end(active.end);
        self.closing.push_back((active.file, self.end));
        self.release_closed();
    }

    /// Passes files whose bytes are all durable on to the sealer.
    pub(crate) fn release_closed(&mut self) {
        while self.closing.front().is_some_and(|(_, end)| *end <= self.durable) {
            if let Some((file, _)) = self.closing.pop_front() {
                self.unsealed.push_back(file);
            }
        }
    }

    /// Appends one frame; returns the byte of the file where it begins. The caller has made sure
    /// that it fits.
    pub(crate) fn put(&mut self, header: &mut FrameHeader, payload: &[u8]) -> u64 {
        header.durable = self.proven;
        self.put_frame(header, payload)
    }

    /// Appends a mark that offsets of `stream` below `before` are dead; returns the sequence of the
    /// file it stands in. The caller has made sure that it fits.
    pub(crate) fn put_trim(&mut self, stream: StreamId, before: Offset) -> u64 {
        self.put(&mut FrameHeader::trim(stream, before), &[]);
        let file = self.active_file();
        file.trims.lock().push((stream, before));
        file.header.sequence
    }

    /// The file being filled. The caller has made sure that there is one.
    pub(crate) fn active_file(&self) -> Arc<JournalFile> {
        let active = self.active.as_ref().map(|active| Arc::clone(&active.file));
        active.expect("`fits` was asked before")
    }

    fn put_frame(&mut self, header: &FrameHeader, payload: &[u8]) -> u64 {
        let active = self.active.as_ref().expect("`fits` was asked before");
        let (from, file) = (active.end, active.file.header.id);
        let at = frame_at(from);
        let encoded = header.encode(Salt { file, at });
        self.write_zeros(at - from);
        let padding = mem(header.bytes()) - HEADER - payload.len();
        let active = self.active.as_mut().expect("`fits` was asked before");
        if mem(header.bytes()) <= active.pen.room() {
            active.pen.write_frame(&encoded, payload, padding);
            self.advance(header.bytes());
        } else {
            self.write(&encoded);
            self.write(payload);
            self.write_zeros(padding as u64);
        }
        at
    }

    /// Moves the end over `bytes` just copied.
    fn advance(&mut self, bytes: u64) {
        let Some(active) = self.active.as_mut() else { return };
        active.end += bytes;
        // What is copied into a mapped file is handed, provided everything before it is.
        if active.mapping.is_some() && self.handed == self.end {
            self.handed += bytes;
        }
        self.end += bytes;
        self.appended_bytes += bytes;
    }

    /// Fills the last block up, so that a flush that ends here shares no block with the next one.
    /// `fits` left room for it behind every append.
    pub(crate) fn pad_block(&mut self) {
        let Some(active) = self.active.as_ref() else { return };
        let at = frame_at(active.end);
        let gap = block_ceil(at) - at;
        if gap == 0 {
            self.write_zeros(at - active.end);
        } else {
            let mut pad = FrameHeader::pad(gap);
            pad.durable = self.proven;
            self.put_frame(&pad, &vec![0; mem(gap) - HEADER]);
        }
    }

    fn write_zeros(&mut self, bytes: u64) {
        const ZEROS: [u8; 128] = [0; 128];
        let mut left = mem(bytes);
        while left > 0 {
            let now = left.min(ZEROS.len());
            self.write(&ZEROS[..now]);
            left -= now;
        }
    }

    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let active = self.active.as_mut().expect("`fits` was asked before");
            let room = active.pen.room();
            if room == 0 {
                self.next_chunk();
                continue;
            }
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            active.pen.write(now);
            self.advance(now.len() as u64);
            bytes = rest;
        }
    }

    fn next_chunk(&mut self) {
        let mapping = self.active.as_ref().and_then(|active| active.mapping.clone());
        let pen = match mapping {
            Some(mapping) => {
                self.evict();
                Pen::on(&mapping, 0).expect("`fits` was asked before, and the mapping is as long")
            }
            None => self.fresh_pen(),
        };
        let Some(active) = self.active.as_mut() else { return };
        active.chunk += 1;
        active.file.keep_chunk(active.chunk, Arc::clone(pen.chunk()));
        self.cached.push_back((Arc::clone(&active.file), active.chunk));
        active.pen = pen;
    }

    /// Evicts the oldest chunks the operating system already has when the cache is full.
    fn evict(&mut self) {
        let full = |cached: usize| (cached as u64 + 1) * CHUNK as u64 > self.cached_bytes_max;
        while full(self.cached.len()) {
            let Some((file, number)) = self.cached.front() else { break };
            let end = file.header.base + (*number as u64 + 1) * CHUNK as u64;
            let active = self.active.as_ref().is_some_and(|active| Arc::ptr_eq(&active.file, file));
            let gone = if active { end } else { file.header.base + file.data_end() };
            if gone > self.handed.max(self.durable) {
                break;
            }
            match file.evict_chunk(*number) {
                Some(chunk) if chunk.is_mapped() => {
                    let at = *number as u64 * CHUNK as u64;
                    self.evicted.push((Arc::clone(file), at, chunk));
                }
                Some(chunk) if self.pool.len() < POOL_CHUNKS_MAX => self.pool.push(chunk),
                _ => {}
            }
            self.cached.pop_front();
        }
    }

    /// A pen on recycled memory when there is some.
    fn fresh_pen(&mut self) -> Pen {
        self.evict();
        let mut held = Vec::new();
        let mut found = None;
        while found.is_none()
            && let Some(chunk) = self.pool.pop()
        {
            match Arc::strong_count(&chunk) {
                1 => found = Pen::reuse(chunk),
                _ => held.push(chunk),
            }
        }
        self.pool.append(&mut held);
        found.unwrap_or_else(Pen::new)
    }

    /// Forgets the chunks of a file that is being deleted.
    pub(crate) fn forget_chunks(&mut self, file: &Arc<JournalFile>) {
        self.cached.retain(|(cached, number)| {
            let other = !Arc::ptr_eq(cached, file);
            if !other {
                file.evict_chunk(*number);
            }
            other
        });
    }

    /// Appended bytes the operating system does not have.
    pub(crate) fn backlog(&self) -> u64 {
        self.end - self.handed.max(self.durable)
    }

    /// The file being filled and those being ended, with the bytes of each between `from` and the
    /// end of what was appended: `(file, first byte, byte after the last)`.
    pub(crate) fn regions(&self, from: u64) -> Vec<(Arc<JournalFile>, u64, u64)> {
        let closing = self.closing.iter().map(|(file, end)| (file, *end));
        let active = self.active.iter().map(|active| (&active.file, self.end));
        closing
            .chain(active)
            .filter_map(|(file, end)| {
                let base = file.header.base;
                let start = from.max(base + FRAMES_AT);
                (start < end).then(|| (Arc::clone(file), start - base, end - base))
            })
            .collect()
    }
}

/// Whether frames of at most `bytes` fit into a fresh file.
pub(crate) fn has_room(file: &JournalFile, bytes: u64) -> bool {
    FRAMES_AT + frames_bytes_max([bytes].into_iter()) <= file.header.bytes
}

/// Bytes that frames of these payloads take at most, wherever the first begins.
pub(crate) fn frames_bytes_max(payloads: impl Iterator<Item = u64>) -> u64 {
    payloads.map(|payload| frame::frame_bytes(payload) + HEADER as u64).fold(0, u64::saturating_add)
}
