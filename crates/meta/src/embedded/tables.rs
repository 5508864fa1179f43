//! The tables of `meta.redb`: `docs/formats/meta.md` in code. Owns the bytes of rows and the
//! format version; does not decide which writes happen, nor what a failure means to their callers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, Table,
    TableDefinition, TableHandle, WriteTransaction,
};

use super::medium::Watched;
use crate::{Item, Key, KeyRange, LeaseId, Refusal, Version, Versioned};

/// The format this release writes, and the newest it reads.
pub const FORMAT_VERSION: u64 = 1;

/// Bytes of pages kept in memory. What is needed often is kept by those who need it; the pages are for
/// writes, which touch few, and with many idle streams they would be the largest part of the memory.
const CACHE_BYTES_MAX: usize = 8 << 20;

/// Facts about the store itself, by the names below.
const STORE: TableDefinition<'static, &'static str, u64> = TableDefinition::new("store");
const STORE_FORMAT: &str = "format";
/// The last version given.
const STORE_VERSION: &str = "version";
/// Encoded key to row.
const VALUES: TableDefinition<'static, &'static [u8], &'static [u8]> =
    TableDefinition::new("values");
/// Lease to its time to live in milliseconds.
const LEASES: TableDefinition<'static, u64, u64> = TableDefinition::new("leases");
/// Lease (u64, big-endian) and encoded key bound to it.
const LEASE_KEYS: TableDefinition<'static, &'static [u8], ()> = TableDefinition::new("lease_keys");

/// What stands in front of a value: layout (u8), version, token, lease (u64 each, little-endian).
const ROW_HEADER_BYTES: usize = 25;
const ROW_LAYOUT: u8 = 1;

/// A failure below the tables.
#[derive(Debug)]
pub(super) enum Fault {
    /// The engine or the medium.
    Engine(redb::Error),
    /// A row that makes no sense.
    Row(String),
    /// A newer release was here.
    Format(u64),
}

macro_rules! fault_from {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Fault {
                Fault::Engine(error.into())
            }
        })*
    };
}
fault_from!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError
);

impl Fault {
    /// As an answer to a caller whose change certainly did not happen.
    pub(super) fn into_refusal(self) -> Refusal {
        use std::io::ErrorKind::{FileTooLarge, InvalidData, QuotaExceeded, StorageFull};
        match self {
            Fault::Row(what) | Fault::Engine(redb::Error::Corrupted(what)) => {
                Refusal::Corrupt { what }
            }
            Fault::Engine(redb::Error::Io(error)) if error.kind() == InvalidData => {
                Refusal::Corrupt { what: error.to_string() }
            }
            Fault::Engine(redb::Error::Io(error))
                if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge) =>
            {
                Refusal::Full { cause: Arc::new(error) }
            }
            Fault::Engine(error) => Refusal::Unavailable { cause: Arc::new(error) },
            Fault::Format(found) => Refusal::UnsupportedFormat { found, supported: FORMAT_VERSION },
        }
    }
}

/// How a write transaction ended.
pub(super) enum Written<T> {
    /// Durable, or nothing had to change.
    Done(T),
    /// Certainly nothing happened.
    Failed(Fault),
    /// The commit broke off. It happened if the store, opened again, has given `version`, and did
    /// not if it has given `before`.
    Uncertain { value: T, before: u64, version: u64, fault: Fault },
}

/// An open file.
pub(super) struct Tables {
    database: Database,
}

