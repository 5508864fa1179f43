//! Acts on a stream that go through its record in metadata: trim, seal, delete, durability, and
//! sessions. One at a time for each stream; each is durable before anyone is told of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use thetis_types::{Durability, Offset};

use super::{Lane, Stream};
use crate::error::{Refusal, StreamError};
use crate::record::{Lifecycle, StreamRecord};
use crate::state::{Held, Session};

impl Stream {
    /// Everything below `before` may no longer be read, for ever. Durable when it returns;
    /// idempotent; never moves back. Returns the trim offset.
    ///
    /// # Errors
    /// Past the committed end, or metadata failed; after a lost answer, simply call again.
    pub fn trim(&self, before: Offset) -> Result<Offset, StreamError> {
        let lane = &self.lane;
        let _act = lane.acts.lock();
        let (trim, head) = {
            let state = lane.state.lock();
            (state.trim, state.head)
        };
        if before > head.end {
            return Err(StreamError::TrimPastEnd { stream: lane.id, at: before, end: head.end });
        }
        if before <= trim {
            return Ok(trim);
        }
        let record = self.update(|record| {
            record.trim = record.trim.max(before);
            record.checkpoint = head;
        })?;
        lane.state.lock().trimmed(record.trim);
        lane.log.trim(record.trim);
        Ok(record.trim)
    }

    /// The stream takes no more, for ever; what is in flight commits first. Returns its final end.
    /// Idempotent.
    ///
    /// # Errors
    /// Metadata or the WAL failed; the stream is as it was, call again.
    pub fn seal(&self) -> Result<Offset, StreamError> {
        let _act = self.lane.acts.lock();
        if self.lifecycle() == Lifecycle::Sealed {
            return Ok(self.head().end);
        }
        self.move_to(Lifecycle::Sealed)?;
        Ok(self.head().end)
    }

    /// Deletes the stream: durable when it returns; its bytes are given back later.
    ///
    /// # Errors
    /// Metadata failed; the stream is as it was, call again.
    pub(crate) fn delete(&self) -> Result<(), StreamError> {
        let _act = self.lane.acts.lock();
        self.move_to(Lifecycle::Deleting)?;
        self.lane.log.discard();
        Ok(())
    }

    /// Pauses appends, lets what is in flight settle, and makes `next` durable before anyone is
    /// refused on account of it (law REFUSE-DURABLE).
    fn move_to(&self, next: Lifecycle) -> Result<(), StreamError> {
        let lane = &self.lane;
        let paused = Pause::of(lane)?;
        match self.drain() {
            // A broken WAL must not keep a stream from being deleted.
            Err(_) if next == Lifecycle::Deleting => {}
            settled => settled?,
        }
        let head = self.head();
        self.update(|record| {
            record.lifecycle = next;
            record.checkpoint = head;
        })?;
        lane.state.lock().moved_to(next);
        drop(paused);
        lane.moved.notify(usize::MAX);
        Ok(())
    }

    /// From now on an acknowledged record survives what `durability` says; `None` takes the
    /// store's default.
    ///
    /// # Errors
    /// Metadata failed; call again.
    pub fn set_durability(&self, durability: Option<Durability>) -> Result<(), StreamError> {
        let _act = self.lane.acts.lock();
        self.update(|record| record.durability = durability)?;
        let level = durability.unwrap_or(self.lane.shared.limits.durability);
        self.lane.durability.store(level as u8, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the exclusive right to append, for `lease` unless renewed. A session held by someone
    /// else is taken over: its holder appends nothing more (law FENCE).
    ///
    /// # Errors
    /// The stream takes no appends, or metadata or the WAL failed; call again.
    pub fn acquire(&self, lease: Duration) -> Result<Session, StreamError> {
        let lane = &self.lane;
        let _act = lane.acts.lock();
        match self.lifecycle() {
            Lifecycle::Active => {}
            Lifecycle::Sealed => {
                let why = Refusal::Sealed { end: self.head().end };
                return Err(StreamError::Refused { stream: lane.id, why });
            }
            Lifecycle::Deleting => return Err(StreamError::NotFound { stream: lane.id }),
        }
        let paused = Pause::of(lane)?;
        self.drain()?;
        // The WAL or the checkpoint may know a higher epoch than metadata counts, when metadata was
        // restored from an older copy; a new session must be above that, too (law FENCE).
        let least = lane.shared.takeovers_beyond(self.epoch());
        let record = self.update(|record| {
            record.takeovers = record.takeovers.saturating_add(1).max(least);
        })?;
        let session = Session {
            epoch: lane.shared.epoch(record.takeovers),
            token: lane.shared.entropy.next_u64(),
        };
        let lapses_at = lane.shared.clock.monotonic().saturating_add(lease);
        lane.state.lock().taken_over(session.epoch, Some(Held { session, lapses_at }));
        drop(paused);
        Ok(session)
    }

    /// Holds `session` for `lease` from now.
    ///
    /// # Errors
    /// It was taken over, released or has lapsed.
    pub fn renew(&self, session: Session, lease: Duration) -> Result<(), StreamError> {
        let now = self.lane.shared.clock.monotonic();
        self.with_session(session, |held| held.lapses_at = now.saturating_add(lease))
    }

    /// Lets go of `session`: anyone may append again.
    ///
    /// # Errors
    /// It was taken over, released or has lapsed.
    pub fn release(&self, session: Session) -> Result<(), StreamError> {
        self.with_session(session, |held| held.lapses_at = Duration::ZERO)
    }

    fn with_session(&self, session: Session, act: impl Fn(&mut Held)) -> Result<(), StreamError> {
        let now = self.lane.shared.clock.monotonic();
        let mut state = self.lane.state.lock();
        let current = state.epoch;
        match &mut state.held {
            Some(held) if held.session == session && now < held.lapses_at => {
                act(held);
                Ok(())
            }
            _ => {
                let why = Refusal::Fenced { epoch: session.epoch, current };
                Err(StreamError::Refused { stream: self.lane.id, why })
            }
        }
    }

    fn update(&self, change: impl Fn(&mut StreamRecord)) -> Result<StreamRecord, StreamError> {
        self.lane.shared.update_record(self.lane.id, change)
    }
}

/// While it lives, appends to the lane are told to come back.
struct Pause<'a>(&'a Lane);

impl Pause<'_> {
    fn of(lane: &Lane) -> Result<Pause<'_>, StreamError> {
        let mut state = lane.state.lock();
        if state.lifecycle == Lifecycle::Deleting {
            return Err(StreamError::NotFound { stream: lane.id });
        }
        state.pause(true);
        Ok(Pause(lane))
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.state.lock().pause(false);
    }
}
