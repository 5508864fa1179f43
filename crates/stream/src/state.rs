//! What a stream is, and what it may do next: plain functions over a plain value, no I/O, no locks,
//! no time of its own. `crate::lane` performs what they decide; tests and simulation drive them
//! directly.
//!
//! Each method is one event; its result is the effect the shell must perform.

use std::collections::VecDeque;
use std::time::Duration;

use thetis_types::limits::{ENTRY_BYTES_MAX, ENTRY_RECORDS_MAX, OFFSET_MAX};
use thetis_types::{Durability, Entry, Epoch, Head, HeadVersion, Offset};
use thetis_wal::Position;

use crate::error::Refusal;
use crate::invariants;
use crate::record::Lifecycle;

/// Appends of one stream that may wait for the WAL at once.
pub const IN_FLIGHT_MAX: usize = 65_536;

/// Room for so many is kept by a stream that has none in flight any more.
const IN_FLIGHT_KEPT: usize = 64;

/// In debug builds a queue longer than this is walked at every such length only.
const WALK_EVERY: usize = 256;

/// The right to append that one holder has taken, to the exclusion of all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// The epoch it was taken at.
    pub epoch: Epoch,
    /// Random; who knows it is the holder.
    pub token: u64,
}

/// A session as the stream knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The session.
    pub session: Session,
    /// Monotonic time at which it lapses unless renewed.
    pub lapses_at: Duration,
}

/// An append handed to the WAL and not yet known to be safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InFlight {
    /// The head as it is once this append commits.
    pub head: Head,
    /// Where it ends in the WAL.
    pub at: Position,
    /// The level it must be safe at.
    pub level: Durability,
}

/// Where an entry goes: the effect of [`StreamState::place`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Offset of the entry's first record.
    pub base_offset: Offset,
    /// The head as it is once the entry commits.
    pub head: Head,
}

/// A refusal and what it was computed from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The reason.
    pub why: Refusal,
    /// The refusal MUST NOT leave before this is safe, because it speaks of state that is still in
    /// flight (law REFUSE-DURABLE).
    pub after: Option<(Position, Durability)>,
}

/// All that decides the next step of one stream.
///
/// ```text
/// offset  0          40            120          131          140
///         |  trimmed |  readable   |  in flight              |
///                    ^             ^                         ^
///                    trim          head.end                  accepted.end
/// ```
#[derive(Clone, Debug)]
pub struct StreamState {
    /// Whether it takes appends.
    pub lifecycle: Lifecycle,
    /// The epoch appends are made under.
    pub epoch: Epoch,
    /// First offset that may be read. Written by [`StreamState::trimmed`] alone.
    pub trim: Offset,
    /// The committed head. Written by [`StreamState::safe`] alone.
    pub head: Head,
    /// The head as it is once everything in flight commits.
    pub accepted: Head,
    /// The exclusive holder of the right to append, if any.
    pub held: Option<Held>,
    in_flight: VecDeque<InFlight>,
    /// How many of them wait for each level.
    waiting: [usize; 3],
    /// Positions known to be safe, by level.
    safe: [Position; 3],
    /// The WAL failed under something in flight: what became of it is known after reopening.
    broken: bool,
    /// A seal, a deletion or a takeover is on its way to metadata.
    paused: bool,
}

impl StreamState {
    /// A stream as found when the store was opened.
    #[must_use]
    pub fn recovered(lifecycle: Lifecycle, epoch: Epoch, trim: Offset, head: Head) -> StreamState {
        let state = StreamState {
            lifecycle,
            epoch,
            trim,
            head,
            accepted: head,
            held: None,
            in_flight: VecDeque::new(),
            waiting: [0; 3],
            safe: [Position::default(); 3],
            broken: false,
            paused: false,
        };
        state.validate();
        state
    }

