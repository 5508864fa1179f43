//! Storage profiles: where a stream's bytes live and when its producer is answered.

use std::fmt;
use std::str::FromStr;

/// Storage profile of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Profile {
    /// Acknowledged when committed; nothing leaves the WAL.
    #[default]
    WalOnly,
}

impl Profile {
    /// The name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Profile::WalOnly => "WAL_ONLY",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "WAL_ONLY" => Ok(Profile::WalOnly),
            _ => Err(format!("profile {text:?} is not supported by this runtime; use WAL_ONLY")),
        }
    }
}
