//! Bytes that no client should send: each is refused or the connection is closed, and the server
//! goes on serving others as if nothing had been.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use thetis_e2e::driver::Driver;
use thetis_e2e::reproduce;
use thetis_e2e::seed::{Dice, process_seed, unique};
use thetis_e2e::server::Server;
use thetis_e2e::wire::batch::{self, Codec, Producer, Record};
use thetis_e2e::wire::codec::Writer;
use thetis_e2e::wire::requests::{LATEST, produce_body};
use thetis_e2e::wire::{ANSWER_WAIT, Connection, api, code, frame};

#[test]
fn garbage() {
    reproduce("bad_input::garbage");
    let server = Server::start();
    let mut dice = Dice::new(process_seed());
    for _ in 0..50 {
        // A positive length below a megabyte, so that the garbage is taken for a whole request.
        let size = usize::try_from(dice.between(8, 4096)).expect("it is small");
        let noise: Vec<u8> =
            std::iter::repeat_with(|| dice.next_u64().to_le_bytes()).flatten().take(size).collect();
        let mut framed = i32::try_from(size).expect("it is small").to_be_bytes().to_vec();
        framed.extend(noise);
        assert_closes(&server, &framed);
    }
    assert_closes(&server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_unharmed(&server);
}

#[test]
fn absurd_lengths() {
    reproduce("bad_input::absurd_lengths");
    let server = Server::start();
    for length in [i32::MAX, 1 << 30, -1, i32::MIN] {
        assert_closes(&server, &length.to_be_bytes());
    }
    // A sane frame whose array claims more elements than bytes remain.
    let mut body = Writer::new();
    body.string(None).i16(-1).i32(1000).i32(i32::MAX);
    assert_closes(&server, &frame(api::PRODUCE, 7, 1, &body));
    // And one whose records claim more bytes than remain.
    let mut body = Writer::new();
    body.string(None).i16(-1).i32(1000).count(1).string(Some("topic")).count(1).i32(0);
    body.i32(i32::MAX);
    assert_closes(&server, &frame(api::PRODUCE, 7, 1, &body));
    assert_unharmed(&server);
}

/// A request that is cut anywhere and then followed by nothing is not acted on.
#[test]
fn cut_requests() {
    reproduce("bad_input::cut_requests");
    let server = Server::start();
    let mut connection = open(&server);
    let topic = unique("cut");
    connection.create_topic(&topic, 1, &[]);
    let bytes = batch::encode(&[Record::new(1, b"value")], Codec::None, Producer::ANONYMOUS);
    let whole = frame(api::PRODUCE, 7, 1, &produce_body(&topic, 0, -1, &bytes));
    for cut in 1..whole.len() {
        let mut socket = TcpStream::connect(server.bootstrap()).expect("the server listens");
        socket.write_all(&whole[..cut]).expect("the bytes are sent");
        socket.shutdown(Shutdown::Write).expect("the socket is open");
        assert_eq!(rest_of(&mut socket), b"", "cut at {cut}");
    }
    assert_eq!(connection.list_offset(&topic, 0, LATEST).offset, 0);
    assert_unharmed(&server);
}

#[test]
fn unknown_api_and_version() {
    reproduce("bad_input::unknown_api_and_version");
    let server = Server::start();
    for (key, version) in [(999, 0), (-1, 0), (api::METADATA, 99), (api::PRODUCE, -1)] {
        assert_closes(&server, &frame(key, version, 1, &Writer::new()));
    }
    assert_unharmed(&server);
}

/// ApiVersions in a version that does not exist is answered in version 0, with the code and the
/// versions that do; the connection stays usable, so that the client can ask again.
#[test]
fn unknown_version_of_api_versions() {
    reproduce("bad_input::unknown_version_of_api_versions");
    let server = Server::start();
    let mut connection = open(&server);
    let mut answer = connection.api_versions(99).expect("it is answered");
    assert_eq!(answer.i16(), code::UNSUPPORTED_VERSION);
    let count = answer.count();
    let versions: Vec<(i16, i16, i16)> =
        (0..count).map(|_| (answer.i16(), answer.i16(), answer.i16())).collect();
    assert!(answer.is_empty(), "a version 0 body ends after its list");
    let own = versions.iter().find(|(key, _, _)| *key == api::API_VERSIONS);
    let (_, low, high) = *own.expect("ApiVersions itself is in the list");
    assert!(low == 0 && (3..99).contains(&high), "ApiVersions from {low} to {high}");
    for version in low..=high {
        let mut answer = connection.api_versions(version).expect("it is answered");
        assert_eq!(answer.i16(), code::NONE, "version {version}");
        let count = if version >= 3 { answer.compact_count() } else { answer.count() };
        assert!(count >= 20, "version {version} lists {count} APIs");
    }
}

/// A batch with a wrong checksum, a wrong length or a wrong count of records is refused and not
/// stored; the batches around it are.
#[test]
fn damaged_batches() {
    reproduce("bad_input::damaged_batches");
    let server = Server::start();
    let mut connection = open(&server);
    let topic = unique("damaged");
    connection.create_topic(&topic, 1, &[]);
    let records = [Record::new(1, b"first"), Record::new(1, b"second")];
    let good = batch::encode(&records, Codec::None, Producer::ANONYMOUS);
    let send = |connection: &mut Connection, bytes: &[u8]| {
        connection.produce(&topic, 0, bytes).expect("Produce is answered").code
    };
    assert_eq!(send(&mut connection, &good), code::NONE);
    for at in [batch::CRC_AT, batch::CRC_FROM + 1, batch::HEADER_BYTES, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        assert_eq!(send(&mut connection, &bad), code::CORRUPT_MESSAGE, "a bit at {at}");
    }
    assert_eq!(send(&mut connection, &good), code::NONE);
    assert_eq!(connection.list_offset(&topic, 0, LATEST).offset, 4);
    let mut short = good.clone();
    short.truncate(good.len() - 3);
    let refused = open(&server).produce(&topic, 0, &short);
    assert!(refused.is_err() || refused.is_ok_and(|produced| produced.code != code::NONE));
    assert_eq!(open(&server).list_offset(&topic, 0, LATEST).offset, 4);
    assert_unharmed(&server);
}

/// Sends bytes and expects the server to close without an answer that would pass for success.
fn assert_closes(server: &Server, bytes: &[u8]) {
    let mut socket = TcpStream::connect(server.bootstrap()).expect("the server listens");
    socket.set_read_timeout(Some(ANSWER_WAIT)).expect("the socket is open");
    // The server may close before it has taken all.
    let _ignored = socket.write_all(bytes);
    let answer = rest_of(&mut socket);
    let shown = &bytes[..bytes.len().min(24)];
    assert_eq!(answer, b"", "bytes that begin with {shown:02x?} were answered");
}

/// All that comes until the peer closes; a reset is a way to close.
fn rest_of(socket: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Ok(_) => answer,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => answer,
        Err(error) => panic!("the connection was not closed: {error}"),
    }
}

/// A client that knows nothing of all this makes a topic, sends and reads.
fn assert_unharmed(server: &Server) {
    let topic = unique("unharmed");
    open(server).create_topic(&topic, 1, &[]);
    let options = ["--bootstrap", server.bootstrap(), "--topic", &topic];
    let mut producer = Driver::python("records.py", &[&["produce"], &options[..]].concat());
    producer.send(r#"{"value": "76"}"#);
    producer.finish();
    let found = Driver::python("records.py", &[&["consume"], &options[..]].concat()).finish_json();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["value"], "76");
}

fn open(server: &Server) -> Connection {
    Connection::open(server.bootstrap()).expect("the server listens")
}
