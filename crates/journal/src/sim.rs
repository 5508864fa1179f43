//! A disk in memory that fails as disks do, from a seed. For tests of this crate and of those
//! above it.
//!
//! What it models: writes that are lost, torn at sectors of 512 bytes or kept in any order until
//! they are synced; directory entries lost without a directory sync; a failed call of any kind, once
//! or from then on; a full disk; a directory removed in use; flipped bits; threads held up. What it does not: a device that lies about syncs,
//! sectors torn within, misdirected writes, reads of files that were removed while open.
//!
//! [`SimDisk::crash`] gives the image that survives, as a new disk.

mod fault;
mod turn;

pub use fault::{Call, Fault};

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, File, IoChoice, IoPath, Mapping, Promise};
use crate::format::mem;

const SECTOR: usize = 512;

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Sim>);

struct Sim {
    state: Mutex<State>,
    locked: Arc<AtomicBool>,
}

struct State {
    random: u64,
    /// What the running system sees, and what the medium has: name to number.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    capacity: u64,
    fault: Option<Fault>,
    /// Mapped files: number, mapping, and how much of what was written was taken over.
    mapped: Vec<(u64, Arc<Mapping>, usize)>,
    may_map: bool,
    /// Calls that change something, left until the power fails.
    calls_left: Option<u64>,
    calls: u64,
    dead: bool,
    /// The directory was removed.
    gone: bool,
    shaken: bool,
}

#[derive(Clone, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors of `now` that are not durable.
    dirty: BTreeSet<usize>,
}

struct SimFile {
    sim: Arc<Sim>,
    inode: u64,
}

impl State {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// Counts a call that changes something. `Err` when the power is off; `Ok(true)` when it fails
    /// during this very call.
    fn tick(&mut self) -> io::Result<bool> {
        if self.dead {
            return Err(power_failure());
        }
        self.calls += 1;
        match &mut self.calls_left {
            Some(0) => {
                self.dead = true;
                Ok(true)
            }
            Some(left) => {
                *left -= 1;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    fn there(&self) -> io::Result<()> {
        if self.gone { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    fn strike(&mut self, call: Call) -> io::Result<()> {
        let Some(fault) = self.fault.as_mut().filter(|fault| fault.call == call) else {
            return Ok(());
        };
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        if !fault.sticky {
            self.fault = None;
        }
        Err(io::Error::other("injected device failure"))
    }

    /// Takes over what was written through mappings: the system sees it, the medium does not.
    fn absorb(&mut self) {
        let State { mapped, inodes, .. } = self;
        mapped.retain_mut(|(number, mapping, seen)| {
            let Some(inode) = inodes.get_mut(number) else { return false };
            let alone = Arc::strong_count(mapping) == 1;
            let bytes = mapping.written_from(*seen);
            // A cut below what was written would be a fault of the journal's: SIGBUS.
            inode.now[*seen..*seen + bytes.len()].copy_from_slice(bytes);
            inode.dirty.extend(*seen / SECTOR..(*seen + bytes.len()).div_ceil(SECTOR));
            *seen += bytes.len();
            !alone
        });
    }

    fn used(&self) -> u64 {
        self.inodes.values().map(|inode| inode.now.len() as u64).sum()
    }

    fn resize(&mut self, inode: u64, bytes: u64) -> io::Result<()> {
        let used = self.used();
        let capacity = self.capacity;
        let inode = self.inode(inode)?;
        let grown = bytes.saturating_sub(inode.now.len() as u64);
        if grown > capacity.saturating_sub(used) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let before = inode.now.len();
        inode.now.resize(mem(bytes), 0);
        inode.dirty.retain(|sector| sector * SECTOR < mem(bytes));
        if before < mem(bytes) {
            // The medium may still hold what stood there before the file was once cut.
            inode.dirty.extend(before / SECTOR..mem(bytes).div_ceil(SECTOR));
        }
        Ok(())
    }

    fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn power_failure() -> io::Error {
    io::Error::other("the power failed")
}

impl Inode {
    fn sync(&mut self) {
        let len = self.now.len();
        self.durable.resize(len, 0);
        for sector in std::mem::take(&mut self.dirty) {
            self.keep(sector);
        }
    }

    /// Makes one sector durable.
    fn keep(&mut self, sector: usize) {
        let start = sector * SECTOR;
        let end = (start + SECTOR).min(self.now.len());
        if start >= end {
            return;
        }
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[start..end].copy_from_slice(&self.now[start..end]);
    }
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::from(State {
            random: seed,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            capacity: u64::MAX,
            fault: None,
            mapped: Vec::new(),
            may_map: true,
            calls_left: None,
            calls: 0,
            dead: false,
            gone: false,
            shaken: false,
        })
    }

    fn from(state: State) -> SimDisk {
        SimDisk(Arc::new(Sim { state: Mutex::new(state), locked: Arc::default() }))
    }

    /// Cuts the power during the call that changes something after `calls` more of them. From then
    /// on every such call fails.
    pub fn crash_after(&self, calls: u64) {
        self.0.state.lock().calls_left = Some(calls);
    }

    /// Whether the power was cut.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.0.state.lock().dead
    }

    /// Calls so far that changed something.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.state.lock().calls
    }

    /// Sets the next fault, or none.
    pub fn fail(&self, fault: Option<Fault>) {
        self.0.state.lock().fault = fault;
    }

    /// Whether a fault is set and yet to come.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.0.state.lock().fault.is_some()
    }

    /// Limits the bytes of all files together.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.state.lock().capacity = bytes;
    }

    /// Whether files may be mapped; they may unless this says otherwise. Holds for files created
    /// afterwards.
    pub fn set_may_map(&self, may_map: bool) {
        self.0.state.lock().may_map = may_map;
    }

    /// Whether threads are held up at random before and after their calls, so that orders are seen
    /// that an idle machine would not show. Images of a crash keep to it.
    pub fn shake(&self, shaken: bool) {
        self.0.state.lock().shaken = shaken;
    }

    /// Removes the directory under whoever uses it: names are gone and none can be made, open
    /// files go on.
    pub fn remove_directory(&self) {
        let mut state = self.0.state.lock();
        state.names.clear();
        state.gone = true;
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.state.lock().used()
    }

    /// Flips one bit of a file, on the medium and in every cache.
    ///
    /// # Errors
    /// `NotFound` without such a file or byte.
    pub fn flip(&self, name: &str, byte: u64, bit: u32) -> io::Result<()> {
        self.edit(name, byte, |value| value ^ (1 << (bit % 8)))
    }

    /// Overwrites one byte of a file, on the medium and in every cache.
    ///
    /// # Errors
    /// `NotFound` without such a file or byte.
    pub fn set_byte(&self, name: &str, byte: u64, value: u8) -> io::Result<()> {
        self.edit(name, byte, |_| value)
    }

    fn edit(&self, name: &str, byte: u64, change: impl Fn(u8) -> u8) -> io::Result<()> {
        let mut state = self.0.state.lock();
        let number = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let inode = state.inode(number)?;
        let place = mem(byte);
        let now = inode.now.get_mut(place).ok_or(io::ErrorKind::NotFound)?;
        *now = change(*now);
        let value = *now;
        if let Some(durable) = inode.durable.get_mut(place) {
            *durable = value;
        }
        Ok(())
    }

    /// Cuts a file off or lengthens it, durably.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    pub fn set_len(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut state = self.0.state.lock();
        let number = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let inode = state.inode(number)?;
        inode.now.resize(mem(bytes), 0);
        inode.durable.resize(mem(bytes), 0);
        Ok(())
    }

