//! Group commit: who flushes, what one flush takes, and who is told when.
//!
//! There is no flusher that everybody waits for. A caller that finds room for a flush does it
//! itself and takes along everything appended so far; the others sleep until a flush that covers
//! them is done, in order. Two threads of our own lead only on behalf of callbacks.

use std::io::{self, IoSlice};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use thetis_types::Durability;

use crate::chunk::{Block, CHUNK, Chunk};
use crate::disk::Promise;
use crate::error::FlushError;
use crate::files::JournalFile;
use crate::format::file::FRAMES_AT;
use crate::format::{BLOCK, block_floor, mem};
use crate::journal::Shared;
use crate::parked::{Parked, Told};
use crate::writer::Writer;

/// The longest that a full file waits for a flush that nobody asks for.
const FULL_FILE_WAIT: Duration = Duration::from_millis(10);

/// What a callback is told.
pub(crate) type Then = Box<dyn FnOnce(Result<(), FlushError>) + Send>;
/// A callback whose time has come.
pub(crate) type Callback = (Then, Result<(), FlushError>);

/// A direct flush under way. They end in any order and count in the order they began.
pub(crate) struct Flight {
    number: u64,
    end: u64,
    pub(crate) done: bool,
}

/// Somebody waiting for a position.
pub(crate) struct Waiter {
    at: u64,
    level: Durability,
    who: Who,
}

enum Who {
    Thread(Arc<Parked>),
    Callback(Then),
}

/// Who does a flush.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leader {
    /// Somebody who waits for it, and is likely to append again.
    Waits,
    /// A thread of our own.
    Serves,
}

/// What one flush does.
struct Plan {
    how: How,
    /// What to write: `(file, first byte, byte after the last)`.
    regions: Vec<(Arc<JournalFile>, u64, u64)>,
    /// What to sync after that, likewise.
    syncs: Vec<(Arc<JournalFile>, u64, u64)>,
    /// Position reached when it succeeds.
    end: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// One durable write; several may run at once. Its flight's number.
    Direct(u64),
    /// Through the page cache, then sync: the cache holds unwritten bytes.
    Synced,
    /// Into the page cache.
    Handed,
}

impl Writer {
    fn reached(&self, at: u64, level: Durability) -> bool {
        match level {
            Durability::Memory => at <= self.end,
            Durability::Os => at <= self.handed.max(self.durable),
            Durability::Disk => at <= self.durable,
        }
    }

    /// Whether a flush for `level` that covers `at` may begin at once.
    fn may_start(&self, at: u64, level: Durability, flights_max: usize) -> bool {
        if self.exclusive || self.poisoned.is_some() {
            return false;
        }
        match level {
            Durability::Memory => false,
            Durability::Os => self.flights.is_empty() && self.handed < at,
            Durability::Disk if self.handed > self.durable => {
                self.flights.is_empty() && !self.syncing
            }
            Durability::Disk => {
                // INVARIANT: no two writes in flight share a block, nor meet pages of a mapping.
                let shares = !self.taken.is_multiple_of(BLOCK)
                    && self.flights.back().is_some_and(|flight| !flight.done);
                let direct = !self.is_mapped_at(self.taken);
                direct && !shares && self.flights.len() < flights_max && self.taken < at
            }
        }
    }

    /// Whether the frames behind `at` are in a mapped file.
    fn is_mapped_at(&self, at: u64) -> bool {
        let closing = self.closing.iter().find(|(_, end)| at < *end);
        let file = closing.map(|(file, _)| file);
        file.or(self.active.as_ref().map(|it| &it.file)).is_some_and(|it| it.is_mapped())
    }

