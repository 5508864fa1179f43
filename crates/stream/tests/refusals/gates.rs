//! Engines whose answers can be held back: a WAL that does not say that anything is safe, a metadata
//! store that does not perform a write, until it is let go. Tests wait here until somebody waits
//! there, so no time needs to pass.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use thetis_meta::{
    Key, KeyRange, LeaseId, MetaError, MetaStore, Page, Renewal, Versioned, Watch, Write,
    WriteOutcome,
};
use thetis_types::{Durability, StreamId};
use thetis_wal::memory::MemoryWal;
use thetis_wal::{AppendError, FlushError, Log, Position, Reclaimed, RecoveredStream, Then, Wal};

/// Lets through, or holds whoever comes.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: bool,
    waiting: usize,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        self.state.lock().is_shut = is_shut;
        self.moved.notify_all();
    }

    fn is_shut(&self) -> bool {
        self.state.lock().is_shut
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.moved.notify_all();
        self.moved.wait_while(&mut state, |state| state.is_shut);
        state.waiting -= 1;
    }

    fn await_waiting(&self, count: usize) {
        let mut state = self.state.lock();
        self.moved.wait_while(&mut state, |state| state.waiting < count);
    }
}

/// The model of a WAL behind a gate.
#[derive(Default)]
pub(crate) struct GatedWal {
    model: MemoryWal,
    gate: Gate,
    /// Whom to call once the gate is open.
    held: Mutex<Vec<(Position, Durability, Then)>>,
}

impl GatedWal {
    pub(crate) fn model(&self) -> &MemoryWal {
        &self.model
    }

    /// Nothing becomes safe from now on.
    pub(crate) fn hold(&self) {
        self.gate.set(true);
    }

    pub(crate) fn release(&self) {
        self.gate.set(false);
        let held = std::mem::take(&mut *self.held.lock());
        held.into_iter().for_each(|(at, level, then)| self.model.when(at, level, then));
    }

    /// Until so many wait for something to become safe.
    pub(crate) fn await_waiters(&self, count: usize) {
        self.gate.await_waiting(count);
    }
}

impl Wal for GatedWal {
    fn recovered(&self) -> Vec<RecoveredStream> {
        self.model.recovered()
    }

    fn log(&self, stream: StreamId) -> Arc<dyn Log> {
        self.model.log(stream)
    }

    fn wait(&self, at: Position, level: Durability) -> Result<(), FlushError> {
        self.gate.pass();
        self.model.wait(at, level)
    }

    fn reached(&self, at: Position, level: Durability) -> bool {
        !self.gate.is_shut() && self.model.reached(at, level)
    }

    fn when(&self, at: Position, level: Durability, then: Then) {
        let mut held = self.held.lock();
        if self.gate.is_shut() {
            held.push((at, level, then));
        } else {
            drop(held);
            self.model.when(at, level, then);
        }
    }

    fn reclaim(&self) -> Result<Reclaimed, AppendError> {
        self.model.reclaim()
    }

    fn close(&self) -> Result<(), FlushError> {
        self.model.close()
    }
}

/// A metadata store whose writes wait before a gate.
pub(crate) struct GatedMeta {
    inner: Arc<dyn MetaStore>,
    gate: Gate,
}

impl GatedMeta {
    pub(crate) fn new(inner: Arc<dyn MetaStore>) -> GatedMeta {
        GatedMeta { inner, gate: Gate::default() }
    }

    /// No write is performed from now on.
    pub(crate) fn hold(&self) {
        self.gate.set(true);
    }

    pub(crate) fn release(&self) {
        self.gate.set(false);
    }

    /// Until so many writes wait.
    pub(crate) fn await_writers(&self, count: usize) {
        self.gate.await_waiting(count);
    }
}

impl MetaStore for GatedMeta {
    fn get(&self, key: &Key) -> Result<Option<Versioned>, MetaError> {
        self.inner.get(key)
    }

    fn range(&self, range: &KeyRange, limit: usize) -> Result<Page, MetaError> {
        self.inner.range(range, limit)
    }

    fn batch(&self, writes: Vec<Write>) -> Result<Vec<WriteOutcome>, MetaError> {
        self.gate.pass();
        self.inner.batch(writes)
    }

    fn watch(&self, prefix: &Key) -> Result<Watch, MetaError> {
        self.inner.watch(prefix)
    }

    fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, MetaError> {
        self.inner.grant_lease(ttl)
    }

    fn renew_lease(&self, lease: LeaseId) -> Result<Renewal, MetaError> {
        self.inner.renew_lease(lease)
    }

    fn revoke_lease(&self, lease: LeaseId) -> Result<(), MetaError> {
        self.inner.revoke_lease(lease)
    }

    fn sweep(&self) -> Result<u64, MetaError> {
        self.inner.sweep()
    }
}
