//! The text front: answers as its first clients know them, what a kill leaves, and the prompt when
//! it is piped. The protocol is docs/protocols/text.md.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use thetis_e2e::server::{Server, Stop, program};
use thetis_e2e::{repository, reproduce};
use thetis_text::client::Error;
use thetis_text::command::From;
use thetis_text::wire::frame;
use thetis_types::{Offset, Outcome};

/// A connection whose answers are text.
pub(crate) struct Client(thetis_text::client::Client);

impl Client {
    pub(crate) fn connect(server: &Server) -> Client {
        Client(connect(server).expect("the server listens"))
    }

    pub(crate) fn ask(&mut self, body: &str) -> String {
        let answer = self.0.ask(body.as_bytes()).expect("the connection holds");
        String::from_utf8(answer.into()).expect("the test's records are text")
    }
}

fn connect(server: &Server) -> Result<thetis_text::client::Client, Error> {
    let (host, port) = server.text().rsplit_once(':').expect("an address has a port");
    thetis_text::client::Client::connect(host, port.parse().expect("a port is a number"), None)
}

#[test]
fn answers_are_those_the_first_clients_know() {
    const TEST: &str = "text::answers_are_those_the_first_clients_know";
    reproduce(TEST);
    let Some(server) = Server::start_with_text(TEST) else { return };
    let script = repository().join("tests/clients/python/text_transcript.py");
    let output = Command::new("python3").arg(script).arg(server.text()).output();
    let output = output.expect("python3 is installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with("ok "), "{said}");
}

/// Without durable positions a kill would lose what was answered, or begin the queue again.
#[test]
fn what_was_answered_is_there_after_a_kill() {
    const TEST: &str = "text::what_was_answered_is_there_after_a_kill";
    reproduce(TEST);
    let Some(mut server) = Server::start_with_text(TEST) else { return };
    let mut written = 0;
    let mut acknowledged = 0;
    for round in 0..5 {
        let mut client = Client::connect(&server);
        assert_eq!(client.ask("REGISTER t"), "OK");
        // The position is where it was acknowledged last, exactly.
        assert_eq!(client.ask("CURSOR t c"), format!("OK {acknowledged}"));
        let all = client.ask("READ t 0 records=10000");
        let values: Vec<&str> =
            all.split_once('\n').map(|(_, v)| v.split(';')).into_iter().flatten().collect();
        let expected: Vec<String> = (0..written).map(|number| format!("m{number}")).collect();
        let found: Vec<&str> = values.into_iter().filter(|value| !value.is_empty()).collect();
        assert_eq!(found, expected, "round {round}");
        for _ in 0..40 {
            assert_eq!(client.ask(&format!("PUT t m{written};")), "OK");
            written += 1;
        }
        acknowledged += 17;
        assert_eq!(client.ask(&format!("ACK t c {acknowledged}")), format!("OK {acknowledged}"));
        server.restart(Stop::Kill);
    }
}

/// A kill may have GET give records again, and none may be passed over. An orderly stop gives none
/// again.
#[test]
fn the_queue_loses_nothing() {
    const TEST: &str = "text::the_queue_loses_nothing";
    reproduce(TEST);
    let Some(mut server) = Server::start_with_text(TEST) else { return };
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("REGISTER t"), "OK");
    for number in 0..100 {
        assert_eq!(client.ask(&format!("PUT t {number}")), "OK");
    }
    let mut next = 0;
    let mut take = |server: &Server, count: u32| {
        let mut client = Client::connect(server);
        for _ in 0..count {
            let reply = client.ask("GET t");
            let number: u32 =
                reply.strip_prefix("OK ").expect("there are more").parse().expect("a number");
            assert!(number <= next, "{} was passed over", next);
            next = next.max(number + 1);
        }
        next
    };
    take(&server, 30);
    server.restart(Stop::Kill);
    let taken = take(&server, 40);
    server.restart(Stop::Term);
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("GET t"), format!("OK {taken}"), "an orderly stop gives nothing again");
}

fn repl(server: &Server, arguments: &[&str], input: &str) -> Output {
    repl_at(server.text(), arguments, input)
}

