//! One call's turn on a simulated disk: threads may be held up around it, so that orders are seen that
//! an idle machine would not show.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::MutexGuard;

use super::{Sim, State};

impl Sim {
    /// The state for one call, before which the thread may be held up, and after which as well.
    pub(super) fn call(&self) -> Turn<'_> {
        let turns = {
            let mut state = self.state.lock();
            if state.shaken { (state.next(), state.next()) } else { (0, 0) }
        };
        hold_up(turns.0);
        Turn { state: Some(self.state.lock()), after: turns.1 }
    }
}

/// The state, and how long the thread is held up once it is done with it.
pub(super) struct Turn<'a> {
    state: Option<MutexGuard<'a, State>>,
    after: u64,
}

impl Deref for Turn<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.state.as_ref().expect("taken by the drop alone")
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("taken by the drop alone")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.state.take();
        hold_up(self.after);
    }
}

/// Half of the calls go through, most others let another thread run, a few sleep.
fn hold_up(turn: u64) {
    match turn % 16 {
        0..8 => {}
        8..15 => (0..turn / 16 % 8).for_each(|_| std::thread::yield_now()),
        _ => std::thread::sleep(Duration::from_micros(turn / 16 % 500)),
    }
}
