//! The journal's files as objects: who they are, the chunks of them still in memory, and a bounded
//! number of open descriptors.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use thetis_types::{Offset, StreamId};

use crate::chunk::{CHUNK, Chunk};
use crate::disk::{Disk, File, Mapping};
use crate::format::file::{self, FileHeader};
use crate::format::footer::{Fence, Row, RunRecord};
use crate::format::mem;

/// Sealed files held open at once. Descriptors are the scarcer resource: 1024 are usual.
const OPEN_FILES_MAX: usize = 256;
/// Bytes of footer rows kept for reads of sealed files.
const ROW_CACHE_BYTES_MAX: usize = 32 << 20;

/// One file.
pub(crate) struct JournalFile {
    pub(crate) header: FileHeader,
    io: Mutex<Option<Arc<dyn File>>>,
    /// The file as memory, until it is sealed; `None` where it is written with calls. Fixed while
    /// frames are appended.
    mapping: Mutex<Option<Arc<Mapping>>>,
    mapped: bool,
    /// Chunks still in memory, by number; `None` where evicted.
    chunks: RwLock<Vec<Option<Arc<Chunk>>>>,
    /// Streams with frames here; emptied by sealing.
    pub(crate) touched: Mutex<Vec<StreamId>>,
    /// Trim marks in the file.
    pub(crate) trims: Mutex<Vec<(StreamId, Offset)>>,
    /// Damaged ranges in the file.
    pub(crate) fences: Mutex<Vec<Fence>>,
    /// First byte after the last frame; fixed once the file is no longer active.
    data_end: AtomicU64,
    /// A footer ends the file.
    pub(crate) sealed: AtomicBool,
    /// Bytes on disk, footer included; zero until sealed.
    pub(crate) size: AtomicU64,
}

impl JournalFile {
    pub(crate) fn new(header: FileHeader, io: Option<Arc<dyn File>>) -> JournalFile {
        JournalFile {
            header,
            io: Mutex::new(io),
            mapping: Mutex::new(None),
            mapped: false,
            chunks: RwLock::default(),
            touched: Mutex::default(),
            trims: Mutex::default(),
            fences: Mutex::default(),
            data_end: AtomicU64::new(file::FRAMES_AT),
            sealed: AtomicBool::new(false),
            size: AtomicU64::new(0),
        }
    }

    /// A fresh file that is written through `mapping`, where there is one.
    pub(crate) fn fresh(
        header: FileHeader,
        io: Arc<dyn File>,
        mapping: Option<Arc<Mapping>>,
    ) -> JournalFile {
        let mapped = mapping.is_some();
        let mapping = Mutex::new(mapping);
        JournalFile { mapping, mapped, ..JournalFile::new(header, Some(io)) }
    }

    /// The file as memory.
    pub(crate) fn mapping(&self) -> Option<Arc<Mapping>> {
        self.mapping.lock().clone()
    }

    /// Whether frames are copied into the file rather than written to it; stays so.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped
    }

    /// Lets go of the mapping once nothing is to be synced through it any more.
    pub(crate) fn unmap(&self) {
        self.mapping.lock().take();
    }

    pub(crate) fn name(&self) -> String {
        file::name(self.header.sequence)
    }

    pub(crate) fn data_end(&self) -> u64 {
        self.data_end.load(Ordering::Acquire)
    }

    pub(crate) fn set_data_end(&self, at: u64) {
        self.data_end.store(at, Ordering::Release);
    }

    /// Bytes on disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        match self.size.load(Ordering::Acquire) {
            0 => self.header.bytes,
            size => size,
        }
    }

    /// Mirrors chunk `number` in memory.
    pub(crate) fn keep_chunk(&self, number: usize, chunk: Arc<Chunk>) {
        let mut chunks = self.chunks.write();
        if chunks.len() <= number {
            chunks.resize(number + 1, None);
        }
        chunks[number] = Some(chunk);
    }

    pub(crate) fn evict_chunk(&self, number: usize) -> Option<Arc<Chunk>> {
        self.chunks.write().get_mut(number)?.take()
    }

    pub(crate) fn chunk(&self, number: usize) -> Option<Arc<Chunk>> {
        self.chunks.read().get(number)?.clone()
    }

    /// The bytes of `range` from memory: a slice where they lie in one chunk, a copy where they
    /// cross a border, `None` where some of them were evicted. Also whether the memory may have
    /// come back from a device and is to be checked like what is read from one.
    pub(crate) fn cached(&self, range: Range<u64>) -> Option<(Bytes, Trust)> {
        let size = CHUNK as u64;
        let (first, last) = (range.start / size, range.end.saturating_sub(1) / size);
        let inside = |chunk: u64| {
            let base = chunk * size;
            mem(range.start.max(base) - base)..mem(range.end.min(base + size) - base)
        };
        if first == last || range.is_empty() {
            let chunk = self.chunk(mem(first))?;
            let trust = Trust::of(&chunk);
            return Some((chunk.share(inside(first)), trust));
        }
        let mut copy = Vec::with_capacity(mem(range.end - range.start));
        let mut trust = Trust::Memory;
        for number in first..=last {
            let chunk = self.chunk(mem(number))?;
            trust = trust.max(Trust::of(&chunk));
            copy.extend_from_slice(chunk.bytes(inside(number)));
        }
        Some((copy.into(), trust))
    }
}

