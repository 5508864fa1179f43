//! A server as a process: start, wait for `ready`, stop by signal, start again on the same
//! directory and port, keep its log, always reap it.
//!
//! Which server is decided by the environment:
//! - `THETIS_E2E_BINARY`: a program that is called as `PROGRAM serve --data DIR --kafka ADDRESS` and
//!   prints `ready` on a line of standard output. Default: the release binary of this workspace.
//! - `THETIS_E2E_BOOTSTRAP`: the address of a broker that somebody else runs. It can be neither
//!   killed nor restarted; what needs that is skipped with a plain message.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

use crate::say;

/// How long a server may take until it prints `ready`: a JVM on a busy two-core machine is slow.
const READY_WAIT: Duration = Duration::from_secs(90);
/// Lines of the server's log that a failing test prints.
const LOG_LINES_SHOWN: usize = 60;

/// How to end a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// SIGTERM: it may finish what it does.
    Term,
    /// SIGKILL: it may not.
    Kill,
}

/// A running server, or one that runs elsewhere. Dropping it kills and reaps the process.
#[derive(Debug)]
pub struct Server {
    address: String,
    /// Where it listens for text clients, if it does.
    text: Option<String>,
    /// Further flags of `serve`.
    flags: Vec<String>,
    /// Nothing for an external broker.
    home: Option<TempDir>,
    child: Option<Child>,
}

impl Server {
    /// The server under test on an empty directory, or the external broker.
    #[must_use]
    pub fn start() -> Server {
        if let Ok(address) = std::env::var("THETIS_E2E_BOOTSTRAP") {
            return Server { address, text: None, flags: Vec::new(), home: None, child: None };
        }
        Server::start_at(free_address(), None, Vec::new())
    }

    /// Like `start_ours`, with a listener for text clients.
    #[must_use]
    pub fn start_with_text(test: &str) -> Option<Server> {
        Server::start_with_text_and(test, &[])
    }

    /// Like `start_with_text`, with further flags of `serve`.
    #[must_use]
    pub fn start_with_text_and(test: &str, flags: &[String]) -> Option<Server> {
        if std::env::var_os("THETIS_E2E_BOOTSTRAP").is_some() {
            say(&format!("SKIPPED {test}: an external broker has no text listener"));
            return None;
        }
        Some(Server::start_at(free_address(), Some(free_address()), flags.to_vec()))
    }

    fn start_at(address: String, text: Option<String>, flags: Vec<String>) -> Server {
        let home = tempfile::Builder::new().prefix("thetis-e2e-").tempdir();
        let home = home.expect("a temporary directory can be made");
        let mut server = Server { address, text, flags, home: Some(home), child: None };
        server.launch();
        server
    }

    /// Like `start`, for tests that make no sense without a kill: `None`, with a message, when the
    /// broker is external.
    #[must_use]
    pub fn start_ours(test: &str) -> Option<Server> {
        if std::env::var_os("THETIS_E2E_BOOTSTRAP").is_some() {
            say(&format!("SKIPPED {test}: an external broker cannot be killed"));
            return None;
        }
        Some(Server::start())
    }

