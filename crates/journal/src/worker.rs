//! The work no append waits for: preparing the next file, and giving full files their footer.
//!
//! The two have a thread each. An append may wait for the preparer while it holds its stream, and
//! the sealer takes streams; one thread for both could wait for itself.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::MutexGuard;
use thetis_types::StreamId;

use crate::chunk::{CHUNK, Chunk, Pen};
use crate::disk::{Disk, Promise};
use crate::files::JournalFile;
use crate::format::file::{self, FRAMES_AT, FileHeader};
use crate::format::footer::{self, Footer, Row};
use crate::format::{BLOCK, block_ceil, mem};
use crate::index::{Rows, Streams};
use crate::journal::Shared;
use crate::marks::Marks;
use crate::writer::Next;

/// What the appends before a new file asked for, and so what the file is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// `disk` alone: written directly, and prewritten with zeros, so that a durable write changes
    /// no metadata, which halves its time.
    Disk,
    /// Nothing stronger than `os`: mapped, so that a copy is all an append does.
    Weaker,
    /// Both: mapped, and its zeros durable.
    Both,
}

/// Whether the disk has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Makes an empty file that is durably there under its own name.
///
/// CRASH(@I): before the rename it has a temporary name and is never read. CRASH(@H): after it,
/// it has a header and no frames, and is removed at the next open.
pub(crate) fn prepare(
    disk: &dyn Disk,
    header: FileHeader,
    made_for: Use,
    pace: &Pace<'_>,
) -> io::Result<JournalFile> {
    let name = file::name(header.sequence);
    let temporary = format!("{name}{}", file::TEMPORARY);
    let fill = || {
        let io = disk.create(&temporary, header.bytes)?;
        io.write_at(&[IoSlice::new(&header.encode())], 0, Promise::Handed)?;
        io.sync()?;
        match made_for {
            // PERF: one sync for all. A durable write into blocks never written commits the file
            // system's journal, which takes as long as the write of 1 MiB.
            Use::Disk => write_zeros(&*io, header.bytes, Promise::Nothing, pace)?,
            // Zeros in the page cache: large folios, and no hole is filled by a page fault.
            Use::Weaker | Use::Both => write_zeros(&*io, header.bytes, Promise::Handed, pace)?,
        }
        if made_for != Use::Weaker {
            io.sync()?;
        }
        let mapping = if made_for == Use::Disk { None } else { io.map()? };
        if made_for == Use::Weaker && mapping.is_none() {
            // Direct writes are to come: they and the page cache never both hold unwritten bytes.
            io.sync()?;
        }
        disk.rename(&temporary, &name)?;
        disk.sync_dir()?;
        Ok(JournalFile::fresh(header, io, mapping))
    };
    match fill() {
        Ok(file) => Ok(file),
        Err(error) => {
            // Half a file must not keep the room that its successor will need.
            let _ = disk.remove(&temporary);
            let _ = disk.remove(&name);
            Err(error)
        }
    }
}

/// How fast a file is prepared: as fast as the one before it fills, so that the device is left to
/// flushes while there is time.
pub(crate) struct Pace<'a> {
    marks: &'a Marks,
    /// What was durable when the preparing began, and bytes that fit into the active file then.
    durable: u64,
    room: u64,
}

impl Pace<'_> {
    /// For a file that an open waits for.
    pub(crate) fn at_once(marks: &Marks) -> Pace<'_> {
        Pace { marks, durable: 0, room: 0 }
    }

    /// Bytes to write at once when `done` of `all` are written.
    ///
    /// PERF: a flush waits for the write the device is at: 0.9 ms behind 1 MiB. Yet between flushes
    /// the small ones make 300 MB/s and the large ones 1 GB/s.
    fn step(&self, done: u64, all: u64) -> u64 {
        const SMALL: u64 = 128 << 10;
        let filled = self.marks.durable().saturating_sub(self.durable);
        let is_late =
            u128::from(filled) * u128::from(all) >= u128::from(done) * u128::from(self.room);
        if is_late { CHUNK as u64 } else { SMALL }
    }
}

