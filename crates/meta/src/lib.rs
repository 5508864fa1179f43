//! The metadata port: small values under typed keys, changed by compare-and-set, and its engines.
//!
//! Owns the contract ([`MetaStore`]), the key codec ([`Key`]), the envelope of records
//! ([`record`]) and the engines [`MemoryStore`] (the model) and [`EmbeddedStore`] (one file, no
//! server). Does not know what the values mean: streams, topics and cursors define their own
//! records above. Data never goes through here; a value is a head, a name, an index entry.
//!
//! ```text
//!  writer --- Write { key, condition, change, token } --> batch --> Done { version }
//!     |                                                        \--> Lost { current }
//!     |  after MetaError::Unknown                               \-> NoLease
//!     +--- resolve(write): read back, compare tokens --> Done | Gone | NotDone | Overtaken
//! ```
//!
//! Every call blocks until it is answered; a call from async code belongs on a blocking thread. No
//! call can be cancelled: a caller that stops waiting has an unknown outcome on its hands.

pub mod conformance;
mod embedded;
mod error;
pub mod faults;
mod key;
mod lease;
mod memory;
pub mod record;
mod resolve;
mod watch;
mod write;

use std::time::Duration;

use bytes::Bytes;

pub use embedded::{EMBEDDED_FILE, EmbeddedStore, FORMAT_VERSION};
pub use error::{Cause, MetaError, Refusal};
pub use key::{Component, Key, KeyError, KeyRange};
pub use lease::{LeaseId, Renewal};
pub use memory::MemoryStore;
pub use resolve::{Resolved, resolve};
pub use watch::{Wake, Watch};
pub use write::{Change, Condition, Write, WriteOutcome};

/// Bytes of an encoded key. The longest user-chosen name is 249 bytes and at most doubles when
/// escaped; the rest is room for ids beside it.
pub const KEY_BYTES_MAX: usize = 4096;

/// Bytes of a value. Metadata is read and written whole; what is larger belongs in an object.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Writes in one [`MetaStore::batch`].
pub const BATCH_WRITES_MAX: usize = 1024;

/// Bytes of keys and values in one [`MetaStore::batch`].
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// Items in one page of [`MetaStore::range`]; a larger limit is lowered to this.
pub const PAGE_ITEMS_MAX: usize = 1000;

/// Bytes of keys and values after which a page of [`MetaStore::range`] ends early.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// Leases alive at a time.
pub const LEASES_MAX: usize = 65_536;

/// Watches open at a time; each write looks at all of them.
pub const WATCHES_MAX: usize = 4096;

/// Longest time to live of a lease. Longer than any session, short enough for all arithmetic.
pub const LEASE_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Position of a change in the history of a store. Grows with every change of any key, also
/// across deletes and restarts, and is never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version(pub u64);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// A value as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// The bytes of the last put.
    pub value: Bytes,
    /// The version that put got.
    pub version: Version,
    /// The token that put carried; zero when it had none.
    pub token: u64,
    /// The lease the key is bound to.
    pub lease: Option<LeaseId>,
}

/// One key of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// What it holds.
    pub stored: Versioned,
}

/// One page of a range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Keys in order.
    pub items: Vec<Item>,
    /// Where to go on; absent when the range is exhausted.
    pub next: Option<KeyRange>,
}

/// A store of metadata.
///
/// The contract, for all engines; [`conformance::suite`] checks it.
///
/// - *Linearizable*: a call that begins after another was answered sees at least what that one
///   saw or did.
/// - *Durable*: what a returned value reveals, be it `Done`, `Lost` or the answer of a read, is
///   durable as far as the engine goes (the memory engine: to the end of the process).
/// - *Tried once*: no method retries. [`MetaError::Refused`] certainly changed nothing and may be
///   sent again; after [`MetaError::Unknown`] the caller MUST [`resolve()`] before it goes on.
pub trait MetaStore: Send + Sync {
    /// Reads one key.
    ///
    /// A returned value was current at some moment during the call; `None` means no such key, or
    /// one whose lease has lapsed. Sees every write answered before it began. Idempotent. Fails
    /// only with [`MetaError::Refused`].
    ///
    /// # Errors
    /// [`Refusal::KeyTooLong`], [`Refusal::Unavailable`], [`Refusal::Corrupt`].
    fn get(&self, key: &Key) -> Result<Option<Versioned>, MetaError>;

    /// Reads keys in order, one page at a time.
    ///
    /// A page is one moment's view; two pages of one range may see different moments, so a key
    /// that was neither put nor deleted meanwhile appears exactly once, and any other at most once.
    /// A page may hold fewer items than the limit although more follow; only `next: None` ends a range.
    /// Idempotent. At most [`PAGE_ITEMS_MAX`] items, and no item is added once the page holds
    /// [`PAGE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`Refusal::EmptyPage`] for a limit of zero; otherwise as [`MetaStore::get`].
    fn range(&self, range: &KeyRange, limit: usize) -> Result<Page, MetaError>;