    /// What waits for the WAL, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.iter()
    }

    /// The last append in flight: where to wait for all of them.
    #[must_use]
    pub fn last_in_flight(&self) -> Option<(Position, Durability)> {
        let last = self.in_flight.back()?;
        Some((last.at, self.strongest_in_flight(last.level)))
    }

    /// The WAL failed under something in flight.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Event: someone wants to append `entry`. Checks everything, assigns offsets; changes nothing
    /// until [`StreamState::placed`].
    ///
    /// # Errors
    /// A refusal, perhaps one that has to wait.
    pub fn place(
        &self,
        entry: &Entry,
        expected: Option<Offset>,
        session: Option<Session>,
        now: Duration,
    ) -> Result<Placement, Refused> {
        let at_once = |why| Refused { why, after: None };
        self.admit(entry).map_err(at_once)?;
        self.authorise(session, now).map_err(at_once)?;
        let base_offset = self.accepted.end;
        if let Some(expected) = expected.filter(|expected| *expected != base_offset) {
            let why = Refusal::ExpectedOffset { expected, actual: base_offset };
            return Err(Refused { why, after: self.last_in_flight() });
        }
        let count = u64::from(entry.record_count);
        if OFFSET_MAX - base_offset.0 < count {
            return Err(at_once(Refusal::StreamFull { end: base_offset }));
        }
        let head = Head {
            version: self.accepted.version.next(),
            epoch: self.epoch,
            end: base_offset.plus(count),
            bytes: self.accepted.bytes + entry.payload.len() as u64,
        };
        Ok(Placement { base_offset, head })
    }

    fn admit(&self, entry: &Entry) -> Result<(), Refusal> {
        match self.lifecycle {
            Lifecycle::Active => {}
            Lifecycle::Sealed => return Err(Refusal::Sealed { end: self.accepted.end }),
            Lifecycle::Deleting => return Err(Refusal::Deleted),
        }
        if self.broken {
            return Err(Refusal::Broken);
        }
        if self.paused {
            return Err(Refusal::Paused);
        }
        if entry.record_count == 0 || entry.record_count > ENTRY_RECORDS_MAX {
            return Err(Refusal::RecordCount { count: entry.record_count });
        }
        if entry.payload.len() > ENTRY_BYTES_MAX {
            return Err(Refusal::EntryTooLarge { bytes: entry.payload.len() });
        }
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return Err(Refusal::InFlight { max: IN_FLIGHT_MAX });
        }
        Ok(())
    }

    /// While a session is held, only its holder appends; a session that was taken over or has
    /// lapsed appends nothing, ever (law FENCE).
    fn authorise(&self, session: Option<Session>, now: Duration) -> Result<(), Refusal> {
        let live = self.held.filter(|held| now < held.lapses_at).map(|held| held.session);
        match (session, live) {
            (None, None) => Ok(()),
            (Some(mine), Some(current)) if mine == current => Ok(()),
            (None, Some(current)) => Err(Refusal::SessionHeld { epoch: current.epoch }),
            (Some(mine), _) => Err(Refusal::Fenced { epoch: mine.epoch, current: self.epoch }),
        }
    }

    /// Event: the WAL took the entry of `placement`, ending at `at`. Returns the level to wait for:
    /// the append's own, or a stronger one that an earlier append of this stream waits for, since
    /// they commit in order.
    pub fn placed(&mut self, placement: Placement, at: Position, level: Durability) -> Durability {
        assert_eq!(placement.head.version, self.accepted.version.next(), "placed out of order");
        let wait_for = self.strongest_in_flight(level);
        self.waiting[level as usize] += 1;
        if self.in_flight.capacity() == 0 {
            // Many streams never have two in flight; room for four would cost each 150 bytes.
            self.in_flight.reserve_exact(1);
        }
        self.in_flight.push_back(InFlight { head: placement.head, at, level });
        self.accepted = placement.head;
        self.validate();
        wait_for
    }

    fn strongest_in_flight(&self, level: Durability) -> Durability {
        let waited_for = |other: &Durability| self.waiting[*other as usize] > 0;
        Durability::ALL.into_iter().filter(waited_for).fold(level, Durability::max)
    }

    /// Event: everything up to `at` is safe at `level`. The head advances over what that covers
    /// (law ONE-HEAD: the compare-and-set); returns whether it did.
    pub fn safe(&mut self, at: Position, level: Durability) -> bool {
        for weaker in Durability::ALL.into_iter().filter(|other| *other <= level) {
            let mark = &mut self.safe[weaker as usize];
            *mark = at.max(*mark);
        }
        let before = self.head;
        while let Some(next) = self.in_flight.front() {
            if next.at > self.safe[next.level as usize] {
                break;
            }
            assert!(invariants::one_head(&self.head, &next.head), "ONE-HEAD broken");
            self.head = next.head;
            self.waiting[next.level as usize] -= 1;
            self.in_flight.pop_front();
        }
        if self.in_flight.is_empty() && self.in_flight.capacity() > IN_FLIGHT_KEPT {
            self.in_flight = VecDeque::new();
        }
        self.validate();
        self.head != before
    }

    /// Event: the WAL failed. What is in flight may or may not be found after reopening.
    pub fn wal_failed(&mut self) {
        self.broken = !self.in_flight.is_empty() || self.broken;
    }

    /// Event: metadata says that everything below `before` is trimmed. Never moves back.
    pub fn trimmed(&mut self, before: Offset) {
        assert!(before <= self.head.end, "trimmed past the committed end");
        self.trim = self.trim.max(before);
        self.validate();
    }

    /// Event: metadata says that a new session, or none, holds the stream from `epoch` on. Nothing
    /// may be in flight: what was placed under the old epoch has settled.
    pub fn taken_over(&mut self, epoch: Epoch, held: Option<Held>) {
        assert!(epoch >= self.epoch, "FENCE broken: epoch went back");
        self.epoch = epoch;
        self.held = held;
        self.validate();
    }

    /// Event: metadata says that the stream's lifecycle moved on.
    pub fn moved_to(&mut self, lifecycle: Lifecycle) {
        self.lifecycle = lifecycle;
    }

    /// Event: a change of owner or lifecycle begins or ends; until it is durable nobody is told of
    /// it, so appends are asked to come back.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// The version a compare-and-set on the head expects.
    #[must_use]
    pub fn version(&self) -> HeadVersion {
        self.head.version
    }

    fn validate(&self) {
        // PERF: walking a long queue at every event is quadratic, 44 s for a full one. Each event
        // adds or takes at an end, so a fault it makes is still there at the next walk.
        if self.in_flight.len().is_multiple_of(WALK_EVERY) || self.in_flight.len() < WALK_EVERY {
            debug_assert!(invariants::dense(self), "DENSE broken: {self:?}");
        }
        debug_assert!(invariants::ruler(self), "ruler broken: {self:?}");
    }
}
