//! Where the file of the embedded engine lives. Owns attaching to it, again after a fault, and
//! noticing a failed flush; does not know what is written.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