    /// Makes up to [`BATCH_WRITES_MAX`] changes, each with its own condition and its own outcome.
    ///
    /// `Ok` holds one outcome per write, in the order of the writes, all durable. A write that was
    /// lost does not hinder its neighbours: this is not a transaction. The writes take effect in
    /// order, so a later one sees an earlier one to the same key; writes of other callers may come
    /// in between. An engine flushes once for the whole batch.
    ///
    /// Not idempotent by itself. After [`MetaError::Unknown`] any part of the batch may have taken
    /// effect, now or later: [`resolve()`] each write that carries a token. Sending a write with
    /// [`Condition::Version`] again is safe, since at most one of the two can win.
    ///
    /// # Errors
    /// [`MetaError::Refused`] when certainly none of the writes happened, [`MetaError::Unknown`]
    /// when any may have.
    fn batch(&self, writes: Vec<Write>) -> Result<Vec<WriteOutcome>, MetaError>;

    /// Makes one change. As [`MetaStore::batch`] with one write.
    ///
    /// # Errors
    /// As [`MetaStore::batch`].
    fn write(&self, write: Write) -> Result<WriteOutcome, MetaError> {
        let outcome = self.batch(vec![write])?.pop();
        Ok(outcome.expect("a batch answers every write"))
    }

    /// Puts a value if the condition holds. As [`MetaStore::batch`] with one put that is bound to no
    /// lease.
    ///
    /// # Errors
    /// As [`MetaStore::batch`].
    fn put_if(
        &self,
        key: Key,
        value: Bytes,
        condition: Condition,
        token: u64,
    ) -> Result<WriteOutcome, MetaError> {
        self.write(Write::put(key, value).only_if(condition).with_token(token))
    }

    /// Deletes a key if the condition holds. As [`MetaStore::batch`] with one delete.
    ///
    /// # Errors
    /// As [`MetaStore::batch`].
    fn delete_if(&self, key: Key, condition: Condition) -> Result<WriteOutcome, MetaError> {
        self.write(Write::delete(key).only_if(condition))
    }

    /// Watches all keys under a prefix.
    ///
    /// A wake-up promises only that something under the prefix may have changed since the last
    /// one; any number of changes may share a wake-up, and one may come without a change. The
    /// watcher reads again. A change answered after `watch` returned is never missed: read first
    /// *after* opening the watch. A lapsed lease wakes watchers when a call notices the lapse, at
    /// the latest with [`MetaStore::sweep`]. Ends when the watch is dropped; the end of the store
    /// wakes it with [`Wake::Closed`].
    ///
    /// # Errors
    /// [`Refusal::TooManyWatches`] beyond [`WATCHES_MAX`].
    fn watch(&self, prefix: &Key) -> Result<Watch, MetaError>;

    /// Grants a lease: keys put with it vanish when it lapses, `ttl` after the grant or the last
    /// renewal, by the monotonic clock.
    ///
    /// The id is never given twice. A lease outlives the process of an engine that does; it then
    /// lapses no earlier than `ttl` after the store was opened again. After
    /// [`MetaError::Unknown`] grant another: the lost one lapses by itself.
    ///
    /// # Errors
    /// [`Refusal::BadTtl`] for zero or more than [`LEASE_TTL_MAX`], [`Refusal::TooManyLeases`]
    /// beyond [`LEASES_MAX`]; otherwise as [`MetaStore::batch`].
    fn grant_lease(&self, ttl: Duration) -> Result<LeaseId, MetaError>;

    /// Renews a lease for another `ttl` from now.
    ///
    /// `Renewed` promises that the keys stay for `ttl` longer unless somebody changes them;
    /// `Lapsed` that they are gone. A lease that has lapsed never comes back. Idempotent: call it
    /// again after any error.
    ///
    /// # Errors
    /// As [`MetaStore::get`], or [`MetaError::Unknown`] from a store across a network.
    fn renew_lease(&self, lease: LeaseId) -> Result<Renewal, MetaError>;

    /// Ends a lease and deletes its keys. A lease that has ended already is no error, so call it
    /// again after any error.
    ///
    /// # Errors
    /// As [`MetaStore::batch`].
    fn revoke_lease(&self, lease: LeaseId) -> Result<(), MetaError>;

    /// Deletes the keys of lapsed leases and wakes their watchers; returns how many keys went.
    ///
    /// Reads hide lapsed keys without it. A host calls it about once a second, so that watchers
    /// hear of lapses while nobody writes. Idempotent: call it again after any error.
    ///
    /// # Errors
    /// As [`MetaStore::batch`].
    fn sweep(&self) -> Result<u64, MetaError>;
}
