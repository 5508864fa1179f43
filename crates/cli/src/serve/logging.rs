//! Log lines, as text or JSON, on stderr or in a file. Owns no wording, and no rotation: the file is
//! never opened again.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::settings::Settings;
use crate::config::value::{LogFormat, LogLevel};
use crate::exit::{Exit, Failure};

/// Starts logging for the rest of the process.
pub(super) fn start(settings: &Settings) -> Result<(), Failure> {
    let level = match settings.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let (writer, has_colours) = match &settings.log_file.0 {
        Some(path) => (BoxMakeWriter::new(Arc::new(open(path)?)), false),
        None => (BoxMakeWriter::new(io::stderr), io::IsTerminal::is_terminal(&io::stderr())),
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(writer);
    match settings.log_format {
        LogFormat::Text => lines.with_ansi(has_colours).init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(())
}

/// Opens the file to append to; lines of earlier starts stay.
fn open(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
        let at = path.display();
        let failure = Failure::new(Exit::Usage, format!("log.file {at}: {error}"));
        match error.kind() {
            io::ErrorKind::NotFound => failure.hint("its directory is not there; make it first"),
            _ => failure.hint("name another with --log-file FILE"),
        }
    })
}
