//! What one partition knows of its idempotent producers, so that a batch sent twice is stored once.
//!
//! Owns the sequence numbers: which batch comes next from whom, and where the last five of each
//! landed. Pure; the front asks [`Producers::check`] before it appends, and tells the fate of each
//! append. Does not own transactions, nor the log.
//!
//! The life of a batch, for one partition, in the order of its offsets:
//!
//! ```text
//! check -> Append -> appended (offset assigned, in flight) -> confirmed   (committed, durable)
//!                                                          -> rolled_back (certainly not)
//! ```
//!
//! After an append whose fate is unknown the caller drops this state and replays it from the log
//! (law CERTAIN). State after a restart is a snapshot (`docs/formats/producer-snapshot.md`) and a
//! walk over the batch headers behind it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use thetis_types::{ErrorKind, Offset, Outcome};

mod snapshot;
#[cfg(test)]
mod test;

pub use snapshot::SnapshotError;

/// Batches of a producer that are remembered after they are durable: as many as a client may have
/// in flight.
pub const BATCHES_REMEMBERED_MAX: usize = 5;

/// Batches of a producer that may be in flight; more wait.
pub const BATCHES_IN_FLIGHT_MAX: usize = 5;

/// Sequence numbers go from zero to `i32::MAX` and round to zero.
const SEQUENCE_COUNT: u32 = 1 << 31;

/// Settings of a partition's producer state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a producer that sends nothing is remembered (`producer.id.expiration.ms`).
    pub expiration: Duration,
    /// Producers of one partition. The one that was silent longest is forgotten for a new one, and
    /// with it the protection against its repeats.
    pub producers_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { expiration: Duration::from_secs(24 * 3_600), producers_max: 10_000 }
    }
}

/// The header of a batch, as far as it concerns its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFacts {
    /// The producer; negative for a batch of a producer that is not idempotent.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Sequence number of the first record.
    pub base_sequence: i32,
    /// Records; at least one.
    pub record_count: u32,
    /// The timestamp that an answer to this batch carries, milliseconds since 1970; -1 for none.
    pub timestamp_ms: i64,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next one: append it.
    Append,
    /// It is stored and durable: answer what was answered the first time.
    Duplicate {
        /// Where its first record is.
        base_offset: Offset,
        /// Its timestamp.
        timestamp_ms: i64,
    },
    /// Whether it is a duplicate, or to be refused, hangs on an append in flight: check again when
    /// the batch at this offset is confirmed or rolled back (laws ACK-DURABLE, REFUSE-DURABLE).
    Wait {
        /// First offset of the batch in flight.
        until: Offset,
    },
    /// It must not be appended.
    Refuse(Refusal),
}

/// Why a batch must not be appended. The ordinal is Kafka's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(i16)]
pub enum Refusal {
    /// A batch before it is missing.
    #[error("a batch is missing before this sequence number; send the missing one first")]
    OutOfOrderSequenceNumber = 45,
    /// It is stored, but longer ago than is remembered where.
    #[error("the batch was stored before, too long ago to say at which offset; go on")]
    DuplicateSequenceNumber = 46,
    /// A producer with the same id and a later epoch has taken over.
    #[error("a producer with a later epoch has taken over this id; stop")]
    InvalidProducerEpoch = 47,
    /// The header contradicts itself.
    #[error("a batch of an idempotent producer has no epoch, sequence number or records")]
    InvalidRecord = 87,
}

impl Refusal {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> i16 {
        self as i16
    }

    /// What the caller should do.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        match self {
            Refusal::OutOfOrderSequenceNumber => ErrorKind::Conflict,
            Refusal::DuplicateSequenceNumber => ErrorKind::Exists,
            Refusal::InvalidProducerEpoch => ErrorKind::Fenced,
            Refusal::InvalidRecord => ErrorKind::Invalid,
        }
    }

    /// Whether the batch is in the log.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Refusal::DuplicateSequenceNumber => Outcome::Committed,
            Refusal::OutOfOrderSequenceNumber
            | Refusal::InvalidProducerEpoch
            | Refusal::InvalidRecord => Outcome::NotCommitted,
        }
    }
}

/// A batch that got its offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    base_sequence: i32,
    record_count: u32,
    base_offset: Offset,
    timestamp_ms: i64,
}

/// Where a producer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    epoch: i16,
    /// The only sequence number that comes next under this epoch.
    next_sequence: i32,
    /// Records known to be stored under this epoch without a gap before `next_sequence`.
    run: u64,
}

/// One producer. Memory is bounded by the two limits on batches.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    /// After the last durable batch; after a first append that was rolled back, before it.
    position: Position,
    /// The last durable batches of the epoch, oldest first.
    window: VecDeque<Placed>,
    /// Batches in flight, oldest first, each with the position after it.
    in_flight: VecDeque<(Placed, Position)>,
    /// When it last appended, by the wall clock here: a client's timestamps could lie.
    last_append_ms: i64,
}

/// All idempotent producers of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producers {
    settings: Settings,
    producers: BTreeMap<i64, Producer>,
    /// Producers by the time of their last append.
    by_age: BTreeSet<(i64, i64)>,
}

