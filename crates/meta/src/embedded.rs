//! The embedded engine: one file, `meta.redb`, no server. Owns which writes happen, what a fault
//! means to their callers, and mending the store after one. The rows are in [`tables`], the
//! sharing of flushes in [`group`], the file in [`medium`].
//!
//! An answer is durable: every group of writes ends in one flush before anyone of it is answered.
//! A group that changes nothing (all conditions lost) needs none, since it was judged by state
//! that is durable already (law REFUSE-DURABLE).
//!
//! What a fault of the medium becomes, in the order it is decided:
//!
//! | where | then | answer |
//! |---|---|---|
//! | while the changes are prepared | rolled back | `Refused` |
//! | in the commit, not in a flush | open again, flush, look whether the last version moved | `Done` or `Refused` |
//! | the same, and opening again fails | | `Unknown` |
//! | in a flush | nothing read back proves anything | `Unknown`; from then on `Refused(FlushFailed)` |

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redb::StorageBackend;
use redb::backends::FileBackend;
use thetis_types::clock::Clock;

mod group;
mod medium;
mod tables;

use group::{Groups, Load};
use medium::{FileMedium, Medium, Overlay, sync_directory};
pub use tables::FORMAT_VERSION;
use tables::{Changes, DatabaseOpenFault, Fault, Tables, Written};

use crate::lease::Leases;
use crate::memory::PageBuilder;
use crate::watch::Watches;
use crate::write::{check_batch, check_key};
use crate::{
    Cause, Change, Key, KeyRange, LeaseId, MetaError, MetaStore, Page, Refusal, Renewal, Versioned,
    Watch, Write, WriteOutcome,
};

/// The file of the store in its directory.
pub const EMBEDDED_FILE: &str = "meta.redb";

/// The file while it is being created; renamed when it is whole.
const EMBEDDED_FILE_NEW: &str = "meta.redb.new";

/// How long a store that can only read refuses writes before it opens the file again to see
/// whether the medium has recovered. Opening walks the tree, so not every write may ask.
const READ_ONLY_INTERVAL: Duration = Duration::from_secs(1);

/// A store in one file of a local disk.
pub struct EmbeddedStore {
    clock: Arc<dyn Clock>,
    medium: Box<dyn Medium>,
    /// Absent between a fault and the next call, which opens the file again.
    opened: RwLock<Option<Opened>>,
    flush_failed: Arc<AtomicBool>,
    leases: Mutex<Leases>,
    groups: Groups<Request, Answer>,
    watches: Watches,
}

/// An open file.
struct Opened {
    tables: Tables,
    /// Set when the medium took no write while the file was opened again: only reads work.
    read_only: Option<ReadOnly>,
}

struct ReadOnly {
    since: Duration,
    why: Refusal,
}

enum Request {
    Batch(Vec<Write>),
    Grant(Duration),
    Revoke(LeaseId),
    Sweep,
}

type Answer = Result<Reply, MetaError>;

enum Reply {
    Outcomes(Vec<WriteOutcome>),
    Granted(LeaseId),
    Revoked,
    Swept(u64),
}

/// What a group did, to be published once it is durable.
#[derive(Default)]
struct Effects {
    answers: Vec<Answer>,
    changed: Vec<Key>,
    begun: Vec<(LeaseId, Duration)>,
    ended: BTreeSet<LeaseId>,
}

impl EmbeddedStore {
    /// Opens the store in `directory`, which exists; creates it when there is none. Leases of an
    /// earlier process begin their time anew.
    ///
    /// # Errors
    /// [`Refusal::InUse`] when another store has the file open, [`Refusal::UnsupportedFormat`]
    /// when a newer release wrote it (nothing is changed then), [`Refusal::Corrupt`],
    /// [`Refusal::Full`], [`Refusal::Unavailable`].
    pub fn open(directory: &Path, clock: Arc<dyn Clock>) -> Result<EmbeddedStore, MetaError> {
        let path = directory.join(EMBEDDED_FILE);
        if !path.exists() {
            create_file(directory, &path)?;
        }
        EmbeddedStore::attach(Box::new(FileMedium { path }), clock)
    }

    fn attach(medium: Box<dyn Medium>, clock: Arc<dyn Clock>) -> Result<EmbeddedStore, MetaError> {
        let flush_failed = Arc::new(AtomicBool::new(false));
        let backend = medium.attach().map_err(refuse_io)?;
        let tables = open_tables(&*medium, backend, &flush_failed)?;
        let mut leases = Leases::default();
        leases.reset(tables.leases().map_err(Fault::into_refusal)?, clock.monotonic());
        Ok(EmbeddedStore {
            clock,
            medium,
            opened: RwLock::new(Some(Opened { tables, read_only: None })),
            flush_failed,
            leases: Mutex::new(leases),
            groups: Groups::new(),
            watches: Watches::default(),
        })
    }

