//! The port through which the journal reaches a disk, narrow enough that another engine
//! (io_uring, a simulation) fits behind it. One flat directory of files.
//!
//! Every call may fail and is tried once; what a failure means is the journal's business.

mod os;

pub use os::OsDisk;

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use crate::mapping::Mapping;

/// What the operator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoChoice {
    /// Direct writes where the directory takes them, buffered ones elsewhere.
    #[default]
    Auto,
    /// Direct writes, or an error at open.
    Direct,
    /// Buffered writes and `fdatasync`; no mapped files.
    Buffered,
}

/// How durable writes are done, and why so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoPath {
    /// Durable writes bypass the page cache.
    pub direct: bool,
    /// The reason, for the log.
    pub why: String,
}

impl fmt::Display for IoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path =
            if self.direct { "direct writes with dsync" } else { "buffered writes, fdatasync" };
        write!(f, "{path}: {}", self.why)
    }
}

/// What a write promises when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Nothing before [`File::sync`]; taken around the page cache where writes are direct.
    Nothing,
    /// The bytes are with the operating system and survive the process.
    Handed,
    /// The bytes survive loss of power. Says nothing about earlier handed bytes elsewhere.
    Durable,
}

/// A directory of journal files. Names are plain file names.
///
/// # Contract
/// - A file's creation, rename or removal survives power loss only after [`Disk::sync_dir`].
/// - One process at a time holds [`Disk::lock`]; readers need no lock.
pub trait Disk: Send + Sync {
    /// The names of all files, in no order.
    ///
    /// # Errors
    /// Of the directory.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates a file of `bytes` zero bytes whose space is allocated; replaces one of that name.
    ///
    /// # Errors
    /// `StorageFull` when there is no room; the file is then gone again.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing, or for reading only where the medium says so.
    ///
    /// # Errors
    /// `NotFound` among others.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Removes a file; those who have it open may go on reading.
    ///
    /// # Errors
    /// `NotFound` among others.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file, replacing one of the new name.
    ///
    /// # Errors
    /// `NotFound` among others.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes creations, renames and removals so far durable.
    ///
    /// # Errors
    /// Of the device.
    fn sync_dir(&self) -> io::Result<()>;
    /// Takes the directory for this holder alone until the returned guard is dropped.
    ///
    /// # Errors
    /// `WouldBlock` when another holds it.
    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>>;
    /// Bytes that could still be allocated.
    ///
    /// # Errors
    /// Of the file system.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Finds out how durable writes are to be done, and keeps to it.
    ///
    /// # Errors
    /// `Unsupported` when direct writes are demanded and refused.
    fn choose_io(&self, choice: IoChoice) -> io::Result<IoPath>;
    /// An unpredictable number, for the ids of files.
    fn random(&self) -> u64;
    /// Time since a fixed point; nothing but how long a flush is held back depends on it. It may
    /// stand still.
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// An open file.
///
/// # Contract
/// Writes to different blocks may run at once from several threads. A write either returns `Ok`
/// after all bytes are in, or an error after any part of them may be.
pub trait File: Send + Sync {
    /// Writes `parts` one after the other from byte `at`. Parts and `at` are block-aligned, except
    /// that a `Handed` write may have any shape.
    ///
    /// # Errors
    /// Of the device; `StorageFull` without room.
    fn write_at(&self, parts: &[io::IoSlice<'_>], at: u64, promise: Promise) -> io::Result<()>;
    /// Makes everything written so far durable, length included.
    ///
    /// # Errors
    /// Of the device. After one, nothing handed before may be taken for durable.
    fn sync(&self) -> io::Result<()>;
    /// The whole file as memory whose writes are as good as handed, every page present; `None`
    /// where that cannot be had, and then handed writes do. While it lives the file is not cut
    /// below what was written through it.
    ///
    /// # Errors
    /// Of the file system.
    fn map(&self) -> io::Result<Option<Arc<Mapping>>> {
        Ok(None)
    }
    /// Makes `range`, written through `mapping` of this file, durable.
    ///
    /// # Errors
    /// As [`File::sync`].
    fn sync_mapped(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        let _ = (mapping, range);
        self.sync()
    }
    /// A hint: `range` will be read soon, from its beginning to its end.
    fn will_read(&self, range: Range<u64>) {
        let _ = range;
    }
    /// A hint: nobody will read `range` soon, so it need not be kept in memory.
    fn forget(&self, range: Range<u64>) {
        let _ = range;
    }
    /// Fills `into` from byte `at`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()>;
    /// `bytes` bytes from byte `at`, in memory of their own.
    ///
    /// # Errors
    /// As [`File::read_at`].
    fn read_vec(&self, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut into = vec![0; bytes];
        self.read_at(&mut into, at)?;
        Ok(into)
    }
    /// Bytes of the file.
    ///
    /// # Errors
    /// Of the file system.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// Of the file system.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts the file off at `bytes`, or lengthens it with zeros.
    ///
    /// # Errors
    /// Of the file system.
    fn truncate(&self, bytes: u64) -> io::Result<()>;
}

/// Reads `bytes` bytes from `at` into memory of their own. The caller has checked that they are
/// within the file.
pub(crate) fn read_vec(file: &dyn File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    file.read_vec(at, crate::format::mem(bytes))
}
