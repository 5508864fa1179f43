//! Client programs as processes: their command line is printed, their lines are read one by one,
//! and what they wrote is shown when they fail. What they check is theirs.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::Value;

use crate::{repository, say};

/// How long a client program may be silent. The programs have shorter limits of their own, with
/// better messages; this one is for a program that hangs.
const SILENCE_MAX: Duration = Duration::from_secs(180);

/// A running client program. Dropping it kills and reaps the process.
#[derive(Debug)]
pub struct Driver {
    command: String,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    stderr: File,
}

impl Driver {
    /// A program of `clients/python` in the environment that `cargo xtask test` made.
    #[must_use]
    pub fn python(script: &str, arguments: &[&str]) -> Driver {
        let python = tool("python/bin/python", "THETIS_E2E_PYTHON");
        let mut command = Command::new(python);
        command.arg("-u").arg(repository().join("tests/clients/python").join(script));
        Driver::spawn(command.args(arguments))
    }

    /// A program of `clients/js`, with the modules that `npm ci` put beside it.
    #[must_use]
    pub fn node(script: &str, arguments: &[&str]) -> Driver {
        let directory = repository().join("tests/clients/js");
        assert!(
            directory.join("node_modules").is_dir(),
            "kafkajs is missing: run `cargo xtask test`, or `npm ci` in {}",
            directory.display()
        );
        let mut command = Command::new("node");
        command.arg(directory.join(script)).env("KAFKAJS_NO_PARTITIONER_WARNING", "1");
        Driver::spawn(command.args(arguments))
    }

    /// Starts any program, with pipes for its standard input and output.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn spawn(command: &mut Command) -> Driver {
        let shown = format!("{command:?}");
        say(&format!("  $ {shown}"));
        let stderr = tempfile::tempfile().expect("a temporary file can be made");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().expect("a file handle can be cloned"))
            .spawn()
            .unwrap_or_else(|error| panic!("{shown} could not be started: {error}"));
        let stdout = child.stdout.take().expect("standard output is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Driver { command: shown, child, lines, seen: Vec::new(), stderr }
    }

    /// Writes one line to the program.
    pub fn send(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("standard input is piped");
        let sent = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        if let Err(error) = sent {
            self.fail(&format!("did not take the line {line:?}: {error}"));
        }
    }

    /// Waits for the next line, whatever it is; `None` at the end of the output.
    pub fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.fail("was silent for too long"),
        }
    }

    /// A line that has already come, without waiting.
    pub fn ready_line(&mut self) -> Option<String> {
        let line = self.lines.try_recv().ok()?;
        self.seen.push(line.clone());
        Some(line)
    }

    /// Waits for a line that begins with `word`, passing over others, and gives what follows the word.
    ///
    /// # Panics
    /// When the program ends first.
    pub fn await_word(&mut self, word: &str) -> String {
        loop {
            match self.next_line() {
                Some(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return rest.trim().to_owned();
                    }
                }
                None => self.fail(&format!("ended before it said {word:?}")),
            }
        }
    }

    /// Waits for the end of the program and gives all lines it printed.
    ///
    /// # Panics
    /// When it ended with a failure.
    pub fn finish(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        while self.next_line().is_some() {}
        let status = self.child.wait().expect("a child can be waited for");
        if !status.success() {
            self.fail(&format!("ended with {status}"));
        }
        std::mem::take(&mut self.seen)
    }

    /// Like `finish`; each line must be JSON.
    pub fn finish_json(self) -> Vec<Value> {
        let lines = self.finish();
        let parse = |line: &String| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
        };
        lines.iter().map(parse).collect()
    }

    /// Ends the program by SIGKILL: a member that vanishes without leaving.
    pub fn kill(mut self) {
        self.child.kill().expect("a running child can be killed");
    }

    fn fail(&mut self, what: &str) -> ! {
        let mut stderr = String::new();
        // What cannot be read of the complaint is left out of it.
        let _ignored = self.stderr.rewind();
        let _ignored = self.stderr.read_to_string(&mut stderr);
        let last = self.seen[self.seen.len().saturating_sub(30)..].join("\n");
        panic!("{} {what}\n--- its output\n{last}\n--- its errors\n{stderr}", self.command);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Already ended is as good as killed.
        let _ignored = self.child.kill();
        let _ignored = self.child.wait();
    }
}

/// A program under `.tools`, where `cargo xtask test` installs what the tests need.
fn tool(path: &str, variable: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let path = repository().join(".tools").join(path);
    assert!(path.exists(), "{} is missing: run `cargo xtask test`", path.display());
    path
}
