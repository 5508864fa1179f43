//! Finding out what became of a write whose answer was lost. Owns the case analysis; does not
//! retry: what to do next is the caller's decision.

use crate::{Change, Condition, MetaError, MetaStore, Refusal, Version, Versioned, Write};

/// What reading back a write of unknown outcome shows.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Resolved {
    /// The put happened: the key holds its token.
    Done {
        /// The version it got.
        version: Version,
    },
    /// The key of a delete is absent. Whoever deleted it, the delete has what it wanted.
    Gone,
    /// The key is as the condition wants it: the write has no visible effect. Send the *same*
    /// write again, with the same token. Should the lost one arrive late, at most one of the two
    /// meets [`Condition::Version`]; one under [`Condition::Absent`] can only win twice when
    /// somebody deleted the key in between, and under [`Condition::Any`] both put the same value.
    ///
    /// SUBTLE: when the second sending is answered `Lost`, it may have lost against the first.
    /// Resolve again, or compare the token of what it lost to.
    NotDone {
        /// What the key holds.
        current: Option<Versioned>,
    },
    /// The key holds another's write. The write was lost, or happened and was replaced: this
    /// cannot be told apart. Decide anew from what is there, as after `Lost`.
    Overtaken {
        /// What the key holds.
        current: Option<Versioned>,
    },
}

/// Reads back a write that was answered with [`MetaError::Unknown`].
///
/// ```text
///          key holds ->   own token   what the condition wants   anything else
///  put                    Done        NotDone                    Overtaken
///  delete, absent: Gone   -           NotDone                    Overtaken
/// ```
///
/// An unconditional put counts any other value as another's write, an unconditional delete any
/// value as not yet deleted. Reads only; idempotent. Law CERTAIN rests on it.
///
/// # Errors
/// [`Refusal::NoToken`] for a put without a token; otherwise as [`MetaStore::get`].
pub fn resolve(store: &dyn MetaStore, write: &Write) -> Result<Resolved, MetaError> {
    let is_put = matches!(write.change, Change::Put { .. });
    if is_put && write.token == 0 {
        return Err(Refusal::NoToken.into());
    }
    let current = store.get(&write.key)?;
    let version = current.as_ref().map(|stored| stored.version);
    if let Some(stored) = &current
        && is_put
        && stored.token == write.token
    {
        return Ok(Resolved::Done { version: stored.version });
    }
    if !is_put && current.is_none() {
        return Ok(Resolved::Gone);
    }
    let untouched = match write.condition {
        Condition::Any => !is_put || current.is_none(),
        condition => condition.holds(version),
    };
    Ok(if untouched { Resolved::NotDone { current } } else { Resolved::Overtaken { current } })
}
