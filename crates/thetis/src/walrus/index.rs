//! The engine's public index: positions by key, kept beside the log for a program's own use. Owns their
//! records (docs/formats/walrus-index.md); nothing of the log reads them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use thetis_meta::record::RecordKind;
use thetis_meta::{
    Component, EmbeddedStore, Key, KeyRange, MetaStore, PAGE_ITEMS_MAX, Write, WriteOutcome,
};

use super::settings::WalrusBuilder;
use super::to_io;
use crate::clock::SystemClock;
use crate::error::Error;
use crate::keyed::keyed_dir;

/// The envelope of a position.
const POSITION: RecordKind = RecordKind { kind: 0x0604, schema: 1 };

/// A position as it was set; what its numbers mean is the program's affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPos {
    /// The index of a block.
    pub cur_block_idx: u64,
    /// An offset in it.
    pub cur_block_offset: u64,
}

/// Positions by key, durable with each change. One holder at a time, in one process or several.
pub struct WalIndex {
    store: EmbeddedStore,
    positions: HashMap<String, BlockPos>,
}

impl WalIndex {
    /// Opens the index of this name, or makes it, in the directory that [`super::Walrus::new`] uses.
    ///
    /// # Errors
    /// The directory cannot be used, the index is open elsewhere, or its records cannot be read.
    pub fn new(file_name: &str) -> io::Result<WalIndex> {
        let instance = WalrusBuilder::default().directory(|name| std::env::var_os(name));
        let root = instance.map_err(to_io)?.join("index");
        let dir = keyed_dir(root, file_name).map_err(to_io)?;
        std::fs::create_dir_all(&dir)?;
        let store = EmbeddedStore::open(&dir, Arc::new(SystemClock::default()));
        let store = store.map_err(|error| to_io(error.into()))?;
        let mut positions = HashMap::new();
        let mut range = Some(KeyRange::under(Key::of("position")));
        while let Some(part) = range {
            let page = store.range(&part, PAGE_ITEMS_MAX).map_err(|error| to_io(error.into()))?;
            for item in page.items {
                let (key, position) = decode(&item.key, &item.stored.value).map_err(to_io)?;
                positions.insert(key, position);
            }
            range = page.next;
        }
        Ok(WalIndex { store, positions })
    }

    /// Sets the position of a key. Durable when it returns.
    ///
    /// # Errors
    /// The disk failed; whether the position is set shows when the index is opened again.
    pub fn set(&mut self, key: String, idx: u64, offset: u64) -> io::Result<()> {
        let position = BlockPos { cur_block_idx: idx, cur_block_offset: offset };
        self.write(Write::put(position_key(&key), encode(&position)))?;
        self.positions.insert(key, position);
        Ok(())
    }

    /// The position of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&BlockPos> {
        self.positions.get(key)
    }

    /// Removes the position of a key; returns what it was. Durable when it returns.
    ///
    /// # Errors
    /// As [`WalIndex::set`].
    pub fn remove(&mut self, key: &str) -> io::Result<Option<BlockPos>> {
        if self.positions.contains_key(key) {
            self.write(Write::delete(position_key(key)))?;
        }
        Ok(self.positions.remove(key))
    }

    fn write(&self, write: Write) -> io::Result<()> {
        match self.store.write(write).map_err(|error| to_io(error.into()))? {
            WriteOutcome::Done { .. } => Ok(()),
            WriteOutcome::Lost { .. } | WriteOutcome::NoLease { .. } => {
                Err(io::Error::other("an unconditional write was not done"))
            }
        }
    }
}

fn position_key(key: &str) -> Key {
    Key::of("position").text(key)
}

fn encode(position: &BlockPos) -> Bytes {
    let numbers = [position.cur_block_idx, position.cur_block_offset];
    POSITION.seal(&numbers.map(u64::to_le_bytes).concat())
}

fn decode(key: &Key, value: &Bytes) -> Result<(String, BlockPos), Error> {
    let damaged = |detail: String| Error::ReaderRecord { key: key.to_string(), detail };
    let [_, Component::Text(name)] = &key.components()[..] else {
        return Err(damaged("it names no position".into()));
    };
    let (_, payload) = POSITION.open(value).map_err(|error| damaged(error.to_string()))?;
    let number = |at: usize| Some(u64::from_le_bytes(*payload.get(at..)?.first_chunk()?));
    match (payload.len(), number(0), number(8)) {
        (16, Some(cur_block_idx), Some(cur_block_offset)) => {
            Ok((name.clone(), BlockPos { cur_block_idx, cur_block_offset }))
        }
        (bytes, ..) => Err(damaged(format!("{bytes} bytes, not 16"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_read_back_and_every_cut_is_refused() {
        let golden = Bytes::from_static(include_bytes!("../../golden/walrus-index-v1.bin"));
        let position = BlockPos { cur_block_idx: 3, cur_block_offset: 500 };
        assert_eq!(encode(&position), golden);
        let key = position_key("t");
        assert_eq!(decode(&key, &golden).unwrap(), ("t".into(), position));
        for cut in 0..golden.len() {
            assert!(decode(&key, &golden.slice(..cut)).is_err());
        }
        assert!(decode(&Key::of("position"), &golden).is_err());
    }
}
