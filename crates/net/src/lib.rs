//! The listener of every front: accepts connections, keeps to a limit of them, wraps them in TLS
//! where it is asked for, and ends them in order when told to. Knows no protocol.

mod connection;
mod listener;
pub mod tls;

pub use connection::Connection;
pub use listener::{Options, serve, told_to_stop};
