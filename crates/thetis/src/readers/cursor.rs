//! One reader's place in its stream: what is next, what is saved, and the order of the two.
//!
//! ```text
//! offset   0          saved               next          ahead ends          end
//!          |  passed  |  seen again after |  read ahead  |  not fetched yet  |
//!                        a crash
//! ```
//!
//! Strict: `saved` moves to the far side of the records in hand, durably, before they are handed
//! out. Relaxed: `saved` moves up to the near side of them at most, so that a crash repeats and
//! never skips. Owns nothing of other readers of the stream; trimming is `super::set`'s.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thetis_meta::Write;
use thetis_stream::{Read, Store, Stream};
use thetis_types::Offset;

use super::record::{encode_position, position_key};
use super::{Saves, write};
use crate::error::Error;
use crate::records::{self, Record};

/// Payload bytes read ahead of a reader; a larger entry is fetched alone.
const AHEAD_BYTES: usize = 1 << 20;
/// Records of one batch, however few bytes they have.
pub const READER_BATCH_RECORDS_MAX: usize = 65_536;
/// What a record counts for beside its payload when passed bytes are added up.
const RECORD_OVERHEAD_BYTES: u64 = 64;
/// Bytes passed after which the stream is trimmed, if it is trimmed when read. Each trim is a
/// metadata write.
const TRIM_AFTER_BYTES: u64 = 1 << 20;

/// How much a call takes.
#[derive(Clone, Copy)]
pub(crate) struct Want {
    pub(crate) bytes_max: usize,
    pub(crate) records_max: usize,
}

impl Want {
    pub(crate) const ONE: Want = Want { bytes_max: 0, records_max: 1 };
}

/// One reader. `saved` is read without the lock by whoever trims; it is written only with both the
/// lock and the set's held when it goes back (`super::set::ReaderSet::seek`).
pub(crate) struct Cursor {
    name: String,
    stream: Stream,
    store: Arc<Store>,
    saved: AtomicU64,
    state: Mutex<State>,
}

/// What the lock guards.
pub(crate) struct State {
    next: Offset,
    /// Records from `next` on.
    ahead: VecDeque<Record>,
    /// When the oldest advance was made that is not saved.
    unsaved_since: Option<Duration>,
    /// The shortest interval any handle asked for.
    interval: Option<Duration>,
    /// Bytes passed since the last trim.
    passed_bytes: u64,
    pub(crate) is_dropped: bool,
}

/// Records taken, and whether it is worth trimming.
pub(crate) struct Taken {
    pub(crate) records: Vec<Record>,
    pub(crate) wants_trim: bool,
}

