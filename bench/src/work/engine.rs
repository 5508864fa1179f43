//! What is measured, behind one small face. Streams are numbered; an append that returned is safe at the
//! level the engine was opened with.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
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
    /// RocksDB's write-ahead log.
    Rocksdb,
    /// The log of TiKV's Raft groups.
    RaftEngine,
}

impl Name {
    /// As printed.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Name::Thetis => "thetis",
            Name::Device => "device",
            Name::DevicePrewritten => "device-prewritten",
            Name::Walrus => "walrus",
            Name::WalrusMmap => "walrus-mmap",
            Name::Rocksdb => "rocksdb",
            Name::RaftEngine => "raft-engine",
        }
    }
}

/// The levels at which engines are compared, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// An append that returned is in the memory of the process.
    Memory,
    /// An append that returned survives the end of the process.
    Os,
    /// An append that returned survives loss of power.
    Disk,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 3] = [Level::Memory, Level::Os, Level::Disk];

    /// As printed.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Level::Memory => "memory",
            Level::Os => "os",
            Level::Disk => "disk",
        }
    }
}

/// An append under way: waits until it is safe.
pub type Pending<'a> = Box<dyn FnOnce() -> Result<()> + 'a>;

/// An engine at work.
pub trait Engine: Sync {
    /// Appends a record to a stream and waits until it is safe.
    ///
    /// # Errors
    /// The engine's.
    fn append(&self, stream: usize, record: &[u8]) -> Result<()>;

    /// Appends records together and waits until they are safe.
    ///
    /// # Errors
    /// The engine's.
    fn append_batch(&self, stream: usize, records: &[&[u8]]) -> Result<()>;

    /// Appends a record without waiting.
    ///
    /// # Errors
    /// The engine's, or it has no such thing.
    fn start(&self, _stream: usize, _record: &[u8]) -> Result<Pending<'_>> {
        bail!("this engine has one append of a thread under way")
    }

    /// Gives back the space of all but about the newest `records`; returns how many are gone of the
    /// first ones.
    ///
    /// # Errors
    /// The engine's, or it has no such thing.
    fn keep_newest(&self, _stream: usize, _records: u64) -> Result<u64> {
        bail!("this engine keeps everything")
    }

    /// Shows every record of a stream, in order.
    ///
    /// # Errors
    /// The engine's, or what `see` says.
    fn read(&self, stream: usize, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// Shows `count` records from the start of a stream as they come.
    ///
    /// # Errors
    /// The engine's, or what `see` says.
    fn follow(
        &self,
        stream: usize,
        count: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;

    /// Ends orderly.
    ///
    /// # Errors
    /// The engine's.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What stream number `stream` is called.
#[must_use]
pub fn stream_name(stream: usize) -> String {
    format!("stream-{stream}")
}
