//! Watches: wake-ups for those who wait for a change under a prefix. Owns who is to be woken;
//! carries no data, so that a slow watcher costs one flag and nothing else.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::{Key, MetaError, Refusal, WATCHES_MAX};

/// Why a watcher woke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Wake {
    /// Something under the prefix may have changed; read again.
    Changed,
    /// The store is gone; nothing will change any more.
    Closed,
}

/// An open watch; dropping it ends it. One waiter at a time gets a given wake-up.
pub struct Watch {
    state: Arc<WatchState>,
}

#[derive(Default)]
struct WatchState {
    prefix: Key,
    pending: Mutex<Option<Wake>>,
    blocked: Condvar,
    polled: Notify,
}

impl WatchState {
    fn wake(&self, why: Wake) {
        let mut pending = self.pending.lock();
        // The end of the store is final; a change must not cover it up.
        if *pending != Some(Wake::Closed) {
            *pending = Some(why);
        }
        self.blocked.notify_one();
        self.polled.notify_one();
    }

    fn take(pending: &mut Option<Wake>) -> Option<Wake> {
        match *pending {
            Some(Wake::Closed) => Some(Wake::Closed),
            _ => pending.take(),
        }
    }
}

impl Watch {
    /// The wake-up that is due, without waiting.
    pub fn try_wake(&self) -> Option<Wake> {
        WatchState::take(&mut self.state.pending.lock())
    }

    /// Blocks until there is a wake-up, or `at_most` has passed without one.
    pub fn wait(&self, at_most: Duration) -> Option<Wake> {
        let mut pending = self.state.pending.lock();
        if pending.is_none() {
            self.state.blocked.wait_for(&mut pending, at_most);
        }
        WatchState::take(&mut pending)
    }

    /// Waits for a wake-up.
    ///
    /// *Cancel safety*: dropping the future loses no wake-up.
    pub async fn woken(&self) -> Wake {
        loop {
            if let Some(why) = self.try_wake() {
                return why;
            }
            self.state.polled.notified().await;
        }
    }
}

/// The watches of one store.
#[derive(Default)]
pub(crate) struct Watches {
    open: Mutex<Vec<Weak<WatchState>>>,
}

impl Watches {
    pub(crate) fn add(&self, prefix: &Key) -> Result<Watch, MetaError> {
        let mut open = self.open.lock();
        open.retain(|watch| watch.strong_count() > 0);
        if open.len() >= WATCHES_MAX {
            return Err(Refusal::TooManyWatches.into());
        }
        let state = Arc::new(WatchState { prefix: prefix.clone(), ..WatchState::default() });
        open.push(Arc::downgrade(&state));
        Ok(Watch { state })
    }

    /// Wakes who watches any of the keys. Called once the change is durable.
    pub(crate) fn changed<'a>(&self, keys: impl Iterator<Item = &'a Key> + Clone) {
        self.open.lock().retain(|watch| {
            let Some(state) = watch.upgrade() else { return false };
            if keys.clone().any(|key| key.is_under(&state.prefix)) {
                state.wake(Wake::Changed);
            }
            true
        });
    }

    fn wake_all(&self, why: Wake) {
        for watch in self.open.lock().iter() {
            if let Some(state) = watch.upgrade() {
                state.wake(why);
            }
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.wake_all(Wake::Closed);
    }
}
