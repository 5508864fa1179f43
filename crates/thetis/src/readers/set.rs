//! All readers of one stream, and of all streams. Owns which readers there are and how far they
//! let the stream be trimmed; where a reader stands is `super::cursor`'s.
//!
//! Locks are taken in one order: a cursor's, then its set's. Whoever trims holds the set's, so that
//! no reader goes back, or begins, below an offset that is just being trimmed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use thetis_meta::{BATCH_WRITES_MAX, KeyRange, PAGE_ITEMS_MAX, Write};
use thetis_stream::{Store, Stream, StreamError};
use thetis_types::{Offset, StreamId};

use super::cursor::Cursor;
use super::record::{self, Named};
use super::{ReaderInfo, write};
use crate::error::Error;

/// Readers of one stream.
pub const READERS_MAX: usize = 1_000;
/// Bytes of a reader's name.
pub const READER_NAME_BYTES_MAX: usize = 249;

/// All readers of one stream.
pub(crate) struct ReaderSet {
    stream: Stream,
    store: Arc<Store>,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    by_name: BTreeMap<String, Arc<Cursor>>,
    /// Whether what all of them have passed is trimmed.
    trims: bool,
    is_deleted: bool,
}

impl ReaderSet {
    fn new(stream: Stream, store: Arc<Store>, members: Members) -> ReaderSet {
        ReaderSet { stream, store, members: Mutex::new(members) }
    }

    /// The reader of this name; a new one begins at the stream's start, durably.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<Cursor>, Error> {
        check_name(name)?;
        let mut members = self.members.lock();
        if let Some(cursor) = members.by_name.get(name) {
            return Ok(cursor.clone());
        }
        let id = self.stream.id();
        if members.is_deleted || self.store.get(id).is_none() {
            return Err(StreamError::NotFound { stream: id }.into());
        }
        if members.by_name.len() >= READERS_MAX {
            return Err(Error::TooManyReaders { max: READERS_MAX });
        }
        let at = self.stream.trim_offset();
        let put = Write::put(record::position_key(id, name), record::encode_position(at));
        write(&self.store, put)?;
        let cursor = Cursor::new(name.into(), self.stream.clone(), self.store.clone(), at);
        let cursor = Arc::new(cursor);
        members.by_name.insert(name.into(), cursor.clone());
        Ok(cursor)
    }

    pub(crate) fn list(&self) -> Vec<ReaderInfo> {
        let cursors: Vec<_> = self.members.lock().by_name.values().cloned().collect();
        let info = |cursor: &Arc<Cursor>| ReaderInfo {
            name: cursor.name().into(),
            position: cursor.next(),
            saved: cursor.saved(),
            unread: cursor.unread(),
        };
        cursors.iter().map(info).collect()
    }

    /// Forgets a reader, durably. Handles of it are refused from now on.
    pub(crate) fn drop_reader(&self, name: &str) -> Result<(), Error> {
        let found = self.members.lock().by_name.get(name).cloned();
        let cursor = found.ok_or_else(|| Error::NoReader { name: name.into() })?;
        let mut state = cursor.live()?;
        let mut members = self.members.lock();
        write(&self.store, Write::delete(record::position_key(self.stream.id(), name)))?;
        state.is_dropped = true;
        members.by_name.remove(name);
        Ok(())
    }

    pub(crate) fn seek(&self, cursor: &Cursor, to: Offset) -> Result<(), Error> {
        let mut state = cursor.live()?;
        let _no_trim = self.members.lock();
        let (start, end) = (self.stream.trim_offset(), self.stream.committed_end());
        if to < start {
            return Err(Error::Trimmed { at: to, start });
        }
        if to > end {
            return Err(Error::PastEnd { at: to, end });
        }
        cursor.move_to(&mut state, to)
    }

    pub(crate) fn set_trims(&self, trims: bool) -> Result<(), Error> {
        let mut members = self.members.lock();
        if members.trims != trims {
            let key = record::policy_key(self.stream.id());
            write(&self.store, Write::put(key, record::encode_policy(trims)))?;
            members.trims = trims;
        }
        Ok(())
    }

    pub(crate) fn trims(&self) -> bool {
        self.members.lock().trims
    }

    /// Trims what every reader has durably passed, if the stream is to be trimmed when read. No
    /// reader proves nothing: then nothing is trimmed. Returns the start.
    pub(crate) fn trim_passed(&self) -> Result<Offset, Error> {
        let members = self.members.lock();
        let passed = members.by_name.values().map(|cursor| cursor.saved()).min();
        match passed {
            Some(passed) if members.trims && !members.is_deleted => Ok(self.stream.trim(passed)?),
            _ => Ok(self.stream.trim_offset()),
        }
    }

    fn save_all(&self) -> Result<(), Error> {
        let cursors: Vec<_> = self.members.lock().by_name.values().cloned().collect();
        cursors.iter().try_for_each(|cursor| match cursor.save() {
            Err(Error::NoReader { .. }) => Ok(()),
            saved => saved,
        })
    }

    /// The stream is deleted, and so are its readers.
    fn delete(&self) -> Result<(), Error> {
        let cursors = {
            let mut members = self.members.lock();
            members.is_deleted = true;
            std::mem::take(&mut members.by_name)
        };
        let id = self.stream.id();
        let mut keys = vec![record::policy_key(id), record::mark_key(id)];
        for (name, cursor) in cursors {
            cursor.state().lock().is_dropped = true;
            keys.push(record::position_key(id, &name));
        }
        delete_all(&self.store, keys)
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let fault = match name {
        "" => "it is empty",
        _ if name.len() > READER_NAME_BYTES_MAX => "it is longer than 249 bytes",
        _ => return Ok(()),
    };
    Err(Error::ReaderName { name: name.into(), fault })
}

