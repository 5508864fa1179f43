//! Opening a directory: journal, metadata and core put together. The server is put together here
//! too, so that a library's directory can be served later and the other way round.
//!
//! ```text
//! DIR/journal/     the journal (docs/formats/journal.md)
//! DIR/meta.redb    metadata (docs/formats/meta.md)
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

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
use crate::stream::Stream;

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
/// open then reads the last journal file once.
#[derive(Clone)]
pub struct Thetis {
    catalog: Arc<Catalog>,
    wal: Arc<JournalWal>,
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
        Ok((Thetis { catalog, wal }, Opened { recovery, streams }))
    }

    /// The stream of this name, created if it does not exist.
    ///
    /// # Errors
    /// The name is not allowed, belongs to a topic of several partitions, or metadata failed.
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
        match topic.partitions.as_slice() {
            [only] => Ok(Stream::new(only.clone(), self.catalog.store().clock().clone())),
            _ => Err(Error::Partitioned {
                name: name.to_owned(),
                partitions: topic.partition_count(),
            }),
        }
    }

    /// The stream of this name, if it exists.
    ///
    /// # Errors
    /// The name belongs to a topic of several partitions.
    pub fn find(&self, name: &str) -> Result<Option<Stream>, Error> {
        self.catalog.get(name).map(|topic| self.stream(&topic.name)).transpose()
    }

    /// All names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.catalog.list().iter().map(|topic| topic.name.clone()).collect()
    }

    /// Deletes the stream of this name; the name is free when this returns. Its space is given
    /// back by a later [`Thetis::reclaim`].
    ///
    /// # Errors
    /// No such stream, or metadata failed: call again.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        self.catalog.delete(name)?;
        Ok(())
    }

    /// Gives back the space of what was trimmed or deleted, file by file.
    ///
    /// # Errors
    /// The disk failed; nothing that lives was touched, a later call goes on.
    pub fn reclaim(&self) -> Result<Reclaimed, Error> {
        self.wal.reclaim().map_err(|source| {
            let detail = source.to_string();
            Error::Directory { path: "journal".into(), source: std::io::Error::other(detail) }
        })
    }

    /// Makes everything safe at `disk` and lets go of the journal. Appends through remaining clones
    /// and streams are refused; the directory can be opened again when the last of them is dropped,
    /// because metadata is shared with them.
    ///
    /// # Errors
    /// The last flush failed: what was acknowledged at a weaker level may not survive.
    pub fn close(self) -> Result<(), Error> {
        self.wal.close().map_err(|source| {
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
