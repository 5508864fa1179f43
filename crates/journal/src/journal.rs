//! The journal as its callers see it: open, append, wait, close.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use thetis_types::{AttemptId, Durability, Entry, Epoch, HeadVersion, Offset, StreamId};

use crate::disk::{Disk, File, IoChoice, IoPath};
use crate::error::{FlushError, OpenError};
use crate::files::{Handles, JournalFile};
use crate::flush::{Leader, Then};
use crate::format::block_ceil;
use crate::format::file::FileHeader;
use crate::index::{Stream, Streams};
use crate::marks::Marks;
use crate::recover::{self, Recovery};
use crate::worker::{self, Pace, Use};
use crate::writer::{Next, Writer};

/// Bytes of the first file after an open, unless `file_bytes` is less. Small, so that an open
/// does not wait for a large file to be written with zeros.
const FIRST_FILE_BYTES: u64 = 4 << 20;
/// Smallest file: the header block, a pad and a block of frames.
const FILE_BYTES_MIN: u64 = 16 << 10;

/// How a journal is to work. The defaults suit a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a file. Larger files mean fewer footers; smaller ones are given back sooner.
    pub file_bytes: u64,
    /// The longest that appended bytes wait for a flush when nobody asks for `disk`.
    pub os_flush_interval: Duration,
    /// Direct flushes running at once; more of them keep writers that wait for each other from
    /// falling into two groups, at the price of padding.
    pub flushes_in_flight_max: usize,
    /// Bytes of recently written frames kept in memory for readers, and the most that may be
    /// appended but not yet handed to the operating system; appends wait beyond that.
    pub tail_cache_bytes: u64,
    /// Which I/O path to take.
    pub io: IoChoice,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            file_bytes: 64 << 20,
            os_flush_interval: Duration::from_millis(10),
            flushes_in_flight_max: 2,
            tail_cache_bytes: 64 << 20,
            io: IoChoice::Auto,
        }
    }
}

/// A place in the journal: after everything appended before it. Grows with each append, across
/// opens too; says nothing about a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "j{}", self.0)
    }
}

/// One entry to append, with the place its stream's lane gave it.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// Epoch it is committed under.
    pub epoch: Epoch,
    /// The head's version after this entry; one more than after the one before.
    pub version: HeadVersion,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// The attempt it belongs to.
    pub attempt: AttemptId,
    /// The entry.
    pub entry: &'a Entry,
}

/// Figures of a journal at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Files in use, the active one included.
    pub files: usize,
    /// Bytes of them on disk.
    pub file_bytes: u64,
    /// Bytes of frames that are live, about.
    pub live_bytes: u64,
    /// Streams known.
    pub streams: usize,
    /// Bytes of frames appended since open, padding included.
    pub appended_bytes: u64,
    /// Flushes since open.
    pub flushes: u64,
    /// Appended bytes that are not durable.
    pub unflushed_bytes: u64,
    /// The failure that stopped the journal.
    pub poisoned: Option<String>,
}

/// What every handle shares.
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    io_path: IoPath,
    pub(crate) streams: Streams,
    pub(crate) files: RwLock<BTreeMap<u64, Arc<JournalFile>>>,
    pub(crate) handles: Handles,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) marks: Arc<Marks>,
    /// Wakes a thread that leads flushes for callbacks.
    pub(crate) lead: Condvar,
    /// Wakes the ticker.
    pub(crate) tick: Condvar,
    /// Wakes the preparer.
    pub(crate) prepare: Condvar,
    /// Wakes those who wait for a prepared file.
    pub(crate) prepared: Condvar,
    /// Wakes the sealer.
    pub(crate) seal: Condvar,
    /// One reclaim at a time.
    pub(crate) reclaiming: Mutex<()>,
    lock: Mutex<Option<Box<dyn Any + Send + Sync>>>,
}

/// Ends the threads with the last handle.
struct Threads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

/// One durable log for all streams of a machine. Clones are handles on the same journal.
///
/// Dropping the last handle without [`Journal::close`] leaves what a crash would leave: everything
/// waited for is safe, the next open scans the last file.
#[derive(Clone)]
pub struct Journal {
    pub(crate) shared: Arc<Shared>,
    threads: Arc<Threads>,
}

