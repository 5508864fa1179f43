//! A stream as an application sees it: append, read forward, follow the tail, trim.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thetis_catalog::{Catalog, TopicId, config};
use thetis_stream::{Append, Fate, Read, Session};
use thetis_types::clock::Clock;
use thetis_types::{AttemptId, Durability, Entry, Offset, OffsetRange, Receipt};

use crate::error::Error;
use crate::readers::{Reader, ReaderInfo, Readers, Saves};
use crate::records::{self, Record};

/// Bytes of payload fetched at a time while reading; a larger entry is fetched alone.
const READ_BYTES: usize = 1 << 20;

/// How much of a stream is kept; see [`Stream::set_retention`]. Nothing goes by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// Records older than this go.
    pub age: Option<Duration>,
    /// The oldest records go while at least this many bytes remain without them.
    pub bytes: Option<u64>,
}

/// A named stream. Clones are the same stream.
#[derive(Clone)]
pub struct Stream {
    inner: thetis_stream::Stream,
    clock: Arc<dyn Clock>,
    readers: Arc<Readers>,
    catalog: Arc<Catalog>,
    topic: TopicId,
}

impl Stream {
    pub(crate) fn new(
        inner: thetis_stream::Stream,
        topic: TopicId,
        catalog: &Arc<Catalog>,
        readers: &Arc<Readers>,
    ) -> Stream {
        let clock = catalog.store().clock().clone();
        Stream { inner, clock, readers: readers.clone(), catalog: catalog.clone(), topic }
    }

    pub(crate) fn inner(&self) -> &thetis_stream::Stream {
        &self.inner
    }

    /// Appends one record and waits until it is safe.
    ///
    /// # Errors
    /// [`Error::Append`]; its [`Error::outcome`] says whether the record may be there after all.
    pub fn append(&self, value: impl AsRef<[u8]>) -> Result<Receipt, Error> {
        self.place(self.one(value), None)?.wait()
    }

