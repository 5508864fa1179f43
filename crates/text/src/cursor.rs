//! Cursors: durable positions in streams, by name. Owns where they are kept
//! (docs/formats/text-cursor.md) and when a position is durable; what a position is for is the
//! caller's: acknowledgements of clients, and the shared position of GET.
//!
//! The process holds the directory's lock, so it is the only writer and its puts need no condition:
//! after a lost answer the same cursor is simply saved again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use thetis_meta::record::RecordKind;
use thetis_meta::{Component, Key, KeyRange, MetaError, MetaStore, PAGE_ITEMS_MAX, Write};
use thetis_types::{Offset, StreamId};

/// The envelope of a cursor's record.
const CURSOR: RecordKind = RecordKind { kind: 0x0501, schema: 1 };

/// Cursors of one node, GET's own included: all are in memory.
pub(crate) const CURSORS_MAX: usize = 100_000;

/// Bytes of a cursor's name.
pub(crate) const CURSOR_NAME_BYTES_MAX: usize = 249;

/// The name of GET's own cursor. No client can say it.
pub(crate) const QUEUE: &str = "";

/// All cursors of a node.
pub(crate) struct Cursors {
    meta: Arc<dyn MetaStore>,
    all: Mutex<BTreeMap<(StreamId, String), Arc<Cursor>>>,
}

/// One position.
pub(crate) struct Cursor {
    key: Key,
    meta: Arc<dyn MetaStore>,
    state: Mutex<State>,
    /// The newest change known to be durable. Held while writing, so that an older position never
    /// lands after a newer one, and many who wait share one write.
    saved: Mutex<u64>,
    /// Whether a save behind the caller's back is on its way and has not looked yet.
    is_scheduled: AtomicBool,
}

#[derive(Clone, Copy)]
struct State {
    position: Offset,
    /// Counts changes; a position may go back, this never does.
    change: u64,
}

/// There are as many as there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{CURSORS_MAX} cursors exist, which is the limit; forget some")]
pub(crate) struct TooMany;

impl Cursors {
    /// Loads all; deletes those of streams that `exists` does not know.
    pub(crate) fn open(
        meta: Arc<dyn MetaStore>,
        exists: impl Fn(StreamId) -> bool,
    ) -> Result<Cursors, MetaError> {
        let mut all = BTreeMap::new();
        let mut orphans = Vec::new();
        let mut range = Some(KeyRange::under(root()));
        while let Some(part) = range {
            let page = meta.range(&part, PAGE_ITEMS_MAX)?;
            for item in page.items {
                let (stream, name) = parts(&item.key)?;
                if !exists(stream) {
                    orphans.push(item.key);
                    continue;
                }
                let position = decode(&item.stored.value)?;
                let cursor = Cursor::new(item.key, meta.clone(), position, 0);
                all.insert((stream, name), Arc::new(cursor));
            }
            range = page.next;
        }
        delete_all(&*meta, orphans)?;
        Ok(Cursors { meta, all: Mutex::new(all) })
    }

    /// The cursor of this name.
    pub(crate) fn get(&self, stream: StreamId, name: &str) -> Option<Arc<Cursor>> {
        self.all.lock().get(&(stream, name.to_owned())).cloned()
    }

    /// The cursor of this name; made at `position`, and not durable yet, if it does not exist.
    pub(crate) fn get_or_make(
        &self,
        stream: StreamId,
        name: &str,
        position: Offset,
    ) -> Result<Arc<Cursor>, TooMany> {
        let mut all = self.all.lock();
        if let Some(cursor) = all.get(&(stream, name.to_owned())) {
            return Ok(cursor.clone());
        }
        if all.len() >= CURSORS_MAX {
            return Err(TooMany);
        }
        let cursor = Arc::new(Cursor::new(key(stream, name), self.meta.clone(), position, 1));
        all.insert((stream, name.to_owned()), cursor.clone());
        Ok(cursor)
    }

