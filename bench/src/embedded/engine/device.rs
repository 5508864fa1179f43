//! The plainest program that writes the same bytes: one file for each stream, one positioned write for
//! each append and, at `disk`, one flush; at `memory`, a buffer that is written when it is full. It keeps
//! no lengths and no checksums and finds nothing again after a crash; it is the floor, not a peer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Result, bail};
use rustix::fs::{FallocateFlags, fallocate};
use thetis_bench::work::engine::{Engine, Level, Pending, stream_name};

/// Bytes written before the measurement where blocks are to be there already.
const PREWRITTEN_BYTES: u64 = 64 << 20;
/// Bytes read at once, and gathered at `memory` before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Files, each with a lock so that a stream has one writer at a time.
pub(super) struct Device {
    files: Vec<Mutex<Appended>>,
    level: Level,
    record_bytes: usize,
    bytes_max: u64,
}

struct Appended {
    file: File,
    /// What has no bytes any more.
    start: u64,
    /// Where what is written ends, and what is flushed.
    written: u64,
    flushed: u64,
    /// What is appended and not written.
    buffer: Vec<u8>,
}

impl Device {
    pub(super) fn open(
        dir: &Path,
        level: Level,
        streams: usize,
        record_bytes: usize,
        prewritten: bool,
    ) -> Result<Device> {
        fs::create_dir_all(dir)?;
        let mut files = Vec::new();
        for stream in 0..streams {
            let path = dir.join(stream_name(stream));
            let file = File::options().read(true).write(true).create_new(true).open(path)?;
            if prewritten {
                let zeros = vec![0; BUFFER_BYTES];
                for at in (0..PREWRITTEN_BYTES).step_by(BUFFER_BYTES) {
                    file.write_all_at(&zeros, at)?;
                }
            }
            file.sync_all()?;
            let appended = Appended { file, start: 0, written: 0, flushed: 0, buffer: Vec::new() };
            files.push(Mutex::new(appended));
        }
        File::open(dir)?.sync_all()?;
        let bytes_max = if prewritten { PREWRITTEN_BYTES } else { u64::MAX };
        Ok(Device { files, level, record_bytes, bytes_max })
    }

    fn file(&self, stream: usize) -> MutexGuard<'_, Appended> {
        self.files[stream].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append_bytes(&self, stream: usize, bytes: &[u8]) -> Result<()> {
        let mut file = self.file(stream);
        match self.level {
            Level::Memory => {
                file.buffer.extend_from_slice(bytes);
                if file.buffer.len() >= BUFFER_BYTES { file.write_buffer() } else { Ok(()) }
            }
            Level::Os => file.write(bytes, self.bytes_max),
            Level::Disk => {
                file.write(bytes, self.bytes_max)?;
                file.flush()
            }
        }
    }

    /// Shows the records from `from` to what is there now; returns where it stopped.
    fn read_from(
        &self,
        stream: usize,
        from: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let (file, start, end) = {
            let mut file = self.file(stream);
            file.write_buffer()?;
            (file.file.try_clone()?, file.start, file.written)
        };
        let whole = (BUFFER_BYTES / self.record_bytes).max(1) * self.record_bytes;
        let mut buffer = vec![0; whole];
        let mut at = from.max(start);
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let part = &mut buffer[..whole.min(left)];
            file.read_exact_at(part, at)?;
            for record in part.chunks(self.record_bytes) {
                see(record)?;
            }
            at += part.len() as u64;
        }
        Ok(at)
    }
}

impl Appended {
    fn write(&mut self, bytes: &[u8], bytes_max: u64) -> Result<()> {
        if self.written + bytes.len() as u64 > bytes_max {
            bail!("the prewritten {bytes_max} bytes are used up; measure for less long");
        }
        self.file.write_all_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        self.file.write_all_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.file.sync_data()?;
        self.flushed = self.written;
        Ok(())
    }
}

impl Engine for Device {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.append_bytes(stream, record)
    }

    fn append_batch(&self, stream: usize, records: &[&[u8]]) -> Result<()> {
        self.append_bytes(stream, &records.concat())
    }

    /// Written at once; one flush is for all that is written when the oldest is waited for.
    fn start(&self, stream: usize, record: &[u8]) -> Result<Pending<'_>> {
        if self.level != Level::Disk {
            self.append_bytes(stream, record)?;
            return Ok(Box::new(|| Ok(())));
        }
        let mut file = self.file(stream);
        file.write(record, self.bytes_max)?;
        let end = file.written;
        Ok(Box::new(move || {
            let mut file = self.file(stream);
            if file.flushed < end { file.flush() } else { Ok(()) }
        }))
    }

    fn keep_newest(&self, stream: usize, records: u64) -> Result<u64> {
        let mut file = self.file(stream);
        let bytes = records * self.record_bytes as u64;
        file.start = file.start.max(file.written.saturating_sub(bytes));
        let (start, appended) = (file.start, file.file.try_clone()?);
        // The writer goes on meanwhile.
        drop(file);
        if start > 0 {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&appended, hole, 0, start)?;
        }
        Ok(start / self.record_bytes as u64)
    }

    fn read(&self, stream: usize, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.read_from(stream, 0, see)?;
        Ok(())
    }

    fn follow(
        &self,
        stream: usize,
        count: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        while at < count * self.record_bytes as u64 {
            at = self.read_from(stream, at, see)?;
            thread::yield_now();
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(device: &Device) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        device
            .read(0, &mut |record| {
                records.push(record.to_vec());
                Ok(())
            })
            .unwrap();
        records
    }

    #[test]
    fn what_was_appended_is_read_at_every_level_and_by_every_way() {
        for level in Level::ALL {
            let dir = tempfile::tempdir().unwrap();
            let device = Device::open(dir.path(), level, 1, 2, false).unwrap();
            device.append(0, b"aa").unwrap();
            device.append_batch(0, &[b"bb", b"cc"]).unwrap();
            device.start(0, b"dd").unwrap()().unwrap();
            assert_eq!(records(&device), [b"aa", b"bb", b"cc", b"dd"], "{level:?}");
        }
    }

    #[test]
    fn what_is_given_back_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let device = Device::open(dir.path(), Level::Os, 1, 4096, false).unwrap();
        for byte in 0..4_u8 {
            device.append(0, &[byte; 4096]).unwrap();
        }
        assert_eq!(device.keep_newest(0, 3).unwrap(), 1);
        let left: Vec<u8> = records(&device).iter().map(|record| record[0]).collect();
        assert_eq!(left, [1, 2, 3]);
    }
}
