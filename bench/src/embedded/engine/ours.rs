//! Our library, as an application uses it.

use std::path::Path;

use anyhow::Result;
use thetis::{Durability, Offset, Options, Stream, Thetis};
use thetis_bench::work::engine::{Engine, Level, Pending, stream_name};

/// Defaults throughout, but for the level.
pub(super) struct Ours {
    thetis: Thetis,
    streams: Vec<Stream>,
}

impl Ours {
    pub(super) fn open(dir: &Path, level: Level, streams: usize) -> Result<Ours> {
        let durability = match level {
            Level::Disk => Durability::Disk,
            Level::Os => Durability::Os,
            Level::Memory => Durability::Memory,
        };
        let (thetis, _) = Thetis::open_with(dir, Options { durability, ..Options::default() })?;
        let streams = (0..streams).map(|stream| thetis.stream(&stream_name(stream)));
        let streams = streams.collect::<Result<_, _>>()?;
        Ok(Ours { thetis, streams })
    }
}

impl Engine for Ours {
    fn append(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.streams[stream].append(record)?;
        Ok(())
    }

    fn append_batch(&self, stream: usize, records: &[&[u8]]) -> Result<()> {
        self.streams[stream].append_batch(records)?;
        Ok(())
    }

    fn start(&self, stream: usize, record: &[u8]) -> Result<Pending<'_>> {
        let appending = self.streams[stream].start_append(record)?;
        Ok(Box::new(move || {
            appending.wait()?;
            Ok(())
        }))
    }

    fn keep_newest(&self, stream: usize, records: u64) -> Result<u64> {
        let stream = &self.streams[stream];
        let start = Offset(stream.end().0.saturating_sub(records));
        let start = stream.trim(start)?;
        self.thetis.reclaim()?;
        Ok(start.0)
    }

    fn read(&self, stream: usize, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let stream = &self.streams[stream];
        for record in stream.read(stream.start())? {
            see(&record?.value)?;
        }
        Ok(())
    }

    fn follow(
        &self,
        stream: usize,
        count: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let stream = &self.streams[stream];
        let mut follow = stream.follow(stream.start())?;
        for _ in 0..count {
            if let Some(record) = follow.next() {
                see(&record?.value)?;
            }
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.thetis.close()?)
    }
}