    /// Appends several records that become readable together or not at all, across a crash too.
    ///
    /// # Errors
    /// As [`Stream::append`]; also for a batch without records.
    pub fn append_batch<T: AsRef<[u8]>>(
        &self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<Receipt, Error> {
        self.place(records::batch(values, self.clock.wall_ms())?, None)?.wait()
    }

    /// Appends one record if the stream ends at `expected`: a compare-and-set.
    ///
    /// # Errors
    /// As [`Stream::append`]; of kind `Conflict` when the stream ends elsewhere.
    pub fn append_at(&self, expected: Offset, value: impl AsRef<[u8]>) -> Result<Receipt, Error> {
        self.place(self.one(value), Some(expected))?.wait()
    }

    /// Appends one record without waiting: it has its offset, and is safe once the returned
    /// [`Appending`] says so. Many may be under way; they commit in the order of these calls.
    ///
    /// # Errors
    /// Refused: certainly not appended.
    pub fn start_append(&self, value: impl AsRef<[u8]>) -> Result<Appending, Error> {
        let mut appending = self.place(self.one(value), None)?;
        appending.inner.start();
        Ok(appending)
    }

    /// Appends with everything said: one or more records, expected end, session, attempt.
    ///
    /// # Errors
    /// As [`Stream::append`].
    pub fn append_with<T: AsRef<[u8]>>(
        &self,
        values: impl IntoIterator<Item = T>,
        expected: Option<Offset>,
        session: Option<Session>,
        attempt: AttemptId,
    ) -> Result<Receipt, Error> {
        let entry = records::batch(values, self.clock.wall_ms())?;
        let inner = self.inner.append(&Append { entry, expected, session, attempt })?;
        Appending { inner }.wait()
    }

    /// [`Stream::append`] as a future.
    ///
    /// # Errors
    /// As [`Stream::append`].
    ///
    /// Cancel safety: once polled, the record is appended whether the future is dropped or not.
    pub async fn append_async(&self, value: impl AsRef<[u8]>) -> Result<Receipt, Error> {
        self.place(self.one(value), None)?.await
    }

    /// [`Stream::append_batch`] as a future.
    ///
    /// # Errors
    /// As [`Stream::append_batch`].
    ///
    /// Cancel safety: once polled, the batch is appended whether the future is dropped or not.
    pub async fn append_batch_async<T: AsRef<[u8]>>(
        &self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<Receipt, Error> {
        let entry = records::batch(values, self.clock.wall_ms())?;
        self.place(entry, None)?.await
    }

    fn one(&self, value: impl AsRef<[u8]>) -> Entry {
        records::single(Bytes::copy_from_slice(value.as_ref()), self.clock.wall_ms())
    }

    fn place(&self, entry: Entry, expected: Option<Offset>) -> Result<Appending, Error> {
        let append = Append { expected, ..Append::of(entry) };
        Ok(Appending { inner: self.inner.append(&append)? })
    }

    /// Names an attempt, to be given to [`Stream::append_with`] and asked about later.
    #[must_use]
    pub fn attempt(&self) -> AttemptId {
        self.inner.attempt()
    }

    /// What became of an attempt whose append failed with `MayHaveCommitted`, or was cut off by a
    /// crash. Certain: the attempt has not happened later either.
    ///
    /// # Errors
    /// Stored bytes cannot be read, or the journal has failed: open the directory again and ask.
    pub fn recover_append(&self, attempt: AttemptId) -> Result<Fate, Error> {
        Ok(self.inner.recover_append(attempt)?)
    }

    /// The records from `from` on, up to the end as it is when it is reached.
    ///
    /// # Errors
    /// [`Error::Trimmed`] below the start. The iterator's items tell of damaged bytes.
    pub fn read(&self, from: Offset) -> Result<Records, Error> {
        let mut records =
            Records { stream: self.clone(), at: from, buffer: VecDeque::new(), has_failed: false };
        records.fill()?;
        Ok(records)
    }

    /// The records from `from` on, waiting for new ones at the end. Ends only when the stream is
    /// sealed or deleted, or the directory closed ([`Thetis::close`](crate::Thetis::close)).
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn follow(&self, from: Offset) -> Result<Follow, Error> {
        Ok(Follow { records: self.read(from)? })
    }

    /// [`Stream::follow`] for async code.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn follow_async(&self, from: Offset) -> Result<FollowAsync, Error> {
        Ok(FollowAsync { records: self.read(from)? })
    }

    /// First offset that may be read.
    #[must_use]
    pub fn start(&self) -> Offset {
        self.inner.trim_offset()
    }

    /// The offset of the next record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.inner.committed_end()
    }

    /// Offset of the first record whose entry was appended at or after `timestamp_ms`.
    ///
    /// # Errors
    /// Stored bytes cannot be read.
    pub fn offset_at(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
        let found = self.inner.first_at_time(timestamp_ms)?;
        Ok(found.map(|offset| offset.max(self.start())))
    }

    /// Records below `before` may no longer be read, for ever. Durable when it returns; never goes
    /// back. Returns the new start.
    ///
    /// # Errors
    /// `before` is past the end, or metadata failed: call again.
    pub fn trim(&self, before: Offset) -> Result<Offset, Error> {
        Ok(self.inner.trim(before)?)
    }

    /// The stream takes no more, for ever. Returns its final end.
    ///
    /// # Errors
    /// Metadata or the journal failed: call again.
    pub fn seal(&self) -> Result<Offset, Error> {
        Ok(self.inner.seal()?)
    }

    /// Takes the exclusive right to append, for `lease` unless renewed; whoever had it appends
    /// nothing more. Append with [`Stream::append_with`].
    ///
    /// # Errors
    /// The stream takes no appends, or metadata or the journal failed: call again.
    pub fn acquire(&self, lease: Duration) -> Result<Session, Error> {
        Ok(self.inner.acquire(lease)?)
    }

