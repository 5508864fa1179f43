//! What is measured: our library and its rivals behind one small face. Streams are numbered; an append
//! that returned is safe at the level the engine was opened with.

mod device;
mod ours;
mod walrus;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use walrus::{DIR_ENV as WALRUS_DIR_ENV, QUIET_ENV as WALRUS_QUIET_ENV};

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Name {
    /// The library `thetis`.
    Thetis,
    /// The plainest program: append to a file; at `disk`, flush after each.
    Device,
    /// The same into a file whose blocks were written before, which a flush need not allocate.
    DevicePrewritten,
    /// The Walrus engine, writing by system calls: its default.
    Walrus,
    /// The Walrus engine, writing to mapped files.
    WalrusMmap,
}

impl Name {
    /// As printed.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Name::Thetis => "thetis",
            Name::Device => "device",
            Name::DevicePrewritten => "device-prewritten",
            Name::Walrus => "walrus",
            Name::WalrusMmap => "walrus-mmap",
        }
    }
}

/// The levels at which engines are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// An append that returned survives loss of power.
    Disk,
    /// An append that returned survives the end of the process.
    Os,
}

impl Level {
    /// As printed.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Level::Disk => "disk",
            Level::Os => "os",
        }
    }
}

/// An engine at work.
pub(crate) trait Engine: Sync {
    /// Appends a record to a stream and waits until it is safe.
    fn append(&self, stream: usize, record: &[u8]) -> Result<()>;

    /// Appends records together and waits until they are safe.
    fn append_batch(&self, stream: usize, records: &[&[u8]]) -> Result<()>;

    /// Shows every record of a stream, in order.
    fn read(&self, stream: usize, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// Shows `count` records from the start of a stream as they come.
    fn follow(
        &self,
        stream: usize,
        count: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;

    /// Ends orderly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens an engine on an empty directory. `record_bytes` is the size of every record to come.
pub(crate) fn open(
    name: Name,
    dir: &Path,
    level: Level,
    streams: usize,
    record_bytes: usize,
) -> Result<Box<dyn Engine>> {
    Ok(match name {
        Name::Thetis => Box::new(ours::Ours::open(dir, level, streams)?),
        Name::Device => Box::new(device::Device::open(dir, level, streams, record_bytes, false)?),
        Name::DevicePrewritten => {
            Box::new(device::Device::open(dir, level, streams, record_bytes, true)?)
        }
        Name::Walrus => Box::new(walrus::Rival::open(level, streams, record_bytes, false)?),
        Name::WalrusMmap => Box::new(walrus::Rival::open(level, streams, record_bytes, true)?),
    })
}

/// What stream number `stream` is called.
fn stream_name(stream: usize) -> String {
    format!("stream-{stream}")
}