    /// Names and positions of a stream's cursors, GET's own left out.
    pub(crate) fn list(&self, stream: StreamId) -> Vec<(String, Offset)> {
        let from = (stream, QUEUE.to_owned());
        let all = self.all.lock();
        let of_stream = all.range(from..).take_while(|((of, _), _)| *of == stream);
        let named = of_stream.filter(|((_, name), _)| name != QUEUE);
        named.map(|((_, name), cursor)| (name.clone(), cursor.position())).collect()
    }

    /// Deletes a cursor; false when there is none. Blocks until it is durable, and others with it:
    /// nobody is to get the old cursor, or make a new one, while its record is being deleted.
    pub(crate) fn forget(&self, stream: StreamId, name: &str) -> Result<bool, MetaError> {
        let mut all = self.all.lock();
        let slot = (stream, name.to_owned());
        let Some(cursor) = all.get(&slot) else { return Ok(false) };
        cursor.delete()?;
        all.remove(&slot);
        Ok(true)
    }

    /// Deletes all cursors of a stream that is gone. What fails here is deleted at the next open.
    pub(crate) fn forget_all(&self, stream: StreamId) -> Result<(), MetaError> {
        let mut all = self.all.lock();
        let mut gone = all.split_off(&(stream, QUEUE.to_owned()));
        if let Some(first_kept) = gone.keys().find(|(of, _)| *of != stream).cloned() {
            all.append(&mut gone.split_off(&first_kept));
        }
        drop(all);
        gone.values().try_for_each(|cursor| cursor.delete())
    }

    /// Makes every position durable. Blocks.
    pub(crate) fn save_all(&self) -> Result<(), MetaError> {
        let all: Vec<Arc<Cursor>> = self.all.lock().values().cloned().collect();
        all.iter().try_for_each(|cursor| cursor.save())
    }
}

impl Cursor {
    fn new(key: Key, meta: Arc<dyn MetaStore>, position: Offset, change: u64) -> Cursor {
        let state = Mutex::new(State { position, change });
        Cursor { key, meta, state, saved: Mutex::new(0), is_scheduled: AtomicBool::new(false) }
    }

    /// Where it is.
    pub(crate) fn position(&self) -> Offset {
        self.state.lock().position
    }

    /// Moves it, not durably yet. Returns where it is.
    pub(crate) fn set(&self, to: Offset) -> Offset {
        let mut state = self.state.lock();
        state.position = to;
        state.change += 1;
        to
    }

    /// Moves it forward or not at all, not durably yet. Returns where it is.
    pub(crate) fn advance(&self, to: Offset) -> Offset {
        let mut state = self.state.lock();
        if to > state.position {
            state.position = to;
            state.change += 1;
        }
        state.position
    }

    /// Makes its position durable, unless it is. Blocks.
    pub(crate) fn save(&self) -> Result<(), MetaError> {
        let mut saved = self.saved.lock();
        let State { position, change } = *self.state.lock();
        if *saved < change {
            let value = CURSOR.seal(&position.0.to_le_bytes());
            let _ = self.meta.write(Write::put(self.key.clone(), value))?;
            *saved = change;
        }
        Ok(())
    }

    /// Makes its position durable soon, without making anybody wait. Failing costs that after a
    /// crash the cursor stands where it was saved last.
    pub(crate) fn save_soon(self: &Arc<Self>) {
        if self.is_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let cursor = self.clone();
        tokio::task::spawn_blocking(move || {
            // Cleared before the position is looked at: a later change schedules again.
            cursor.is_scheduled.store(false, Ordering::Release);
            if let Err(error) = cursor.save() {
                tracing::warn!(%error, "a cursor was not saved; the next change tries again");
            }
        });
    }

    /// Deletes its record. No save that is on its way brings it back.
    fn delete(&self) -> Result<(), MetaError> {
        let mut saved = self.saved.lock();
        let _ = self.meta.write(Write::delete(self.key.clone()))?;
        *saved = u64::MAX;
        Ok(())
    }
}

fn root() -> Key {
    Key::of("text").word("cursor")
}

fn key(stream: StreamId, name: &str) -> Key {
    root().number(stream.0).text(name)
}

fn parts(key: &Key) -> Result<(StreamId, String), MetaError> {
    match key.components().as_slice() {
        [_, _, Component::Number(stream), Component::Text(name)] => {
            Ok((StreamId(*stream), name.clone()))
        }
        _ => Err(corrupt(format!("{key:?} is not the key of a cursor"))),
    }
}

