//! The metadata port and its engines.
