//! SIGTERM and SIGINT. Owns only their names; what a signal means is decided in `serve.rs`.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a node. From its creation on none of them ends the process by itself.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes over both signals.
    pub(super) fn install() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The name of the next signal.
    ///
    /// Cancel safety: a signal that arrives while nobody waits is given to the next caller.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
