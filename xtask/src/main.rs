//! The commands of those who build Thetis.

fn main() {}
