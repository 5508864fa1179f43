//! The engines that this program brings: our library, the plain device and the Walrus engine.

mod device;
mod ours;
mod walrus;

use std::path::Path;

use anyhow::{Result, bail};
use thetis_bench::work::Work;
use thetis_bench::work::engine::{Engine, Name};

pub(crate) use walrus::{DIR_ENV as WALRUS_DIR_ENV, QUIET_ENV as WALRUS_QUIET_ENV};

/// Opens the engine of a work on an empty directory.
pub(crate) fn open(work: &Work, dir: &Path) -> Result<Box<dyn Engine>> {
    let (level, streams, bytes) = (work.level, work.streams(), work.record_bytes);
    Ok(match work.engine {
        Name::Thetis => Box::new(ours::Ours::open(dir, level, streams)?),
        Name::Device => Box::new(device::Device::open(dir, level, streams, bytes, false)?),
        Name::DevicePrewritten => Box::new(device::Device::open(dir, level, streams, bytes, true)?),
        Name::Walrus => Box::new(walrus::Rival::open(level, streams, bytes, false)?),
        Name::WalrusMmap => Box::new(walrus::Rival::open(level, streams, bytes, true)?),
        Name::Rocksdb | Name::RaftEngine => bail!("the program of the rivals does this"),
    })
}