    /// Begins a flush; `may_start` was true under the same lock.
    fn start(&mut self, level: Durability, flights_max: usize) -> Plan {
        self.flushes += 1;
        if level == Durability::Os || self.handed > self.durable {
            self.exclusive = true;
            let how = if level == Durability::Os { How::Handed } else { How::Synced };
            self.syncing |= how == How::Synced;
            // A sync reaches the bytes handed before, too; their chunks may be gone.
            let syncs = match how {
                How::Synced => self.regions(self.durable),
                _ => Vec::new(),
            };
            // What was copied into a mapped file is not written: it is there, and the block behind
            // the end is being filled.
            let mut regions = self.regions(self.handed);
            regions.retain(|(file, ..)| !file.is_mapped());
            return Plan { how, regions, syncs, end: self.end };
        }
        // Where others wait, the next flush should not have to wait for this one.
        if flights_max > 1 && !self.waiters.is_empty() && !self.end.is_multiple_of(BLOCK) {
            self.pad_block();
        }
        let mut regions = self.regions(self.taken);
        regions.truncate(1);
        let end = regions.first().map_or(self.end, |(file, _, stop)| file.header.base + stop);
        self.taken = end;
        let number = self.flushes;
        self.flights.push_back(Flight { number, end, done: false });
        Plan { how: How::Direct(number), regions, syncs: Vec::new(), end }
    }

    /// Ends a flush and moves the marks.
    fn finish(&mut self, plan: &Plan, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            // Which bytes are on disk is unknown from here on, and the kernel may call them clean:
            // flushing again would prove nothing. So nothing is flushed again.
            tracing::error!(%error, "flush failed; the journal takes no more until it is reopened");
            self.poisoned.get_or_insert_with(|| error.to_string().into());
        }
        match plan.how {
            How::Direct(number) => {
                if let Some(flight) = self.flights.iter_mut().find(|it| it.number == number) {
                    flight.done = true;
                }
                // A failed flight is done as well, but nothing is counted once poisoned.
                while self.flights.front().is_some_and(|flight| flight.done) {
                    let Some(flight) = self.flights.pop_front() else { break };
                    if self.poisoned.is_none() {
                        self.make_durable(flight.end);
                    }
                }
                self.handed = self.handed.max(self.durable);
            }
            How::Handed | How::Synced => {
                self.exclusive = false;
                self.syncing &= plan.how != How::Synced;
                if self.poisoned.is_none() {
                    self.handed = self.handed.max(plan.end);
                    self.taken = self.taken.max(plan.end);
                    if plan.how == How::Synced {
                        self.make_durable(plan.end);
                    }
                }
            }
        }
        self.step_over_borders();
        self.publish();
        self.release_closed();
    }

    /// Marks at the end of one file step to the first frame of the next: nothing lies between.
    /// Where everything before a mapped file is handed, so is what was copied there.
    fn step_over_borders(&mut self) {
        let closing = self.closing.iter().map(|(file, end)| (file, *end));
        let active = self.active.iter().map(|active| (&active.file, self.end));
        let files: Vec<_> = closing
            .chain(active)
            .map(|(file, end)| (file.header.base + FRAMES_AT, end, file.is_mapped()))
            .collect();
        let mut before = None;
        for (start, end, mapped) in files {
            for mark in [&mut self.taken, &mut self.handed, &mut self.durable] {
                if Some(*mark) == before {
                    *mark = start;
                }
            }
            if mapped && (start..end).contains(&self.handed) {
                self.handed = end;
            }
            before = Some(end);
        }
    }

    /// Takes a thread whose time was up off the queue, unless it was told something meanwhile, and
    /// waits for nobody any more.
    fn give_up(&mut self, parked: &Arc<Parked>) {
        let is_it =
            |waiter: &Waiter| matches!(&waiter.who, Who::Thread(it) if Arc::ptr_eq(it, parked));
        if let Some(place) = self.waiters.iter().position(is_it) {
            self.waiters.remove(place);
            self.gather.watched = false;
            self.gather.give_up();
        }
    }

    fn failure(&self) -> Option<FlushError> {
        match &self.poisoned {
            Some(reason) => Some(FlushError::Poisoned { reason: Arc::clone(reason) }),
            None => self.stop.then_some(FlushError::Closed),
        }
    }
}

