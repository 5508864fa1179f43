//! Opening a directory: journal, metadata and core put together. The server is put together here
//! too, so that a library's directory can be served later and the other way round.
//!
//! ```text
//! DIR/journal/     the journal (docs/formats/journal.md)
//! DIR/meta.redb    metadata (docs/formats/meta.md)
//! ```
//!
//! Several such directories under one root, by key, are named in `crate::keyed`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thetis_catalog::{Catalog, CatalogError, Defaults, Format, TopicSpec};
use thetis_journal::{Journal, OsDisk, Recovery};
use thetis_meta::EmbeddedStore;
use thetis_stream::{Limits, OpenReport, Store};
use thetis_types::Durability;
use thetis_types::clock::Clock;
use thetis_wal::journal::JournalWal;
use thetis_wal::{Reclaimed, Wal};

use crate::clock::{SystemClock, SystemEntropy};
use crate::error::Error;
use crate::keyed::keyed_dir;
use crate::readers::{Readers, Registry};
use crate::stream::Stream;

/// How long bytes wait for a flush that nobody asks for: [`Flush::Never`]. A full file is sealed,
/// and can be given back, only after it was flushed, so this is not for ever.
const NEVER: Duration = Duration::from_secs(10);

/// The shortest time between two flushes that nobody asks for.
const FLUSH_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// When appended bytes are flushed to the device, in the words of logs with flush schedules. A
/// stream may still choose its own [`Durability`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// Before each append returns; appends under way at once share one flush. Level `disk`.
    Each,
    /// Together, this often (1 ms at least), for the whole directory: an append returns when the operating system
    /// has it, and a loss of power takes at most what is younger. Level `os`.
    Every(Duration),
    /// For no append's sake: in the background every 10 s, so that full files can be given back, and
    /// when the directory is closed. An append returns when the operating system has it. Level
    /// `os`; to return before that, take [`Durability::Memory`].
    Never,
}

/// How a directory is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Durability of streams that do not choose their own; `disk` unless set.
    pub durability: Durability,
    /// Configuration that topics take where they set nothing; keys as in `thetis_catalog::config`.
    pub topic_defaults: BTreeMap<String, String>,
    /// How the journal works.
    pub journal: thetis_journal::Options,
}

impl Options {
    /// These options with the durability and the interval that `flush` asks for.
    #[must_use]
    pub fn flush(mut self, flush: Flush) -> Options {
        let (durability, interval) = match flush {
            Flush::Each => (Durability::Disk, self.journal.os_flush_interval),
            Flush::Every(interval) => (Durability::Os, interval.max(FLUSH_INTERVAL_MIN)),
            Flush::Never => (Durability::Os, NEVER),
        };
        self.durability = durability;
        self.journal.os_flush_interval = interval;
        self
    }
}

/// What opening found, for those who want to tell.
#[derive(Debug)]
pub struct Opened {
    /// What the journal recovered.
    pub recovery: Recovery,
    /// What the core put together.
    pub streams: OpenReport,
}

/// A directory of streams, held by this process. Clones are the same.
///
/// Dropping the last clone without [`Thetis::close`] loses nothing that was acknowledged; the next
/// open then reads the last journal file once, and relaxed readers begin where they were saved.
#[derive(Clone)]
pub struct Thetis {
    catalog: Arc<Catalog>,
    wal: Arc<JournalWal>,
    readers: Arc<Readers>,
}

impl Thetis {
    /// Opens `dir`, creating it if it is not there, with the defaults.
    ///
    /// # Errors
    /// The directory is in use by another process or of a newer version, or the disk failed.
    pub fn open(dir: impl AsRef<Path>) -> Result<Thetis, Error> {
        Ok(Thetis::open_with(dir, Options::default())?.0)
    }

    /// Opens `dir` with `options`; returns what was found as well.
    ///
    /// # Errors
    /// As [`Thetis::open`].
    pub fn open_with(dir: impl AsRef<Path>, options: Options) -> Result<(Thetis, Opened), Error> {
        let dir = dir.as_ref();
        let defaults = Defaults::new(options.topic_defaults)?;
        let directory = |source| Error::Directory { path: dir.display().to_string(), source };
        std::fs::create_dir_all(dir).map_err(directory)?;
        let disk = Arc::new(OsDisk::new(dir.join("journal")).map_err(directory)?);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let (wal, recovery) = JournalWal::open(disk, options.journal)?;
        let wal = Arc::new(wal);
        let meta = Arc::new(EmbeddedStore::open(dir, clock.clone())?);
        let limits = Limits { durability: options.durability, ..Limits::default() };
        let entropy = Arc::new(SystemEntropy);
        let (store, streams) = Store::open(wal.clone(), meta, clock, entropy, limits)?;
        let catalog = Arc::new(Catalog::open(Arc::new(store), defaults)?);
        let readers = Arc::new(Readers::new(Registry::open(catalog.store().clone())?));
        Ok((Thetis { catalog, wal, readers }, Opened { recovery, streams }))
    }

