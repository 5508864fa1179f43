//! The write buffer's memory: block-aligned chunks that one pen fills from front to back while
//! any number of readers slice what is already written. A chunk is memory of our own or a window
//! of a mapped file (`mapping`); neither readers nor the pen see a difference.
//!
//! Knows nothing of frames, files or flushes.
//!
//! INVARIANT(PUBLISHED): bytes below `published` never change while anybody but the pen holds the
//! chunk; bytes at or above it are touched by nobody but the pen. Hence a shared slice below the
//! mark and the pen's copy above it never overlap.
#![expect(unsafe_code, reason = "readers slice below a mark that one writer moves up")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::mapping::Mapping;

/// Bytes of a chunk. Large enough that few frames cross a border, small enough to recycle.
pub(crate) const CHUNK: usize = 1 << 20;
const ALIGN: usize = 4096;

/// Memory that mirrors one aligned region of a file.
pub(crate) struct Chunk {
    memory: NonNull<u8>,
    bytes: usize,
    published: AtomicUsize,
    /// What the chunk is a window of, and at which byte; `None` for memory of its own.
    mapping: Option<(Arc<Mapping>, usize)>,
}

// SAFETY: the memory is owned, alone or through the mapping, and INVARIANT(PUBLISHED) keeps every shared access to it either a
// read of bytes that no longer change or the one pen's write of bytes nobody reads. The mark is
// stored with Release after the bytes and loaded with Acquire before them.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

/// The right to fill a chunk. There is one for each chunk, and it is not `Clone`.
pub(crate) struct Pen {
    chunk: Arc<Chunk>,
    filled: usize,
}

fn layout() -> Layout {
    Layout::from_size_align(CHUNK, ALIGN).expect("constants of a valid layout")
}

impl Chunk {
    /// The bytes of `range`.
    ///
    /// # Panics
    /// When `range` reaches beyond what is published: a fault of the caller, never of input.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        let published = self.published.load(Ordering::Acquire);
        assert!(
            range.start <= range.end && range.end <= published,
            "bytes {range:?} are not within the {published} published"
        );
        // SAFETY: the range lies inside the memory (published <= self.bytes) and below the mark,
        // so by INVARIANT(PUBLISHED) its bytes are initialised and do not change while `self` is
        // borrowed.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.as_ptr().add(range.start),
                range.end - range.start,
            )
        }
    }

    /// Whether the memory is a file's and may be read again from the device at any time.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// The bytes of `range` without a copy; they keep the chunk alive.
    pub(crate) fn share(self: &Arc<Self>, range: Range<usize>) -> Bytes {
        struct Slice(Arc<Chunk>, Range<usize>);
        impl AsRef<[u8]> for Slice {
            fn as_ref(&self) -> &[u8] {
                self.0.bytes(self.1.clone())
            }
        }
        Bytes::from_owner(Slice(Arc::clone(self), range))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.mapping.is_none() {
            // SAFETY: allocated in `Pen::new` with this layout and freed only here.
            unsafe { dealloc(self.memory.as_ptr(), layout()) }
        }
    }
}

