//! Appending: a request is checked, gets room in the active file, and is copied there. Also the
//! frames the journal writes on its own account.
//!
//! Locks in this order: the stream's index, then the writer. What makes the bytes safe is `flush`.

use std::sync::Arc;

use parking_lot::MutexGuard;
use thetis_types::{Durability, Head, Offset, StreamId, limits};

use crate::error::{AppendError, FlushError};
use crate::files::JournalFile;
use crate::format::frame::{FrameHeader, HEADER, Kind};
use crate::index::{Index, push_entry};
use crate::journal::{Append, Log, Position, Shared};
use crate::writer::{Next, Writer, frames_bytes_max, has_room};

/// Bytes a trim mark takes at most.
const TRIM_BYTES_MAX: u64 = (2 * HEADER) as u64;

/// Windows of mapped files that wait to be let go of before the sealer is woken for them.
const EVICTED_WAKE: usize = 8;

impl Shared {
    /// Makes room for frames of at most `bytes`: rolls over to the prepared file when the active
    /// one is full, and waits for it to be prepared. The only place where an append waits.
    pub(crate) fn reserve(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        bytes: u64,
    ) -> Result<(), AppendError> {
        let mut asked = false;
        loop {
            if let Some(reason) = &writer.poisoned {
                return Err(AppendError::Poisoned { reason: Arc::clone(reason) });
            }
            if writer.closed {
                return Err(AppendError::Closed);
            }
            if writer.fits(bytes) && !writer.has_better(bytes) {
                return Ok(());
            }
            match std::mem::replace(&mut writer.next, Next::Idle) {
                Next::Ready(file) => {
                    if has_room(&file, bytes) {
                        self.files.write().insert(file.header.sequence, Arc::clone(&file));
                        writer.install(file);
                        writer.next = Next::Wanted(0);
                        self.seal.notify_one();
                    } else {
                        writer.unwanted.push(file);
                        writer.next = Next::Wanted(bytes);
                    }
                    self.prepare.notify_one();
                    continue;
                }
                // A failure from before this call may be past: try once on its behalf.
                Next::Failed { full: true, reason } if asked => {
                    return Err(AppendError::Full { reason });
                }
                Next::Failed { reason, .. } if asked => {
                    return Err(AppendError::NoFile { reason });
                }
                Next::Failed { .. } | Next::Idle => writer.next = Next::Wanted(bytes),
                Next::Wanted(already) => writer.next = Next::Wanted(already.max(bytes)),
            }
            asked = true;
            if self.marks.used().is_none() {
                // Nobody waited for anything yet; whatever the file is made for will do.
                self.marks.ask(Durability::Memory);
            }
            self.prepare.notify_one();
            self.prepared.wait(writer);
        }
    }

    /// Appends a copy of an entry on behalf of a file that is evacuated. The copy is kept apart in
    /// `index.moving` until it is durable.
    pub(crate) fn append_copy(
        &self,
        index: &mut Index,
        header: &mut FrameHeader,
        payload: &[u8],
    ) -> Result<Position, AppendError> {
        let mut writer = self.writer.lock();
        self.reserve(&mut writer, frames_bytes_max([payload.len() as u64].into_iter()))?;
        let at = writer.put(header, payload);
        let file = writer.active_file();
        touch(index, &file, header.stream);
        push_entry(&mut index.moving, &file, header, at);
        Ok(self.appended(&writer))
    }

    /// Appends a mark that offsets below `before` are dead. Returns the file it stands in.
    pub(crate) fn append_trim(
        &self,
        stream: StreamId,
        before: Offset,
    ) -> Result<(u64, Position), AppendError> {
        let mut writer = self.writer.lock();
        self.reserve(&mut writer, TRIM_BYTES_MAX)?;
        let file = writer.put_trim(stream, before);
        Ok((file, self.appended(&writer)))
    }

    /// Ends an append: what was copied is there for all to see. Returns the position behind it.
    fn appended(&self, writer: &Writer) -> Position {
        writer.publish();
        if writer.evicted.len() >= EVICTED_WAKE {
            self.seal.notify_one();
        }
        self.wake_ticker(writer);
        Position(writer.end)
    }

    fn wake_ticker(&self, writer: &Writer) {
        if writer.ticker_idle || !writer.closing.is_empty() {
            self.tick.notify_one();
        }
    }
}

/// Notes that the stream has frames in the file, for the footer. Under the lock of the writer: the
/// file cannot be sealed meanwhile.
fn touch(index: &mut Index, file: &JournalFile, stream: StreamId) {
    if index.touched != Some(file.header.sequence) {
        index.touched = Some(file.header.sequence);
        file.touched.lock().push(stream);
    }
}

