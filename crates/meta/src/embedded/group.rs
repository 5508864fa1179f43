//! Group commit: callers hand in requests, one of them leads and runs all that wait. Owns the
//! queue and who leads; does not know what a request does.
//!
//! There is no thread of its own. A caller that finds nobody leading leads: it takes what waits,
//! runs it, answers it, and hands the lead to the first who came meanwhile. So a lone caller pays
//! no switch of threads, many callers share a flush, and nothing has to be stopped at the end.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Requests of weight this much run together at most; one alone may weigh more.
const GROUP_WEIGHT_MAX: usize = 256;

/// Weight of the requests that wait at most.
const QUEUE_WEIGHT_MAX: usize = 8192;

/// Bytes of the requests that wait at most, unless one alone is larger.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// What a request takes of the limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// In writes.
    pub(super) weight: usize,
    /// In bytes of keys and values.
    pub(super) bytes: usize,
}

/// Too much is waiting; the weight of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overfull {
    pub(super) waiting: usize,
}

/// Callers waiting for a group to run.
pub(super) struct Groups<R, A> {
    queue: Mutex<Queue<R, A>>,
}

struct Queue<R, A> {
    waiting: VecDeque<(R, Load, Arc<Ticket<A>>)>,
    weight: usize,
    bytes: usize,
    /// Whether some caller is running a group or has been told to.
    is_led: bool,
}

struct Ticket<A> {
    state: Mutex<State<A>>,
    changed: Condvar,
}

enum State<A> {
    Waiting,
    Lead,
    Answered(A),
}

impl<A> Ticket<A> {
    fn set(&self, state: State<A>) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

impl<R, A> Groups<R, A> {
    pub(super) fn new() -> Groups<R, A> {
        let queue = Queue { waiting: VecDeque::new(), weight: 0, bytes: 0, is_led: false };
        Groups { queue: Mutex::new(queue) }
    }

    /// Hands in a request and returns its answer. `run` is called by whoever leads, one call at a
    /// time, and answers every request of its group in order. When it panics, `broken` answers the
    /// group.
    pub(super) fn submit(
        &self,
        request: R,
        load: Load,
        run: impl Fn(Vec<R>) -> Vec<A>,
        broken: impl Fn() -> A,
    ) -> Result<A, Overfull> {
        let ticket =
            Arc::new(Ticket { state: Mutex::new(State::Waiting), changed: Condvar::new() });
        {
            let mut queue = self.queue.lock();
            let is_over = queue.weight + load.weight > QUEUE_WEIGHT_MAX
                || queue.bytes.saturating_add(load.bytes) > QUEUE_BYTES_MAX;
            if is_over && !queue.waiting.is_empty() {
                return Err(Overfull { waiting: queue.weight });
            }
            queue.push(request, load, Arc::clone(&ticket));
            if !queue.is_led {
                queue.is_led = true;
                ticket.set(State::Lead);
            }
        }
        let mut state = ticket.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Waiting) {
                State::Answered(answer) => return Ok(answer),
                State::Lead => {
                    drop(state);
                    self.lead(&run, &broken);
                    state = ticket.state.lock();
                }
                State::Waiting => ticket.changed.wait(&mut state),
            }
        }
    }

    /// Weight of the requests that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().weight
    }

    /// Runs one group, which begins with the leader's own request.
    fn lead(&self, run: impl Fn(Vec<R>) -> Vec<A>, broken: impl Fn() -> A) {
        let (requests, tickets) = self.queue.lock().take_group();
        let mut term = Term { groups: self, tickets: tickets.into(), broken };
        for answer in run(requests) {
            let ticket = term.tickets.pop_front().expect("one answer for each request");
            ticket.set(State::Answered(answer));
        }
    }
}

impl<R, A> Queue<R, A> {
    fn push(&mut self, request: R, load: Load, ticket: Arc<Ticket<A>>) {
        self.weight += load.weight;
        self.bytes += load.bytes;
        self.waiting.push_back((request, load, ticket));
    }

    fn take_group(&mut self) -> (Vec<R>, Vec<Arc<Ticket<A>>>) {
        let mut group = (Vec::new(), Vec::new());
        let mut weight = 0;
        while let Some((_, load, _)) = self.waiting.front()
            && (weight == 0 || weight + load.weight <= GROUP_WEIGHT_MAX)
        {
            let (request, load, ticket) = self.waiting.pop_front().expect("there is a front");
            weight += load.weight.max(1);
            self.weight -= load.weight;
            self.bytes -= load.bytes;
            group.0.push(request);
            group.1.push(ticket);
        }
        group
    }
}

/// The term of a leader. Its end, by return or by panic, answers whoever is left and passes the
/// lead on, so that nobody waits for ever.
struct Term<'g, R, A, B: Fn() -> A> {
    groups: &'g Groups<R, A>,
    tickets: VecDeque<Arc<Ticket<A>>>,
    broken: B,
}

impl<R, A, B: Fn() -> A> Drop for Term<'_, R, A, B> {
    fn drop(&mut self) {
        for ticket in self.tickets.drain(..) {
            ticket.set(State::Answered((self.broken)()));
        }
        let mut queue = self.groups.queue.lock();
        match queue.waiting.front() {
            Some((_, _, next)) => next.set(State::Lead),
            None => queue.is_led = false,
        }
    }
}
