//! A directory of the operating system: positioned writes, direct ones where they are taken.
//!
//! A new file is held by two descriptors. The buffered one serves reads, handed writes and syncs;
//! the direct one serves durable writes with `RWF_DSYNC`, which on a prewritten file cost one
//! device write and no metadata. The journal never lets both have unwritten bytes at once, and
//! maps only files it writes nothing to directly.

use std::any::Any;
use std::fs;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags};
use rustix::io::ReadWriteFlags;

use super::{Disk, File, IoChoice, IoPath, Mapping, Promise};
use crate::format::{BLOCK, mem};

/// Name of the file the lock is taken on.
const LOCK: &str = "lock";
/// Parts in one system call; the kernel's own limit (`IOV_MAX`).
const PARTS_MAX: usize = 1024;

/// A directory of the operating system.
pub struct OsDisk {
    path: PathBuf,
    direct: AtomicBool,
    mapped: AtomicBool,
    opened: Instant,
}

struct OsFile {
    buffered: fs::File,
    direct: Option<fs::File>,
    may_map: bool,
}

impl OsDisk {
    /// A disk over the directory `path`, which is created with its parents when missing.
    ///
    /// # Errors
    /// Of the file system.
    pub fn new(path: impl AsRef<Path>) -> io::Result<OsDisk> {
        fs::create_dir_all(path.as_ref())?;
        Ok(OsDisk::over(path.as_ref()))
    }

    /// A disk over an existing directory, for reading it offline.
    ///
    /// # Errors
    /// `NotADirectory` or `NotFound`.
    pub fn existing(path: impl AsRef<Path>) -> io::Result<OsDisk> {
        if !fs::metadata(path.as_ref())?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(OsDisk::over(path.as_ref()))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the port's engine")]
    fn over(path: &Path) -> OsDisk {
        OsDisk {
            path: path.to_owned(),
            direct: AtomicBool::new(false),
            mapped: AtomicBool::new(false),
            opened: Instant::now(),
        }
    }

    fn open_direct(&self, name: &str) -> io::Result<fs::File> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        fs::OpenOptions::new().write(true).custom_flags(flags).open(self.path.join(name))
    }

    /// Writes one block directly to a scratch file, as a flush would.
    fn probe(&self) -> io::Result<()> {
        const NAME: &str = "probe.prepare";
        let path = self.path.join(NAME);
        let outcome = (|| {
            fs::File::create(&path)?.set_len(BLOCK)?;
            let file = self.open_direct(NAME)?;
            let block = crate::chunk::Block([0; 4096]);
            write_all(&file, &[IoSlice::new(&block.0)], 0, ReadWriteFlags::DSYNC)
        })();
        let _ = fs::remove_file(&path);
        outcome
    }
}

/// The lock on a directory.
struct Lock(fs::File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process being started elsewhere in this one holds a copy of the
        // descriptor until it runs, and with it the lock.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Disk for OsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        let path = self.path.join(name);
        let outcome = (|| {
            let mut options = fs::OpenOptions::new();
            let buffered =
                options.read(true).write(true).create(true).truncate(true).open(&path)?;
            match rustix::fs::fallocate(&buffered, FallocateFlags::empty(), 0, bytes) {
                // Not every file system can allocate ahead; writing zeros does it there.
                Err(rustix::io::Errno::OPNOTSUPP) => buffered.set_len(bytes)?,
                other => other?,
            }
            let direct = match self.direct.load(Ordering::Relaxed) {
                true => Some(self.open_direct(name)?),
                false => None,
            };
            let may_map = self.mapped.load(Ordering::Relaxed);
            Ok(Arc::new(OsFile { buffered, direct, may_map }) as Arc<dyn File>)
        })();
        if outcome.is_err() {
            let _ = fs::remove_file(&path);
        }
        outcome
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let path = self.path.join(name);
        let mut options = fs::OpenOptions::new();
        let buffered = match options.read(true).write(true).open(&path) {
            // An operator may look at files that are not theirs to write.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                fs::File::open(&path)?
            }
            other => other?,
        };
        Ok(Arc::new(OsFile { buffered, direct: None, may_map: false }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_dir(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(self.path.join(LOCK))?;
        // Held by the open description, so two journals of one process exclude each other too.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(Lock(file)))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn choose_io(&self, choice: IoChoice) -> io::Result<IoPath> {
        let path = match choice {
            IoChoice::Buffered => IoPath { direct: false, why: "asked for".to_owned() },
            IoChoice::Auto | IoChoice::Direct => match self.probe() {
                Ok(()) => IoPath { direct: true, why: "the directory takes them".to_owned() },
                Err(error) if choice == IoChoice::Auto => {
                    IoPath { direct: false, why: format!("direct writes are refused: {error}") }
                }
                Err(error) => return Err(error),
            },
        };
        self.direct.store(path.direct, Ordering::Relaxed);
        self.mapped.store(choice != IoChoice::Buffered, Ordering::Relaxed);
        Ok(path)
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut bytes[filled..], flags) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no random bytes: {error}"),
            }
        }
        u64::from_le_bytes(bytes)
    }

    fn elapsed(&self) -> Duration {
        self.opened.elapsed()
    }
}

