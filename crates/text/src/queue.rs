//! GET's view of a topic: a queue that all connections take from, with one shared position.
//!
//! A record is handed out to one connection. Once its reply is written it counts as delivered;
//! when the write fails it is handed out again, first of all. The durable position (a cursor) is
//! below everything that is not delivered, so a crash gives some records again and loses none.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use thetis_types::Offset;

use crate::cursor::Cursor;

/// The queue of one topic.
pub(crate) struct Queue {
    cursor: Arc<Cursor>,
    state: Mutex<State>,
}

struct State {
    /// First offset that was never handed out.
    next: Offset,
    /// Handed out, reply not written yet; at most one for each connection.
    out: BTreeSet<Offset>,
    /// Handed out once, reply not written: to be handed out again.
    again: BTreeSet<Offset>,
}

/// A record on its way to a client. Dropped, it goes back to the queue.
pub(crate) struct Handed {
    queue: Arc<Queue>,
    offset: Offset,
    is_delivered: bool,
}

impl Queue {
    /// The queue from where `cursor` stands, `end` being the end of the stream: records of a weak
    /// durability may be gone that were delivered once.
    pub(crate) fn new(cursor: Arc<Cursor>, end: Offset) -> Queue {
        let next = cursor.position().min(end);
        let state = State { next, out: BTreeSet::new(), again: BTreeSet::new() };
        Queue { cursor, state: Mutex::new(state) }
    }

    /// Everything below is delivered.
    pub(crate) fn position(&self) -> Offset {
        self.state.lock().delivered_below()
    }

    /// The next record to deliver of those in `[start, end)`; `None` when there is none.
    pub(crate) fn take(self: &Arc<Self>, start: Offset, end: Offset) -> Option<Handed> {
        let mut state = self.state.lock();
        state.again = state.again.split_off(&start);
        state.next = state.next.max(start);
        let offset = match state.again.pop_first() {
            Some(offset) => offset,
            None if state.next < end => {
                let offset = state.next;
                state.next = offset.plus(1);
                offset
            }
            None => return None,
        };
        state.out.insert(offset);
        Some(Handed { queue: self.clone(), offset, is_delivered: false })
    }

    fn give_back(&self, offset: Offset) {
        let mut state = self.state.lock();
        state.out.remove(&offset);
        state.again.insert(offset);
    }

    fn delivered(&self, offset: Offset) {
        let below = {
            let mut state = self.state.lock();
            state.out.remove(&offset);
            state.delivered_below()
        };
        self.cursor.advance(below);
        self.cursor.save_soon();
    }
}

impl State {
    fn delivered_below(&self) -> Offset {
        let waiting = self.out.first().into_iter().chain(self.again.first());
        waiting.copied().fold(self.next, Offset::min)
    }
}

impl Handed {
    /// Which record it is.
    pub(crate) fn offset(&self) -> Offset {
        self.offset
    }

    /// Its reply is written.
    pub(crate) fn delivered(mut self) {
        self.is_delivered = true;
        self.queue.delivered(self.offset);
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if !self.is_delivered {
            self.queue.give_back(self.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use thetis_meta::MemoryStore;
    use thetis_types::StreamId;
    use thetis_types::clock::ManualClock;

    use super::*;
    use crate::cursor::{Cursors, QUEUE};

    fn queue() -> Arc<Queue> {
        let meta = Arc::new(MemoryStore::new(Arc::new(ManualClock::default())));
        let cursors = Cursors::open(meta, |_| true).unwrap();
        let cursor = cursors.get_or_make(StreamId(1), QUEUE, Offset(0)).unwrap();
        Arc::new(Queue::new(cursor, Offset(10)))
    }

    #[tokio::test]
    async fn what_was_not_delivered_comes_again_and_holds_the_position() {
        let queue = queue();
        let mut handed: Vec<Handed> = (0..3)
            .map(|_| queue.take(Offset(0), Offset(3)).expect("three records are there"))
            .collect();
        assert!(queue.take(Offset(0), Offset(3)).is_none());
        handed.remove(1).delivered();
        assert_eq!(queue.position(), Offset(0));
        drop(handed.remove(0));
        handed.remove(0).delivered();
        assert_eq!(queue.position(), Offset(0));
        let again = queue.take(Offset(0), Offset(3)).unwrap();
        assert_eq!(again.offset(), Offset(0));
        again.delivered();
        assert_eq!(queue.position(), Offset(3));
        assert_eq!(queue.cursor.position(), Offset(3));
    }

    #[tokio::test]
    async fn what_was_trimmed_is_passed_over() {
        let queue = queue();
        drop(queue.take(Offset(0), Offset(9)));
        let next = queue.take(Offset(6), Offset(9)).unwrap();
        assert_eq!(next.offset(), Offset(6));
        next.delivered();
        assert_eq!(queue.position(), Offset(7));
    }
}
