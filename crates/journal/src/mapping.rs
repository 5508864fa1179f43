//! A file of the journal as memory: what is copied there is with the operating system at once, so
//! it survives the process without a call and without a wake-up.
//!
//! Owns the mapping and hands it out window by window, each once. Who writes into a window and who
//! may read it is `chunk`'s to say. Why appends go this way: `docs/design/journal-io.md`.
//!
//! SUBTLE: a page of a file that was cut off, or that the device cannot give back, ends the process
//! with SIGBUS when it is touched. Hence a file is never cut below its frames while it is mapped,
//! its space is allocated before, and every page is made present before an append gets there.
#![expect(unsafe_code, reason = "memory of the operating system, mapped and unmapped by hand")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};

/// Alignment of memory of our own, as pages have it.
const ALIGN: usize = 4096;
/// Bytes made present in one call, so that it does not hold the address space for long.
const POPULATE_STEP: usize = 1 << 20;
/// Bytes synced in one call.
///
/// PERF: 45 MiB in one call keep other syncs waiting for 35 ms, among them those of the next file,
/// and appends wait for that.
const SYNC_STEP: usize = 4 << 20;

/// The first bytes of a file, as memory.
pub struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
    /// Where the next window begins.
    next: AtomicUsize,
    /// Bytes from the beginning that are written and never change again.
    written: AtomicUsize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Pages of a file.
    File,
    /// Memory that only plays a file.
    Heap,
}

