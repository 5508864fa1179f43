//! The one binary of Thetis.

fn main() {}
