//! `thetis serve`: configuration, node, banner, `ready`, orderly stop. Owns the order of these and
//! what is said; what a node consists of is in `serve/node.rs`.

mod banner;
mod logging;
mod node;
mod signals;

use std::path::Path;

use clap::Args;
use serde::Serialize;

use crate::config::settings::Settings;
use crate::config::{Config, SettingFlags};
use crate::exit::{Exit, Failure};
use crate::output;
use node::Node;
use signals::Signals;

/// Arguments of `thetis serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Prints the one line `ready` on stdout when every listener accepts; everything else goes to stderr,
log lines to log.file if it is set.
The first SIGTERM or SIGINT stops in order, a second one at once.")]
pub(crate) struct ServeArgs {
    /// Print the ready line as JSON, with the addresses that were bound.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

/// The ready line of `thetis serve --json`. Fields are only added.
#[derive(Serialize)]
struct Ready<'a> {
    ready: bool,
    kafka: String,
    advertised: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    durability: &'a str,
    io: &'a str,
    data: String,
}

/// Runs a node until it is told to stop.
pub(crate) fn run(file: Option<&Path>, args: &ServeArgs) -> Result<Exit, Failure> {
    let config = Config::load(file, &args.settings)?;
    logging::start(&config.settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("could not start threads: {error}")))?;
    runtime.block_on(serve(&config.settings, args.json))
}

async fn serve(settings: &Settings, json: bool) -> Result<Exit, Failure> {
    // Before anything else: a stop that arrives while the node starts is not lost.
    let mut signals = Signals::install()
        .map_err(|error| Failure::new(Exit::Failed, format!("could not watch signals: {error}")))?;
    let node = tokio::select! {
        node = Node::start(settings) => node?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped before the node was up");
            return Ok(Exit::Done);
        }
    };
    eprint!("{}", banner::text(settings, &node.facts));
    announce(settings, &node, json)?;

    let mut node = node;
    let failed = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "stopping; a second signal stops at once");
            None
        }
        failure = node.failed() => Some(failure),
    };
    tokio::select! {
        stopped = node.stop() => stopped?,
        signal = signals.next() => {
            return Err(Failure::new(Exit::Failed, format!("{signal} again: stopped at once"))
                .hint("nothing acknowledged is lost; the next start recovers the journal's tail"));
        }
    }
    match failed {
        Some(failure) => Err(failure),
        None => {
            tracing::info!("stopped");
            Ok(Exit::Done)
        }
    }
}

/// The one line on stdout that says clients are welcome.
fn announce(settings: &Settings, node: &Node, json: bool) -> Result<(), Failure> {
    if json {
        let facts = &node.facts;
        output::json([Ready {
            ready: true,
            kafka: facts.kafka.to_string(),
            advertised: facts.advertised.to_string(),
            text: facts.text.map(|at| at.to_string()),
            durability: settings.durability.name(),
            io: &facts.io_path,
            data: settings.data_dir.display().to_string(),
        }])?;
    } else {
        output::text("ready\n")?;
    }
    Ok(())
}
