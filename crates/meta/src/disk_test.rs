//! A disk in memory that forgets what was not flushed, fills up and fails on demand.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use redb::{Database, StorageBackend, TableDefinition};
use thetis_types::clock::Entropy;

use super::super::medium::Medium;

const SECTOR: usize = 512;

/// What the disk does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskFault {
    None,
    /// Growing the file fails.
    NoGrowth,
    /// The file grows, but what was never written before cannot be: a sparse file on a full disk.
    NoNewBlocks,
    /// Nothing can be written, as on a full disk that copies on write.
    NoWrites,
    /// Flushes fail.
    NoFlush,
    /// Every call fails after some more calls.
    PowerCut {
        after_calls: u64,
    },
}

#[derive(Debug)]
struct State {
    flushed: Vec<u8>,
    /// What a reader sees.
    seen: Vec<u8>,
    /// Writes since the last flush.
    pending: Vec<(usize, Vec<u8>)>,
    /// First byte that no write has reached.
    written_to: usize,
    fault: DiskFault,
    flushes: u64,
    is_holding: bool,
    held: u64,
}

/// A handle of the disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    state: Arc<Mutex<State>>,
    changed: Arc<Condvar>,
}

impl Default for Disk {
    fn default() -> Disk {
        let state = State {
            flushed: Vec::new(),
            seen: Vec::new(),
            pending: Vec::new(),
            written_to: 0,
            fault: DiskFault::None,
            flushes: 0,
            is_holding: false,
            held: 0,
        };
        Disk { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }
}

impl Disk {
    pub(super) fn set_fault(&self, fault: DiskFault) {
        self.state.lock().fault = fault;
    }

    pub(super) fn flushes(&self) -> u64 {
        self.state.lock().flushes
    }

    pub(super) fn hold_flushes(&self) {
        self.state.lock().is_holding = true;
    }

    pub(super) fn wait_for_held_flush(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.held == 0);
    }

    pub(super) fn release_flushes(&self) {
        self.state.lock().is_holding = false;
        self.changed.notify_all();
    }

    /// The power fails and comes back: of what was not flushed any sectors are there, the others
    /// not.
    pub(super) fn crash(&self, entropy: &dyn Entropy) {
        let state = &mut *self.state.lock();
        let kept_of_a_thousand = entropy.next_u64() % 1001;
        let mut kept = std::mem::take(&mut state.flushed);
        for (offset, data) in state.pending.drain(..) {
            for (index, sector) in data.chunks(SECTOR).enumerate() {
                let at = offset + index * SECTOR;
                if entropy.next_u64() % 1000 < kept_of_a_thousand {
                    let end = at + sector.len();
                    kept.resize(kept.len().max(end), 0);
                    kept[at..end].copy_from_slice(sector);
                }
            }
        }
        // The length may be ahead of the data, with zeros in between.
        if entropy.next_u64().is_multiple_of(2) {
            kept.resize(kept.len().max(state.seen.len()), 0);
        }
        state.seen.clone_from(&kept);
        state.flushed = kept;
        state.fault = DiskFault::None;
    }

    /// Writes another format version into the closed file.
    pub(super) fn set_format(&self, version: u64) {
        let table: TableDefinition<'_, &str, u64> = TableDefinition::new("store");
        let database = Database::builder().create_with_backend(self.clone()).unwrap();
        let txn = database.begin_write().unwrap();
        txn.open_table(table).unwrap().insert("format", version).unwrap();
        txn.commit().unwrap();
    }

    fn call(state: &mut State) -> io::Result<()> {
        match &mut state.fault {
            DiskFault::PowerCut { after_calls: 0 } => Err(io::Error::other("power cut")),
            DiskFault::PowerCut { after_calls } => {
                *after_calls -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl Medium for Disk {
    fn attach(&self) -> io::Result<Arc<dyn StorageBackend>> {
        Ok(Arc::new(self.clone()))
    }

    fn path(&self) -> &Path {
        Path::new("disk in memory")
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.state.lock();
        Disk::call(state)?;
        let at = usize::try_from(offset).unwrap();
        let found = state.seen.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let state = &mut *self.state.lock();
        Disk::call(state)?;
        let len = usize::try_from(len).unwrap();
        if state.fault == DiskFault::NoGrowth && len > state.seen.len() {
            return Err(full());
        }
        state.seen.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        Disk::call(&mut state)?;
        state.held += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.is_holding);
        state.held -= 1;
        if state.fault == DiskFault::NoFlush {
            return Err(io::Error::other("flush failed"));
        }
        state.flushes += 1;
        state.pending.clear();
        let state = &mut *state;
        state.flushed.clone_from(&state.seen);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let state = &mut *self.state.lock();
        Disk::call(state)?;
        let at = usize::try_from(offset).unwrap();
        let end = at + data.len();
        match state.fault {
            DiskFault::NoWrites => return Err(full()),
            DiskFault::NoNewBlocks if end > state.written_to => return Err(full()),
            _ => {}
        }
        state.seen.get_mut(at..end).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        state.written_to = state.written_to.max(end);
        state.pending.push((at, data.to_vec()));
        Ok(())
    }
}
