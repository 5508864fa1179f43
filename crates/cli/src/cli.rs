//! The command tree. Owns the names of commands and what is global; each command's arguments stand
//! with the command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, SettingFlags, explain};
use crate::exit::{self, Exit, Failure};
use crate::{consume, inspect, output, produce, repl, serve, topic, verify, version};

/// One durable stream store under several protocols.
#[derive(Parser, Debug)]
#[command(name = "thetis", version, after_help = exit::HELP, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Configuration file [env: THETIS_CONFIG] [default: thetis.toml, if there is one].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a node until SIGTERM or SIGINT; `ready` on stdout when it accepts clients.
    Serve(serve::ServeArgs),
    /// Create, list, describe and delete topics.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Write records from stdin or a file to a topic.
    Produce(produce::ProduceArgs),
    /// Print the records of a topic.
    Consume(consume::ConsumeArgs),
    /// Speak the text protocol with a node, typed or piped.
    Repl(repl::ReplArgs),
    /// Show the files and frames of a data directory's journal.
    Inspect(inspect::InspectArgs),
    /// Read every byte of a data directory's journal and report damage and gaps.
    Verify(verify::VerifyArgs),
    /// Say how the node is, or would be, configured.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say what this binary is.
    Version(version::VersionArgs),
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Show each setting with its value, where it came from, its unit and its meaning.
    ///
    /// The output is itself a configuration file: `thetis config explain > thetis.toml`.
    Explain(ExplainArgs),
}

#[derive(Args, Debug)]
struct ExplainArgs {
    /// Print one line of JSON for each setting.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let file = self.config.as_deref();
        match &self.command {
            Command::Serve(args) => serve::run(file, args),
            Command::Topic(command) => topic::run(file, command),
            Command::Produce(args) => produce::run(file, args),
            Command::Consume(args) => consume::run(file, args),
            Command::Repl(args) => repl::run(file, args),
            Command::Inspect(args) => inspect::run(file, args),
            Command::Verify(args) => verify::run(file, args),
            Command::Config(ConfigCommand::Explain(args)) => {
                let config = Config::load(file, &args.settings)?;
                if args.json {
                    output::json(explain::rows(&config))?;
                } else {
                    output::text(&explain::toml(&config))?;
                }
                Ok(Exit::Done)
            }
            Command::Version(args) => version::run(args),
        }
    }
}