    /// Opens the store of `key` under `root`, with the defaults. Each key has a directory of its
    /// own ([`keyed_dir`]), and stores of different keys know nothing of one another.
    ///
    /// # Errors
    /// As [`Thetis::open`]; also for a key that is too long.
    pub fn open_keyed(root: impl AsRef<Path>, key: &str) -> Result<Thetis, Error> {
        Thetis::open(keyed_dir(root, key)?)
    }

    /// [`Thetis::open_keyed`] with `options`.
    ///
    /// # Errors
    /// As [`Thetis::open_keyed`].
    pub fn open_keyed_with(
        root: impl AsRef<Path>,
        key: &str,
        options: Options,
    ) -> Result<(Thetis, Opened), Error> {
        Thetis::open_with(keyed_dir(root, key)?, options)
    }

    /// The stream of this name, created if it does not exist.
    ///
    /// # Errors
    /// The name is not allowed, belongs to a topic of Kafka clients or of several partitions, or
    /// metadata failed.
    pub fn stream(&self, name: &str) -> Result<Stream, Error> {
        let topic = match self.catalog.get(name) {
            Some(topic) => topic,
            None => {
                let spec = TopicSpec {
                    name: name.to_owned(),
                    partitions: 1,
                    format: Format::Plain,
                    configs: BTreeMap::new(),
                };
                match self.catalog.create(spec) {
                    Err(CatalogError::Exists { .. }) => return self.stream(name),
                    made => made?,
                }
            }
        };
        // One protocol writes a topic: entries of another would be unreadable to its clients.
        if topic.format != Format::Plain {
            return Err(Error::NotPlain { name: name.to_owned() });
        }
        match topic.partitions.as_slice() {
            [only] => Ok(Stream::new(only.clone(), topic.id, &self.catalog, &self.readers)),
            _ => Err(Error::Partitioned {
                name: name.to_owned(),
                partitions: topic.partition_count(),
            }),
        }
    }

    /// The stream of this name, if it exists.
    ///
    /// # Errors
    /// The name belongs to a topic of Kafka clients or of several partitions.
    pub fn find(&self, name: &str) -> Result<Option<Stream>, Error> {
        self.catalog.get(name).map(|topic| self.stream(&topic.name)).transpose()
    }

    /// All names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.catalog.list().iter().map(|topic| topic.name.clone()).collect()
    }

    /// Deletes the stream of this name and its readers; the name is free when this returns. Its
    /// space is given back by a later [`Thetis::reclaim`].
    ///
    /// # Errors
    /// No such stream, or metadata failed: call again.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        let topic = self.catalog.delete(name)?;
        for stream in &topic.partitions {
            // The stream is gone, so what fails here is found and deleted at the next open.
            let _ = self.readers.registry().delete(stream);
        }
        Ok(())
    }

    /// Gives back the space of what was trimmed or deleted, file by file, after trimming what all
    /// readers have passed where [`Stream::trim_when_read`] says so, and what is older or more than
    /// [`Stream::set_retention`] keeps.
    ///
    /// # Errors
    /// The disk or metadata failed; nothing that lives was touched, a later call goes on.
    pub fn reclaim(&self) -> Result<Reclaimed, Error> {
        self.readers.registry().trim_all()?;
        self.catalog.retain_chosen();
        self.wal.reclaim().map_err(|source| {
            let detail = source.to_string();
            Error::Directory { path: "journal".into(), source: std::io::Error::other(detail) }
        })
    }

    /// Makes everything safe at `disk`, the positions of relaxed readers too, and lets go of the
    /// journal. Appends through remaining clones and streams are refused, and followers end; the
    /// directory can be opened again when the last of them is dropped, because metadata is shared
    /// with them.
    ///
    /// # Errors
    /// The last flush failed: what was acknowledged at a weaker level may not survive.
    pub fn close(self) -> Result<(), Error> {
        let saved = self.readers.registry().save_all();
        let closed = self.wal.close();
        self.catalog.store().end_waits();
        saved?;
        closed.map_err(|source| {
            let detail = source.to_string();
            Error::Directory { path: "journal".into(), source: std::io::Error::other(detail) }
        })
    }

    /// The topics beneath, for the fronts of a server.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The journal beneath, for its figures.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        self.wal.journal()
    }
}
