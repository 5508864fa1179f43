//! Where the file of the embedded engine lives. Owns attaching to it, again after a fault, noticing
//! a failed flush, and reading while nothing can be written; does not know what is written.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// Something that holds one database file. Attached once at a time.
pub(crate) trait Medium: Send + Sync {
    /// Attaches to the file, which exists.
    fn attach(&self) -> io::Result<Arc<dyn StorageBackend>>;
    /// What to call it in errors.
    fn path(&self) -> &Path;
}

/// A file of the operating system.
pub(crate) struct FileMedium {
    pub(crate) path: PathBuf,
}

impl Medium for FileMedium {
    fn attach(&self) -> io::Result<Arc<dyn StorageBackend>> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        Ok(Arc::new(FileBackend::new(file).map_err(io::Error::other)?))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

type Edge = Bound<u64>;

/// A backend that remembers whether a flush ever failed. After that the operating system may have
/// dropped pages it shows as written, so nothing read back proves anything.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) inner: Arc<dyn StorageBackend>,
    pub(crate) flush_failed: Arc<AtomicBool>,
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let flushed = self.inner.sync_data();
        if flushed.is_err() {
            self.flush_failed.store(true, Ordering::Release);
        }
        flushed
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

/// Granule of an [`Overlay`], in bytes: the page of the engine.
const BLOCK_BYTES: usize = 4096;

/// Blocks an [`Overlay`] holds at most; opening a file writes a few.
const OVERLAY_BLOCKS_MAX: usize = 16_384;

/// A backend that keeps writes in memory, over a medium that takes none. The engine writes while
/// it opens a file that was not closed in order; with this it can, and reads go on. Whatever is
/// written here is lost, so no caller's write may be: the store refuses them.
#[derive(Debug)]
pub(crate) struct Overlay {
    base: Arc<dyn StorageBackend>,
    state: Mutex<OverlayState>,
}

#[derive(Debug)]
struct OverlayState {
    len: u64,
    /// Bytes of the base beyond this are hidden: the file was shortened here.
    base_len: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    /// Lays itself over what `base` holds.
    pub(crate) fn over(base: Arc<dyn StorageBackend>) -> io::Result<Overlay> {
        let len = base.len()?;
        let state = OverlayState { len, base_len: len, blocks: BTreeMap::new() };
        Ok(Overlay { base, state: Mutex::new(state) })
    }

    /// The block as it reads now.
    fn block(&self, state: &OverlayState, index: u64) -> io::Result<Vec<u8>> {
        if let Some(block) = state.blocks.get(&index) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK_BYTES];
        let start = index * BLOCK_BYTES as u64;
        let held = usize::try_from(state.base_len.saturating_sub(start)).unwrap_or(usize::MAX);
        let held = held.min(BLOCK_BYTES);
        if held > 0 {
            self.base.read(start, &mut block[..held])?;
        }
        Ok(block)
    }

    /// Calls `visit` with each block that overlaps the range, where in the block the range lies,
    /// and where that part lies in the range.
    fn pieces(
        offset: u64,
        len: usize,
        mut visit: impl FnMut(u64, std::ops::Range<usize>, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let inside = usize::try_from(at % BLOCK_BYTES as u64).map_err(io::Error::other)?;
            let count = (BLOCK_BYTES - inside).min(len - done);
            visit(at / BLOCK_BYTES as u64, inside..inside + count, done)?;
            done += count;
        }
        Ok(())
    }

    fn check_end(state: &OverlayState, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= state.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        Overlay::check_end(&state, offset, out.len())?;
        Overlay::pieces(offset, out.len(), |index, inside, done| {
            let block = self.block(&state, index)?;
            out[done..done + inside.len()].copy_from_slice(&block[inside]);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let state = &mut *self.state.lock();
        if len < state.len {
            let whole = len / BLOCK_BYTES as u64;
            let mut cut = self.block(state, whole)?;
            let kept = usize::try_from(len % BLOCK_BYTES as u64).map_err(io::Error::other)?;
            cut[kept..].fill(0);
            state.blocks.retain(|index, _| *index < whole);
            state.blocks.insert(whole, cut);
            state.base_len = state.base_len.min(len);
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let state = &mut *self.state.lock();
        Overlay::check_end(state, offset, data.len())?;
        Overlay::pieces(offset, data.len(), |index, inside, done| {
            let mut block = self.block(state, index)?;
            let count = inside.len();
            block[inside].copy_from_slice(&data[done..done + count]);
            state.blocks.insert(index, block);
            if state.blocks.len() > OVERLAY_BLOCKS_MAX {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        })
    }

    fn close(&self) -> io::Result<()> {
        self.base.close()
    }

    fn try_lock_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.base.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.base.unlock_range(start, end)
    }
}
