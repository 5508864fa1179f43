//! Durability levels, weakest first.

use std::fmt;
use std::str::FromStr;

/// What an acknowledged record survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Durability {
    /// Nothing: the record is in this process's memory.
    Memory,
    /// The end of the process: the record was handed to the operating system.
    Os,
    /// Loss of power: the record was flushed to the device.
    #[default]
    Disk,
}

impl Durability {
    /// All levels, weakest first.
    pub const ALL: [Durability; 3] = [Durability::Memory, Durability::Os, Durability::Disk];

    /// The name in configurations and receipts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Os => "os",
            Durability::Disk => "disk",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Durability {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Durability::ALL
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| format!("unknown durability {text:?}; use disk, os or memory"))
    }
}
