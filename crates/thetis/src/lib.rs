//! Thetis as a library: a durable log inside your own process.
