//! The laws of ARCHITECTURE.md that can be seen on one stream's state, one predicate each.
//! Checked after every event in debug builds; those that guard an acknowledgement, always.

use thetis_types::{Durability, Head};

use crate::state::StreamState;

/// ONE-HEAD: a head advances by exactly one version per entry, never backwards, never under a
/// lower epoch.
#[must_use]
pub fn one_head(old: &Head, new: &Head) -> bool {
    new.version >= old.version
        && new.epoch >= old.epoch
        && new.end >= old.end
        && (new.version == old.version) == (new.end == old.end)
}

/// DENSE: what is in flight continues the committed head without a gap, in order, and ends at
/// what was accepted.
#[must_use]
pub fn dense(state: &StreamState) -> bool {
    let mut at = state.head;
    for flight in state.in_flight() {
        if !one_head(&at, &flight.head) || flight.head.version != at.version.next() {
            return false;
        }
        at = flight.head;
    }
    at == state.accepted
}

/// The ruler: `trim <= committed <= accepted`.
#[must_use]
pub fn ruler(state: &StreamState) -> bool {
    state.trim <= state.head.end && state.head.end <= state.accepted.end
}

/// ACK-DURABLE: a receipt leaves only when the head covers its range, and for no weaker level than
/// the append asked for.
#[must_use]
pub fn ack_durable(head: &Head, made: &Head, reached: Durability, asked: Durability) -> bool {
    head.end >= made.end && head.version >= made.version && reached >= asked
}