/// One stream's view of the journal.
#[derive(Clone)]
pub struct Log {
    pub(crate) journal: Journal,
    pub(crate) stream: Arc<Stream>,
}

impl Journal {
    /// Opens the journal on `disk`, recovers what is there and starts a fresh file.
    ///
    /// A full disk does not fail the open: reads work, and appends are refused with
    /// [`crate::AppendError::Full`] until there is room.
    ///
    /// # Errors
    /// [`OpenError`]; the directory stays as it was, or as a crash could have left it.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Journal, Recovery), OpenError> {
        let options = Options {
            file_bytes: block_ceil(options.file_bytes.max(FILE_BYTES_MIN)),
            flushes_in_flight_max: options.flushes_in_flight_max.max(1),
            ..options
        };
        let lock = disk.lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked,
            _ => OpenError::io("taking the lock")(error),
        })?;
        let io_path = disk.choose_io(options.io).map_err(OpenError::io("choosing the I/O path"))?;
        let handles = Handles::default();
        let found = recover::recover(&*disk, &handles)?;
        let marks = Arc::new(Marks::default());
        let cached = options.tail_cache_bytes;
        let mut writer =
            Writer::new(found.next_sequence, found.next_base, cached, Arc::clone(&marks));
        writer.unsealed = found.unsealed.into();
        let files = RwLock::new(found.files);
        if let Some(first) = first_file(&*disk, &options, &mut writer, &marks)? {
            files.write().insert(first.header.sequence, first);
        }
        let shared = Arc::new(Shared {
            disk,
            options,
            io_path,
            streams: found.streams,
            files,
            handles,
            writer: Mutex::new(writer),
            marks,
            lead: Condvar::new(),
            tick: Condvar::new(),
            prepare: Condvar::new(),
            prepared: Condvar::new(),
            seal: Condvar::new(),
            reclaiming: Mutex::new(()),
            lock: Mutex::new(Some(lock)),
        });
        let threads = Arc::new(Threads::start(&shared)?);
        Ok((Journal { shared, threads }, found.recovery))
    }

    /// The handle of one stream. Cheap; a stream unknown so far begins with its first append.
    #[must_use]
    pub fn log(&self, stream: StreamId) -> Log {
        Log { journal: self.clone(), stream: self.shared.streams.get_or_create(stream) }
    }

    /// Blocks until everything before `at` has reached `level`. The caller that finds room for a
    /// flush does it, for everybody.
    ///
    /// # Errors
    /// [`FlushError`] when a flush failed or the journal was closed; the bytes may be on disk.
    pub fn wait(&self, at: Position, level: Durability) -> Result<(), FlushError> {
        self.shared.wait(at.0, level)
    }

    /// Whether everything before `at` is safe at `level` already. Never blocks.
    #[must_use]
    pub fn reached(&self, at: Position, level: Durability) -> bool {
        self.shared.is_reached(at.0, level)
    }

    /// Calls `then` once everything before `at` has reached `level`, or never can: at once when
    /// that is so already, otherwise from another thread. Callbacks run one at a time in the order
    /// of the calls; they must not block.
    pub fn when(&self, at: Position, level: Durability, then: Then) {
        self.shared.when(at.0, level, then);
    }

    /// Which I/O path was chosen, and why.
    #[must_use]
    pub fn io_path(&self) -> IoPath {
        self.shared.io_path.clone()
    }

    /// Figures of this moment. Walks all streams.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for stream in self.shared.streams.all() {
            let index = stream.index.lock();
            stats.streams += 1;
            stats.live_bytes += index.runs.iter().map(|run| index.live_bytes(run)).sum::<u64>();
        }
        for file in self.shared.files.read().values() {
            stats.files += 1;
            stats.file_bytes += file.disk_bytes();
        }
        let writer = self.shared.writer.lock();
        stats.appended_bytes = writer.appended_bytes;
        stats.flushes = writer.flushes;
        stats.unflushed_bytes = writer.end.saturating_sub(writer.durable);
        stats.poisoned = writer.poisoned.as_deref().map(str::to_owned);
        stats
    }

    /// Flushes everything, seals the file with its footer and gives the directory free. Reads go
    /// on working; appends are refused. Closing again does nothing.
    ///
    /// # Errors
    /// [`FlushError`] when not everything could be flushed. The directory is given free anyway.
    pub fn close(&self) -> Result<(), FlushError> {
        let shared = &self.shared;
        let mut writer = shared.writer.lock();
        if std::mem::replace(&mut writer.closed, true) {
            return Ok(());
        }
        let end = writer.end;
        drop(writer);
        let outcome = shared.wait(end, Durability::Disk);
        self.threads.stop();
        let mut writer = shared.writer.lock();
        if outcome.is_ok() {
            writer.retire_active();
            writer.release_closed();
        }
        let unsealed = std::mem::take(&mut writer.unsealed);
        let mut unused = std::mem::take(&mut writer.unwanted);
        if let Next::Ready(file) = std::mem::replace(&mut writer.next, Next::Idle) {
            unused.push(file);
        }
        drop(writer);
        for file in unsealed {
            if let Err(error) = shared.seal_file(&file) {
                tracing::warn!(%error, file = file.name(), "could not seal; the next open will");
                break;
            }
        }
        for file in unused {
            // Left behind, it would be removed by the next open.
            let _ = shared.disk.remove(&file.name());
        }
        shared.lock.lock().take();
        outcome
    }
}

