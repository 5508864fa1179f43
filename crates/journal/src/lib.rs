//! The journal: one durable log for all streams of a machine.
