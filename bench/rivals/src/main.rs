//! `thetis-rivals work WORK DIR`: one work of one rival whose build is long, for the bench of the house,
//! which starts this program as it starts itself. Owns how these rivals are opened and called.

#[cfg(feature = "raft-engine")]
mod raft;
#[cfg(feature = "rocksdb")]
mod rocks;

use std::path::Path;

use anyhow::{Result, bail};
use thetis_bench::work::engine::{Engine, Name};
use thetis_bench::work::{self, Work};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [command, work, dir] if command == "work" => work::run(work, Path::new(dir), open),
        _ => bail!("this program is started by `cargo xtask bench embedded --rivals`"),
    }
}

fn open(work: &Work, dir: &Path) -> Result<Box<dyn Engine>> {
    match work.engine {
        #[cfg(feature = "raft-engine")]
        Name::RaftEngine => Ok(Box::new(raft::Rival::open(dir, work.level, work.streams())?)),
        #[cfg(feature = "rocksdb")]
        Name::Rocksdb => Ok(Box::new(rocks::Rival::open(dir, work.level, work.streams())?)),
        other => bail!("{} is not built into this program", other.text()),
    }
}
