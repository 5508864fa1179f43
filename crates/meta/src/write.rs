//! Writes: what a caller asks for, what it is told, and the checks that come before any engine.
//! Engines share the judgement of conditions here, so that they cannot differ in it.

use bytes::Bytes;

use crate::{
    BATCH_BYTES_MAX, BATCH_WRITES_MAX, KEY_BYTES_MAX, Key, LeaseId, MetaError, Refusal,
    VALUE_BYTES_MAX, Version, Versioned,
};

/// What must be so for a write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Nothing.
    Any,
    /// There is no such key.
    Absent,
    /// The key holds exactly this version.
    Version(Version),
}

/// What a write does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Put this value, bound to this lease or to none. Replaces value, token and lease.
    Put {
        /// The value; at most [`VALUE_BYTES_MAX`] bytes.
        value: Bytes,
        /// The key vanishes with it.
        lease: Option<LeaseId>,
    },
    /// Delete the key. Deleting what is absent is no error.
    Delete,
}

/// One conditional change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The key; not the root, at most [`KEY_BYTES_MAX`] bytes.
    pub key: Key,
    /// When to do it.
    pub condition: Condition,
    /// What to do.
    pub change: Change,
    /// Stored beside a put value, so that its writer recognises it. Random and not zero when the
    /// write may have to be resolved; zero otherwise. A delete leaves no token behind.
    pub token: u64,
}

/// What became of one write. Durable when answered.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum WriteOutcome {
    /// It happened, and got this version.
    Done {
        /// Later than every version before.
        version: Version,
    },
    /// Its condition did not hold; nothing changed.
    Lost {
        /// What the key held instead.
        current: Option<Versioned>,
    },
    /// The lease it named has lapsed; nothing changed.
    NoLease {
        /// The lease.
        lease: LeaseId,
    },
}

impl WriteOutcome {
    /// The version, if the write happened.
    #[must_use]
    pub fn done(&self) -> Option<Version> {
        match self {
            WriteOutcome::Done { version } => Some(*version),
            WriteOutcome::Lost { .. } | WriteOutcome::NoLease { .. } => None,
        }
    }
}

impl Condition {
    /// Whether the condition holds against what a key holds.
    #[must_use]
    pub fn holds(self, current: Option<Version>) -> bool {
        match self {
            Condition::Any => true,
            Condition::Absent => current.is_none(),
            Condition::Version(version) => current == Some(version),
        }
    }
}

impl Write {
    /// A put without condition, token or lease.
    #[must_use]
    pub fn put(key: Key, value: impl Into<Bytes>) -> Write {
        let change = Change::Put { value: value.into(), lease: None };
        Write { key, condition: Condition::Any, change, token: 0 }
    }

    /// A delete without condition.
    #[must_use]
    pub fn delete(key: Key) -> Write {
        Write { key, condition: Condition::Any, change: Change::Delete, token: 0 }
    }

    /// This write, under a condition.
    #[must_use]
    pub fn only_if(self, condition: Condition) -> Write {
        Write { condition, ..self }
    }

    /// This write, with a token to be recognised by.
    #[must_use]
    pub fn with_token(self, token: u64) -> Write {
        Write { token, ..self }
    }

    /// This write, bound to a lease if it is a put.
    #[must_use]
    pub fn with_lease(mut self, bound_to: LeaseId) -> Write {
        if let Change::Put { lease, .. } = &mut self.change {
            *lease = Some(bound_to);
        }
        self
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let value = match &self.change {
            Change::Put { value, .. } => value.len(),
            Change::Delete => 0,
        };
        self.key.as_bytes().len() + value
    }
}

/// Refuses a key no store can hold.
pub(crate) fn check_key(key: &Key) -> Result<(), Refusal> {
    match key.as_bytes().len() {
        0 => Err(Refusal::RootKey),
        bytes if bytes > KEY_BYTES_MAX => Err(Refusal::KeyTooLong { bytes }),
        _ => Ok(()),
    }
}

/// Refuses what no store takes, before anything is done.
pub(crate) fn check_batch(writes: &[Write]) -> Result<(), MetaError> {
    let mut bytes = 0_usize;
    for write in writes {
        check_key(&write.key)?;
        if let Change::Put { value, .. } = &write.change
            && value.len() > VALUE_BYTES_MAX
        {
            return Err(Refusal::ValueTooLarge { bytes: value.len() }.into());
        }
        bytes = bytes.saturating_add(write.size_bytes());
    }
    if writes.len() > BATCH_WRITES_MAX || bytes > BATCH_BYTES_MAX {
        return Err(Refusal::BatchTooLarge { writes: writes.len(), bytes }.into());
    }
    Ok(())
}