impl Producers {
    /// No producers.
    #[must_use]
    pub fn new(settings: Settings) -> Producers {
        Producers { settings, producers: BTreeMap::new(), by_age: BTreeSet::new() }
    }

    /// How many producers are remembered.
    #[must_use]
    pub fn count(&self) -> usize {
        self.producers.len()
    }

    /// What to do with a batch. A producer that is not known may begin with any sequence number,
    /// as in Apache Kafka since 2.5: its state may have been forgotten, its batches not.
    #[must_use]
    pub fn check(&self, batch: &BatchFacts) -> Verdict {
        if batch.producer_id < 0 {
            return Verdict::Append;
        }
        let records_max = SEQUENCE_COUNT - 1;
        if batch.producer_epoch < 0
            || batch.base_sequence < 0
            || batch.record_count == 0
            || batch.record_count > records_max
        {
            return Verdict::Refuse(Refusal::InvalidRecord);
        }
        match self.producers.get(&batch.producer_id) {
            Some(producer) => producer.check(batch),
            None => self.check_room(),
        }
    }

    /// A new producer needs room: a free place, or somebody idle to forget.
    fn check_room(&self) -> Verdict {
        let idle = |(_, id): &(i64, i64)| self.producers[id].in_flight.is_empty();
        if self.producers.len() < self.settings.producers_max || self.by_age.iter().any(idle) {
            return Verdict::Append;
        }
        let oldest = self.producers.values().filter_map(|p| p.in_flight.front());
        let until = oldest.map(|(placed, _)| placed.base_offset).min();
        until.map_or(Verdict::Append, |until| Verdict::Wait { until })
    }

    /// A batch that [`Producers::check`] let through has got its offsets and is on its way. Call
    /// in the order of offsets; nothing may be appended to the partition between the two calls.
    pub fn appended(&mut self, batch: &BatchFacts, base_offset: Offset, now_ms: i64) {
        if batch.producer_id < 0 {
            return;
        }
        self.make_room(batch.producer_id);
        let producer = self
            .producers
            .entry(batch.producer_id)
            .or_insert_with(|| Producer::before(batch, now_ms));
        let after = producer.newest().after(batch);
        producer.in_flight.push_back((batch.placed(base_offset), after));
        self.by_age.remove(&(producer.last_append_ms, batch.producer_id));
        producer.last_append_ms = producer.last_append_ms.max(now_ms);
        self.by_age.insert((producer.last_append_ms, batch.producer_id));
    }

    /// The batch at this offset is committed and durable. False, and nothing changes, unless it is
    /// the oldest in flight of its producer: a stream commits in order.
    pub fn confirmed(&mut self, producer_id: i64, base_offset: Offset) -> bool {
        let Some(producer) = self.producers.get_mut(&producer_id) else { return false };
        match producer.in_flight.front() {
            Some(&(placed, after)) if placed.base_offset == base_offset => {
                producer.in_flight.pop_front();
                producer.remember(placed, after);
                true
            }
            _ => false,
        }
    }

    /// The batch at this offset is certainly not in the log, and so are those of its producer
    /// after it. The sequence number is expected again, also when the producer was new: its second
    /// batch must not take the place of the first.
    pub fn rolled_back(&mut self, producer_id: i64, base_offset: Offset) {
        if let Some(producer) = self.producers.get_mut(&producer_id) {
            producer.in_flight.retain(|(placed, _)| placed.base_offset < base_offset);
        }
    }

    /// Takes a committed batch of the log, in order, after a snapshot. One that the snapshot has
    /// already is passed over. The time of the replay stands for that of the append, which is not
    /// in the log; so a producer is remembered longer rather than shorter.
    pub fn replay(&mut self, batch: &BatchFacts, base_offset: Offset, now_ms: i64) {
        if batch.producer_id < 0 || batch.base_sequence < 0 || batch.record_count == 0 {
            return;
        }
        let last = self.producers.get(&batch.producer_id).and_then(|p| p.window.back());
        if last.is_some_and(|last| base_offset <= last.base_offset) {
            return;
        }
        self.appended(batch, base_offset, now_ms);
        self.confirmed(batch.producer_id, base_offset);
    }

    /// Forgets producers that have been silent for the expiration; those with batches in flight
    /// stay. Returns how many went.
    pub fn expire(&mut self, now_ms: i64) -> usize {
        let kept = i64::try_from(self.settings.expiration.as_millis()).unwrap_or(i64::MAX);
        let is_over = |(last, _): &&(i64, i64)| last.saturating_add(kept) <= now_ms;
        let old: Vec<(i64, i64)> = self.by_age.iter().take_while(is_over).copied().collect();
        let before = self.count();
        for entry in old {
            if self.producers[&entry.1].in_flight.is_empty() {
                self.remove(entry);
            }
        }
        before - self.count()
    }

