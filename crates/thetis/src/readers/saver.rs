//! The thread that saves relaxed readers by time. Started with the first reader that asks for an
//! interval, ended with the last handle of the directory. Owns when to look; what is due is the
//! cursor's to say.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::set::Registry;
use crate::error::Error;

/// The shortest time between two looks.
const TICK_MIN: Duration = Duration::from_millis(1);

/// The registry with its thread. Dropping it ends the thread, and waits for that: the directory is
/// free when the last handle is gone.
pub(crate) struct Readers {
    registry: Arc<Registry>,
    saver: Mutex<Option<(Sender<Duration>, JoinHandle<()>)>>,
}

impl Readers {
    pub(crate) fn new(registry: Registry) -> Readers {
        Readers { registry: Arc::new(registry), saver: Mutex::new(None) }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Looks at all readers at least every half `interval` from now on.
    pub(crate) fn look_within(&self, interval: Duration) -> Result<(), Error> {
        let mut saver = self.saver.lock();
        if saver.is_none() {
            let (send, receive) = channel::<Duration>();
            let registry = self.registry.clone();
            let look = move || {
                let mut tick = Duration::MAX;
                loop {
                    match receive.recv_timeout(tick) {
                        Ok(asked) => tick = tick.min(asked),
                        Err(RecvTimeoutError::Timeout) => registry.save_due(),
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            };
            let thread = Builder::new().name("thetis-readers".into()).spawn(look);
            *saver = Some((send, thread.map_err(|source| Error::Thread { source })?));
        }
        if let Some((send, _)) = &*saver {
            // The thread ends after its sender only.
            let _ = send.send((interval / 2).max(TICK_MIN));
        }
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        if let Some((send, thread)) = self.saver.get_mut().take() {
            drop(send);
            // A panic of the thread was told when it happened.
            let _ = thread.join();
        }
    }
}