fn delete_all(store: &Store, keys: Vec<thetis_meta::Key>) -> Result<(), Error> {
    for chunk in keys.chunks(BATCH_WRITES_MAX) {
        let deletes = chunk.iter().cloned().map(Write::delete).collect();
        store.meta().batch(deletes)?;
    }
    Ok(())
}

/// The readers of all streams of a store.
pub(crate) struct Registry {
    store: Arc<Store>,
    sets: Mutex<HashMap<StreamId, Arc<ReaderSet>>>,
}

impl Registry {
    /// Loads all positions. Those of streams that are gone are deleted. Those past the end of their
    /// stream are set back to it, durably: the records up to there were acknowledged at a level
    /// that did not survive, and others will take their offsets.
    pub(crate) fn open(store: Arc<Store>) -> Result<Registry, Error> {
        let mut found: HashMap<StreamId, Members> = HashMap::new();
        let mut gone = Vec::new();
        let mut range = Some(KeyRange::under(record::root_key()));
        while let Some(part) = range {
            let page = store.meta().range(&part, PAGE_ITEMS_MAX)?;
            for item in page.items {
                let named = record::named(&item.key)?;
                let (Named::Position(id, _) | Named::Policy(id) | Named::Mark(id)) = named;
                let Some(stream) = store.get(id) else {
                    gone.push(item.key);
                    continue;
                };
                let value = &item.stored.value;
                match named {
                    Named::Policy(_) => {
                        found.entry(id).or_default().trims =
                            record::decode_policy(&item.key, value)?;
                    }
                    Named::Position(_, name) => {
                        let mut at = record::decode_position(&item.key, value)?;
                        if at > stream.committed_end() {
                            at = stream.committed_end();
                            write(&store, Write::put(item.key, record::encode_position(at)))?;
                        }
                        let cursor = Cursor::new(name.clone(), stream, store.clone(), at);
                        let by_name = &mut found.entry(id).or_default().by_name;
                        by_name.insert(name, Arc::new(cursor));
                    }
                    Named::Mark(_) => {}
                }
            }
            range = page.next;
        }
        delete_all(&store, gone)?;
        let set = |(id, members)| {
            let stream = store.get(id)?;
            Some((id, Arc::new(ReaderSet::new(stream, store.clone(), members))))
        };
        let sets = found.into_iter().filter_map(set).collect();
        Ok(Registry { store, sets: Mutex::new(sets) })
    }

    /// The readers of a stream.
    pub(crate) fn of(&self, stream: &Stream) -> Arc<ReaderSet> {
        let new = || {
            let (stream, store) = (stream.clone(), self.store.clone());
            Arc::new(ReaderSet::new(stream, store, Members::default()))
        };
        self.sets.lock().entry(stream.id()).or_insert_with(new).clone()
    }

    /// Deletes what is kept of the readers of a deleted stream.
    pub(crate) fn delete(&self, stream: &Stream) -> Result<(), Error> {
        let set = self.of(stream);
        set.delete()?;
        self.sets.lock().remove(&stream.id());
        Ok(())
    }

    fn all(&self) -> Vec<Arc<ReaderSet>> {
        self.sets.lock().values().cloned().collect()
    }

    /// Trims every stream that is trimmed when read.
    pub(crate) fn trim_all(&self) -> Result<(), Error> {
        self.all().iter().filter(|set| !set.members.lock().is_deleted).try_for_each(|set| {
            set.trim_passed()?;
            Ok(())
        })
    }

    pub(crate) fn save_all(&self) -> Result<(), Error> {
        self.all().iter().try_for_each(|set| set.save_all())
    }

    /// Saves every reader whose interval is over.
    pub(crate) fn save_due(&self) {
        let now = self.store.clock().monotonic();
        for set in self.all() {
            let cursors: Vec<_> = set.members.lock().by_name.values().cloned().collect();
            cursors.iter().for_each(|cursor| cursor.save_if_due(now));
        }
    }
}
