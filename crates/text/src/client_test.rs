//! The client against a real listener, and against one that breaks off.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use thetis_types::{Durability, ErrorKind, Offset, OffsetRange, Outcome};

use crate::Settings;
use crate::client::{Client, Error, Refusal};
use crate::command::From;
use crate::reply::Records;
use crate::session_test::Node;
use crate::wire::{LENGTH_BYTES, REQUEST_BYTES_MAX, frame};

fn connect(address: SocketAddr) -> Client {
    Client::connect("127.0.0.1", address.port(), None).unwrap()
}

/// Runs blocking calls beside the node's tasks.
async fn blocking(act: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(act).await.unwrap();
}

/// What a call was refused with: its kind, and that it did not happen.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert_eq!(error.outcome(), Outcome::NotCommitted);
    error.kind()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_have_typed_answers() {
    let node = Node::start(Settings::default()).await;
    let address = node.address;
    blocking(move || {
        let mut client = connect(address);
        assert_eq!(refused(client.put("t", "x")), ErrorKind::NotFound);
        client.register("t", Some(Durability::Os)).unwrap();
        assert_eq!(refused(client.register("t", Some(Durability::Disk))), ErrorKind::Exists);
        client.put("t", "a b\nc ").unwrap();
        let written = client.append("t", &[&b"\xff\0 "[..], b""]).unwrap();
        assert_eq!(written, OffsetRange { start: Offset(1), end: Offset(3) });
        assert_eq!(client.state("t").unwrap()["end"], 3);
        assert_eq!(client.metrics().unwrap()["state"], "Leader");
        assert_eq!(client.topics().unwrap(), ["t"]);

        let values = vec![Bytes::from_static(b"\xff\0 "), Bytes::new()];
        let found = client.read("t", &From::At(Offset(1)), Duration::ZERO).unwrap();
        assert_eq!(found, Some(Records { first: Offset(1), values }));
        assert_eq!(client.read("t", &From::End, Duration::ZERO).unwrap(), None);
        assert_eq!(
            refused(client.read("t", &From::At(Offset(9)), Duration::ZERO)),
            ErrorKind::Invalid
        );

        assert_eq!(client.cursor("t", "c").unwrap(), Offset(0));
        assert_eq!(client.acknowledge("t", "c", Offset(2)).unwrap(), Offset(2));
        assert_eq!(client.acknowledge("t", "c", Offset(1)).unwrap(), Offset(2));
        assert_eq!(refused(client.acknowledge("t", "d", Offset(1))), ErrorKind::NotFound);
        let at = From::Cursor("c".to_owned());
        let found = client.read("t", &at, Duration::ZERO).unwrap().unwrap();
        assert_eq!(found.first, Offset(2));

        let records: Vec<Bytes> = std::iter::from_fn(|| client.get("t").unwrap()).collect();
        assert_eq!(records, [&b"a b\nc"[..], b"\xff\0 ", b""]);
    })
    .await;
    node.stop().await;
}

/// A space in a topic would append to another topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_would_misread_is_not_sent() {
    let node = Node::start(Settings::default()).await;
    let address = node.address;
    blocking(move || {
        let mut client = connect(address);
        client.register("t", None).unwrap();
        for name in ["", "t x", "t\n1", "t\0"] {
            let error = client.put(name, "lost").unwrap_err();
            assert!(matches!(error, Error::Unsent { .. }), "{name:?}: {error}");
            assert_eq!(error.outcome(), Outcome::NotCommitted);
            assert!(matches!(client.cursor("t", name), Err(Error::Unsent { .. })), "{name:?}");
        }
        let large = "x".repeat(REQUEST_BYTES_MAX);
        assert!(matches!(client.put("t", &large), Err(Error::Unsent { .. })));
        // Over the first limit: the client has said HELLO.
        client.put("t", &large[..REQUEST_BYTES_MAX / 2]).unwrap();
        assert_eq!(client.state("t").unwrap()["end"], 1);
    })
    .await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_said_before_anything_else() {
    let settings = Settings { token: Some("secret".to_owned()), ..Settings::default() };
    let node = Node::start(settings).await;
    let address = node.address;
    blocking(move || {
        let mut client = connect(address);
        assert_eq!(refused(client.topics()), ErrorKind::Invalid);
        assert_eq!(refused(client.authenticate("wrong")), ErrorKind::Invalid);
        client.authenticate("secret").unwrap();
        assert_eq!(client.topics().unwrap(), Vec::<String>::new());
    })
    .await;
    node.stop().await;
}