fn repl_at(address: &str, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(program())
        .args(["repl", "--addr", address])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    // A program that has a command as arguments does not read.
    let _ignored = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("a child can be waited for")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_prompt_can_be_piped() {
    const TEST: &str = "text::the_prompt_can_be_piped";
    reproduce(TEST);
    let Some(mut server) = Server::start_with_text(TEST) else { return };
    let done =
        repl(&server, &[], "register t\n# a note\nput t one\nappend t two = 2\nREAD t 0\nget t\n");
    assert_eq!(said(&done), "OK\nOK\nOK 1 2 disk\n       0  one\n       1  two = 2\nOK one\n");
    assert_eq!(done.status.code(), Some(0));

    let stopped = repl(&server, &[], "get nowhere\nget t\n");
    assert_eq!(said(&stopped), "ERR unknown topic nowhere\n");
    assert_eq!(stopped.status.code(), Some(1));

    let went_on = repl(&server, &["--keep-going", "--json"], "get nowhere\nget t\nget t\n");
    let expected = concat!(
        "{\"status\":\"ERR\",\"value\":\"unknown topic nowhere\"}\n",
        "{\"status\":\"OK\",\"value\":\"two = 2\"}\n",
        "{\"status\":\"EMPTY\"}\n",
    );
    assert_eq!(said(&went_on), expected);
    assert_eq!(went_on.status.code(), Some(1));

    server.stop(Stop::Term);
    let unreachable = repl(&server, &[], "get t\n");
    assert_eq!(unreachable.status.code(), Some(4));
}

/// Each as a process of its own, as scripts for the Walrus node's program call it.
#[test]
fn a_command_can_be_given_as_arguments() {
    const TEST: &str = "text::a_command_can_be_given_as_arguments";
    reproduce(TEST);
    let Some(mut server) = Server::start_with_text(TEST) else { return };
    let done = |arguments: &[&str]| {
        // What stands on standard input is not looked at.
        let output = repl(&server, arguments, "put t never\n");
        (said(&output), output.status.code())
    };
    assert_eq!(done(&["register", "t"]), ("OK\n".to_owned(), Some(0)));
    assert_eq!(done(&["put", "t", "one  order", "--json", "-x"]), ("OK\n".to_owned(), Some(0)));
    assert_eq!(done(&["get", "t"]), ("OK one  order --json -x\n".to_owned(), Some(0)));
    assert_eq!(done(&["--json", "get", "t"]), ("{\"status\":\"EMPTY\"}\n".to_owned(), Some(0)));
    let (state, code) = done(&["state", "t"]);
    assert!(state.contains("\"end\": 1") && code == Some(0), "{state}");
    let (metrics, code) = done(&["metrics"]);
    assert!(metrics.contains("\"Leader\"") && code == Some(0), "{metrics}");
    let refused = ("ERR unknown topic nowhere\n".to_owned(), Some(1));
    assert_eq!(done(&["get", "nowhere"]), refused);
    server.stop(Stop::Term);
    let unreachable = repl(&server, &["get", "t"], "");
    assert_eq!(unreachable.status.code(), Some(4));
}

/// Exit code 1 would say that it did not happen.
#[test]
fn an_uncertain_answer_has_an_exit_code_of_its_own() {
    reproduce("text::an_uncertain_answer_has_an_exit_code_of_its_own");
    let listener = TcpListener::bind("127.0.0.1:0").expect("the kernel has a free port");
    let address = listener.local_addr().expect("a bound socket has an address").to_string();
    let server = thread::spawn(move || {
        let exchanges: [(&[u8], &[u8]); 3] = [
            (b"HELLO", b"OK thetis 2"),
            (b"PUT t x", b"ERR forward append failed: uncertain the disk failed"),
            (b"GET t", b"ERR unknown topic t"),
        ];
        let (mut socket, _) = listener.accept().expect("the program connects");
        for (request, answer) in exchanges {
            let mut found = vec![0; frame(request).len()];
            socket.read_exact(&mut found).expect("the program asks");
            assert_eq!(found, frame(request));
            socket.write_all(&frame(answer)).expect("the program listens");
        }
    });
    let output = repl_at(&address, &["--keep-going"], "put t x\nget t\n");
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    server.join().expect("the program says what was expected");
}

/// A program is told that it does not know, and finds out on a new connection.
#[test]
fn a_client_survives_a_kill_of_the_server() {
    const TEST: &str = "text::a_client_survives_a_kill_of_the_server";
    reproduce(TEST);
    let Some(mut server) = Server::start_with_text(TEST) else { return };
    let mut client = connect(&server).expect("the server listens");
    client.register("t", None).expect("there is none yet");
    let written = client.append("t", &["a", "b"]).expect("the topic is there");
    assert_eq!((written.start, written.end), (Offset(0), Offset(2)));
    server.stop(Stop::Kill);
    let broken = client.put("t", "c").expect_err("nobody answers");
    assert!(matches!(broken, Error::Broken(_)), "{broken}");
    assert_eq!(broken.outcome(), Outcome::MayHaveCommitted);
    assert!(matches!(client.put("t", "c"), Err(Error::Gone)));
    assert!(matches!(connect(&server), Err(Error::Unreachable { .. })));
    server.start_again();
    let mut client = connect(&server).expect("the server listens");
    let found = client.read("t", &From::Start, Duration::ZERO).expect("the topic is there");
    assert_eq!(found.expect("it has records").values, ["a", "b"]);
}