fn decode(value: &Bytes) -> Result<Offset, MetaError> {
    let (_, payload) = CURSOR.open(value).map_err(|error| corrupt(error.to_string()))?;
    let bytes: [u8; 8] = payload[..].try_into().map_err(|_| {
        corrupt(format!("a cursor's record of {} bytes; it takes 8", payload.len()))
    })?;
    Ok(Offset(u64::from_le_bytes(bytes)))
}

fn corrupt(what: String) -> MetaError {
    thetis_meta::Refusal::Corrupt { what }.into()
}

fn delete_all(meta: &dyn MetaStore, keys: Vec<Key>) -> Result<(), MetaError> {
    for chunk in keys.chunks(thetis_meta::BATCH_WRITES_MAX) {
        let _ = meta.batch(chunk.iter().cloned().map(Write::delete).collect())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use thetis_meta::MemoryStore;
    use thetis_types::clock::ManualClock;

    use super::*;

    const STREAM: StreamId = StreamId(3);

    fn meta() -> Arc<dyn MetaStore> {
        Arc::new(MemoryStore::new(Arc::new(ManualClock::default())))
    }

    #[test]
    fn a_saved_position_is_found_again_and_an_unsaved_one_is_not() {
        let meta = meta();
        let cursors = Cursors::open(meta.clone(), |_| true).unwrap();
        let cursor = cursors.get_or_make(STREAM, "billing", Offset(4)).unwrap();
        cursor.save().unwrap();
        assert_eq!(cursor.advance(Offset(9)), Offset(9));
        let found = Cursors::open(meta.clone(), |_| true).unwrap();
        assert_eq!(found.list(STREAM), [("billing".to_owned(), Offset(4))]);
        cursor.save().unwrap();
        let found = Cursors::open(meta, |_| true).unwrap();
        assert_eq!(found.get(STREAM, "billing").unwrap().position(), Offset(9));
    }

    #[test]
    fn a_forgotten_cursor_does_not_come_back() {
        let meta = meta();
        let cursors = Cursors::open(meta.clone(), |_| true).unwrap();
        let (gone, other) = (StreamId(3), StreamId(4));
        for stream in [gone, other] {
            for name in [QUEUE, "a", "b"] {
                cursors.get_or_make(stream, name, Offset(1)).unwrap().save().unwrap();
            }
        }
        let held = cursors.get(gone, "a").unwrap();
        assert!(cursors.forget(gone, "a").unwrap() && !cursors.forget(gone, "a").unwrap());
        held.set(Offset(7));
        held.save().unwrap();
        cursors.forget_all(gone).unwrap();
        let found = Cursors::open(meta.clone(), |_| true).unwrap();
        assert!(found.list(gone).is_empty() && found.get(gone, QUEUE).is_none());
        assert_eq!(found.list(other).len(), 2);
        let found = Cursors::open(meta.clone(), |_| false).unwrap();
        assert!(found.list(other).is_empty());
        assert!(Cursors::open(meta, |_| true).unwrap().list(other).is_empty());
    }

    #[test]
    fn an_acknowledgement_never_goes_back_and_a_seek_does() {
        let cursors = Cursors::open(meta(), |_| true).unwrap();
        let cursor = cursors.get_or_make(STREAM, "a", Offset(5)).unwrap();
        assert_eq!(cursor.advance(Offset(2)), Offset(5));
        assert_eq!(cursor.set(Offset(2)), Offset(2));
    }

    #[test]
    fn the_record_is_the_golden_one_and_others_are_refused() {
        let golden: &[u8] = include_bytes!("../golden/text-cursor-v1.bin");
        assert_eq!(decode(&Bytes::from_static(golden)).unwrap(), Offset(0x0102_0304));
        assert_eq!(CURSOR.seal(&0x0102_0304_u64.to_le_bytes()), golden);
        for cut in 0..golden.len() {
            assert!(decode(&Bytes::from_static(golden).slice(..cut)).is_err());
        }
    }
}
