//! The memory engine: the model of the contract. Obviously right rather than fast; keeps nothing
//! past the end of the process. Every call holds one lock from end to end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thetis_types::clock::Clock;

use crate::lease::Leases;
use crate::watch::Watches;
use crate::write::{check_batch, check_key};
use crate::{
    Change, Item, Key, KeyRange, LeaseId, MetaError, MetaStore, PAGE_BYTES_MAX, PAGE_ITEMS_MAX,
    Page, Refusal, Renewal, Version, Versioned, Watch, Write, WriteOutcome,
};

/// A store in memory.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    watches: Watches,
}

#[derive(Default)]
struct State {
    /// The last version given.
    version: u64,
    values: BTreeMap<Vec<u8>, Item>,
    leases: Leases,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { clock, state: Mutex::default(), watches: Watches::default() }
    }

    /// Runs `act` on a state from which everything lapsed has been removed.
    fn with_state<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state.lock();
        let now = self.clock.monotonic();
        for lease in state.leases.lapsed(now) {
            self.end(&mut state, lease);
        }
        act(&mut state, now)
    }

    /// Ends a lease and removes its keys; returns how many.
    fn end(&self, state: &mut State, lease: LeaseId) -> u64 {
        state.leases.end(lease);
        let held = |item: &Item| item.stored.lease == Some(lease);
        let gone: Vec<Key> =
            state.values.values().filter(|item| held(item)).map(|item| item.key.clone()).collect();
        state.values.retain(|_, item| !held(item));
        self.watches.changed(gone.iter());
        gone.len() as u64
    }
}

impl State {
    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    fn apply(&mut self, write: Write, now: Duration) -> WriteOutcome {
        let current = self.values.get(write.key.as_bytes()).map(|item| &item.stored);
        if !write.condition.holds(current.map(|stored| stored.version)) {
            return WriteOutcome::Lost { current: current.cloned() };
        }
        match write.change {
            Change::Put { lease: Some(lease), .. } if !self.leases.is_alive(lease, now) => {
                WriteOutcome::NoLease { lease }
            }
            Change::Put { value, lease } => {
                let version = self.next_version();
                let stored = Versioned { value, version, token: write.token, lease };
                let slot = write.key.as_bytes().to_vec();
                self.values.insert(slot, Item { key: write.key, stored });
                WriteOutcome::Done { version }
            }
            Change::Delete => {
                self.values.remove(write.key.as_bytes());
                WriteOutcome::Done { version: self.next_version() }
            }
        }
    }
}

impl MetaStore for MemoryStore {
    fn get(&self, key: &Key) -> Result<Option<Versioned>, MetaError> {
        check_key(key)?;
        Ok(self.with_state(|state, _| {
            state.values.get(key.as_bytes()).map(|item| item.stored.clone())
        }))
    }

    fn range(&self, range: &KeyRange, limit: usize) -> Result<Page, MetaError> {
        if limit == 0 {
            return Err(Refusal::EmptyPage.into());
        }
        Ok(self.with_state(|state, _| {
            let mut page = PageBuilder::new(range, limit);
            for item in state.values.range(range.bounds()).map(|(_, item)| item) {
                if !page.push(item.clone()) {
                    break;
                }
            }
            page.finish()
        }))
    }

    fn batch(&self, writes: Vec<Write>) -> Result<Vec<WriteOutcome>, MetaError> {
        check_batch(&writes)?;
        let keys: Vec<Key> = writes.iter().map(|write| write.key.clone()).collect();
        let outcomes: Vec<WriteOutcome> = self.with_state(|state, now| {
            writes.into_iter().map(|write| state.apply(write, now)).collect()
        });
        let done = keys.iter().zip(&outcomes).filter(|(_, outcome)| outcome.done().is_some());
        self.watches.changed(done.map(|(key, _)| key));
        Ok(outcomes)
    }

    fn watch(&self, prefix: &Key) -> Result<Watch, MetaError> {
        self.watches.add(prefix)
    }

    fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, MetaError> {
        self.with_state(|state, now| {
            state.leases.check_grant(ttl, 0)?;
            let lease = LeaseId(state.next_version().0);
            state.leases.begin(lease, ttl, now);
            Ok(lease)
        })
    }

    fn renew_lease(&self, lease: LeaseId) -> Result<Renewal, MetaError> {
        Ok(self.with_state(|state, now| state.leases.renew(lease, now)))
    }

    fn revoke_lease(&self, lease: LeaseId) -> Result<(), MetaError> {
        self.with_state(|state, _| self.end(state, lease));
        Ok(())
    }

    fn sweep(&self) -> Result<u64, MetaError> {
        let mut state = self.state.lock();
        let now = self.clock.monotonic();
        let lapsed = state.leases.lapsed(now);
        Ok(lapsed.into_iter().map(|lease| self.end(&mut state, lease)).sum())
    }
}

/// Collects items until a page is full; one more item tells that there is a next page.
pub(crate) struct PageBuilder<'a> {
    range: &'a KeyRange,
    items_max: usize,
    bytes: usize,
    page: Page,
}

impl PageBuilder<'_> {
    pub(crate) fn new(range: &KeyRange, limit: usize) -> PageBuilder<'_> {
        let items_max = limit.min(PAGE_ITEMS_MAX);
        PageBuilder { range, items_max, bytes: 0, page: Page::default() }
    }

    /// Adds an item; false when it belongs to the next page.
    pub(crate) fn push(&mut self, item: Item) -> bool {
        if self.page.items.len() >= self.items_max || self.bytes >= PAGE_BYTES_MAX {
            let last = self.page.items.last().expect("a page takes at least one item");
            self.page.next = Some(self.range.clone().after(last.key.clone()));
            return false;
        }
        self.bytes += item.key.as_bytes().len() + item.stored.value.len();
        self.page.items.push(item);
        true
    }

    pub(crate) fn finish(self) -> Page {
        self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_engine_conforms() {
        crate::conformance::suite(&|clock| Arc::new(MemoryStore::new(clock)));
    }
}