fn write_zeros(
    io: &dyn crate::disk::File,
    until: u64,
    promise: Promise,
    pace: &Pace<'_>,
) -> io::Result<()> {
    let mut zeros = Pen::new();
    zeros.write(&vec![0; CHUNK]);
    let mut at = FRAMES_AT;
    while at < until {
        let now = (until - at).min(pace.step(at - FRAMES_AT, until - FRAMES_AT));
        io.write_at(&[IoSlice::new(zeros.chunk().bytes(0..mem(now)))], at, promise)?;
        at += now;
    }
    Ok(())
}

/// Writes the footer of a file whose frames end at `footer.data_end` and are durable, and cuts
/// the file off behind it. Returns the file's new size.
///
/// CRASH(@F): until the sync returns, the footer may be partly there and the file still long. The
/// frames say the same as before, so the next open scans them and writes the footer again.
pub(crate) fn write_footer(
    io: &dyn crate::disk::File,
    id: u64,
    footer: &mut Footer,
    rows: &[Vec<Row>],
) -> io::Result<u64> {
    let (at, bytes) = footer::encode(id, footer, rows);
    let size = at + bytes.len() as u64;
    // Longer than it will be, so that half a footer is never at the end of the file; but not by
    // much: zeros written ahead and never used need not reach the device.
    if io.len()? != size + BLOCK {
        io.truncate(size + BLOCK)?;
    }
    let gap = vec![0; mem(at - footer.data_end)];
    io.write_at(&[IoSlice::new(&gap), IoSlice::new(&bytes)], footer.data_end, Promise::Handed)?;
    io.sync()?;
    // The file gets its final length only after the footer is durable, so that a whole file with a
    // bad footer is damage and never an interrupted sealing.
    io.truncate(size)?;
    io.sync()?;
    Ok(size)
}

/// Bytes of mapped files behind the tail cache that are left in the page cache for readers; beyond,
/// their memory is the next file's. The kernel takes what it needs sooner.
const PAGE_CACHE_BYTES_MAX: u64 = 2 << 30;

/// Windows let go of whose bytes are in the page cache, and where each begins in its file.
type Kept = VecDeque<(Weak<JournalFile>, u64)>;

impl Shared {
    /// Prepares files as they are wanted until the journal stops.
    pub(crate) fn prepare_files(&self) {
        let mut writer = self.writer.lock();
        loop {
            if let Some(unwanted) = writer.unwanted.pop() {
                drop(writer);
                if let Err(error) = self.disk.remove(&unwanted.name()) {
                    tracing::warn!(%error, file = unwanted.name(), "could not remove unused file");
                }
                writer = self.writer.lock();
                continue;
            }
            if writer.stop {
                return;
            }
            // Not before something was asked for: then it is known what the file is for.
            let (Next::Wanted(bytes), Some(made_for), false) =
                (&writer.next, self.marks.used(), writer.closed)
            else {
                self.prepare.wait(&mut writer);
                continue;
            };
            let bytes = block_ceil(bytes.saturating_add(FRAMES_AT + BLOCK));
            let header = FileHeader {
                id: self.disk.random(),
                sequence: writer.next_sequence,
                base: writer.next_base,
                bytes: bytes.max(block_ceil(self.options.file_bytes)),
            };
            writer.next_sequence += 1;
            writer.next_base += header.bytes;
            self.marks.forget_use();
            let pace = Pace {
                marks: &self.marks,
                durable: writer.durable,
                room: writer.active.as_ref().map_or(0, |it| it.file.header.bytes - it.end),
            };
            drop(writer);
            let outcome = prepare(&*self.disk, header, made_for, &pace);
            writer = self.writer.lock();
            writer.next = match outcome {
                Ok(file) => Next::Ready(Arc::new(file)),
                Err(error) => {
                    tracing::warn!(%error, bytes = header.bytes, "could not prepare a journal file");
                    Next::Failed { full: is_full(&error), reason: error.to_string().into() }
                }
            };
            self.prepared.notify_all();
        }
    }