/// Without letting go of the connection, a late answer would be taken for the next request's.
#[test]
fn a_connection_that_breaks_leaves_the_request_uncertain_and_is_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut read = |body: &[u8]| {
            let mut request = vec![0; LENGTH_BYTES + body.len()];
            socket.read_exact(&mut request).unwrap();
            assert_eq!(request, frame(body));
            socket.try_clone().unwrap()
        };
        // As a server of the first version answers.
        read(b"HELLO").write_all(&frame(b"ERR unknown command")).unwrap();
        read(b"GET t").write_all(&frame(b"what?")).unwrap();
        // Half of an answer.
        read(b"PUT t x").write_all(&frame(b"OK")[..LENGTH_BYTES + 1]).unwrap();
    });
    let mut client = connect(address);
    let strange = client.get("t").unwrap_err();
    assert!(matches!(strange, Error::Strange { .. }), "{strange}");
    let broken = client.put("t", "x").unwrap_err();
    assert!(matches!(broken, Error::Broken(_)), "{broken}");
    assert_eq!(broken.outcome(), Outcome::MayHaveCommitted);
    let gone = client.put("t", "x").unwrap_err();
    assert!(matches!(gone, Error::Gone), "{gone}");
    assert_eq!(gone.outcome(), Outcome::NotCommitted);
    server.join().unwrap();

    // Nobody can listen there.
    let nobody = Client::connect("127.0.0.1", 0, None).unwrap_err();
    assert!(matches!(nobody, Error::Unreachable { .. }), "{nobody}");
    assert_eq!(nobody.outcome(), Outcome::NotCommitted);
}

#[test]
fn a_wait_that_is_over_breaks_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&frame(b"OK thetis 2")).unwrap();
        // Silent until the client has given up.
        let _ = wait.recv();
    });
    let mut client = connect(address);
    client.set_wait(Some(Duration::from_millis(1))).unwrap();
    assert!(matches!(client.get("t"), Err(Error::Broken(_))));
    assert!(matches!(client.get("t"), Err(Error::Gone)));
    drop(done);
    server.join().unwrap();
}

#[test]
fn refusals_say_what_to_do_and_what_happened() {
    let said = |text: &str| {
        let refusal = Refusal::of(format!("ERR {text}").as_bytes()).unwrap();
        (refusal.kind(), refusal.outcome())
    };
    use ErrorKind::{Conflict, Invalid, NotFound, Throttled, Unavailable};
    use Outcome::{MayHaveCommitted, NotCommitted};
    assert_eq!(said("conflict the topic ends at 4"), (Conflict, NotCommitted));
    assert_eq!(said("unknown topic t"), (NotFound, NotCommitted));
    assert_eq!(said("unknown command"), (Invalid, NotCommitted));
    assert_eq!(said("uncertain the disk failed"), (Unavailable, MayHaveCommitted));
    assert_eq!(said("forward append failed: throttled x"), (Throttled, NotCommitted));
    assert_eq!(said("forward append failed: uncertain x"), (Unavailable, MayHaveCommitted));
    // Another server's words.
    assert_eq!(said("forward append failed: no leader").1, MayHaveCommitted);
    assert_eq!(Refusal::of(b"OK ERR x"), None);
}
