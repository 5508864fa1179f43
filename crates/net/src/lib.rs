//! The listener of every front: accepts connections, keeps to a limit of them, wraps them in TLS
//! where it is asked for, and ends them in order when told to. The blocking socket of clients is here
//! too. Knows no protocol.

mod connection;
mod listener;
mod socket;
pub mod tls;

pub use connection::Connection;
pub use listener::{Options, serve, told_to_stop};
pub use socket::Socket;
