//! A store that fails on purpose, drawn from a seed: wraps any engine and gives back what a
//! network or a dying disk would. Owns the faults of answers; faults of a medium are injected below
//! the embedded engine.
//!
//! The case that ordinary fakes leave out is the important one: the write is performed and the
//! answer is lost. A delayed write is worse still: it is answered `Unknown` and lands later,
//! between other writes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thetis_types::clock::Entropy;

use crate::{
    Cause, Key, KeyRange, LeaseId, MetaError, MetaStore, Page, Refusal, Renewal, Versioned, Watch,
    Write, WriteOutcome,
};

/// Batches held back at most; beyond it none is delayed.
const DELAYED_BATCHES_MAX: usize = 64;

/// How often each fault strikes, in calls per thousand; at most 1000 together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// Refused before anything is done.
    pub refuse: u64,
    /// Performed, and the answer lost.
    pub lose_answer: u64,
    /// Not performed, and answered as if that were unknown.
    pub lose_request: u64,
    /// Answered as unknown at once, performed before some later call.
    pub delay: u64,
}

/// A store with faults. Reads are only ever refused.
pub struct FaultyStore {
    inner: Arc<dyn MetaStore>,
    entropy: Arc<dyn Entropy>,
    rates: Mutex<FaultRates>,
    delayed: Mutex<Vec<Vec<Write>>>,
}

enum Fate {
    Pass,
    Refuse,
    LoseAnswer,
    LoseRequest,
    Delay,
}

impl FaultyStore {
    /// Wraps a store.
    #[must_use]
    pub fn new(
        inner: Arc<dyn MetaStore>,
        entropy: Arc<dyn Entropy>,
        rates: FaultRates,
    ) -> FaultyStore {
        FaultyStore { inner, entropy, rates: Mutex::new(rates), delayed: Mutex::default() }
    }

    /// Changes how often faults strike from here on.
    pub fn set_rates(&self, rates: FaultRates) {
        *self.rates.lock() = rates;
    }

    /// Performs all delayed writes, in the order they were sent.
    ///
    /// # Errors
    /// What the store below says; the rest stays delayed.
    pub fn settle(&self) -> Result<(), MetaError> {
        let mut delayed = self.delayed.lock();
        while !delayed.is_empty() {
            self.inner.batch(delayed.remove(0))?;
        }
        Ok(())
    }

    fn draw(&self) -> Fate {
        let rates = *self.rates.lock();
        let drawn = self.entropy.next_u64() % 1000;
        let fates = [
            (rates.refuse, Fate::Refuse),
            (rates.lose_answer, Fate::LoseAnswer),
            (rates.lose_request, Fate::LoseRequest),
            (rates.delay, Fate::Delay),
        ];
        let mut up_to = 0;
        for (rate, fate) in fates {
            up_to += rate;
            if drawn < up_to {
                return fate;
            }
        }
        Fate::Pass
    }

    fn refuse_some(&self) -> Result<(), MetaError> {
        match self.draw() {
            Fate::Refuse => Err(refused()),
            _ => Ok(()),
        }
    }

    /// Lets each delayed batch land with even odds.
    fn land_some(&self) -> Result<(), MetaError> {
        let mut delayed = self.delayed.lock();
        let mut index = 0;
        while index < delayed.len() {
            if self.entropy.next_u64().is_multiple_of(2) {
                self.inner.batch(delayed.remove(index))?;
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Calls the store below, or not, and answers, or not.
    fn mutate<T>(&self, call: impl FnOnce() -> Result<T, MetaError>) -> Result<T, MetaError> {
        match self.draw() {
            Fate::Pass => call(),
            Fate::Refuse => Err(refused()),
            Fate::LoseAnswer => call().and_then(|_| Err(unknown())),
            Fate::LoseRequest | Fate::Delay => Err(unknown()),
        }
    }
}

impl MetaStore for FaultyStore {
    fn get(&self, key: &Key) -> Result<Option<Versioned>, MetaError> {
        self.land_some()?;
        self.refuse_some()?;
        self.inner.get(key)
    }

    fn range(&self, range: &KeyRange, limit: usize) -> Result<Page, MetaError> {
        self.land_some()?;
        self.refuse_some()?;
        self.inner.range(range, limit)
    }

    fn batch(&self, writes: Vec<Write>) -> Result<Vec<WriteOutcome>, MetaError> {
        self.land_some()?;
        match self.draw() {
            Fate::Pass => self.inner.batch(writes),
            Fate::Refuse => Err(refused()),
            Fate::LoseAnswer => self.inner.batch(writes).and_then(|_| Err(unknown())),
            Fate::LoseRequest => Err(unknown()),
            Fate::Delay => {
                let mut delayed = self.delayed.lock();
                if delayed.len() < DELAYED_BATCHES_MAX {
                    delayed.push(writes);
                }
                Err(unknown())
            }
        }
    }

    fn watch(&self, prefix: &Key) -> Result<Watch, MetaError> {
        self.inner.watch(prefix)
    }

    fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, MetaError> {
        self.mutate(|| self.inner.grant_lease(ttl))
    }

    fn renew_lease(&self, lease: LeaseId) -> Result<Renewal, MetaError> {
        self.mutate(|| self.inner.renew_lease(lease))
    }

    fn revoke_lease(&self, lease: LeaseId) -> Result<(), MetaError> {
        self.mutate(|| self.inner.revoke_lease(lease))
    }

    fn sweep(&self) -> Result<u64, MetaError> {
        self.mutate(|| self.inner.sweep())
    }
}

fn injected() -> Cause {
    Arc::new(io::Error::other("injected fault"))
}

fn refused() -> MetaError {
    Refusal::Unavailable { cause: injected() }.into()
}

fn unknown() -> MetaError {
    MetaError::Unknown { cause: injected() }
}

#[cfg(test)]
#[path = "faults_test.rs"]
mod tests;