impl Log {
    /// The stream.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream.id
    }

    /// Copies the entries into the write buffer, one after the other in one file. Returns the
    /// position to wait for. No I/O, unless a file is full and its successor is not ready, or more
    /// than `tail_cache_bytes` wait for the operating system.
    ///
    /// Appends of one stream are the caller's to serialise; different streams append at once.
    ///
    /// # Errors
    /// [`AppendError`]; nothing was appended.
    pub fn append(&self, entries: &[Append<'_>]) -> Result<Position, AppendError> {
        let shared = &*self.journal.shared;
        let bytes = self.admit(entries)?;
        // Checksums are the costly part and need no lock.
        let crc = |append: &Append<'_>| crc32c::crc32c(&append.entry.payload);
        let (one, many);
        let crcs: &[u32] = match entries {
            [only] => {
                one = [crc(only)];
                &one
            }
            _ => {
                many = entries.iter().map(crc).collect::<Vec<_>>();
                &many
            }
        };
        loop {
            let mut index = self.stream.index.lock();
            let jump = self.check_order(&index, entries)?;
            let mut writer = shared.writer.lock();
            if writer.backlog() > shared.options.tail_cache_bytes {
                let end = Position(writer.end);
                drop((writer, index));
                self.journal.wait(end, Durability::Os).map_err(|error| match error {
                    FlushError::Poisoned { reason } => AppendError::Poisoned { reason },
                    FlushError::Closed => AppendError::Closed,
                })?;
                continue;
            }
            let mark = if jump.is_some() { TRIM_BYTES_MAX } else { 0 };
            shared.reserve(&mut writer, bytes + mark)?;
            if let Some(before) = jump {
                writer.put_trim(self.stream.id, before);
            }
            return Ok(self.put(&mut index, &mut writer, entries, crcs));
        }
    }

    fn put(
        &self,
        index: &mut Index,
        writer: &mut Writer,
        entries: &[Append<'_>],
        crcs: &[u32],
    ) -> Position {
        let mut stream_bytes = index.head.map_or(0, |head| head.bytes);
        let file = writer.active_file();
        touch(index, &file, self.stream.id);
        for (append, crc) in entries.iter().zip(crcs) {
            let payload = &append.entry.payload;
            stream_bytes += payload.len() as u64;
            let mut header = FrameHeader {
                kind: Kind::Entry,
                format: Some(append.entry.format),
                stream: self.stream.id,
                epoch: append.epoch,
                record_count: append.entry.record_count,
                version: append.version,
                base_offset: append.base_offset,
                max_timestamp: append.entry.max_timestamp,
                attempt: append.attempt,
                payload_bytes: u32::try_from(payload.len()).expect("admitted below 2^30"),
                payload_crc: *crc,
                durable: 0,
                stream_bytes,
            };
            let at = writer.put(&mut header, payload);
            index.append(&file, &header, at);
        }
        self.journal.shared.appended(writer)
    }

    /// Checks the request by itself; returns the bytes its frames take at most.
    fn admit(&self, entries: &[Append<'_>]) -> Result<u64, AppendError> {
        let stream = self.stream.id;
        let invalid = |why| Err(AppendError::Invalid { stream, why });
        if entries.is_empty() || entries.len() > limits::APPEND_ENTRIES_MAX {
            return invalid("an append has between 1 and 65536 entries");
        }
        let mut bytes = 0_u64;
        for append in entries {
            let count = append.entry.record_count;
            if count == 0 || count > limits::ENTRY_RECORDS_MAX {
                return invalid("an entry covers between 1 and 2^31 - 1 offsets");
            }
            let end = append.base_offset.0.checked_add(u64::from(count));
            if end.is_none_or(|end| end > limits::OFFSET_MAX) {
                return invalid("the stream's offsets are used up");
            }
            bytes = bytes.saturating_add(append.entry.payload.len() as u64);
        }
        let max = limits::ENTRY_BYTES_MAX as u64;
        if bytes > max {
            return Err(AppendError::TooLarge { stream, bytes, max });
        }
        Ok(frames_bytes_max(entries.iter().map(|append| append.entry.payload.len() as u64)))
    }

    /// INVARIANT(DENSE): within a stream, offsets and versions go on where they ended; the footer's
    /// rows rely on it. One exception: when everything the journal holds is dead by the owner's
    /// word, and more (the rest was lost, or never here), the stream goes on where the dead offsets
    /// end, with any version above. Returns that offset; a trim mark says so to the next open.
    fn check_order(
        &self,
        index: &Index,
        entries: &[Append<'_>],
    ) -> Result<Option<Offset>, AppendError> {
        let mut next = index.head.map(|head| (head.end, head.version.next()));
        let jump = index.jump();
        if let (Some((end, version)), Some(before), [first, ..]) = (&mut next, jump, entries) {
            (*end, *version) = (before, first.version.max(*version));
        }
        for append in entries {
            let (end, version) = next.unwrap_or((append.base_offset, append.version));
            if append.base_offset != end || append.version != version {
                return Err(AppendError::OutOfOrder {
                    stream: self.stream.id,
                    offset: append.base_offset,
                    version: append.version,
                    end,
                    next: version,
                });
            }
            let count = u64::from(append.entry.record_count);
            next = Some((append.base_offset.plus(count), append.version.next()));
        }
        Ok(jump)
    }

    /// The head as the journal knows it: of everything appended, durable or not.
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        self.stream.index.lock().head
    }

    /// The owner's word, already durable elsewhere, that offsets below `before` are dead. Frees
    /// nothing by itself; see [`crate::Journal::reclaim`]. Never goes back.
    ///
    /// `before` may lie above the end: records of a weak durability were lost, the word about them
    /// was not. Then the next append begins at `before`, with any version above the head's.
    pub fn trim(&self, before: Offset) {
        let mut index = self.stream.index.lock();
        index.trim = index.trim.max(before);
    }

    /// The owner's word, already durable elsewhere, that the stream is deleted. The id is never
    /// used again.
    pub fn discard(&self) {
        self.stream.index.lock().discarded = true;
    }
}
