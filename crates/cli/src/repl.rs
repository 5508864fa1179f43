//! `thetis repl`: commands of the text protocol, typed, piped or one as arguments. Owns the loop, the
//! completion and the exit codes; the protocol's requests and replies are `thetis_text::client`'s.

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
use thetis_text::client::{Client, Error, Refusal};
use thetis_text::command::COMMANDS;
use thetis_types::Outcome;

use crate::config::value::{Address, Listen, Value};
use crate::config::{Config, SettingFlags};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::tls::TlsArgs;
use line::Typed;

/// Lines of history that are kept.
const HISTORY_LINES_MAX: usize = 1_000;

/// Arguments of `thetis repl`.
#[derive(Args, Debug)]
#[command(after_help = "\
With a command as arguments it does that and ends: `thetis repl put orders one order`, `thetis repl
get orders`. Without, it reads one command a line, typed or piped. `help` lists the commands; they may
be written in lower case. `append TOPIC [expect=..] [session=..] TEXT` needs no length: the text is the
rest of the line. But for the prompt, the first ERR ends with exit code 1, or 5 if it is ERR uncertain.")]
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
    /// One command and its arguments, instead of lines; everything from here on is its own.
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Runs until the input ends, `quit`, or an error.
pub(crate) fn run(config: Option<&Path>, args: &ReplArgs) -> Result<Exit, Failure> {
    let address = match &args.addr {
        Some(address) => address.clone(),
        None => configured(config)?,
    };
    let client = open(&address, args)?;
    if !args.command.is_empty() {
        let lines = std::iter::once(Ok(args.command.join(" ")));
        return lines_of(lines, client, args);
    }
    if io::stdin().is_terminal() {
        interactive(&address, client, args)
    } else {
        lines_of(io::stdin().lock().lines(), client, args)
    }
}

/// Connects and says the token.
fn open(address: &Address, args: &ReplArgs) -> Result<Client, Failure> {
    let tls = args.tls.load()?;
    let mut client =
        Client::connect(&address.host, address.port, tls.as_ref()).map_err(|error| {
            let is_refusal = matches!(error, Error::Refused(_));
            let failure = Failure::from(error);
            match is_refusal {
                true => failure.hint("name the authority of its certificate: --tls-ca FILE"),
                false => failure,
            }
        })?;
    if let Some(path) = &args.token_file {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::new(Exit::Usage, format!("could not read {}: {error}", path.display()))
        })?;
        client.authenticate(text.lines().next().unwrap_or_default().trim())?;
    }
    Ok(client)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match (&error, error.outcome()) {
            (Error::Unreachable { .. }, _) => Exit::Unreachable,
            (Error::Unsent { .. }, _) => Exit::Usage,
            (_, outcome) => exit_of(outcome),
        };
        let failure = Failure::new(exit, error.to_string());
        match exit {
            Exit::Uncertain => failure.hint("the last command may or may not have been done"),
            _ => failure,
        }
    }
}

/// What a command ends with that was refused or broke off.
fn exit_of(outcome: Outcome) -> Exit {
    match outcome {
        Outcome::MayHaveCommitted => Exit::Uncertain,
        Outcome::NotCommitted | Outcome::Committed => Exit::Failed,
    }
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

/// One command a line until the lines end.
fn lines_of(
    lines: impl Iterator<Item = io::Result<String>>,
    mut client: Client,
    args: &ReplArgs,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    for line in lines {
        let line = line.map_err(|error| {
            Failure::new(Exit::Failed, format!("could not read stdin: {error}"))
        })?;
        match line::read(&line) {
            Typed::Nothing => {}
            Typed::Quit => break,
            Typed::Help => output::text(&line::help())?,
            Typed::Request(request) => {
                if let Some(refusal) = answer(&mut client, &request, args.json)? {
                    // Once something is uncertain, all is.
                    if exit != Exit::Uncertain {
                        exit = exit_of(refusal.outcome());
                    }
                    if !args.keep_going {
                        break;
                    }
                }
            }
        }
    }
    Ok(exit)
}

/// Asks and prints all there is to print; tells of a refusal.
fn answer(client: &mut Client, request: &[u8], is_json: bool) -> Result<Option<Refusal>, Failure> {
    let mut is_following = request.starts_with(b"FOLLOW");
    let mut reply = client.ask(request)?;
    loop {
        output::text(&show::reply(request, &reply, is_json))?;
        let refusal = Refusal::of(&reply);
        is_following &= refusal.is_none() && !reply.starts_with(b"END");
        if !is_following {
            return Ok(refusal);
        }
        reply = client.receive()?;
    }
}

/// The names of topics, as far as they can be told.
fn topics(client: &mut Client) -> Result<Vec<String>, Failure> {
    match client.topics() {
        Err(Error::Refused(_)) => Ok(Vec::new()),
        told => Ok(told?),
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
    editor.set_helper(Some(Words { topics: topics(&mut client)? }));
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
                                editor.set_helper(Some(Words { topics: topics(&mut client)? }));
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
