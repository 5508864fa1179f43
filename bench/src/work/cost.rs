//! What this process uses: memory and CPU time, as the kernel counts them.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads so far, in user and system mode.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Memory of this process, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// Now: pages of its own and pages of files that it maps.
    pub(super) resident: f64,
    /// The most that `resident` ever was.
    pub(super) resident_peak: f64,
    /// Of `resident`: pages of its own.
    pub(super) anonymous: f64,
}

impl Memory {
    /// As it is now.
    pub(super) fn now() -> Result<Memory> {
        Memory::parse(&fs::read_to_string("/proc/self/status")?)
    }

    fn parse(status: &str) -> Result<Memory> {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            Ok::<f64, anyhow::Error>(
                kib.with_context(|| format!("no {name} in the status"))? * 1024.0,
            )
        };
        Ok(Memory {
            resident: field("VmRSS:")?,
            resident_peak: field("VmHWM:")?,
            anonymous: field("RssAnon:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_kib() {
        let status = "Name:\tbench\nVmHWM:\t    20 kB\nVmRSS:\t    10 kB\nRssAnon:\t     4 kB\n";
        let memory = Memory::parse(status).unwrap();
        assert_eq!(memory.resident, 10.0 * 1024.0);
        assert_eq!(memory.resident_peak, 20.0 * 1024.0);
        assert_eq!(memory.anonymous, 4.0 * 1024.0);
        assert!(Memory::parse("VmRSS:\t1 kB").is_err());
        assert!(Memory::now().unwrap().resident > 0.0);
    }
}
