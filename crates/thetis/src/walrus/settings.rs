//! How an instance is opened, in the engine's words, and what they mean here. Owns where its
//! directory is; the directory's name for a key is `crate::keyed`'s.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::{Walrus, to_io};
use crate::error::Error;
use crate::keyed::keyed_dir;
use crate::open::{Flush, Options, Thetis};
use crate::readers::Saves;

/// Where data goes when nothing else is said.
const DATA_DIR: &str = "wal_files";

/// When the place of a topic's cursor becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadConsistency {
    /// Before each consuming read returns: nothing is consumed twice, across a crash too.
    StrictlyAtOnce,
    /// Now and then: after a crash or a restart entries may be consumed again, none is skipped.
    AtLeastOnce {
        /// At most this many entries are consumed again, or the last batch if that is larger;
        /// 0 counts as 1. Batch reads count (they are never saved there).
        persist_every: u32,
    },
}

impl ReadConsistency {
    pub(crate) fn saves(self) -> Saves {
        match self {
            ReadConsistency::StrictlyAtOnce => Saves::Each,
            ReadConsistency::AtLeastOnce { persist_every } => {
                Saves::Every { records: persist_every, interval: None }
            }
        }
    }
}

/// When appends are flushed to the device. A batch follows it too (there it is always flushed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncSchedule {
    /// Every so many milliseconds, at least 1: a loss of power takes at most what is younger. The
    /// end of the process takes nothing. Level `os`.
    Milliseconds(u64),
    /// Before each append returns. Level `disk`.
    SyncEach,
    /// For no append's sake, in the background every 10 s: a loss of power takes what is younger,
    /// with no promise. The end of the process takes nothing. Level `os`.
    NoFsync,
}

impl FsyncSchedule {
    fn flush(self) -> Flush {
        match self {
            FsyncSchedule::Milliseconds(ms) => Flush::Every(Duration::from_millis(ms.max(1))),
            FsyncSchedule::SyncEach => Flush::Each,
            FsyncSchedule::NoFsync => Flush::Never,
        }
    }
}

/// Settings of an instance; see [`Walrus::builder`].
#[derive(Clone, Debug)]
pub struct WalrusBuilder {
    data_dir: Option<PathBuf>,
    key: Option<String>,
    consistency: ReadConsistency,
    fsync_schedule: FsyncSchedule,
}

impl Default for WalrusBuilder {
    fn default() -> WalrusBuilder {
        WalrusBuilder {
            data_dir: None,
            key: None,
            consistency: ReadConsistency::StrictlyAtOnce,
            fsync_schedule: FsyncSchedule::Milliseconds(200),
        }
    }
}

impl WalrusBuilder {
    /// The default settings.
    #[must_use]
    pub fn new() -> WalrusBuilder {
        WalrusBuilder::default()
    }

    /// The data directory, in place of `WALRUS_DATA_DIR`. With a key it holds the instance's
    /// directory; without one it is the instance's, and `WALRUS_INSTANCE_KEY` is not asked.
    #[must_use]
    pub fn data_dir(mut self, path: PathBuf) -> WalrusBuilder {
        self.data_dir = Some(path);
        self
    }

    /// The key of the instance, in place of `WALRUS_INSTANCE_KEY`.
    #[must_use]
    pub fn key(mut self, key: &str) -> WalrusBuilder {
        self.key = Some(key.into());
        self
    }

    /// When cursors become durable; `StrictlyAtOnce` unless set.
    #[must_use]
    pub fn consistency(mut self, mode: ReadConsistency) -> WalrusBuilder {
        self.consistency = mode;
        self
    }

    /// When appends are flushed; every 200 ms unless set.
    #[must_use]
    pub fn fsync_schedule(mut self, schedule: FsyncSchedule) -> WalrusBuilder {
        self.fsync_schedule = schedule;
        self
    }

    /// Opens the instance.
    ///
    /// # Errors
    /// The directory cannot be used or is in use, the key is too long, or the data cannot be read.
    pub fn build(self) -> io::Result<Walrus> {
        let dir = self.directory(|name| std::env::var_os(name)).map_err(to_io)?;
        let options = Options::default().flush(self.fsync_schedule.flush());
        let (thetis, _) = Thetis::open_with(dir, options).map_err(to_io)?;
        Ok(Walrus {
            thetis,
            consistency: self.consistency,
            topics: Default::default(),
            consumed_bytes: Default::default(),
        })
    }

    /// The instance's directory, given the environment.
    pub(super) fn directory(
        &self,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<PathBuf, Error> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let key = match (&self.key, &self.data_dir) {
            (Some(key), _) => Some(key.clone()),
            (None, Some(_)) => None,
            (None, None) => {
                set("WALRUS_INSTANCE_KEY").map(|key| key.to_string_lossy().into_owned())
            }
        };
        let root = self.data_dir.clone().or_else(|| set("WALRUS_DATA_DIR").map(PathBuf::from));
        let root = root.unwrap_or_else(|| DATA_DIR.into());
        match key {
            Some(key) => keyed_dir(root, &key),
            None => Ok(root),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_the_builders_before_the_environments() {
        let env = |name: &str| match name {
            "WALRUS_DATA_DIR" => Some(OsString::from("env")),
            "WALRUS_INSTANCE_KEY" => Some("inst".into()),
            _ => None,
        };
        let none = |_: &str| None;
        let new = WalrusBuilder::new;
        let dir = |builder: WalrusBuilder| builder.directory(env).unwrap();
        assert_eq!(new().directory(none).unwrap(), PathBuf::from("wal_files"));
        assert_eq!(dir(new()), PathBuf::from("env/key-inst"));
        assert_eq!(dir(new().key("mine")), PathBuf::from("env/key-mine"));
        assert_eq!(dir(new().data_dir("given".into())), PathBuf::from("given"));
        assert_eq!(
            dir(new().data_dir("given".into()).key("a/b")),
            PathBuf::from("given/key-a%2fb")
        );
    }

    #[test]
    fn schedules_are_durability_levels() {
        use thetis_types::Durability;

        let options = |schedule: FsyncSchedule| Options::default().flush(schedule.flush());
        assert_eq!(options(FsyncSchedule::SyncEach).durability, Durability::Disk);
        let every = options(FsyncSchedule::Milliseconds(0));
        assert_eq!(every.durability, Durability::Os);
        assert_eq!(every.journal.os_flush_interval, Duration::from_millis(1));
        assert_eq!(options(FsyncSchedule::NoFsync).durability, Durability::Os);
    }
}