impl Shared {
    /// Whether everything before `at`, which was appended, is safe at `level`. Takes no lock.
    pub(crate) fn is_reached(&self, at: u64, level: Durability) -> bool {
        self.ask(level);
        self.marks.reached(at, level)
    }

    fn ask(&self, level: Durability) {
        if self.marks.ask(level) {
            // Under the lock: the preparer looks and then sleeps under it.
            let _writer = self.writer.lock();
            self.prepare.notify_one();
        }
    }

    /// Blocks until `at` has reached `level`.
    pub(crate) fn wait(&self, at: u64, level: Durability) -> Result<(), FlushError> {
        if self.is_reached(at, level) {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        if level == Durability::Disk {
            writer.gather.came();
        }
        loop {
            if writer.reached(at, level) {
                // Led by nobody, perhaps instead of somebody: pass the lead on.
                self.pass_lead(&mut writer);
                return Ok(());
            }
            if let Some(failure) = writer.failure() {
                return Err(failure);
            }
            let mut held = None;
            if writer.may_start(at, level, self.options.flushes_in_flight_max) {
                held = match level {
                    Durability::Disk => writer.gather.held(self.disk.elapsed()),
                    _ => None,
                };
                if held.is_none() {
                    writer = self.flush(writer, level, Leader::Waits);
                    continue;
                }
            }
            // One of those who could flush looks again in time; the last to come needs none.
            let until = held.filter(|_| !std::mem::replace(&mut writer.gather.watched, true));
            let parked = Parked::here(until.is_some());
            let who = Who::Thread(Arc::clone(&parked));
            writer.waiters.push_back(Waiter { at, level, who });
            drop(writer);
            match parked.sleep(until) {
                Some(Told::Reached) => return Ok(()),
                Some(Told::Look) => writer = self.writer.lock(),
                None => {
                    writer = self.writer.lock();
                    writer.give_up(&parked);
                }
            }
        }
    }

    /// Calls `then` once `at` has reached `level`: at once when it has, otherwise from another
    /// thread, in the order of the calls.
    pub(crate) fn when(&self, at: u64, level: Durability, then: Then) {
        self.ask(level);
        let mut writer = self.writer.lock();
        let result = match (writer.reached(at, level), writer.failure()) {
            (true, _) => Ok(()),
            (false, Some(failure)) => Err(failure),
            (false, None) => {
                writer.waiters.push_back(Waiter { at, level, who: Who::Callback(then) });
                if writer.may_start(at, level, self.options.flushes_in_flight_max) {
                    self.lead.notify_one();
                }
                return;
            }
        };
        if writer.ready.is_empty() && !writer.draining {
            drop(writer);
            then(result);
        } else {
            writer.ready.push_back((then, result));
            self.drain(writer);
        }
    }

    /// Does one flush: unlocks, writes, locks again, tells those who waited. `may_start` was true.
    fn flush<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        level: Durability,
        leader: Leader,
    ) -> MutexGuard<'a, Writer> {
        let plan = writer.start(level, self.options.flushes_in_flight_max);
        drop(writer);
        let began = self.disk.elapsed();
        let outcome = self.carry_out(&plan);
        let took = self.disk.elapsed().saturating_sub(began);
        let mut writer = self.writer.lock();
        if plan.how != How::Handed {
            writer.gather.flushed(took);
        }
        writer.finish(&plan, outcome);
        self.tell(writer, leader);
        self.writer.lock()
    }

    fn carry_out(&self, plan: &Plan) -> io::Result<()> {
        for (file, start, stop) in &plan.regions {
            let promise = match plan.how {
                How::Direct(_) => Promise::Durable,
                How::Handed | How::Synced => Promise::Handed,
            };
            self.write(file, *start, *stop, promise)?;
        }
        plan.syncs.iter().try_for_each(|region| self.sync(region))
    }

    fn sync(&self, (file, start, stop): &(Arc<JournalFile>, u64, u64)) -> io::Result<()> {
        match file.mapping() {
            Some(mapping) => self.io(file)?.sync_mapped(&mapping, *start..*stop),
            None => self.io(file)?.sync(),
        }
    }

    /// Writes the blocks that hold `[start, stop)` of the file. The part of the last block behind
    /// `stop` is written as zeros from memory of our own, because appends fill the buffer there.
    fn write(
        &self,
        file: &Arc<JournalFile>,
        start: u64,
        stop: u64,
        promise: Promise,
    ) -> io::Result<()> {
        let (from, whole) = (block_floor(start), block_floor(stop));
        let size = CHUNK as u64;
        let mut chunks: Vec<(Arc<Chunk>, std::ops::Range<usize>)> = Vec::new();
        let evicted = || io::Error::other("a chunk was evicted before it was flushed");
        let mut at = from;
        while at < whole {
            let number = at / size;
            let until = whole.min((number + 1) * size);
            let chunk = file.chunk(mem(number)).ok_or_else(evicted)?;
            chunks.push((chunk, mem(at - number * size)..mem(until - number * size)));
            at = until;
        }
        let mut last = Block([0; 4096]);
        if whole < stop {
            let chunk = file.chunk(mem(whole / size)).ok_or_else(evicted)?;
            let range = mem(whole % size)..mem(whole % size + (stop - whole));
            let tail = chunk.bytes(range);
            last.0[..tail.len()].copy_from_slice(tail);
        }
        let mut parts: Vec<IoSlice<'_>> =
            chunks.iter().map(|(chunk, range)| IoSlice::new(chunk.bytes(range.clone()))).collect();
        if whole < stop {
            parts.push(IoSlice::new(&last.0));
        }
        self.io(file)?.write_at(&parts, from, promise)
    }

    /// Tells everybody whose time has come, and somebody to lead the next flush.
    pub(crate) fn tell(&self, mut writer: MutexGuard<'_, Writer>, leader: Leader) {
        let failure = writer.failure();
        let mut wake = Vec::new();
        let mut left = std::mem::take(&mut writer.waiters);
        let mut ready = std::mem::take(&mut writer.ready);
        left = left
            .into_iter()
            .filter_map(|waiter| {
                let reached = writer.reached(waiter.at, waiter.level);
                if !reached && failure.is_none() {
                    return Some(waiter);
                }
                match waiter.who {
                    Who::Thread(parked) => {
                        wake.push((parked, if reached { Told::Reached } else { Told::Look }))
                    }
                    Who::Callback(then) => ready.push_back((
                        then,
                        match &failure {
                            Some(failure) if !reached => Err(failure.clone()),
                            _ => Ok(()),
                        },
                    )),
                }
                None
            })
            .collect();
        writer.waiters = left;
        writer.ready = ready;
        let left = writer.waiters.len();
        let served = wake.len() + usize::from(leader == Leader::Waits);
        writer.gather.served(served, left, self.disk.elapsed());
        let next = self.pick_leader(&mut writer);
        let watcher = wake.iter().map(|(parked, _)| parked).chain(&next).any(|it| it.watches());
        writer.gather.watched &= !watcher;
        if !writer.unsealed.is_empty() {
            self.seal.notify_one();
        }
        MutexGuard::unlocked(&mut writer, || {
            // First the one the device waits for.
            if let Some(parked) = next {
                parked.tell(Told::Look);
            }
            for (parked, what) in wake {
                parked.tell(what);
            }
        });
        self.drain(writer);
    }

    /// Takes a sleeping thread off the queue to lead the next flush, or wakes one of our own when
    /// a callback is first.
    fn pick_leader(&self, writer: &mut Writer) -> Option<Arc<Parked>> {
        let max = self.options.flushes_in_flight_max;
        let place = (0..writer.waiters.len()).find(|place| {
            let waiter = &writer.waiters[*place];
            writer.may_start(waiter.at, waiter.level, max)
        })?;
        if matches!(writer.waiters[place].who, Who::Callback(_)) {
            self.lead.notify_one();
            return None;
        }
        match writer.waiters.remove(place)?.who {
            Who::Thread(parked) => Some(parked),
            Who::Callback(_) => None,
        }
    }

    fn pass_lead(&self, writer: &mut Writer) {
        if let Some(parked) = self.pick_leader(writer) {
            writer.gather.watched &= !parked.watches();
            parked.tell(Told::Look);
        }
    }

    /// Runs the callbacks that are ready, one thread at a time, so that their order holds.
    fn drain<'a>(&'a self, mut writer: MutexGuard<'a, Writer>) {
        if writer.draining || writer.ready.is_empty() {
            return;
        }
        writer.draining = true;
        while !writer.ready.is_empty() {
            let ready = std::mem::take(&mut writer.ready);
            drop(writer);
            for (then, result) in ready {
                // A panic of one would leave the others untold, and all later ones with them.
                let told = panic::catch_unwind(AssertUnwindSafe(|| then(result)));
                if told.is_err() {
                    tracing::error!("a callback panicked; the journal goes on");
                }
            }
            writer = self.writer.lock();
        }
        writer.draining = false;
    }

    /// Leads flushes for callbacks until the journal stops.
    pub(crate) fn lead(&self) {
        let mut writer = self.writer.lock();
        while !writer.stop {
            let max = self.options.flushes_in_flight_max;
            let level = writer
                .waiters
                .iter()
                .filter(|waiter| matches!(waiter.who, Who::Callback(_)))
                .find(|waiter| writer.may_start(waiter.at, waiter.level, max))
                .map(|waiter| waiter.level);
            match level {
                Some(level) => writer = self.flush(writer, level, Leader::Serves),
                None => self.lead.wait(&mut writer),
            }
        }
    }

    /// Flushes what nobody waits for: every `os_flush_interval` while there is something.
    pub(crate) fn tick(&self) {
        let mut writer = self.writer.lock();
        while !writer.stop {
            if writer.durable >= writer.end || writer.poisoned.is_some() {
                writer.ticker_idle = true;
                self.tick.wait(&mut writer);
                writer.ticker_idle = false;
                continue;
            }
            // Full files are flushed soon, however long the interval: until then they cannot be
            // sealed, nor their rows leave memory, nor their space be given back.
            let interval = match writer.closing.is_empty() {
                true => self.options.os_flush_interval,
                false => self.options.os_flush_interval.min(FULL_FILE_WAIT),
            };
            let _ = self.tick.wait_for(&mut writer, interval);
            if writer.stop || writer.poisoned.is_some() {
                continue;
            }
            let nobody_waits =
                writer.waiters.is_empty() && writer.flights.is_empty() && !writer.exclusive;
            if nobody_waits && self.marks.used().is_none() && self.marks.ask(Durability::Memory) {
                self.prepare.notify_one();
            }
            if writer.syncing {
                continue;
            }
            if writer.handed > writer.durable {
                // Sync what was handed without stopping those who hand more meanwhile.
                let end = writer.handed;
                let regions = writer.regions(writer.durable);
                writer.flushes += 1;
                writer.syncing = true;
                drop(writer);
                let outcome = regions
                    .into_iter()
                    .filter(|(file, start, _)| file.header.base + start < end)
                    .map(|(file, start, stop)| (start, stop.min(end - file.header.base), file))
                    .try_for_each(|(start, stop, file)| self.sync(&(file, start, stop)));
                writer = self.writer.lock();
                writer.finish_sync(end, outcome);
                self.tell(writer, Leader::Serves);
                writer = self.writer.lock();
            } else if writer.may_start(writer.end, Durability::Disk, 1) {
                writer = self.flush(writer, Durability::Disk, Leader::Serves);
            }
        }
    }
}

impl Writer {
    fn finish_sync(&mut self, end: u64, outcome: io::Result<()>) {
        self.syncing = false;
        match outcome {
            Err(error) => {
                tracing::error!(%error, "sync failed; the journal takes no more until reopened");
                self.poisoned.get_or_insert_with(|| error.to_string().into());
            }
            Ok(()) if self.poisoned.is_none() => self.make_durable(end),
            Ok(()) => {}
        }
        self.step_over_borders();
        self.publish();
        self.release_closed();
    }
}