impl OsFile {
    fn advise(&self, range: Range<u64>, advice: Advice) {
        if let Some(bytes) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            // No more than a hint: without it the same happens, more slowly.
            let _ = rustix::fs::fadvise(&self.buffered, range.start, Some(bytes), advice);
        }
    }
}

impl File for OsFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64, promise: Promise) -> io::Result<()> {
        let none = ReadWriteFlags::empty();
        match (promise, &self.direct) {
            (Promise::Handed, _) | (Promise::Nothing, None) => {
                write_all(&self.buffered, parts, at, none)
            }
            (Promise::Nothing, Some(direct)) => write_all(direct, parts, at, none),
            (Promise::Durable, Some(direct)) => write_all(direct, parts, at, ReadWriteFlags::DSYNC),
            (Promise::Durable, None) => {
                write_all(&self.buffered, parts, at, none)?;
                self.buffered.sync_data()
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync covers the length; it leaves out only times.
        self.buffered.sync_data()
    }

    fn map(&self) -> io::Result<Option<Arc<Mapping>>> {
        if !self.may_map {
            return Ok(None);
        }
        // Whatever the reason: writes do the same, more slowly.
        let mapping = Mapping::of_file(&self.buffered, mem(self.len()?));
        if let Err(error) = &mapping {
            tracing::debug!(%error, "the file is written, not mapped");
        }
        Ok(mapping.ok().map(Arc::new))
    }

    fn sync_mapped(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        mapping.sync(mem(range.start)..mem(range.end))
    }

    fn will_read(&self, range: Range<u64>) {
        self.advise(range, Advice::WillNeed);
    }

    fn forget(&self, range: Range<u64>) {
        self.advise(range, Advice::DontNeed);
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.buffered.read_exact_at(into, at)
    }

    /// PERF: memory that is filled at once is not filled with zeros first.
    fn read_vec(&self, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut into = Vec::with_capacity(bytes);
        while into.len() < bytes {
            let from = at + into.len() as u64;
            match rustix::io::pread(&self.buffered, spare_capacity(&mut into), from) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        into.truncate(bytes);
        Ok(into)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.len())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.buffered.set_len(bytes)
    }
}

/// Writes all of `parts`, however few bytes the kernel takes at a time.
fn write_all(
    file: &fs::File,
    parts: &[IoSlice<'_>],
    mut at: u64,
    flags: ReadWriteFlags,
) -> io::Result<()> {
    let mut parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = parts.as_mut_slice();
    // Empty parts in front would make a write of nothing look like a full disk.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let batch = &rest[..rest.len().min(PARTS_MAX)];
        match rustix::io::pwritev2(file, batch, at, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(wrote) => {
                at += wrote as u64;
                IoSlice::advance_slices(&mut rest, wrote);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