    /// Gives back windows of mapped files, and the page cache behind them once `kept` holds more
    /// of it than it may.
    ///
    /// PERF: pages given back are the next file's: memory that is warm, and on a virtual machine
    /// backed by the host (64 MiB of zeros take 12 ms there, 50 to 100 in memory never touched).
    /// Given back at once, a reader that begins when the writers are done reads all from the device.
    fn let_go(&self, evicted: Vec<(Arc<JournalFile>, u64, Arc<Chunk>)>, kept: &mut Kept) {
        for (file, at, window) in evicted {
            // The last window of a file unmaps it: milliseconds that no append waits for.
            drop(window);
            kept.push_back((Arc::downgrade(&file), at));
            while kept.len() as u64 * CHUNK as u64 > PAGE_CACHE_BYTES_MAX {
                let Some((file, at)) = kept.pop_front() else { break };
                if let Some(io) = file.upgrade().and_then(|file| self.io(&file).ok()) {
                    io.forget(at..at + CHUNK as u64);
                }
            }
        }
    }

    /// Seals files as they fill until the journal stops.
    pub(crate) fn seal_files(&self) {
        let mut kept = Kept::new();
        let mut writer = self.writer.lock();
        loop {
            if !writer.evicted.is_empty() {
                let evicted = std::mem::take(&mut writer.evicted);
                MutexGuard::unlocked(&mut writer, || self.let_go(evicted, &mut kept));
                continue;
            }
            if writer.stop {
                return;
            }
            let Some(file) = writer.unsealed.front().cloned() else {
                self.seal.wait(&mut writer);
                continue;
            };
            drop(writer);
            let outcome = self.seal_file(&file);
            writer = self.writer.lock();
            writer.unsealed.pop_front();
            if let Err(error) = outcome {
                // Its frames are durable; the next open scans them and tries again. No later file
                // may be sealed before it: that would call a torn tail here damage.
                tracing::warn!(%error, file = file.name(), "could not seal a journal file");
                writer.unsealed.push_front(file);
                if writer.stop {
                    return;
                }
                let _ =
                    self.seal.wait_for(&mut writer, self.options.os_flush_interval.max(SEAL_RETRY));
            }
        }
    }

    /// Gives one file its footer and lends its rows to it.
    pub(crate) fn seal_file(&self, file: &Arc<JournalFile>) -> io::Result<()> {
        let touched = std::mem::take(&mut *file.touched.lock());
        let outcome = self.io(file).and_then(|io| seal(&self.streams, &*io, file, &touched));
        match &outcome {
            Ok(()) => {
                file.unmap();
                self.handles.opened(file);
            }
            Err(_) => *file.touched.lock() = touched,
        }
        outcome
    }
}

/// Gives a file whose frames are durable its footer, and lets the footer keep the rows.
pub(crate) fn seal(
    streams: &Streams,
    io: &dyn crate::disk::File,
    file: &Arc<JournalFile>,
    touched: &[StreamId],
) -> io::Result<()> {
    let mut footer = Footer {
        data_end: file.data_end(),
        runs: Vec::new(),
        trims: file.trims.lock().clone(),
        fences: file.fences.lock().clone(),
    };
    let mut all_rows = Vec::new();
    for id in touched {
        let Some(stream) = streams.get(*id) else { continue };
        let index = stream.index.lock();
        for run in index.runs.iter().chain(&index.moving) {
            if let Rows::Memory(rows) = &run.rows
                && Arc::ptr_eq(&run.file, file)
            {
                footer.runs.push(run.record);
                all_rows.push(rows.clone());
            }
        }
    }
    let size = write_footer(io, file.header.id, &mut footer, &all_rows)?;
    drop(all_rows);
    for record in &footer.runs {
        let Some(stream) = streams.get(record.stream) else { continue };
        let mut guard = stream.index.lock();
        let index = &mut *guard;
        for run in index.runs.iter_mut().chain(&mut index.moving) {
            // A copy given up half-way and its successor may begin alike, in one file.
            let same = (run.record.first, run.record.end, run.record.relocated)
                == (record.first, record.end, record.relocated);
            if same && Arc::ptr_eq(&run.file, file) {
                run.record = *record;
                run.rows = Rows::Footer;
            }
        }
    }
    file.size.store(size, Ordering::Release);
    file.sealed.store(true, Ordering::Release);
    Ok(())
}

/// Pause between attempts to seal a file that could not be sealed.
const SEAL_RETRY: std::time::Duration = std::time::Duration::from_secs(1);