// SAFETY: the memory is valid until the drop and is touched only through windows, each handed out
// once, whose holder keeps the rules of `chunk`, and through `written_bytes`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`, which has them, and makes every page present and
    /// writable.
    ///
    /// # Errors
    /// Of the kernel, one that does not know how to make pages present included.
    pub(crate) fn of_file(file: &fs::File, bytes: usize) -> io::Result<Mapping> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let memory = unsafe { rustix::mm::mmap(null, bytes, prot, MapFlags::SHARED, file, 0) }?;
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::InvalidInput)?;
        let mapping = Mapping::new(memory, bytes, Kind::File);
        let mut at = 0;
        while at < bytes {
            let now = (bytes - at).min(POPULATE_STEP);
            // SAFETY: the range lies in the mapping made above; the advice changes no bytes.
            unsafe { rustix::mm::madvise(mapping.place(at), now, Advice::LinuxPopulateWrite) }?;
            at += now;
        }
        Ok(mapping)
    }

    /// Memory that plays a file whose contents are `contents`, for simulation.
    pub(crate) fn playing(contents: &[u8]) -> Mapping {
        let layout = layout(contents.len());
        // SAFETY: the layout has a size above zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        // SAFETY: both are valid for the length of `contents`, and the target is new.
        unsafe {
            std::ptr::copy_nonoverlapping(contents.as_ptr(), memory.as_ptr(), contents.len());
        }
        Mapping::new(memory, contents.len(), Kind::Heap)
    }

    fn new(memory: NonNull<u8>, bytes: usize, kind: Kind) -> Mapping {
        let (next, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Mapping { memory, bytes, next, written, kind }
    }

    /// The next window of at most `bytes` bytes: its memory, the byte of the file it begins at,
    /// and its length. `None` behind the last. No byte is ever in two windows.
    pub(crate) fn next_window(&self, bytes: usize) -> Option<(NonNull<u8>, usize, usize)> {
        let at = self.next.fetch_add(bytes, Ordering::Relaxed);
        let left = self.bytes.checked_sub(at).filter(|left| *left > 0)?;
        // SAFETY: `at` lies inside the mapping.
        let memory = unsafe { self.memory.add(at) };
        Some((memory, at, left.min(bytes)))
    }

    /// Notes that the first `bytes` bytes are written and stay as they are.
    pub(crate) fn set_written(&self, bytes: usize) {
        self.written.store(bytes, Ordering::Release);
    }

    /// The bytes from `from` on that are written and never change again.
    pub(crate) fn written_from(&self, from: usize) -> &[u8] {
        let written = self.written.load(Ordering::Acquire).min(self.bytes);
        let from = from.min(written);
        // SAFETY: inside the mapping, and below the mark, so nobody writes there any more.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(from), written - from) }
    }

    /// Makes the pages that hold `range` durable.
    ///
    /// PERF: the kernel protects each mapped page it writes, and tells every processor so, one
    /// interrupt a page: a third of all time at 600 MB/s. Pages no longer mapped need none, and
    /// whole pages behind the end are read at most; so they are let go of first, all in one.
    ///
    /// # Errors
    /// Of the device; then nothing in the range may be taken for durable.
    pub(crate) fn sync(&self, range: Range<usize>) -> io::Result<()> {
        if self.kind == Kind::Heap {
            return Ok(());
        }
        let page = |at: usize| at - at % ALIGN;
        let from = page(range.start);
        let whole = page(range.end);
        let until = range.end.next_multiple_of(ALIGN).min(self.bytes);
        if from < whole {
            // SAFETY: inside the mapping of a file, whose pages keep their bytes in the page cache
            // and come back when they are touched.
            unsafe { rustix::mm::madvise(self.place(from), whole - from, Advice::LinuxDontNeed) }?;
        }
        for at in (from..until).step_by(SYNC_STEP) {
            let now = (until - at).min(SYNC_STEP);
            // SAFETY: inside the mapping; syncing changes no bytes.
            unsafe { rustix::mm::msync(self.place(at), now, MsyncFlags::SYNC) }?;
        }
        Ok(())
    }

    fn place(&self, at: usize) -> *mut std::ffi::c_void {
        assert!(at < self.bytes, "byte {at} of {}", self.bytes);
        // SAFETY: inside the mapping.
        unsafe { self.memory.as_ptr().add(at) }.cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.kind {
            // SAFETY: mapped in `of_file` with this length; windows keep the mapping alive.
            Kind::File => {
                let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.bytes) };
            }
            // SAFETY: allocated in `playing` with this layout.
            Kind::Heap => unsafe { dealloc(self.memory.as_ptr(), layout(self.bytes)) },
        }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(ALIGN), ALIGN).expect("a file fits the address space")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::chunk::Pen;

    /// Small enough for Miri: one thread writes through windows, another reads what is written.
    #[test]
    fn what_is_written_through_windows_is_read_below_the_mark() {
        let mapping = Arc::new(Mapping::playing(&[0; 3 * ALIGN]));
        let reader = Arc::clone(&mapping);
        let reader = std::thread::spawn(move || {
            let mut seen = 0;
            while seen < 96 {
                let fresh = reader.written_from(seen);
                assert!(fresh.iter().all(|byte| *byte == 5));
                seen += fresh.len();
                std::thread::yield_now();
            }
        });
        let mut pen = Pen::on(&mapping, 0).unwrap();
        for _ in 0..4 {
            pen.write_frame(&[5; 8], &[5; 16], 0);
        }
        reader.join().unwrap();
        assert_eq!(pen.chunk().bytes(0..96), [5; 96]);
        // The window keeps the memory when nobody else does.
        drop(mapping);
        assert_eq!(pen.chunk().share(8..32), vec![5; 24]);
    }

    #[test]
    fn no_byte_is_in_two_windows() {
        let mapping = Mapping::playing(&[1; ALIGN + 8]);
        let windows: Vec<_> = std::iter::from_fn(|| mapping.next_window(ALIGN)).collect();
        let places: Vec<_> = windows.iter().map(|(_, at, bytes)| (*at, *bytes)).collect();
        assert_eq!(places, [(0, ALIGN), (ALIGN, 8)]);
        mapping.set_written(ALIGN + 8);
        assert_eq!(mapping.written_from(ALIGN), [1; 8]);
    }
}