    /// Runs a read. The engine below refuses everything after its first fault, so a read that
    /// meets one opens the file again and has a second try.
    fn read<T>(&self, read: impl Fn(&Tables) -> Result<T, Fault>) -> Result<T, MetaError> {
        if let Some(opened) = &*self.opened.read()
            && let Ok(found) = read(&opened.tables)
        {
            return Ok(found);
        }
        let mut slot = self.opened.write();
        if let Some(opened) = &*slot {
            // Whoever came first may have mended it; a damaged row cannot be mended.
            match read(&opened.tables) {
                Ok(found) => return Ok(found),
                Err(fault @ (Fault::Row(_) | Fault::Format(_))) => {
                    return Err(fault.into_refusal().into());
                }
                Err(Fault::Engine(_)) => {}
            }
        }
        let opened = self.reopen(&mut slot)?;
        Ok(read(&opened.tables).map_err(Fault::into_refusal)?)
    }

    /// Closes the file if it is open, opens it again, and flushes what the system still holds of
    /// it: what is read afterwards is durable. When the medium takes no writes, which opening
    /// needs, the file is opened for reading only.
    fn reopen<'s>(&self, slot: &'s mut Option<Opened>) -> Result<&'s Opened, MetaError> {
        // Closed before it is opened: the file takes one opener at a time.
        *slot = None;
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(Refusal::FlushFailed.into());
        }
        let mut backend = self.medium.attach().map_err(refuse_io)?;
        let (tables, why) =
            match open_tables(&*self.medium, Arc::clone(&backend), &self.flush_failed) {
                Ok(tables) => (tables, None),
                Err(MetaError::Refused(
                    why @ (Refusal::Full { .. } | Refusal::Unavailable { .. }),
                )) => {
                    backend = self.medium.attach().map_err(refuse_io)?;
                    let overlay = Overlay::over(Arc::clone(&backend)).map_err(refuse_io)?;
                    let flush_failed = Arc::clone(&self.flush_failed);
                    (open_tables(&*self.medium, Arc::new(overlay), &flush_failed)?, Some(why))
                }
                Err(error) => return Err(error),
            };
        let path = self.medium.path().display();
        if let Err(error) = backend.sync_data() {
            self.flush_failed.store(true, Ordering::Release);
            tracing::error!(%path, %error, "metadata flush failed");
            return Err(Refusal::FlushFailed.into());
        }
        let now = self.clock.monotonic();
        // A group of unknown outcome may have begun or ended some.
        self.leases.lock().reset(tables.leases().map_err(Fault::into_refusal)?, now);
        let read_only = why.map(|why| ReadOnly { since: now, why });
        tracing::warn!(%path, read_only = read_only.is_some(), "metadata file opened again");
        Ok(slot.insert(Opened { tables, read_only }))
    }

    fn submit(&self, request: Request) -> Answer {
        let load = match &request {
            Request::Batch(writes) => {
                Load { weight: writes.len(), bytes: writes.iter().map(Write::size_bytes).sum() }
            }
            Request::Grant(_) | Request::Revoke(_) | Request::Sweep => Load { weight: 1, bytes: 0 },
        };
        let broken = || {
            let cause: Cause = Arc::new(io::Error::other("the committing thread panicked"));
            Err(MetaError::Unknown { cause })
        };
        match self.groups.submit(request, load, |requests| self.commit(requests), broken) {
            Ok(answer) => answer,
            Err(overfull) => Err(Refusal::Busy { waiting: overfull.waiting }.into()),
        }
    }

    /// Runs a group of requests in one transaction and answers each.
    fn commit(&self, requests: Vec<Request>) -> Vec<Answer> {
        let count = requests.len();
        match self.try_commit(requests) {
            Ok(effects) => self.publish(effects),
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        }
    }

    fn try_commit(&self, requests: Vec<Request>) -> Result<Effects, MetaError> {
        let mut guard = self.opened.upgradable_read();
        if !guard.as_ref().is_some_and(|opened| self.is_settled(opened)) {
            guard.with_upgraded(|slot| self.reopen(slot).map(|_| ()))?;
        }
        let opened = guard.as_ref().expect("the file was opened above");
        if let Some(read_only) = &opened.read_only {
            return Err(read_only.why.clone().into());
        }
        // Later than any read that ended before a request of this group was handed in, so a lease
        // that such a read saw lapsed is lapsed here too.
        let now = self.clock.monotonic();
        match opened.tables.write(|changes| self.apply(changes, requests, now)) {
            Written::Done(effects) => Ok(effects),
            Written::Failed(fault) => {
                // The engine below takes nothing more after a fault of the medium; a damaged row is
                // no such fault. Should opening again fail, the next call has another try.
                if matches!(fault, Fault::Engine(_))
                    && let Err(error) = guard.with_upgraded(|slot| self.reopen(slot).map(|_| ()))
                {
                    tracing::warn!(%error, "metadata file could not be opened again");
                }
                Err(fault.into_refusal().into())
            }
            Written::Uncertain { value, before, version, fault } => {
                let found: Result<u64, MetaError> = guard.with_upgraded(|slot| {
                    Ok(self.reopen(slot)?.tables.version().map_err(Fault::into_refusal)?)
                });
                match found {
                    Ok(found) if found == version => Ok(value),
                    Ok(found) if found == before => Err(fault.into_refusal().into()),
                    Ok(found) => {
                        let what =
                            format!("last version is {found}, expected {before} or {version}");
                        Err(MetaError::Unknown { cause: Arc::new(Refusal::Corrupt { what }) })
                    }
                    Err(error) => Err(MetaError::Unknown { cause: Arc::new(error) }),
                }
            }
        }
    }

    /// Whether a write has to take the file as it was opened last.
    fn is_settled(&self, opened: &Opened) -> bool {
        opened.read_only.as_ref().is_none_or(|read_only| {
            self.clock.monotonic().saturating_sub(read_only.since) < READ_ONLY_INTERVAL
        })
    }

    /// Decides what a group does, against the state its own changes make.
    fn apply(
        &self,
        changes: &mut Changes<'_>,
        requests: Vec<Request>,
        now: Duration,
    ) -> Result<Effects, Fault> {
        let mut effects = Effects::default();
        let lapsed = self.leases.lock().lapsed(now);
        for lease in lapsed {
            effects.end(changes, lease)?;
        }
        let swept = effects.changed.len() as u64;
        for request in requests {
            let reply = match request {
                Request::Batch(writes) => {
                    let outcomes = writes
                        .into_iter()
                        .map(|write| self.apply_one(changes, &mut effects, write, now));
                    Ok(Reply::Outcomes(outcomes.collect::<Result<_, Fault>>()?))
                }
                Request::Grant(ttl) => {
                    let allowed = self.leases.lock().check_grant(ttl, effects.begun.len());
                    match allowed {
                        Ok(()) => {
                            let lease = changes.begin_lease(ttl)?;
                            effects.begun.push((lease, ttl));
                            Ok(Reply::Granted(lease))
                        }
                        Err(error) => Err(error),
                    }
                }
                Request::Revoke(lease) => {
                    effects.end(changes, lease)?;
                    Ok(Reply::Revoked)
                }
                Request::Sweep => Ok(Reply::Swept(swept)),
            };
            effects.answers.push(reply);
        }
        Ok(effects)
    }

    fn apply_one(
        &self,
        changes: &mut Changes<'_>,
        effects: &mut Effects,
        write: Write,
        now: Duration,
    ) -> Result<WriteOutcome, Fault> {
        let current = changes.get(&write.key)?;
        if !write.condition.holds(current.as_ref().map(|stored| stored.version)) {
            return Ok(WriteOutcome::Lost { current });
        }
        let version = match write.change {
            Change::Put { lease: Some(lease), .. }
                if effects.ended.contains(&lease) || !self.leases.lock().is_alive(lease, now) =>
            {
                return Ok(WriteOutcome::NoLease { lease });
            }
            Change::Put { value, lease } => changes.put(&write.key, value, write.token, lease)?,
            Change::Delete => changes.delete(&write.key)?,
        };
        effects.changed.push(write.key);
        Ok(WriteOutcome::Done { version })
    }

    /// Makes known what has become durable.
    fn publish(&self, effects: Effects) -> Vec<Answer> {
        {
            let mut leases = self.leases.lock();
            let now = self.clock.monotonic();
            for (lease, ttl) in effects.begun {
                leases.begin(lease, ttl, now);
            }
            for lease in effects.ended {
                leases.end(lease);
            }
        }
        self.watches.changed(effects.changed.iter());
        effects.answers
    }

    /// Whether a row is still there for readers: its lease may have lapsed before its keys were
    /// deleted.
    fn is_visible(&self, stored: &Versioned) -> bool {
        stored.lease.is_none_or(|lease| {
            let now = self.clock.monotonic();
            self.leases.lock().is_alive(lease, now)
        })
    }
}