impl Tables {
    /// Opens a file that has been initialised, or initialises an empty one.
    pub(super) fn open(
        backend: Arc<dyn StorageBackend>,
        flush_failed: &Arc<AtomicBool>,
    ) -> Result<Tables, DatabaseOpenFault> {
        let watched = Watched { inner: backend, flush_failed: Arc::clone(flush_failed) };
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES_MAX)
            .create_with_backend(watched)
            .map_err(|error| match error {
                DatabaseError::DatabaseAlreadyOpen => DatabaseOpenFault::InUse,
                error => DatabaseOpenFault::Fault(error.into()),
            })?;
        let tables = Tables { database };
        tables.check_format().map_err(DatabaseOpenFault::Fault)?;
        Ok(tables)
    }

    /// Refuses a file of a newer format before anything is written to it; initialises a new file.
    fn check_format(&self) -> Result<(), Fault> {
        let read = self.database.begin_read()?;
        if read.list_tables()?.next().is_none() {
            return self.initialise();
        }
        if !read.list_tables()?.any(|table| table.name() == STORE.name()) {
            return Err(Fault::Row("the file holds tables, but none of ours".to_string()));
        }
        let found = read.open_table(STORE)?.get(STORE_FORMAT)?.map(|found| found.value());
        match found {
            Some(1..=FORMAT_VERSION) => Ok(()),
            Some(found) if found > FORMAT_VERSION => Err(Fault::Format(found)),
            _ => Err(Fault::Row("the table of the store names no format version".to_string())),
        }
    }

    fn initialise(&self) -> Result<(), Fault> {
        let txn = self.database.begin_write()?;
        {
            let mut store = txn.open_table(STORE)?;
            store.insert(STORE_FORMAT, FORMAT_VERSION)?;
            store.insert(STORE_VERSION, 0)?;
            txn.open_table(VALUES)?;
            txn.open_table(LEASES)?;
            txn.open_table(LEASE_KEYS)?;
        }
        Ok(txn.commit()?)
    }

    /// The last version given.
    pub(super) fn version(&self) -> Result<u64, Fault> {
        let store = self.database.begin_read()?.open_table(STORE)?;
        let version = store.get(STORE_VERSION)?.map(|version| version.value());
        version.ok_or_else(no_version)
    }

    /// All leases and their times to live.
    pub(super) fn leases(&self) -> Result<Vec<(LeaseId, Duration)>, Fault> {
        let table = self.database.begin_read()?.open_table(LEASES)?;
        let mut leases = Vec::new();
        for row in table.iter()? {
            let (lease, ttl) = row?;
            leases.push((LeaseId(lease.value()), Duration::from_millis(ttl.value())));
        }
        Ok(leases)
    }

    pub(super) fn get(&self, key: &Key) -> Result<Option<Versioned>, Fault> {
        let values = self.database.begin_read()?.open_table(VALUES)?;
        values.get(key.as_bytes())?.map(|row| decode_row(row.value())).transpose()
    }

    /// Hands keys in order to `take` until it returns false.
    pub(super) fn scan(
        &self,
        range: &KeyRange,
        mut take: impl FnMut(Item) -> bool,
    ) -> Result<(), Fault> {
        let values = self.database.begin_read()?.open_table(VALUES)?;
        let (start, end) = range.bounds();
        let bounds = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        for row in values.range::<&[u8]>(bounds)? {
            let (key, row) = row?;
            let item = Item { key: decode_key(key.value())?, stored: decode_row(row.value())? };
            if !take(item) {
                break;
            }
        }
        Ok(())
    }

    /// Runs `apply` in one transaction and makes it durable with one flush; without one when
    /// `apply` changed nothing.
    pub(super) fn write<T>(
        &self,
        apply: impl FnOnce(&mut Changes<'_>) -> Result<T, Fault>,
    ) -> Written<T> {
        let prepared = (|| {
            let txn = self.database.begin_write()?;
            let (value, before, version) = Changes::run(&txn, apply)?;
            Ok((txn, value, before, version))
        })();
        let (txn, value, before, version) = match prepared {
            Ok(prepared) => prepared,
            Err(fault) => return Written::Failed(fault),
        };
        if version == before {
            return match txn.abort() {
                Ok(()) => Written::Done(value),
                Err(error) => Written::Failed(error.into()),
            };
        }
        match txn.commit() {
            Ok(()) => Written::Done(value),
            Err(error) => Written::Uncertain { value, before, version, fault: error.into() },
        }
    }
}

/// Why a file could not be opened.
pub(super) enum DatabaseOpenFault {
    /// Somebody else has it.
    InUse,
    /// Anything else.
    Fault(Fault),
}

/// The changes of one transaction; sees its own.
pub(super) struct Changes<'t> {
    values: Table<'t, &'static [u8], &'static [u8]>,
    leases: Table<'t, u64, u64>,
    lease_keys: Table<'t, &'static [u8], ()>,
    version: u64,
}

