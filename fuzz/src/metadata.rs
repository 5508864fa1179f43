//! Metadata: keys, envelopes, and the records of streams and topics, the latter by opening a store
//! that holds them and using what opens.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thetis_catalog::config::KEYS;
use thetis_catalog::{Catalog, Defaults};
use thetis_meta::record::RecordKind;
use thetis_meta::{Component, Key, KeyRange, MemoryStore, MetaStore, Write};
use thetis_stream::{Append, Limits, Store, Stream, StreamRecord, StreamSpec};
use thetis_types::clock::{ManualClock, SeededEntropy};
use thetis_types::{Entry, EntryFormat, Offset, StreamId};
use thetis_wal::memory::MemoryWal;

use crate::input::Input;

/// An encoded key, and the same bytes as a record in its envelope.
pub fn metadata_key(data: &[u8]) {
    let value = Bytes::copy_from_slice(data);
    let kind = RecordKind { kind: 0x0101, schema: 3 };
    if let Ok((schema, payload)) = kind.open(&value) {
        let written = RecordKind { schema, ..kind }.seal(&payload);
        assert_eq!(written, value);
    }
    let Ok(key) = Key::decode(data) else { return };
    assert_eq!(key.as_bytes(), data);
    let mut built = Key::root();
    for component in key.components() {
        built = match component {
            // Words of the program are static; those of a fuzzer come to an end.
            Component::Word(_) => return,
            Component::Number(number) => built.number(number),
            Component::Text(text) => built.text(&text),
            Component::Bytes(bytes) => built.bytes(&bytes),
        };
        assert!(key.is_under(&built));
    }
    assert_eq!(built, key, "one key, one encoding");
    assert!(!key.to_string().is_empty());
    let _ = KeyRange::under(key);
}

/// One byte choosing a key of the core, then the value found there.
pub fn stream_record(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    let value = Bytes::copy_from_slice(input.rest());
    if let Ok(record) = StreamRecord::decode(&value) {
        assert_eq!(StreamRecord::decode(&record.encode()), Ok(record));
    }
    let key = match choice % 4 {
        0 => Key::of("store").word("incarnation"),
        1 => Key::of("store").word("next-stream"),
        _ => Key::of("stream").number(1),
    };
    let place = Place::with(vec![Write::put(key, value)]);
    let Some(store) = place.open(2) else { return };
    if let Some(stream) = store.get(StreamId(1)) {
        use_stream(&stream);
    }
    for stream in store.create(&[StreamSpec::default()]).into_iter().flatten() {
        use_stream(&stream);
    }
    let ends = |store: &Store| store.get(StreamId(1)).map(|stream| stream.committed_end());
    let end = ends(&store);
    drop(store);
    let again = place.open(3).expect("a store that was opened and used opens again");
    assert_eq!(ends(&again), end);
}

/// The record of a topic that may own the streams 1 and 2.
pub fn topic_record(data: &[u8]) {
    let place = Place::with(Vec::new());
    let store = place.open(1).expect("an empty store opens");
    store.create(&[StreamSpec::default(), StreamSpec::default()]).expect("memory has room");
    drop(store);
    let value = Bytes::copy_from_slice(data);
    let put = Write::put(Key::of("topic").text("orders"), value);
    assert!(place.meta.write(put).expect("memory does not fail").done().is_some());
    let Some(catalog) = place.catalog(2) else { return };
    let topic = catalog.get("orders").expect("what is at the key of a topic is that topic");
    assert!(catalog.get_by_id(topic.id).is_some());
    for key in KEYS {
        key.check(topic.configs().get(key.name)).expect("a topic has values that suit");
    }
    topic.partitions.iter().for_each(use_stream);
    catalog.retain();
    let total = topic.partition_count() + 1;
    let _ = catalog.add_partitions("orders", total);
    let _ = catalog.set_configs("orders", topic.configs().set().clone());
    drop(catalog);
    let catalog = place.catalog(3).expect("a catalog that was opened and used opens again");
    catalog.delete("orders").expect("it is there");
    drop(catalog);
    assert!(place.catalog(4).expect("it opens without the topic").list().is_empty());
}

/// What any owner of a stream may do.
fn use_stream(stream: &Stream) {
    let entry = Entry {
        record_count: 2,
        max_timestamp: 5,
        format: EntryFormat::Records,
        payload: Bytes::from_static(b"ab"),
    };
    let end = stream.committed_end();
    assert!(stream.trim_offset() <= end);
    if let Ok(appending) = stream.append(&Append::of(entry)) {
        let receipt = appending.wait().expect("memory does not fail");
        assert_eq!(receipt.range.start, end);
        let read = stream.read(end, 100).expect("memory is not damaged");
        assert!(matches!(read, thetis_stream::Read::Entries(entries) if entries.len() == 1));
        assert_eq!(stream.trim(receipt.range.end).expect("memory does not fail"), end.plus(2));
    }
    let _ = stream.read(Offset(0), 100);
    let _ = stream.read(Offset(u64::MAX), 100);
    if let Ok(session) = stream.acquire(Duration::from_secs(1)) {
        stream.release(session).expect("just taken");
    }
    let _ = stream.seal();
}

/// Where a store lies while it is opened again and again.
struct Place {
    wal: MemoryWal,
    meta: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
}

impl Place {
    fn with(writes: Vec<Write>) -> Place {
        let clock = Arc::new(ManualClock::default());
        let meta = Arc::new(MemoryStore::new(clock.clone()));
        if !writes.is_empty() && meta.batch(writes).is_err() {
            // Larger than a value may be: nothing is there then.
        }
        Place { wal: MemoryWal::default(), meta, clock }
    }

    fn open(&self, seed: u64) -> Option<Store> {
        let entropy = Arc::new(SeededEntropy::new(seed));
        let wal = Arc::new(self.wal.clone());
        let (meta, clock) = (self.meta.clone(), self.clock.clone());
        Some(Store::open(wal, meta, clock, entropy, Limits::default()).ok()?.0)
    }

    fn catalog(&self, seed: u64) -> Option<Catalog> {
        Catalog::open(Arc::new(self.open(seed)?), Defaults::default()).ok()
    }
}