impl Effects {
    fn end(&mut self, changes: &mut Changes<'_>, lease: LeaseId) -> Result<(), Fault> {
        self.changed.extend(changes.end_lease(lease)?);
        self.ended.insert(lease);
        Ok(())
    }
}

impl MetaStore for EmbeddedStore {
    fn get(&self, key: &Key) -> Result<Option<Versioned>, MetaError> {
        check_key(key)?;
        let found = self.read(|tables| tables.get(key))?;
        Ok(found.filter(|stored| self.is_visible(stored)))
    }

    fn range(&self, range: &KeyRange, limit: usize) -> Result<Page, MetaError> {
        if limit == 0 {
            return Err(Refusal::EmptyPage.into());
        }
        self.read(|tables| {
            let mut page = PageBuilder::new(range, limit);
            tables.scan(range, |item| !self.is_visible(&item.stored) || page.push(item))?;
            Ok(page.finish())
        })
    }

    fn batch(&self, writes: Vec<Write>) -> Result<Vec<WriteOutcome>, MetaError> {
        check_batch(&writes)?;
        match self.submit(Request::Batch(writes))? {
            Reply::Outcomes(outcomes) => Ok(outcomes),
            _ => unreachable!("a batch is answered with outcomes"),
        }
    }

    fn watch(&self, prefix: &Key) -> Result<Watch, MetaError> {
        self.watches.add(prefix)
    }

    fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, MetaError> {
        self.leases.lock().check_grant(ttl, 0)?;
        match self.submit(Request::Grant(ttl))? {
            Reply::Granted(lease) => Ok(lease),
            _ => unreachable!("a grant is answered with a lease"),
        }
    }

    fn renew_lease(&self, lease: LeaseId) -> Result<Renewal, MetaError> {
        let now = self.clock.monotonic();
        Ok(self.leases.lock().renew(lease, now))
    }

    fn revoke_lease(&self, lease: LeaseId) -> Result<(), MetaError> {
        self.submit(Request::Revoke(lease)).map(|_| ())
    }

    fn sweep(&self) -> Result<u64, MetaError> {
        let now = self.clock.monotonic();
        if self.leases.lock().lapsed(now).is_empty() {
            return Ok(0);
        }
        match self.submit(Request::Sweep)? {
            Reply::Swept(count) => Ok(count),
            _ => unreachable!("a sweep is answered with a count"),
        }
    }
}

/// Creates the file under another name and renames it when it is whole: a crash in between
/// leaves no half of a file under the name that is opened.
fn create_file(directory: &Path, path: &Path) -> Result<(), MetaError> {
    let new = directory.join(EMBEDDED_FILE_NEW);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&new)
        .map_err(refuse_io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            return Err(Refusal::InUse { path: path.to_path_buf() }.into());
        }
        Err(fs::TryLockError::Error(error)) => return Err(refuse_io(error)),
    }
    if path.exists() {
        // Another process finished creating it between the look and the lock.
        return Ok(());
    }
    // What an interrupted creation left.
    file.set_len(0).map_err(refuse_io)?;
    let backend = FileBackend::new(file).map_err(|error| Fault::from(error).into_refusal())?;
    let medium = FileMedium { path: path.to_path_buf() };
    let whole = open_tables(&medium, Arc::new(backend), &Arc::default())?;
    // Renamed while it is held open, and so while nobody else can take it for a leftover.
    fs::rename(&new, path).and_then(|()| sync_directory(directory)).map_err(refuse_io)?;
    drop(whole);
    Ok(())
}

fn open_tables(
    medium: &dyn Medium,
    backend: Arc<dyn StorageBackend>,
    flush_failed: &Arc<AtomicBool>,
) -> Result<Tables, MetaError> {
    Tables::open(backend, flush_failed).map_err(|fault| match fault {
        DatabaseOpenFault::InUse => Refusal::InUse { path: medium.path().to_path_buf() }.into(),
        DatabaseOpenFault::Fault(fault) => fault.into_refusal().into(),
    })
}

fn refuse_io(error: io::Error) -> MetaError {
    Fault::Engine(redb::Error::Io(error)).into_refusal().into()
}

#[cfg(test)]
#[path = "embedded_test.rs"]
mod tests;