    /// Holds a session for `lease` from now.
    ///
    /// # Errors
    /// It was taken over, released or has lapsed.
    pub fn renew(&self, session: Session, lease: Duration) -> Result<(), Error> {
        Ok(self.inner.renew(session, lease)?)
    }

    /// Lets go of a session.
    ///
    /// # Errors
    /// It was taken over, released or has lapsed.
    pub fn release(&self, session: Session) -> Result<(), Error> {
        Ok(self.inner.release(session)?)
    }

    /// The reader of this name, whose every advance is durable before it returns. A new one begins
    /// at [`Stream::start`], and exists durably when this returns.
    ///
    /// # Errors
    /// The name is empty or too long, the stream has its most readers, or metadata failed.
    pub fn reader(&self, name: &str) -> Result<Reader, Error> {
        self.reader_with(name, Saves::Each)
    }

    /// [`Stream::reader`], with a choice of when its position becomes durable.
    ///
    /// # Errors
    /// As [`Stream::reader`].
    pub fn reader_with(&self, name: &str, saves: Saves) -> Result<Reader, Error> {
        Reader::open(&self.readers, &self.inner, name, saves)
    }

    /// All readers, by name.
    #[must_use]
    pub fn readers(&self) -> Vec<ReaderInfo> {
        self.readers.registry().of(&self.inner).list()
    }

    /// Forgets a reader, durably. What it had not passed no longer keeps the stream from being
    /// trimmed when read.
    ///
    /// # Errors
    /// [`Error::NoReader`], or metadata failed: call again.
    pub fn drop_reader(&self, name: &str) -> Result<(), Error> {
        self.readers.registry().of(&self.inner).drop_reader(name)
    }

    /// From now on, whether what all named readers have durably passed is trimmed. Off unless set;
    /// remembered. A stream without readers is not trimmed, and a reader made later begins at the
    /// start as it then is.
    ///
    /// Trimming follows reading by up to 1 MiB; [`Stream::trim_read`] and
    /// [`Thetis::reclaim`](crate::Thetis::reclaim) make it exact.
    ///
    /// # Errors
    /// Metadata failed: call again.
    pub fn trim_when_read(&self, trims: bool) -> Result<(), Error> {
        self.readers.registry().of(&self.inner).set_trims(trims)
    }

    /// Whether the stream is trimmed when read.
    #[must_use]
    pub fn is_trimmed_when_read(&self) -> bool {
        self.readers.registry().of(&self.inner).trims()
    }

    /// Trims what all readers have durably passed, if the stream is trimmed when read. Returns the
    /// start.
    ///
    /// # Errors
    /// Metadata failed: call again.
    pub fn trim_read(&self) -> Result<Offset, Error> {
        self.readers.registry().of(&self.inner).trim_passed()
    }

    /// Bytes of the records that may be read, to the precision of whole batches.
    ///
    /// # Errors
    /// The journal's index cannot be read.
    pub fn size_bytes(&self) -> Result<u64, Error> {
        Ok(self.inner.readable_bytes()?)
    }

    /// What an acknowledged record survives.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.inner.durability()
    }

    /// From the next append on, what an acknowledged record survives; `None` takes the default of
    /// the directory. Remembered as the topic's configuration `thetis.durability`, where every
    /// front shows it.
    ///
    /// # Errors
    /// The stream was deleted, or metadata failed: call again.
    pub fn set_durability(&self, durability: Option<Durability>) -> Result<(), Error> {
        let value = durability.map(Durability::name);
        self.catalog.change_configs(self.topic, &[(config::DURABILITY, value)])?;
        Ok(())
    }

    /// From now on, how long and how much is kept, whoever has read it. Applied by
    /// [`Thetis::reclaim`](crate::Thetis::reclaim), to the precision of whole batches. Remembered as the
    /// topic's configuration (`retention.ms`, `retention.bytes`), where every front shows it.
    ///
    /// A stream that was never told keeps everything as far as this library goes; a server applies its
    /// own defaults to it.
    ///
    /// # Errors
    /// The stream was deleted, or metadata failed: call again.
    pub fn set_retention(&self, retention: Retention) -> Result<(), Error> {
        let number = |limit: Option<i64>| limit.unwrap_or(-1).to_string();
        let age_ms = number(retention.age.map(|age| i64::try_from(age.as_millis()).unwrap_or(-1)));
        let bytes = number(retention.bytes.map(|bytes| i64::try_from(bytes).unwrap_or(-1)));
        let changes = [
            (config::RETENTION_MS, Some(age_ms.as_str())),
            (config::RETENTION_BYTES, Some(bytes.as_str())),
        ];
        self.catalog.change_configs(self.topic, &changes)?;
        Ok(())
    }
}

