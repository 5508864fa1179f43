//! The clockwork of leases: which are alive and until when. Owns deadlines, in memory, by the
//! monotonic clock; engines own which keys a lease holds and what of a lease is durable.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::{LEASE_TTL_MAX, LEASES_MAX, MetaError, Refusal};

/// A lease. Never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

/// The answer to a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Renewal {
    /// Another time to live has begun.
    Renewed,
    /// The lease is over, and so are its keys.
    Lapsed,
}

struct Term {
    ttl: Duration,
    deadline: Duration,
}

/// Leases that have not been removed, the lapsed among them until an engine has deleted their
/// keys.
#[derive(Default)]
pub(crate) struct Leases {
    terms: BTreeMap<LeaseId, Term>,
}

impl Leases {
    /// Refuses a lease that must not be granted beside `pending` others that are about to be.
    pub(crate) fn check_grant(&self, ttl: Duration, pending: usize) -> Result<(), MetaError> {
        if ttl.is_zero() || ttl > LEASE_TTL_MAX {
            return Err(Refusal::BadTtl { ttl }.into());
        }
        if self.terms.len() + pending >= LEASES_MAX {
            return Err(Refusal::TooManyLeases.into());
        }
        Ok(())
    }

    pub(crate) fn begin(&mut self, lease: LeaseId, ttl: Duration, now: Duration) {
        self.terms.insert(lease, Term { ttl, deadline: now.saturating_add(ttl) });
    }

    /// Takes over what a medium holds: forgets leases that are not there and begins those that are
    /// new; the others run on.
    pub(crate) fn reset(&mut self, durable: Vec<(LeaseId, Duration)>, now: Duration) {
        let mut known = std::mem::take(&mut self.terms);
        for (lease, ttl) in durable {
            match known.remove(&lease) {
                Some(term) => {
                    self.terms.insert(lease, term);
                }
                None => self.begin(lease, ttl, now),
            }
        }
    }

    /// Renews a lease unless it has lapsed: what readers may have seen gone must not come back.
    pub(crate) fn renew(&mut self, lease: LeaseId, now: Duration) -> Renewal {
        match self.terms.get_mut(&lease) {
            Some(term) if now < term.deadline => {
                term.deadline = now.saturating_add(term.ttl);
                Renewal::Renewed
            }
            _ => Renewal::Lapsed,
        }
    }

    pub(crate) fn end(&mut self, lease: LeaseId) {
        self.terms.remove(&lease);
    }

    pub(crate) fn is_alive(&self, lease: LeaseId, now: Duration) -> bool {
        self.terms.get(&lease).is_some_and(|term| now < term.deadline)
    }

    /// Leases whose time is over, oldest first.
    pub(crate) fn lapsed(&self, now: Duration) -> Vec<LeaseId> {
        let over = self.terms.iter().filter(|(_, term)| now >= term.deadline);
        over.map(|(lease, _)| *lease).collect()
    }
}