/// Where bytes come from, and so whether their checksum tells anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// Our own memory, from which the checksum was computed.
    Memory,
    /// A device, at some time or other.
    Disk,
}

impl Trust {
    fn of(chunk: &Chunk) -> Trust {
        if chunk.is_mapped() { Trust::Disk } else { Trust::Memory }
    }
}

/// What bounds the memory and descriptors of sealed files.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<VecDeque<Weak<JournalFile>>>,
    rows: Mutex<RowCache>,
}

#[derive(Default)]
struct RowCache {
    rows: HashMap<(u64, u64), Arc<Vec<Row>>>,
    order: VecDeque<(u64, u64)>,
    bytes: usize,
}

impl Handles {
    /// The open file behind `file`, opened when it is not.
    pub(crate) fn io(&self, disk: &dyn Disk, file: &Arc<JournalFile>) -> io::Result<Arc<dyn File>> {
        let mut slot = file.io.lock();
        if let Some(io) = &*slot {
            return Ok(Arc::clone(io));
        }
        let io = disk.open(&file.name())?;
        *slot = Some(Arc::clone(&io));
        drop(slot);
        self.opened(file);
        Ok(io)
    }

    /// Counts a file among the open ones that may be closed when there are too many.
    pub(crate) fn opened(&self, file: &Arc<JournalFile>) {
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(file));
        let surplus = match open.len() > OPEN_FILES_MAX {
            true => open.pop_front(),
            false => None,
        };
        drop(open);
        if let Some(surplus) = surplus.and_then(|surplus| surplus.upgrade()) {
            surplus.io.lock().take();
        }
    }

    /// The rows of a sealed run.
    ///
    /// # Errors
    /// `InvalidData` with the flaw when they do not match their checksum.
    pub(crate) fn rows(
        &self,
        disk: &dyn Disk,
        file: &Arc<JournalFile>,
        run: &RunRecord,
    ) -> io::Result<Arc<Vec<Row>>> {
        let key = (file.header.sequence, run.rows_at);
        if let Some(rows) = self.rows.lock().rows.get(&key) {
            return Ok(Arc::clone(rows));
        }
        // `rows` times the row size was checked to lie inside the file when the footer was read.
        let bytes = u64::from(run.rows) * crate::format::footer::ROW as u64;
        let bytes = crate::disk::read_vec(&*self.io(disk, file)?, run.rows_at, bytes)?;
        let rows = Row::decode_all(&bytes, run)
            .map_err(|flaw| io::Error::new(io::ErrorKind::InvalidData, flaw))?;
        let rows = Arc::new(rows);
        let mut cache = self.rows.lock();
        if cache.rows.insert(key, Arc::clone(&rows)).is_none() {
            cache.order.push_back(key);
            cache.bytes += bytes.len();
        }
        while cache.bytes > ROW_CACHE_BYTES_MAX && cache.order.len() > 1 {
            let Some(oldest) = cache.order.pop_front() else { break };
            if let Some(rows) = cache.rows.remove(&oldest) {
                cache.bytes -= rows.len() * crate::format::footer::ROW;
            }
        }
        Ok(rows)
    }
}
