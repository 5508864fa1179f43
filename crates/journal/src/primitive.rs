//! What the small concurrent pieces (`marks`, `parked`) are made of. The test `orderings` compiles
//! those pieces again with the primitives of a model checker in place of these.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
pub(crate) use std::thread::{self, Thread};

/// Sleeps until woken, or for `most`; may wake up early.
pub(crate) fn park(most: Option<std::time::Duration>) {
    match most {
        None => thread::park(),
        Some(most) => thread::park_timeout(most),
    }
}
