//! Every way in which the Walrus engine is known to lose, repeat, invent or leak: one test for each,
//! named by what holds here, with the engine's probe and the stimulus in its first line. In the
//! order of docs/design/from-walrus.md, where they are listed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

use std::path::{Path, PathBuf};
use std::process::Command;

use thetis::walrus::{FsyncSchedule, ReadConsistency, Walrus, WalrusBuilder};

#[path = "walrus_losses/data.rs"]
mod data;
#[path = "walrus_losses/process.rs"]
mod process;
#[path = "walrus_losses/stored.rs"]
mod stored;

const MIB: usize = 1 << 20;

/// The variable that tells a test that it was run again, and in which directory.
const AGAIN: &str = "WALRUS_LOSSES_DIR";

/// The directory of a test that runs in a process of its own, there.
fn given() -> Option<PathBuf> {
    std::env::var_os(AGAIN).map(PathBuf::from)
}

/// `test` of this program, in a process of its own.
fn again(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its program"));
    command.args(["--exact", test, "--nocapture"]).env(AGAIN, dir);
    command
}

fn builder(dir: &Path) -> WalrusBuilder {
    Walrus::builder().data_dir(dir.into()).fsync_schedule(FsyncSchedule::NoFsync)
}

fn open(dir: &Path) -> Walrus {
    builder(dir).build().expect("the directory opens")
}

fn at_least_once(persist_every: u32) -> ReadConsistency {
    ReadConsistency::AtLeastOnce { persist_every }
}

fn drain(wal: &Walrus, topic: &str) -> Vec<Vec<u8>> {
    let next = || wal.read_next(topic, true).expect("the topic is read");
    std::iter::from_fn(|| next().map(|entry| entry.data)).collect()
}

/// Entry `n` of `bytes` bytes.
fn numbered(n: usize, bytes: usize) -> Vec<u8> {
    let mut entry = vec![b'.'; bytes];
    entry[..8].copy_from_slice(&(n as u64).to_le_bytes());
    entry
}

fn numbers(entries: &[Vec<u8>]) -> Vec<u64> {
    let number = |entry: &Vec<u8>| entry.first_chunk().copied().map(u64::from_le_bytes);
    entries.iter().map(|entry| number(entry).expect("numbered")).collect()
}