    fn make_room(&mut self, producer_id: i64) {
        if self.producers.contains_key(&producer_id)
            || self.producers.len() < self.settings.producers_max
        {
            return;
        }
        let idle = |(_, id): &&(i64, i64)| self.producers[id].in_flight.is_empty();
        if let Some(oldest) = self.by_age.iter().find(idle).copied() {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, entry: (i64, i64)) {
        self.by_age.remove(&entry);
        self.producers.remove(&entry.1);
    }
}

impl Producer {
    /// A producer about to append its first batch.
    fn before(batch: &BatchFacts, now_ms: i64) -> Producer {
        let (epoch, next_sequence) = (batch.producer_epoch, batch.base_sequence);
        Producer {
            position: Position { epoch, next_sequence, run: 0 },
            window: VecDeque::new(),
            in_flight: VecDeque::new(),
            last_append_ms: now_ms,
        }
    }

    /// Where it stands if all that is in flight arrives.
    fn newest(&self) -> Position {
        self.in_flight.back().map_or(self.position, |(_, after)| *after)
    }

    fn check(&self, batch: &BatchFacts) -> Verdict {
        let verdict = self.judge(batch);
        let until = match self.in_flight.front() {
            Some((oldest, _)) => oldest.base_offset,
            None => return verdict,
        };
        match verdict {
            // The answer to a repeat of a durable batch hangs on nothing in flight, unless a new
            // epoch is about to begin.
            Verdict::Duplicate { .. } if self.newest().epoch == self.position.epoch => verdict,
            Verdict::Append if self.in_flight.len() < BATCHES_IN_FLIGHT_MAX => verdict,
            // The one it repeats, if that is in flight; all before that one settle first.
            _ => Verdict::Wait { until: self.repeated_in_flight(batch).unwrap_or(until) },
        }
    }

    fn repeated_in_flight(&self, batch: &BatchFacts) -> Option<Offset> {
        let repeats = |(placed, after): &&(Placed, Position)| {
            after.epoch == batch.producer_epoch && placed.is_repeated_by(batch)
        };
        self.in_flight.iter().find(repeats).map(|(placed, _)| placed.base_offset)
    }

    /// The verdict if all that is in flight arrives.
    fn judge(&self, batch: &BatchFacts) -> Verdict {
        let newest = self.newest();
        if batch.producer_epoch < newest.epoch {
            return Verdict::Refuse(Refusal::InvalidProducerEpoch);
        }
        if batch.producer_epoch > newest.epoch {
            return if batch.base_sequence == 0 {
                Verdict::Append
            } else {
                Verdict::Refuse(Refusal::OutOfOrderSequenceNumber)
            };
        }
        if batch.base_sequence == newest.next_sequence {
            return Verdict::Append;
        }
        if self.position.epoch == batch.producer_epoch {
            let stored = self.window.iter().find(|placed| placed.is_repeated_by(batch));
            if let Some(placed) = stored {
                let Placed { base_offset, timestamp_ms, .. } = *placed;
                return Verdict::Duplicate { base_offset, timestamp_ms };
            }
        }
        // How far behind it begins, on the circle of sequence numbers. It is a repeat only if all
        // of it lies in what is known to be stored; else a record of it would be lost.
        let behind = u64::from(distance(batch.base_sequence, newest.next_sequence));
        if u64::from(batch.record_count) <= behind && behind <= newest.run {
            Verdict::Refuse(Refusal::DuplicateSequenceNumber)
        } else {
            Verdict::Refuse(Refusal::OutOfOrderSequenceNumber)
        }
    }

    fn remember(&mut self, placed: Placed, after: Position) {
        if after.epoch != self.position.epoch {
            self.window.clear();
        }
        self.position = after;
        self.window.push_back(placed);
        if self.window.len() > BATCHES_REMEMBERED_MAX {
            self.window.pop_front();
        }
    }
}

impl Position {
    /// The position after one more batch.
    fn after(self, batch: &BatchFacts) -> Position {
        let continues =
            batch.producer_epoch == self.epoch && batch.base_sequence == self.next_sequence;
        Position {
            epoch: batch.producer_epoch,
            next_sequence: advance(batch.base_sequence, batch.record_count),
            run: if continues { self.run } else { 0 } + u64::from(batch.record_count),
        }
    }
}

impl Placed {
    fn is_repeated_by(&self, batch: &BatchFacts) -> bool {
        self.base_sequence == batch.base_sequence && self.record_count == batch.record_count
    }
}

impl BatchFacts {
    fn placed(&self, base_offset: Offset) -> Placed {
        Placed {
            base_sequence: self.base_sequence,
            record_count: self.record_count,
            base_offset,
            timestamp_ms: self.timestamp_ms,
        }
    }
}

/// The sequence number `count` after `sequence`, round the end to zero.
fn advance(sequence: i32, count: u32) -> i32 {
    let sum = u64::from(sequence.unsigned_abs()) + u64::from(count);
    i32::try_from(sum % u64::from(SEQUENCE_COUNT)).expect("below i32::MAX + 1")
}

/// Steps from one sequence number forward to another.
fn distance(from: i32, to: i32) -> u32 {
    let (from, to) = (from.unsigned_abs(), to.unsigned_abs());
    (to + SEQUENCE_COUNT - from) % SEQUENCE_COUNT
}