impl Pen {
    /// A pen on a fresh chunk.
    pub(crate) fn new() -> Pen {
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc_zeroed(layout()) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout()) };
        let published = AtomicUsize::new(0);
        let chunk = Chunk { memory, bytes: CHUNK, published, mapping: None };
        Pen { chunk: Arc::new(chunk), filled: 0 }
    }

    /// A pen on the next window of a mapped file; `None` behind the last one. The first `skip`
    /// bytes, which are in the file already, count as written.
    pub(crate) fn on(mapping: &Arc<Mapping>, skip: usize) -> Option<Pen> {
        let (memory, at, bytes) = mapping.next_window(CHUNK)?;
        let filled = skip.min(bytes);
        let published = AtomicUsize::new(filled);
        let mapping = Some((Arc::clone(mapping), at));
        Some(Pen { chunk: Arc::new(Chunk { memory, bytes, published, mapping }), filled })
    }

    /// A pen on a chunk that nobody else holds any more; `None` while somebody does. Saves the
    /// page faults of fresh memory.
    pub(crate) fn reuse(mut chunk: Arc<Chunk>) -> Option<Pen> {
        let own = Arc::get_mut(&mut chunk)?;
        if own.is_mapped() {
            return None;
        }
        *own.published.get_mut() = 0;
        Some(Pen { chunk, filled: 0 })
    }

    pub(crate) fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        self.chunk.bytes - self.filled
    }

    /// Copies `bytes` behind those already there and publishes them.
    ///
    /// # Panics
    /// When they do not fit.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.copy(0, bytes);
        self.publish(bytes.len());
    }

    /// Copies `head`, `body` and then `zeros` zero bytes behind those already there and publishes
    /// them together. The head is copied last: whoever finds it in a mapped file after the process
    /// was killed finds the body too.
    ///
    /// # Panics
    /// When they do not fit.
    pub(crate) fn write_frame(&mut self, head: &[u8], body: &[u8], zeros: usize) {
        const ZEROS: [u8; 8] = [0; 8];
        self.copy(head.len(), body);
        self.copy(head.len() + body.len(), &ZEROS[..zeros]);
        std::sync::atomic::fence(Ordering::Release);
        self.copy(0, head);
        self.publish(head.len() + body.len() + zeros);
    }

    /// Copies `bytes` to `ahead` bytes behind what is published.
    fn copy(&mut self, ahead: usize, bytes: &[u8]) {
        let room = self.room();
        assert!(ahead + bytes.len() <= room, "{ahead} + {} bytes into {room}", bytes.len());
        // SAFETY: source and target are valid for `bytes.len()` bytes, checked above; the target
        // lies at or above the published mark, which only this pen (held `&mut`) touches, so it
        // overlaps no slice handed out, the source included.
        unsafe {
            let target = self.chunk.memory.as_ptr().add(self.filled + ahead);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    fn publish(&mut self, bytes: usize) {
        self.filled += bytes;
        self.chunk.published.store(self.filled, Ordering::Release);
        if let Some((mapping, at)) = &self.chunk.mapping {
            mapping.set_written(at + self.filled);
        }
    }
}

/// One block of aligned memory of a thread's own, for the last, partly filled block of a write.
#[repr(align(4096))]
pub(crate) struct Block(pub(crate) [u8; ALIGN]);

#[cfg(test)]
mod tests {
    use super::*;

    /// Small enough for Miri: readers check every byte below the mark while the pen moves it.
    #[test]
    fn readers_see_only_finished_bytes() {
        let mut pen = Pen::new();
        let chunk = Arc::clone(pen.chunk());
        let reader = std::thread::spawn(move || {
            loop {
                let published = chunk.published.load(Ordering::Acquire);
                assert!(chunk.bytes(0..published).iter().all(|byte| *byte == 7));
                if published >= 256 {
                    return chunk.share(128..256);
                }
                std::thread::yield_now();
            }
        });
        for _ in 0..32 {
            pen.write(&[7; 8]);
        }
        assert_eq!(reader.join().unwrap(), vec![7; 128]);
    }

    #[test]
    fn a_chunk_is_reused_only_when_nobody_reads_it() {
        let mut pen = Pen::new();
        pen.write(b"held");
        let held = pen.chunk().share(0..4);
        let Pen { chunk, .. } = pen;
        assert!(Pen::reuse(Arc::clone(&chunk)).is_none());
        assert_eq!(held, "held");
        drop(held);
        let mut pen = Pen::reuse(chunk).unwrap();
        pen.write(b"next");
        assert_eq!(pen.chunk().bytes(0..4), b"next");
    }

    #[test]
    #[should_panic(expected = "not within")]
    fn unpublished_bytes_cannot_be_had() {
        let _ = Pen::new().chunk().bytes(0..1);
    }
}