impl Cursor {
    pub(crate) fn new(name: String, stream: Stream, store: Arc<Store>, at: Offset) -> Cursor {
        let state = State {
            next: at,
            ahead: VecDeque::new(),
            unsaved_since: None,
            interval: None,
            passed_bytes: 0,
            is_dropped: false,
        };
        Cursor { name, stream, store, saved: AtomicU64::new(at.0), state: Mutex::new(state) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn saved(&self) -> Offset {
        Offset(self.saved.load(Ordering::Acquire))
    }

    pub(crate) fn next(&self) -> Offset {
        self.state.lock().next
    }

    pub(crate) fn state(&self) -> &Mutex<State> {
        &self.state
    }

    /// Records that are committed and not handed out.
    pub(crate) fn unread(&self) -> u64 {
        let next = self.next();
        self.stream.committed_end().since(next.max(self.stream.trim_offset()))
    }

    /// The next records, without moving.
    pub(crate) fn peek(&self, want: Want) -> Result<Vec<Record>, Error> {
        let mut state = self.live()?;
        let (count, _) = self.gather(&mut state, want)?;
        Ok(state.ahead.iter().take(count).cloned().collect())
    }

    /// The next records, moving past them. After an error nothing has moved.
    pub(crate) fn take(&self, want: Want, saves: Saves) -> Result<Taken, Error> {
        let mut state = self.live()?;
        let (count, bytes) = self.gather(&mut state, want)?;
        if count == 0 {
            return Ok(Taken { records: Vec::new(), wants_trim: false });
        }
        let after = state.next.plus(count as u64);
        match saves {
            Saves::Each => self.save_at(&mut state, after)?,
            Saves::Every { records, .. } => {
                let unsaved = state.next.since(self.saved());
                if unsaved > 0 && unsaved + count as u64 > u64::from(records.max(1)) {
                    let near_side = state.next;
                    self.save_at(&mut state, near_side)?;
                }
                if state.unsaved_since.is_none() {
                    state.unsaved_since = Some(self.store.clock().monotonic());
                }
            }
        }
        state.next = after;
        let overhead = RECORD_OVERHEAD_BYTES * count as u64;
        state.passed_bytes = state.passed_bytes.saturating_add(bytes as u64 + overhead);
        let wants_trim = state.passed_bytes >= TRIM_AFTER_BYTES;
        if wants_trim {
            state.passed_bytes = 0;
        }
        let records = state.ahead.drain(..count).collect();
        Ok(Taken { records, wants_trim })
    }

    /// How many records from `next` on make up what is wanted, and their bytes; they are in
    /// `ahead`. Damage behind good records is told when it is next.
    fn gather(&self, state: &mut State, want: Want) -> Result<(usize, usize), Error> {
        let start = self.stream.trim_offset();
        if state.next < start {
            state.ahead.clear();
            return Err(Error::Trimmed { at: state.next, start });
        }
        let records_max = want.records_max.min(READER_BATCH_RECORDS_MAX);
        let (mut count, mut bytes) = (0_usize, 0_usize);
        while count < records_max {
            if count == state.ahead.len() {
                match self.fetch(state) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) if count > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            let Some(record) = state.ahead.get(count) else { break };
            let with = bytes.saturating_add(record.value.len());
            if count > 0 && with > want.bytes_max {
                break;
            }
            bytes = with;
            count += 1;
        }
        Ok((count, bytes))
    }

    /// Reads further ahead; false at the end of the stream.
    fn fetch(&self, state: &mut State) -> Result<bool, Error> {
        let at = state.ahead.back().map_or(state.next, |last| last.offset.plus(1));
        match self.stream.read(at, AHEAD_BYTES)? {
            Read::Entries(entries) => {
                for entry in entries {
                    records::of_entry(entry, at, &mut state.ahead)?;
                }
                Ok(true)
            }
            Read::End(_) => Ok(false),
            Read::Trimmed(start) => Err(Error::Trimmed { at, start }),
        }
    }

    /// Goes elsewhere, durably.
    pub(crate) fn move_to(&self, state: &mut State, to: Offset) -> Result<(), Error> {
        self.save_at(state, to)?;
        state.next = to;
        state.ahead.clear();
        Ok(())
    }

    /// Saves everything handed out.
    pub(crate) fn save(&self) -> Result<(), Error> {
        let mut state = self.live()?;
        if self.saved() == state.next {
            return Ok(());
        }
        let next = state.next;
        self.save_at(&mut state, next)
    }

    /// Saves what was handed out longer ago than the interval. Fails silently: the next call, or
    /// the next read, tries again and tells.
    pub(crate) fn save_if_due(&self, now: Duration) {
        let mut state = self.state.lock();
        let (Some(since), Some(interval)) = (state.unsaved_since, state.interval) else { return };
        if !state.is_dropped && now.saturating_sub(since) >= interval {
            let next = state.next;
            let _ = self.save_at(&mut state, next);
        }
    }

    pub(crate) fn save_within(&self, interval: Duration) {
        let mut state = self.state.lock();
        state.interval = Some(state.interval.map_or(interval, |has| has.min(interval)));
    }

    fn save_at(&self, state: &mut State, at: Offset) -> Result<(), Error> {
        let key = position_key(self.stream.id(), &self.name);
        write(&self.store, Write::put(key, encode_position(at)))?;
        self.saved.store(at.0, Ordering::Release);
        state.unsaved_since = None;
        Ok(())
    }

    pub(crate) fn live(&self) -> Result<parking_lot::MutexGuard<'_, State>, Error> {
        let state = self.state.lock();
        match state.is_dropped {
            true => Err(Error::NoReader { name: self.name.clone() }),
            false => Ok(state),
        }
    }
}
