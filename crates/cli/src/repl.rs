//! `thetis repl`: commands of the text protocol, typed or piped, one a line. Owns the loop, the
//! completion and the exit codes; the protocol's requests and replies are `repl/client.rs`'s.

mod client;
mod line;
mod show;

use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Context, Editor, Helper, Highlighter, Hinter, Validator};
use thetis_text::command::COMMANDS;

use crate::config::value::{Address, Listen, Value};
use crate::config::{Config, SettingFlags};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::socket::TlsArgs;
use client::Client;
use line::Typed;

/// Lines of history that are kept.
const HISTORY_LINES_MAX: usize = 1_000;

/// Arguments of `thetis repl`.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads one command a line, typed or piped. `help` lists the commands; they may be written in lower
case. `append TOPIC [expect=..] [session=..] TEXT` needs no length: the text is the rest of the line.
When piped, the first ERR ends with exit code 1.")]
pub(crate) struct ReplArgs {
    /// Text listener of a node [default: text.listen].
    #[arg(long, value_name = "HOST:PORT", value_parser = Address::parse)]
    addr: Option<Address>,
    /// Print each reply as a line of JSON.
    #[arg(long)]
    json: bool,
    /// When piped: go on after an ERR, and tell by the exit code at the end.
    #[arg(long)]
    keep_going: bool,
    /// File whose first line is said with AUTH before anything else.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Runs until the input ends, `quit`, or an error.
pub(crate) fn run(config: Option<&Path>, args: &ReplArgs) -> Result<Exit, Failure> {
    let address = match &args.addr {
        Some(address) => address.clone(),
        None => configured(config)?,
    };
    let client = open(&address, args)?;
    if io::stdin().is_terminal() {
        interactive(&address, client, args)
    } else {
        piped(client, args)
    }
}

/// Connects and says the token.
fn open(address: &Address, args: &ReplArgs) -> Result<Client, Failure> {
    let mut client = Client::connect(address, args.tls.load()?.as_ref())?;
    if let Some(path) = &args.token_file {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::new(Exit::Usage, format!("could not read {}: {error}", path.display()))
        })?;
        let token = text.lines().next().unwrap_or_default().trim();
        let reply = client.ask(format!("AUTH {token}").as_bytes())?;
        if reply.starts_with(b"ERR") {
            let reply = String::from_utf8_lossy(&reply).into_owned();
            return Err(Failure::new(Exit::Failed, format!("{address} answers: {reply}")));
        }
    }
    Ok(client)
}

/// The listener of this directory's configuration.
fn configured(config: Option<&Path>) -> Result<Address, Failure> {
    match Config::load(config, &SettingFlags::default())?.settings.text_listen {
        Listen::At(address) if address.is_unspecified() => {
            Ok(Address { host: "localhost".to_owned(), port: address.port })
        }
        Listen::At(address) => Ok(address),
        Listen::Off => Err(Failure::new(Exit::Usage, "text.listen is not set here")
            .hint("say where the node listens: --addr HOST:PORT")),
    }
}

/// One command a line until the input ends.
fn piped(mut client: Client, args: &ReplArgs) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| {
            Failure::new(Exit::Failed, format!("could not read stdin: {error}"))
        })?;
        match line::read(&line) {
            Typed::Nothing => {}
            Typed::Quit => break,
            Typed::Help => output::text(&line::help())?,
            Typed::Request(request) => {
                if !answer(&mut client, &request, args.json)? {
                    exit = Exit::Failed;
                    if !args.keep_going {
                        break;
                    }
                }
            }
        }
    }
    Ok(exit)
}

/// Asks and prints all there is to print; false when the answer is an error.
fn answer(client: &mut Client, request: &[u8], is_json: bool) -> Result<bool, Failure> {
    let mut is_following = request.starts_with(b"FOLLOW");
    let mut reply = client.ask(request)?;
    loop {
        output::text(&show::reply(request, &reply, is_json))?;
        let is_error = reply.starts_with(b"ERR");
        is_following &= !is_error && !reply.starts_with(b"END");
        if !is_following {
            return Ok(!is_error);
        }
        reply = client.receive()?;
    }
}

/// With history, completion and a prompt. A connection that broke is made again
/// for the next command.
fn interactive(address: &Address, client: Client, args: &ReplArgs) -> Result<Exit, Failure> {
    let config = rustyline::Config::builder().max_history_size(HISTORY_LINES_MAX);
    let config = config.map_err(failed)?.build();
    let mut editor: Editor<Words, DefaultHistory> = Editor::with_config(config).map_err(failed)?;
    let history = std::env::home_dir().map(|home| home.join(".thetis_history"));
    if let Some(history) = &history {
        // The first time there is none.
        let _ = editor.load_history(history);
    }
    let ended = prompt(address, client, args, &mut editor);
    if let Some(history) = &history {
        editor.append_history(history).map_err(failed)?;
    }
    ended
}

fn failed(error: ReadlineError) -> Failure {
    Failure::new(Exit::Failed, format!("terminal: {error}"))
}

/// Reads and answers lines until the user leaves.
fn prompt(
    address: &Address,
    mut client: Client,
    args: &ReplArgs,
    editor: &mut Editor<Words, DefaultHistory>,
) -> Result<Exit, Failure> {
    output::text(&format!("{address}; help lists the commands, Ctrl-D leaves\n"))?;
    editor.set_helper(Some(Words { topics: client.topics()? }));
    let mut connection = Some(client);
    loop {
        match editor.readline("thetis> ") {
            Ok(line) => {
                let typed = line::read(&line);
                // A token is nothing to keep.
                let is_token = matches!(&typed, Typed::Request(body) if body.starts_with(b"AUTH"));
                if typed != Typed::Nothing && !is_token {
                    editor.add_history_entry(line.as_str()).map_err(failed)?;
                }
                match typed {
                    Typed::Nothing => {}
                    Typed::Quit => break,
                    Typed::Help => output::text(&line::help())?,
                    Typed::Request(request) => {
                        let connected = match connection.take() {
                            Some(client) => Ok(client),
                            None => open(address, args),
                        };
                        let answered = connected.and_then(|mut client| {
                            answer(&mut client, &request, args.json)?;
                            if request.starts_with(b"REGISTER") || request.starts_with(b"DROP") {
                                editor.set_helper(Some(Words { topics: client.topics()? }));
                            }
                            Ok(client)
                        });
                        match answered {
                            Ok(client) => connection = Some(client),
                            Err(failure) => {
                                let _exit = failure.report();
                            }
                        }
                    }
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(Exit::Done)
}

/// What a line is completed with: commands first, then topics.
#[derive(Helper, Highlighter, Hinter, Validator)]
struct Words {
    topics: Vec<String>,
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..position];
        let start = typed.rfind(' ').map_or(0, |space| space + 1);
        let word = &typed[start..];
        let candidates = match typed[..start].split_whitespace().count() {
            0 => {
                let word = word.to_ascii_uppercase();
                let matching = COMMANDS.iter().filter(|spec| spec.word.starts_with(&word));
                matching.map(|spec| format!("{} ", spec.word)).collect()
            }
            1 => {
                let matching = self.topics.iter().filter(|topic| topic.starts_with(word));
                matching.map(|topic| format!("{topic} ")).collect()
            }
            _ => Vec::new(),
        };
        Ok((start, candidates))
    }
}