impl<'t> Changes<'t> {
    /// Returns what `apply` did, and the last version given before and after.
    fn run<T>(
        txn: &'t WriteTransaction,
        apply: impl FnOnce(&mut Changes<'_>) -> Result<T, Fault>,
    ) -> Result<(T, u64, u64), Fault> {
        let mut store = txn.open_table(STORE)?;
        let before = store.get(STORE_VERSION)?.map(|version| version.value());
        let before = before.ok_or_else(no_version)?;
        let mut changes = Changes {
            values: txn.open_table(VALUES)?,
            leases: txn.open_table(LEASES)?,
            lease_keys: txn.open_table(LEASE_KEYS)?,
            version: before,
        };
        let value = apply(&mut changes)?;
        let version = changes.version;
        if version != before {
            store.insert(STORE_VERSION, version)?;
        }
        Ok((value, before, version))
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    pub(super) fn get(&self, key: &Key) -> Result<Option<Versioned>, Fault> {
        self.values.get(key.as_bytes())?.map(|row| decode_row(row.value())).transpose()
    }

    pub(super) fn put(
        &mut self,
        key: &Key,
        value: Bytes,
        token: u64,
        lease: Option<LeaseId>,
    ) -> Result<Version, Fault> {
        let version = self.next_version();
        let row = encode_row(&Versioned { value, version, token, lease });
        let replaced = self.values.insert(key.as_bytes(), row.as_slice())?;
        let bound_before = replaced.map(|row| decode_row(row.value())).transpose()?;
        self.rebind(key, bound_before.and_then(|row| row.lease), lease)?;
        Ok(version)
    }

    pub(super) fn delete(&mut self, key: &Key) -> Result<Version, Fault> {
        let removed = self.values.remove(key.as_bytes())?;
        let bound_before = removed.map(|row| decode_row(row.value())).transpose()?;
        self.rebind(key, bound_before.and_then(|row| row.lease), None)?;
        Ok(self.next_version())
    }

    fn rebind(
        &mut self,
        key: &Key,
        from: Option<LeaseId>,
        to: Option<LeaseId>,
    ) -> Result<(), Fault> {
        if from == to {
            return Ok(());
        }
        if let Some(lease) = from {
            self.lease_keys.remove(lease_key(lease, key).as_slice())?;
        }
        if let Some(lease) = to {
            self.lease_keys.insert(lease_key(lease, key).as_slice(), ())?;
        }
        Ok(())
    }

    pub(super) fn begin_lease(&mut self, ttl: Duration) -> Result<LeaseId, Fault> {
        let lease = LeaseId(self.next_version().0);
        // Rounded up, so that a lease never lapses early.
        let ttl_ms = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.leases.insert(lease.0, ttl_ms)?;
        Ok(lease)
    }

    /// Ends a lease and deletes its keys, which it returns. Nothing changes when it has ended.
    pub(super) fn end_lease(&mut self, lease: LeaseId) -> Result<Vec<Key>, Fault> {
        if self.leases.remove(lease.0)?.is_none() {
            return Ok(Vec::new());
        }
        let first = lease.0.to_be_bytes();
        let after = lease.0.saturating_add(1).to_be_bytes();
        let mut keys = Vec::new();
        for row in
            self.lease_keys.extract_from_if(first.as_slice()..after.as_slice(), |_, ()| true)?
        {
            let (row, ()) = row.map(|(key, _)| (key, ()))?;
            keys.push(decode_key(row.value().get(first.len()..).unwrap_or_default())?);
        }
        for key in &keys {
            self.values.remove(key.as_bytes())?;
        }
        self.next_version();
        Ok(keys)
    }
}

fn no_version() -> Fault {
    Fault::Row("the table of the store names no last version".to_string())
}

fn lease_key(lease: LeaseId, key: &Key) -> Vec<u8> {
    [lease.0.to_be_bytes().as_slice(), key.as_bytes()].concat()
}

fn decode_key(bytes: &[u8]) -> Result<Key, Fault> {
    Key::decode(bytes)
        .map_err(|error| Fault::Row(format!("{error} of \"{}\"", bytes.escape_ascii())))
}

fn encode_row(stored: &Versioned) -> Vec<u8> {
    let mut row = Vec::with_capacity(ROW_HEADER_BYTES + stored.value.len());
    row.put_u8(ROW_LAYOUT);
    row.put_u64_le(stored.version.0);
    row.put_u64_le(stored.token);
    row.put_u64_le(stored.lease.map_or(0, |lease| lease.0));
    row.put_slice(&stored.value);
    row
}

fn decode_row(row: &[u8]) -> Result<Versioned, Fault> {
    let Some((header, value)) = row.split_first_chunk::<ROW_HEADER_BYTES>() else {
        return Err(Fault::Row(format!("a row of {} bytes has no header", row.len())));
    };
    let (layout, mut numbers) = header.split_first().expect("a header is not empty");
    if *layout != ROW_LAYOUT {
        return Err(Fault::Row(format!("a row has unknown layout {layout}")));
    }
    let mut next = || bytes::Buf::get_u64_le(&mut numbers);
    let (version, token, lease) = (Version(next()), next(), next());
    let lease = (lease != 0).then_some(LeaseId(lease));
    Ok(Versioned { value: Bytes::copy_from_slice(value), version, token, lease })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden row of `docs/formats/meta.md`.
    #[test]
    fn rows_have_the_documented_bytes() {
        let stored = Versioned {
            value: Bytes::from_static(b"x"),
            version: Version(0x0102),
            token: 0xfeed,
            lease: Some(LeaseId(3)),
        };
        let row = encode_row(&stored);
        let expected: &[u8] = b"\x01\x02\x01\0\0\0\0\0\0\xed\xfe\0\0\0\0\0\0\x03\0\0\0\0\0\0\0x";
        assert_eq!(row, expected);
        assert_eq!(decode_row(&row).unwrap(), stored);
    }

    #[test]
    fn a_damaged_row_is_reported_not_guessed() {
        let row = encode_row(&Versioned {
            value: Bytes::new(),
            version: Version(1),
            token: 0,
            lease: None,
        });
        assert!(matches!(decode_row(&row[..24]), Err(Fault::Row(_))));
        let mut unknown = row;
        unknown[0] = 2;
        assert!(matches!(decode_row(&unknown), Err(Fault::Row(_))));
    }
}
