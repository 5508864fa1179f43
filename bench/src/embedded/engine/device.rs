//! The plainest program that writes the same bytes: one file for each stream, one positioned write for
//! each append and, at `disk`, one flush. It keeps no lengths and no checksums and finds nothing again
//! after a crash; it is the floor, not a peer.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Result, bail};

use super::{Engine, Level, stream_name};

/// Bytes written before the measurement where blocks are to be there already.
const PREWRITTEN_BYTES: u64 = 64 << 20;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Files, each with a lock so that a stream has one writer at a time.
pub(super) struct Device {
    files: Vec<Mutex<Appended>>,
    level: Level,
    record_bytes: usize,
    bytes_max: u64,
}

struct Appended {
    file: File,
    bytes: u64,
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
                let zeros = vec![0; READ_BYTES];
                for at in (0..PREWRITTEN_BYTES).step_by(READ_BYTES) {
                    file.write_all_at(&zeros, at)?;
                }
            }
            file.sync_all()?;
            files.push(Mutex::new(Appended { file, bytes: 0 }));
        }
        File::open(dir)?.sync_all()?;
        let bytes_max = if prewritten { PREWRITTEN_BYTES } else { u64::MAX };
        Ok(Device { files, level, record_bytes, bytes_max })
    }

    fn write(&self, stream: usize, bytes: &[u8]) -> Result<()> {
        let mut end = self.files[stream].lock().unwrap_or_else(PoisonError::into_inner);
        if end.bytes + bytes.len() as u64 > self.bytes_max {
            bail!("the prewritten {} bytes are used up; measure for less long", self.bytes_max);
        }
        end.file.write_all_at(bytes, end.bytes)?;
        if self.level == Level::Disk {
            end.file.sync_data()?;
        }
        end.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Shows the records from `from` to what is there now; returns where it stopped.
    fn read_from(
        &self,
        stream: usize,
        from: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let (file, end) = {
            let end = self.files[stream].lock().unwrap_or_else(PoisonError::into_inner);
            (end.file.try_clone()?, end.bytes)
        };
        let whole = (READ_BYTES / self.record_bytes).max(1) * self.record_bytes;
        let mut buffer = vec![0; whole];
        let mut at = from;
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

impl Engine for Device {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.write(stream, record)
    }

    fn append_batch(&self, stream: usize, records: &[&[u8]]) -> Result<()> {
        self.write(stream, &records.concat())
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