    /// What survives a loss of power now: each unsynced sector, length and name or not, by the
    /// toss of a coin.
    #[must_use]
    pub fn crash(&self) -> SimDisk {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        state.absorb();
        let mut names = state.durable_names.clone();
        let changed: BTreeSet<String> =
            state.names.keys().chain(state.durable_names.keys()).cloned().collect();
        for name in changed {
            let (now, durable) = (state.names.get(&name), state.durable_names.get(&name));
            if now == durable {
                continue;
            }
            let now = now.copied();
            if state.coin() {
                match now {
                    Some(number) => names.insert(name, number),
                    None => names.remove(&name),
                };
            }
        }
        let mut inodes = BTreeMap::new();
        for number in names.values() {
            let mut inode = state.inodes.get(number).cloned().unwrap_or_default();
            let longer = inode.now.len() != inode.durable.len();
            if longer && state.coin() {
                let len = inode.now.len();
                inode.durable.resize(len, 0);
            }
            // A whole write may be lost or kept, or any of its sectors.
            let (none, all) = (state.next().is_multiple_of(4), state.next().is_multiple_of(4));
            for sector in std::mem::take(&mut inode.dirty) {
                let inside = sector * SECTOR < inode.durable.len();
                if inside && !none && (all || state.coin()) {
                    let len = inode.durable.len();
                    inode.keep(sector);
                    inode.durable.truncate(len);
                }
            }
            inode.now = inode.durable.clone();
            inodes.insert(*number, inode);
        }
        let random = state.next();
        SimDisk::from(State {
            random,
            durable_names: names.clone(),
            names,
            inodes,
            next_inode: state.next_inode,
            capacity: state.capacity,
            fault: None,
            mapped: Vec::new(),
            may_map: state.may_map,
            calls_left: None,
            calls: 0,
            dead: false,
            gone: false,
            shaken: state.shaken,
        })
    }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.0.call();
        state.there()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.call();
        if state.tick()? {
            return Err(power_failure());
        }
        state.there()?;
        state.strike(Call::Create)?;
        if bytes > state.capacity.saturating_sub(state.used()) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let number = state.next_inode;
        state.next_inode += 1;
        let now = vec![0; mem(bytes)];
        state.inodes.insert(number, Inode { now, ..Inode::default() });
        state.names.insert(name.to_owned(), number);
        Ok(Arc::new(SimFile { sim: Arc::clone(&self.0), inode: number }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.call();
        state.strike(Call::Open)?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { sim: Arc::clone(&self.0), inode }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.call();
        let cut = state.tick()?;
        state.strike(Call::Remove)?;
        let number = state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        if !state.durable_names.values().any(|durable| *durable == number) {
            state.inodes.remove(&number);
        }
        if cut { Err(power_failure()) } else { Ok(()) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.call();
        let cut = state.tick()?;
        state.strike(Call::Rename)?;
        let number = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), number);
        if cut { Err(power_failure()) } else { Ok(()) }
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.0.call();
        if state.tick()? {
            return Err(power_failure());
        }
        state.there()?;
        state.strike(Call::SyncDir)?;
        state.durable_names = state.names.clone();
        let live: BTreeSet<u64> = state.names.values().copied().collect();
        state.inodes.retain(|number, _| live.contains(number));
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        struct Guard(Arc<AtomicBool>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        if self.0.locked.swap(true, Ordering::AcqRel) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Guard(Arc::clone(&self.0.locked))))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.0.call();
        Ok(state.capacity.saturating_sub(state.used()))
    }

    fn choose_io(&self, choice: IoChoice) -> io::Result<IoPath> {
        Ok(IoPath { direct: choice != IoChoice::Buffered, why: "simulated".to_owned() })
    }

    fn random(&self) -> u64 {
        self.0.state.lock().next()
    }
}

