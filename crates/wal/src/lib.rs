//! The WAL port and its engines.
