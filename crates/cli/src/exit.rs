//! Exit codes, which are a promise to scripts, and failures, which are messages to people. Owns the
//! conversion of each kind of error into the two; every command returns `Result<Exit, Failure>`.

use std::io;
use std::process::ExitCode;

use crate::config::ConfigError;

/// What the process tells its parent. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The request was refused or failed, and did not happen.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// `verify` or `inspect` found damage.
    Damaged = 3,
    /// No server answers at the address.
    Unreachable = 4,
    /// Some records may or may not have been written (law CERTAIN).
    Uncertain = 5,
}

/// The table of exit codes as `thetis --help` shows it.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done
  1  refused or failed; it did not happen
  2  wrong command line or configuration
  3  damage found in a data directory
  4  no server answers at the address
  5  uncertain: records may or may not have been written";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// A command that did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure with a message: lower case, no full stop, values named.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Writes the message to stderr and gives the exit code. Without a message nothing is written:
    /// a reader that closed our stdout knows what it did.
    pub(crate) fn report(self) -> Exit {
        for line in self.message.lines() {
            eprintln!("thetis: {line}");
        }
        if let Some(hint) = self.hint {
            eprintln!("  hint: {hint}");
        }
        self.exit
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(Exit::Usage, error.to_string())
    }
}

/// Errors of our own stdout. A closed pipe (`thetis consume t | head`) is a reader that has enough.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::new(Exit::Done, "");
        }
        Failure::new(Exit::Failed, format!("could not write to stdout: {error}"))
    }
}
