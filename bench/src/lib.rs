//! One work of one engine, with everything that was written read back: what the bench shares with the
//! programs that bring it further rivals (`bench/rivals`). Which works are compared is the business of
//! the program `thetis-bench`.

pub mod content;
pub mod figures;
pub mod work;
