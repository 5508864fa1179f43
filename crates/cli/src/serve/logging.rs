//! Log lines on stderr, as text or JSON. Owns no wording.

use std::io;

use tracing_subscriber::filter::LevelFilter;

use crate::config::settings::Settings;
use crate::config::value::{LogFormat, LogLevel};

/// Starts logging for the rest of the process.
pub(super) fn start(settings: &Settings) {
    let level = match settings.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
    match settings.log_format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => lines.json().init(),
    }
}
