//! The binary as its users meet it: help, messages, exit codes, configuration, and a node that
//! starts and stops. Every test runs the built binary in a directory of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const DONE: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const UNREACHABLE: i32 = 4;

/// The binary, in `directory`, with none of our variables from outside.
fn thetis(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thetis"));
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("THETIS_")) {
        command.env_remove(name);
    }
    command.current_dir(directory).args(args).stdin(Stdio::null());
    command
}

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("stdout is text"),
        stderr: String::from_utf8(output.stderr).expect("stderr is text"),
    }
}

fn run(args: &[&str]) -> Ran {
    let directory = tempfile::tempdir().expect("a temporary directory");
    ran(thetis(directory.path(), args).output().expect("the binary runs"))
}

/// An address at which nothing listens: the port was just free and is in nobody's hands.
fn silent_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound port").to_string()
}

#[test]
fn help_lists_every_command_and_every_exit_code() {
    let ran = run(&["--help"]);
    assert_eq!(ran.code, DONE);
    for command in ["serve", "topic", "produce", "consume", "inspect", "verify", "config"] {
        assert!(ran.stdout.contains(&format!("  {command} ")), "{command}: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("5  uncertain"), "{}", ran.stdout);
    assert_eq!(ran.stderr, "");
}

#[test]
fn every_setting_is_a_flag_of_serve() {
    let ran = run(&["serve", "--help"]);
    for flag in ["--data <path>", "--kafka <host:port>", "--durability <disk|os|memory>"] {
        assert!(ran.stdout.contains(flag), "{flag}: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("THETIS_DATA_DIR"), "{}", ran.stdout);
}

#[test]
fn version_is_text_or_json() {
    assert!(run(&["version"]).stdout.starts_with("thetis 0."));
    let json: serde_json::Value =
        serde_json::from_str(&run(&["version", "--json"]).stdout).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_misspelt_flag_or_command_names_the_right_one() {
    let ran = run(&["serve", "--kafak", "127.0.0.1:1"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (USAGE, ""));
    assert!(ran.stderr.contains("'--kafka'"), "{}", ran.stderr);
    let ran = run(&["topics", "list"]);
    assert_eq!(ran.code, USAGE);
    assert!(ran.stderr.contains("'topic'"), "{}", ran.stderr);
}

#[test]
fn a_wrong_configuration_is_refused_with_every_problem_and_its_place() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("thetis.toml"), "[kafka]\nlisen = \"x\"\n").unwrap();
    let mut command = thetis(directory.path(), &["serve", "--journal-file-bytes", "64Mb2"]);
    let ran = ran(command.env("THETIS_DURABILTY", "os").output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (USAGE, ""));
    assert_eq!(
        ran.stderr,
        "thetis: thetis.toml:2: unknown setting kafka.lisen; did you mean kafka.listen?\n\
         thetis: env THETIS_DURABILTY: unknown setting THETIS_DURABILTY; did you mean \
         THETIS_DURABILITY?\n\
         thetis: flag --journal-file-bytes: journal.file_bytes: \"64Mb2\" is not a size; write \
         bytes or a unit: 64MiB, 4KiB, 1048576\n"
    );
}

#[test]
fn explain_shows_origins_and_its_text_is_a_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("other.toml");
    std::fs::write(&file, "durability = \"os\"\n").unwrap();
    let args = ["--config", "other.toml", "config", "explain", "--topic-partitions", "7"];
    let text = ran(thetis(directory.path(), &args).output().unwrap()).stdout;
    assert!(text.contains("# other.toml:1\n"), "{text}");
    std::fs::write(&file, &text).unwrap();
    let args = ["--config", "other.toml", "config", "explain", "--json"];
    let json = ran(thetis(directory.path(), &args).output().unwrap()).stdout;
    let rows: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap();
    assert_eq!(row("topic.partitions")["value"], "7");
    assert_eq!(row("durability")["layer"], "file");
    assert_eq!(row("durability")["env"], "THETIS_DURABILITY");
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let ran = run(&["--config", "missing.toml", "config", "explain"]);
    assert_eq!(ran.code, USAGE);
    assert!(ran.stderr.contains("missing.toml") && ran.stderr.contains("--config"));
}

#[test]
fn a_server_that_is_not_there_is_named_with_how_to_start_one() {
    let address = silent_address();
    for args in [&["topic", "list"][..], &["consume", "t"], &["produce", "t"]] {
        let ran = run(&[args, &["--server", &address]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (UNREACHABLE, ""), "{}", ran.stderr);
        let line = format!("thetis: nothing answers at {address}: ");
        assert!(ran.stderr.starts_with(&line), "{}", ran.stderr);
        let hint = format!("hint: start a node with `thetis serve --kafka {address}`");
        assert!(ran.stderr.contains(&hint), "{}", ran.stderr);
    }
}

#[test]
fn something_else_that_listens_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        // Until the client hangs up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let ran = run(&["topic", "list", "--server", &address]);
    assert_eq!(ran.code, FAILED);
    assert!(ran.stderr.contains("does not speak the Kafka protocol"), "{}", ran.stderr);
    other.join().unwrap();
}

#[test]
fn bad_topic_names_and_places_are_refused_before_anything_is_asked() {
    let ran = run(&["topic", "create", "a b"]);
    assert_eq!(ran.code, USAGE);
    assert!(ran.stderr.contains("' ' is not allowed; use letters"), "{}", ran.stderr);
    let ran = run(&["consume", "t", "--from", "start"]);
    assert_eq!(ran.code, USAGE);
    assert!(ran.stderr.contains("write beginning, end"), "{}", ran.stderr);
}

/// A node that runs, killed when the test ends.
struct Node {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Node {
    fn start(directory: &Path, args: &[&str]) -> Node {
        let mut child = thetis(directory, &[&["serve", "--kafka", "127.0.0.1:0"], args].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Node { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("stdout is text");
        line
    }

    /// Sends a signal by its name and gives exit code, the rest of stdout and all of stderr.
    fn stop(mut self, signal: &str) -> (Option<i32>, String, String) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.expect("kill runs").success());
        let (mut rest, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest).expect("stdout is text");
        let errors = self.child.stderr.as_mut().expect("stderr is piped");
        errors.read_to_string(&mut stderr).expect("stderr is text");
        (self.child.wait().expect("the node ends").code(), rest, stderr)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_node_says_ready_and_stops_in_order_at_either_signal() {
    for signal in ["TERM", "INT"] {
        let directory = tempfile::tempdir().unwrap();
        let mut node = Node::start(directory.path(), &["--durability", "os"]);
        assert_eq!(node.line(), "ready\n");
        let (code, rest, stderr) = node.stop(signal);
        assert_eq!((code, rest.as_str()), (Some(DONE), ""), "{stderr}");
        assert!(stderr.contains("durability  os: "), "{stderr}");
        assert!(stderr.contains("kcat -P -b 127.0.0.1:"), "{stderr}");
        assert!(stderr.contains("stopped"), "{stderr}");
    }
}

#[test]
fn the_json_ready_line_names_the_address_that_was_bound() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::start(directory.path(), &["--json"]);
    let ready: serde_json::Value = serde_json::from_str(&node.line()).unwrap();
    assert_eq!(ready["ready"], true);
    let address = ready["kafka"].as_str().unwrap();
    assert!(!address.ends_with(":0"), "{address}");
    std::net::TcpStream::connect(address).unwrap();
}

#[test]
fn a_port_in_use_is_named_with_the_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = run(&["serve", "--kafka", &address]);
    assert_eq!((ran.code, ran.stdout.as_str()), (FAILED, ""));
    assert!(ran.stderr.contains(&format!("could not listen on {address}")), "{}", ran.stderr);
    assert!(ran.stderr.contains("--kafka HOST:PORT"), "{}", ran.stderr);
}
