//! Ways in which one Walrus node is known to lose what it acknowledged, under the same stimulus: see
//! docs/design/from-walrus.md. What needs several nodes is not here.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use thetis_e2e::reproduce;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::Connection;
use thetis_text::wire::{REQUEST_BYTES_MAX_FIRST, frame};

use crate::text::Client;

/// How long an answer may take on a busy machine.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// There, an entry under a name that its engine refuses leaves a hole, and all topics whose entries
/// lie behind it are empty after a restart.
#[test]
fn a_refused_name_loses_no_other_topic() {
    const TEST: &str = "text_losses::a_refused_name_loses_no_other_topic";
    reproduce(TEST);
    let Some(mut server) = Server::start_with_text(TEST) else { return };
    let mut client = Client::connect(&server);
    let long = "n".repeat(300);
    let refused = client.ask(&format!("REGISTER {long}"));
    assert!(refused.starts_with("ERR invalid"), "{refused}");
    assert_eq!(client.ask(&format!("PUT {long} x")), format!("ERR unknown topic {long}"));
    for topic in 0..9 {
        assert_eq!(client.ask(&format!("REGISTER t{topic}")), "OK");
        for number in 0..5 {
            assert_eq!(client.ask(&format!("PUT t{topic} {number}")), "OK");
        }
    }
    server.restart(Stop::Kill);
    let mut client = Client::connect(&server);
    for topic in 0..9 {
        for number in 0..5 {
            assert_eq!(client.ask(&format!("GET t{topic}")), format!("OK {number}"));
        }
        assert_eq!(client.ask(&format!("GET t{topic}")), "EMPTY");
    }
}

/// There, the first restart loses messages, the second is fatal, the third comes up empty; and 5 000
/// pieces of metadata make each restart fatal.
#[test]
fn any_number_of_restarts_and_of_metadata_loses_nothing() {
    const TEST: &str = "text_losses::any_number_of_restarts_and_of_metadata_loses_nothing";
    reproduce(TEST);
    let Some(mut server) = Server::start_with_text(TEST) else { return };
    let mut connection = Connection::open(server.bootstrap()).expect("the server listens");
    connection.create_topic("many", 5_200, &[]);
    let mut put = 0;
    let mut got = 0;
    for stop in [Stop::Term, Stop::Kill, Stop::Term, Stop::Kill] {
        let mut client = Client::connect(&server);
        assert_eq!(client.ask("REGISTER t"), "OK");
        for _ in 0..15 {
            assert_eq!(client.ask(&format!("PUT t m{put}")), "OK");
            put += 1;
        }
        server.restart(stop);
        let mut client = Client::connect(&server);
        // Half of them, so that each restart has some behind it and some before.
        for _ in 0..7 {
            assert_eq!(client.ask("GET t"), format!("OK m{got}"));
            got += 1;
        }
        // So that a kill gives none of these again: they are behind the orderly stop.
        server.restart(Stop::Term);
    }
    let mut client = Client::connect(&server);
    while got < put {
        assert_eq!(client.ask("GET t"), format!("OK m{got}"));
        got += 1;
    }
    assert_eq!(client.ask("GET t"), "EMPTY");
    let mut connection = Connection::open(server.bootstrap()).expect("the server listens");
    assert!(connection.topic_id("many").is_some());
}

/// There, 16 writers lose 105 of 919 messages to the consumer, and 48 lose 482 of 1 545.
#[test]
fn what_many_put_at_once_is_got_once() {
    const TEST: &str = "text_losses::what_many_put_at_once_is_got_once";
    const WRITERS: usize = 48;
    const EACH: usize = 30;
    reproduce(TEST);
    let Some(server) = Server::start_with_text(TEST) else { return };
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("REGISTER t"), "OK");
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let mut client = Client::connect(&server);
            scope.spawn(move || {
                for number in 0..EACH {
                    assert_eq!(client.ask(&format!("PUT t {writer} {number}")), "OK");
                }
            });
        }
    });
    let mut next = [0; WRITERS];
    for _ in 0..WRITERS * EACH {
        let reply = client.ask("GET t");
        let record = reply.strip_prefix("OK ").expect("there are more");
        let (writer, number) = record.split_once(' ').expect("a writer and a number");
        let writer: usize = writer.parse().expect("a number");
        assert_eq!(number.parse(), Ok(next[writer]), "writer {writer}");
        next[writer] += 1;
    }
    assert_eq!(client.ask("GET t"), "EMPTY");
}

/// There, the body of a frame that is too long is taken for frames, and so for commands.
#[test]
fn a_frame_that_is_too_long_smuggles_no_command() {
    const TEST: &str = "text_losses::a_frame_that_is_too_long_smuggles_no_command";
    reproduce(TEST);
    let Some(server) = Server::start_with_text(TEST) else { return };
    let mut socket = TcpStream::connect(server.text()).expect("the server listens");
    socket.set_read_timeout(Some(ANSWER_WAIT)).expect("a socket takes a timeout");
    let mut ask = |body: &[u8], answer: &[u8]| {
        socket.write_all(&frame(body)).expect("the connection holds");
        let mut found = vec![0; frame(answer).len()];
        socket.read_exact(&mut found).expect("there is an answer");
        assert_eq!(found, frame(answer));
    };
    ask(b"REGISTER t", b"OK");
    let body = frame(b"PUT t smuggled").repeat(4_000);
    assert!(body.len() > REQUEST_BYTES_MAX_FIRST);
    ask(&body, b"ERR invalid frame length");
    ask(b"GET t", b"EMPTY");
    ask(b"PUT t said", b"OK");
    ask(b"GET t", b"OK said");
    ask(b"GET t", b"EMPTY");
}
