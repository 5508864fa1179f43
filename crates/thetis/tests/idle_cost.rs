//! What streams cost while nothing happens, by an allocator that counts: the law BOUNDED for memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thetis::{Offset, Stream, SystemClock, SystemEntropy, Thetis};
use thetis_catalog::{Catalog, Format, TopicSpec};
use thetis_journal::OsDisk;
use thetis_meta::EmbeddedStore;
use thetis_stream::Store;
use thetis_types::clock::Clock;
use thetis_wal::journal::JournalWal;

/// The system's allocator, and the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe; this one passes every call on as it is")]
mod counting {
    use super::*;

    // SAFETY: every call is the system's, with the same arguments.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
            // SAFETY: the caller keeps to the contract of `alloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
            ALLOCATED.fetch_sub(layout.size() as u64, Ordering::Relaxed);
            // SAFETY: `at` came from `alloc` above, with this layout.
            unsafe { System.dealloc(at, layout) }
        }
    }
}

fn allocated() -> u64 {
    ALLOCATED.load(Ordering::Relaxed)
}

/// 10 000 topics of one stream each. What the parts take is told; what names, configurations and
/// handles add to a stream is limited.
#[test]
fn an_idle_stream_costs_little() {
    const STREAMS: u64 = 10_000;
    const NAMED_AND_HELD_BYTES_MAX: u64 = 384;
    let dir = tempfile::tempdir().unwrap();
    let name = |index: u64| format!("idle-{index:05}");
    {
        let spec = |index| TopicSpec {
            name: name(index),
            partitions: 1,
            format: Format::Plain,
            configs: [].into(),
        };
        let thetis = Thetis::open(dir.path()).unwrap();
        let made = thetis.catalog().create_all((0..STREAMS).map(spec).collect());
        assert!(made.iter().all(Result::is_ok));
    }
    let mut before = allocated();
    let mut each = || {
        let bytes = (allocated() - before) / STREAMS;
        before = allocated();
        bytes
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let disk = Arc::new(OsDisk::new(dir.path().join("journal")).unwrap());
    let (wal, _) = JournalWal::open(disk, Default::default()).unwrap();
    let journal = each();
    let meta = Arc::new(EmbeddedStore::open(dir.path(), clock.clone()).unwrap());
    let cache = each();
    let (wal, entropy) = (Arc::new(wal), Arc::new(SystemEntropy));
    let (store, _) = Store::open(wal, meta, clock, entropy, Default::default()).unwrap();
    let core = each();
    let catalog = Catalog::open(Arc::new(store), Default::default()).unwrap();
    let names = each();
    assert_eq!(catalog.list().len() as u64, STREAMS);
    drop(catalog);

    let thetis = Thetis::open(dir.path()).unwrap();
    let before = allocated();
    let mut streams = Vec::with_capacity(10_000);
    streams.extend((0..STREAMS).map(|index| thetis.stream(&name(index)).unwrap()));
    let handle = (allocated() - before) / STREAMS;
    assert!(streams.iter().all(|stream: &Stream| stream.end() == Offset(0)));
    println!(
        "bytes for each idle stream: {core} the core, {names} names and configurations, {handle} a \
         handle; and the journal's buffers {journal}, the cache of metadata {cache}"
    );
    assert!(names + handle <= NAMED_AND_HELD_BYTES_MAX, "{names} and {handle} bytes");
}