/// The first file to append to, made for `disk` because nobody has asked yet; `None` on a full
/// disk.
fn first_file(
    disk: &dyn Disk,
    options: &Options,
    writer: &mut Writer,
    marks: &Marks,
) -> Result<Option<Arc<JournalFile>>, OpenError> {
    let header = FileHeader {
        id: disk.random(),
        sequence: writer.next_sequence,
        base: writer.next_base,
        bytes: options.file_bytes.min(FIRST_FILE_BYTES),
    };
    match worker::prepare(disk, header, Use::Disk, &Pace::at_once(marks)) {
        Ok(file) => {
            let file = Arc::new(file);
            writer.next_sequence += 1;
            writer.next_base += header.bytes;
            writer.install(Arc::clone(&file));
            writer.next = Next::Wanted(0);
            Ok(Some(file))
        }
        Err(error) if worker::is_full(&error) => {
            tracing::warn!(%error, "the disk is full; the journal opens for reading");
            writer.next_sequence += 1;
            Ok(None)
        }
        Err(error) => Err(OpenError::io("preparing the first file")(error)),
    }
}

impl Threads {
    fn start(shared: &Arc<Shared>) -> Result<Threads, OpenError> {
        let threads = Threads { shared: Arc::clone(shared), handles: Mutex::new(Vec::new()) };
        let spawn = |name: &str, run: fn(&Shared)| {
            let shared = Arc::clone(shared);
            thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))
        };
        let start = || {
            let mut handles = threads.handles.lock();
            handles.push(spawn("journal-prepare", Shared::prepare_files)?);
            handles.push(spawn("journal-seal", Shared::seal_files)?);
            handles.push(spawn("journal-tick", Shared::tick)?);
            for _ in 0..shared.options.flushes_in_flight_max {
                handles.push(spawn("journal-flush", Shared::lead)?);
            }
            Ok(())
        };
        start().map_err(OpenError::io("starting threads"))?;
        Ok(threads)
    }

    fn stop(&self) {
        let mut writer = self.shared.writer.lock();
        writer.stop = true;
        writer.closed = true;
        for condvar in [&self.shared.lead, &self.shared.tick, &self.shared.prepare] {
            condvar.notify_all();
        }
        for condvar in [&self.shared.prepared, &self.shared.seal] {
            condvar.notify_all();
        }
        // Nobody will lead any more: tell those who wait for callbacks.
        self.shared.tell(writer, Leader::Serves);
        let me = thread::current().id();
        for handle in std::mem::take(&mut *self.handles.lock()) {
            // A callback may drop the last handle on one of these threads.
            if handle.thread().id() != me {
                let _ = handle.join();
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
        self.shared.lock.lock().take();
    }
}

impl Shared {
    pub(crate) fn io(&self, file: &Arc<JournalFile>) -> io::Result<Arc<dyn File>> {
        self.handles.io(&*self.disk, file)
    }
}