/// An append that is under way: a future, or to be waited for with [`Appending::wait`]. Dropping
/// it undoes nothing.
#[must_use = "the append is not acknowledged before this is waited for"]
pub struct Appending {
    inner: thetis_stream::Appending,
}

impl Appending {
    /// The offsets the records get if the append commits.
    #[must_use]
    pub fn range(&self) -> OffsetRange {
        self.inner.range()
    }

    /// Blocks until the append is committed and safe.
    ///
    /// # Errors
    /// It may or may not have been appended; see [`Stream::recover_append`].
    pub fn wait(self) -> Result<Receipt, Error> {
        Ok(self.inner.wait()?)
    }
}

impl IntoFuture for Appending {
    type Output = Result<Receipt, Error>;
    type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.inner.committed().await?) })
    }
}

/// Records in order; see [`Stream::read`]. After an error it ends.
pub struct Records {
    stream: Stream,
    at: Offset,
    buffer: VecDeque<Record>,
    has_failed: bool,
}

impl Records {
    /// Fetches more, if there is more. Records that were trimmed meanwhile are an error, not
    /// silence.
    fn fill(&mut self) -> Result<(), Error> {
        if !self.buffer.is_empty() {
            return Ok(());
        }
        match self.stream.inner.read(self.at, READ_BYTES)? {
            Read::Entries(entries) => {
                let from = self.at;
                for entry in entries {
                    self.at = entry.range().end;
                    records::of_entry(entry, from, &mut self.buffer)?;
                }
                Ok(())
            }
            Read::End(_) => Ok(()),
            Read::Trimmed(start) => Err(Error::Trimmed { at: self.at, start }),
        }
    }

    fn next_or_end(&mut self) -> Option<Result<Record, Error>> {
        if self.has_failed {
            return None;
        }
        if let Err(error) = self.fill() {
            self.has_failed = true;
            return Some(Err(error));
        }
        self.buffer.pop_front().map(Ok)
    }
}

impl Iterator for Records {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_or_end()
    }
}

/// Records in order, waiting for new ones; see [`Stream::follow`].
pub struct Follow {
    records: Records,
}

impl Follow {
    /// The next record, unless none comes within `timeout`.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<Record, Error>> {
        self.next_before(Some(timeout))
    }

    fn next_before(&mut self, timeout: Option<Duration>) -> Option<Result<Record, Error>> {
        if let Some(next) = self.records.next_or_end() {
            return Some(next);
        }
        let at = self.records.at;
        let end = self.records.stream.inner.block_beyond(at, timeout);
        if end > at { self.records.next_or_end() } else { None }
    }
}

impl Iterator for Follow {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_before(None)
    }
}

/// Records in order, waiting for new ones without blocking; see [`Stream::follow_async`].
pub struct FollowAsync {
    records: Records,
}

impl FollowAsync {
    /// The next record; `None` once the stream is sealed or deleted, or the directory closed, and
    /// everything was read.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Record, Error>> {
        if let Some(next) = self.records.next_or_end() {
            return Some(next);
        }
        let at = self.records.at;
        let end = self.records.stream.inner.wait_beyond(at).await;
        if end > at { self.records.next_or_end() } else { None }
    }
}