    /// `host:port` for clients.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.address
    }

    /// `host:port` for text clients.
    ///
    /// # Panics
    /// When the server was started without.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.as_deref().expect("the server was started with a text listener")
    }

    /// The data directory; `None` for an external broker.
    #[must_use]
    pub fn data(&self) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.path().join("data"))
    }

    /// Ends the server and starts it again on the same directory and port. With an external broker it says
    /// that this part was skipped, and the test goes on without it.
    pub fn restart(&mut self, stop: Stop) {
        if self.home.is_none() {
            say(&format!("SKIPPED a restart ({stop:?}): an external broker cannot be restarted"));
            return;
        }
        self.stop(stop);
        self.launch();
    }

    /// Ends the server and waits until it is gone.
    ///
    /// # Panics
    /// When the server was not running any more: it died by itself, which is a failure.
    pub fn stop(&mut self, stop: Stop) {
        let mut child = self.child.take().expect("only a running server can be stopped");
        if let Some(status) = child.try_wait().expect("the server's state can be asked") {
            panic!("the server died by itself: {status}\n{}", self.log());
        }
        signal(&mut child, stop);
        let status = child.wait().expect("a child can be waited for");
        if stop == Stop::Term {
            assert_ended_in_order(status, &self.log());
        }
    }

    /// Starts a stopped server again.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "the server still runs");
        self.launch();
    }

    /// All that the server wrote to standard error and output so far, over all of its starts.
    #[must_use]
    pub fn log(&self) -> String {
        self.home.as_ref().map_or_else(String::new, |home| {
            std::fs::read_to_string(home.path().join("log")).unwrap_or_default()
        })
    }

    fn launch(&mut self) {
        let home = self.home.as_ref().expect("an external broker is never started");
        let log = open_log(&home.path().join("log"));
        let mut command = serve(&home.path().join("data"), &self.address);
        if let Some(text) = &self.text {
            command.arg("--text").arg(text);
        }
        command.args(&self.flags);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(log.try_clone().expect("a file handle can be cloned"))
            .spawn()
            .expect("the server's program can be started");
        let ready = await_ready(&mut child, log);
        self.child = Some(child);
        assert!(ready, "the server did not print `ready`:\n{}", tail(&self.log()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Already ended is as good as killed.
            let _ignored = child.kill();
            let _ignored = child.wait();
        }
        if std::thread::panicking() && self.home.is_some() {
            say(&format!("the server's log ends with:\n{}", tail(&self.log())));
        }
    }
}

/// The command line of a server on `data`, listening on `address`.
#[must_use]
pub fn serve(data: &Path, address: &str) -> Command {
    let mut command = Command::new(program());
    command.arg("serve").arg("--data").arg(data).arg("--kafka").arg(address).stdin(Stdio::null());
    // Neither our own variables nor settings of the developer's shell are meant for this server.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("THETIS_") {
            command.env_remove(name);
        }
    }
    command
}

/// A loopback address with a port that is free now.
#[must_use]
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the kernel has a free port");
    listener.local_addr().expect("a bound socket has an address").to_string()
}

/// The program under test.
#[must_use]
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("THETIS_E2E_BINARY") {
        return path.into();
    }
    // The test runs from `<target>/<profile>/deps`.
    let mut path = std::env::current_exe().expect("a process knows its own path");
    for _ in 0..3 {
        path.pop();
    }
    path.push("release/thetis");
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask test`, or first `cargo build --release -p thetis-cli`",
        path.display()
    );
    path
}

fn open_log(path: &Path) -> File {
    File::options().create(true).append(true).open(path).expect("the log can be opened")
}

/// Copies the server's standard output to its log, and tells whether `ready` came in time.
fn await_ready(child: &mut Child, mut log: File) -> bool {
    let stdout = child.stdout.take().expect("standard output is piped");
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.trim() == "ready" {
                // Nobody listens any more after a timeout.
                let _ignored = sender.send(());
            }
            use std::io::Write as _;
            let _ignored = writeln!(log, "{line}");
        }
    });
    receiver.recv_timeout(READY_WAIT).is_ok()
}

fn signal(child: &mut Child, stop: Stop) {
    match stop {
        Stop::Kill => child.kill().expect("a running child can be killed"),
        Stop::Term => {
            let status = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status();
            assert!(status.expect("kill can be run").success(), "SIGTERM could not be sent");
        }
    }
}

/// SIGTERM ends a server with success, or, where a runtime reports the signal in the shell's
/// manner, with 143.
fn assert_ended_in_order(status: ExitStatus, log: &str) {
    assert!(
        status.success() || status.code() == Some(143),
        "SIGTERM must end the server in order, not with {status}:\n{}",
        tail(log)
    );
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}