impl File for SimFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64, promise: Promise) -> io::Result<()> {
        let mut state = self.sim.call();
        state.absorb();
        let cut = state.tick()?;
        state.strike(Call::Write)?;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let end = at + total as u64;
        if (state.inode(self.inode)?.now.len() as u64) < end {
            state.resize(self.inode, end)?;
        }
        let inode = state.inode(self.inode)?;
        let mut place = mem(at);
        for part in parts {
            inode.now[place..place + part.len()].copy_from_slice(part);
            place += part.len();
        }
        let sectors = mem(at) / SECTOR..mem(end).div_ceil(SECTOR);
        inode.dirty.extend(sectors.clone());
        if cut {
            return Err(power_failure());
        }
        if promise == Promise::Durable {
            for sector in sectors {
                inode.keep(sector);
                inode.dirty.remove(&sector);
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.sim.call();
        state.absorb();
        if state.tick()? {
            return Err(power_failure());
        }
        if let Err(error) = state.strike(Call::Sync) {
            // As kernels do: the pages are called clean although they never reached the medium.
            let inode = state.inode(self.inode)?;
            inode.dirty.clear();
            return Err(error);
        }
        state.inode(self.inode)?.sync();
        Ok(())
    }

    fn map(&self) -> io::Result<Option<Arc<Mapping>>> {
        let mut state = self.sim.call();
        if !state.may_map {
            return Ok(None);
        }
        let mapping = Arc::new(Mapping::playing(&state.inode(self.inode)?.now));
        // The header block is in the file already.
        let seen = mem(crate::format::BLOCK);
        state.mapped.push((self.inode, Arc::clone(&mapping), seen));
        Ok(Some(mapping))
    }

    fn sync_mapped(&self, _mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        let mut state = self.sim.call();
        state.absorb();
        if state.tick()? {
            return Err(power_failure());
        }
        let failed = state.strike(Call::Sync);
        let inode = state.inode(self.inode)?;
        for sector in mem(range.start) / SECTOR..mem(range.end).div_ceil(SECTOR) {
            if inode.dirty.remove(&sector) && failed.is_ok() {
                inode.keep(sector);
            }
        }
        failed
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let mut state = self.sim.call();
        state.absorb();
        state.strike(Call::Read)?;
        let inode = state.inode(self.inode)?;
        let from = mem(at);
        let bytes = inode
            .now
            .get(from..from.saturating_add(into.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.sim.call().inode(self.inode)?.now.len() as u64)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.sim.call();
        state.absorb();
        let cut = state.tick()?;
        state.strike(Call::Truncate)?;
        state.resize(self.inode, bytes)?;
        if cut { Err(power_failure()) } else { Ok(()) }
    }
}
