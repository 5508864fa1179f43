//! Sessions over a real socket, on a store in memory: what each command answers, and in which order.
//! What survives a crash is tested with the server as a process.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use thetis_catalog::{Catalog, Defaults, Format, TopicSpec};
use thetis_meta::{MemoryStore, MetaStore};
use thetis_stream::{Limits, Store};
use thetis_types::Offset;
use thetis_types::clock::{ManualClock, SeededEntropy};
use thetis_wal::Wal;
use thetis_wal::memory::MemoryWal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::reply::{Records, records};
use crate::wire::{LENGTH_BYTES, frame};
use crate::{Front, Settings, serve};

/// A node in memory with its listener.
pub(crate) struct Node {
    front: Arc<Front>,
    pub(crate) address: std::net::SocketAddr,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start(settings: Settings) -> Node {
        let clock = Arc::new(ManualClock::default());
        let meta = Arc::new(MemoryStore::new(clock.clone()));
        Node::on(Arc::new(MemoryWal::default()), meta, settings).await
    }

    async fn on(wal: Arc<dyn Wal>, meta: Arc<dyn MetaStore>, settings: Settings) -> Node {
        let clock = Arc::new(ManualClock::default());
        let entropy = Arc::new(SeededEntropy::new(7));
        let (store, _) = Store::open(wal, meta, clock, entropy, Limits::default()).unwrap();
        let catalog = Arc::new(Catalog::open(Arc::new(store), Defaults::default()).unwrap());
        let front = Front::open(catalog, settings).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(serve(front.clone(), listener, stopped));
        Node { front, address, stop, server }
    }

    async fn client(&self) -> Client {
        Client { socket: TcpStream::connect(self.address).await.unwrap() }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(true).unwrap();
        self.server.await.unwrap();
    }
}

struct Client {
    socket: TcpStream,
}

impl Client {
    async fn send(&mut self, body: impl AsRef<[u8]>) {
        self.socket.write_all(&frame(body.as_ref())).await.unwrap();
    }

    async fn receive(&mut self) -> Bytes {
        let mut length = [0; LENGTH_BYTES];
        self.socket.read_exact(&mut length).await.unwrap();
        let mut body = BytesMut::zeroed(u32::from_le_bytes(length) as usize);
        self.socket.read_exact(&mut body).await.unwrap();
        body.freeze()
    }

    async fn ask(&mut self, body: impl AsRef<[u8]>) -> String {
        self.send(body).await;
        String::from_utf8(self.receive().await.to_vec()).unwrap()
    }

    async fn read(&mut self, body: &str) -> Records {
        self.send(body).await;
        let reply = self.receive().await;
        records(&reply).unwrap_or_else(|| panic!("{body}: {reply:?}"))
    }

    /// The word behind `OK`.
    async fn told(&mut self, body: &str) -> String {
        let reply = self.ask(body).await;
        reply.strip_prefix("OK ").unwrap_or_else(|| panic!("{body}: {reply}")).to_owned()
    }
}

fn of(first: u64, values: &[&'static [u8]]) -> Records {
    Records {
        first: Offset(first),
        values: values.iter().map(|value| Bytes::from_static(value)).collect(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_bytes_and_a_batch_is_one() {
    let node = Node::start(Settings::default()).await;
    let mut client = node.client().await;
    assert_eq!(client.ask("REGISTER t durability=os").await, "OK");
    assert_eq!(client.ask(b"APPEND t 6 0 3\n\x00\xff \n  abc").await, "OK 0 3 os");
    let all = client.read("READ t 0").await;
    assert_eq!(all, of(0, &[b"\x00\xff \n  ", b"", b"abc"]));
    assert_eq!(client.read("READ t 1 records=1").await, of(1, &[b""]));
    assert_eq!(
        client.read("READ t start bytes=1").await,
        of(0, &[b"\x00\xff \n  ", b""]).first_only()
    );
    assert_eq!(client.ask("READ t 3").await, "EMPTY 3");
    assert_eq!(client.ask("READ t 9").await, "ERR invalid offset 9 is past the end 3 of the topic");
    assert_eq!(client.ask("FETCH t 1 2").await, "OK 3 abc");
    assert_eq!(client.ask("FETCH t 1 3").await, "EMPTY");
    // The queue sees the same records, one by one.
    client.send("GET t").await;
    assert_eq!(client.receive().await, &b"OK \x00\xff \n  "[..]);
    assert_eq!(client.ask("GET t").await, "OK ");
    assert_eq!(client.ask("GET t").await, "OK abc");
    assert_eq!(client.ask("GET t").await, "EMPTY");
    node.stop().await;
}

impl Records {
    fn first_only(mut self) -> Records {
        self.values.truncate(1);
        self
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_can_say_where_who_and_which() {
    let node = Node::start(Settings::default()).await;
    let mut client = node.client().await;
    client.ask("REGISTER t").await;
    assert_eq!(client.ask("APPEND t expect=0 1\na").await, "OK 0 1 disk");
    let lost = client.ask("APPEND t expect=0 1\na").await;
    assert!(
        lost.starts_with("ERR conflict ")
            && lost.ends_with("the stream ends at o1, not at the expected o0"),
        "{lost}"
    );

    let old = client.told("ACQUIRE t 60000").await;
    assert!(client.ask("APPEND t 1\nb").await.starts_with("ERR fenced "));
    assert!(client.ask("PUT t b").await.starts_with("ERR forward append failed: fenced "));
    let new = client.told("ACQUIRE t 60000").await;
    assert!(client.ask(format!("APPEND t session={old} 1\nb")).await.starts_with("ERR fenced "));
    assert!(client.ask(format!("RENEW t {old} 1000")).await.starts_with("ERR fenced "));
    assert_eq!(client.ask(format!("APPEND t session={new} 1\nb")).await, "OK 1 2 disk");
    assert_eq!(client.ask(format!("RENEW t {new} 1000")).await, "OK");
    assert_eq!(client.ask(format!("RELEASE t {new}")).await, "OK");

    let attempt = client.told("ATTEMPT t").await;
    assert_eq!(client.ask(format!("RESOLVE t {attempt}")).await, "OK not-committed");
    assert_eq!(client.ask(format!("APPEND t attempt={attempt} 1 1\ncd")).await, "OK 2 4 disk");
    assert_eq!(client.ask(format!("RESOLVE t {attempt}")).await, "OK committed 2 4");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_requests_are_told_so_and_change_nothing() {
    let node = Node::start(Settings::default()).await;
    let mut client = node.client().await;
    client.ask("REGISTER t").await;
    for (body, answer) in [
        ("APPEND t\n", "ERR invalid APPEND: a length is missing"),
        ("APPEND t 5\nabc", "ERR invalid APPEND: a length of 5 with 3 bytes left"),
        ("APPEND t 2\nabc", "ERR invalid APPEND: 1 bytes too many behind the header"),
        ("APPEND t -1\nabc", "ERR invalid APPEND: \"-1\" is not a length"),
        (
            "APPEND t 99999999999999999999\nabc",
            "ERR invalid APPEND: \"99999999999999999999\" is not a length",
        ),
        ("APPEND t when=now 3\nabc", "ERR invalid APPEND: when= is not known here"),
        ("READ t", "ERR invalid READ: a offset is missing"),
        ("READ t 0 records=0", "ERR invalid READ: records=0 is outside 1 to 10000"),
        ("READ t @nobody", "ERR not-found topic t has no cursor nobody; make it with CURSOR"),
        ("FETCH t 2 0", "ERR invalid FETCH: segment 2 does not exist; use 1"),
        ("TOPICS now", "ERR invalid TOPICS: \"now\" is one word too many"),
        ("STOP", "ERR invalid STOP: nothing is followed"),
        ("REGISTER t durability=os", "ERR exists topic t exists with durability disk"),
        (
            "REGISTER u durability=tape",
            "ERR invalid REGISTER: unknown durability \"tape\"; use disk, os or memory",
        ),
        ("APPEND nowhere 1\na", "ERR unknown topic nowhere"),
        ("ACK t a 1", "ERR not-found topic t has no cursor a; make it with CURSOR"),
    ] {
        assert_eq!(client.ask(body).await, answer);
    }
    let lengths = "0 ".repeat(crate::command::APPEND_RECORDS_MAX + 1);
    let many = client.ask(format!("APPEND t {lengths}\n")).await;
    assert_eq!(many, "ERR invalid APPEND: more than 4096 records");
    assert_eq!(client.ask("READ t 0").await, "EMPTY 0");
    assert_eq!(client.ask("TOPICS").await, "OK\nt");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cursors_move_forward_by_ack_and_anywhere_by_seek() {
    let node = Node::start(Settings::default()).await;
    let mut client = node.client().await;
    client.ask("REGISTER t").await;
    client.ask("APPEND t 1 1 1\nabc").await;
    assert_eq!(client.ask("CURSOR t billing").await, "OK 0");
    assert_eq!(client.ask("CURSOR t audit end").await, "OK 3");
    assert_eq!(client.ask("CURSOR t billing end").await, "OK 0");
    assert_eq!(client.ask("ACK t billing 2").await, "OK 2");
    assert_eq!(client.ask("ACK t billing 1 relaxed").await, "OK 2");
    assert_eq!(
        client.ask("ACK t billing 4").await,
        "ERR invalid offset 4 is past the end 3 of the topic"
    );
    assert_eq!(client.read("READ t @billing").await, of(2, &[b"c"]));
    assert_eq!(client.ask("CURSORS t").await, "OK\naudit 3\nbilling 2");
    assert_eq!(client.ask("SEEK t billing start").await, "OK 0");
    assert_eq!(client.ask("FORGET t audit").await, "OK");
    assert!(client.ask("FORGET t audit").await.starts_with("ERR not-found "));
    assert_eq!(client.ask("CURSORS t").await, "OK\nbilling 0");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trimmed_records_are_told_and_dropped_topics_are_gone() {
    let node = Node::start(Settings::default()).await;
    let mut client = node.client().await;
    client.ask("REGISTER t").await;
    client.ask("APPEND t 1 1 1\nabc").await;
    client.ask("CURSOR t c").await;
    assert_eq!(client.ask("TRIM t 2").await, "OK 2");
    assert!(client.ask("TRIM t 9").await.starts_with("ERR invalid "));
    assert_eq!(
        client.ask("READ t 1").await,
        "ERR trimmed offset 1 is trimmed; the topic begins at 2"
    );
    assert_eq!(client.read("READ t @c").await, of(2, &[b"c"]));
    assert_eq!(client.ask("GET t").await, "OK c");
    assert_eq!(client.ask("DROP t").await, "OK");
    assert_eq!(client.ask("GET t").await, "ERR unknown topic t");
    assert_eq!(client.ask("REGISTER t").await, "OK");
    assert_eq!(client.ask("CURSORS t").await, "OK");
    assert_eq!(client.ask("GET t").await, "EMPTY");
    let kafkas = TopicSpec {
        name: "k".into(),
        partitions: 3,
        format: Format::Kafka,
        configs: BTreeMap::new(),
    };
    node.front.catalog.create(kafkas).unwrap();
    assert!(client.ask("GET k").await.starts_with("ERR invalid topic k has 3 partitions"));
    assert!(client.ask("DROP k").await.starts_with("ERR invalid "));
    assert_eq!(client.ask("TOPICS").await, "OK\nt");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn following_pushes_until_the_next_request() {
    let node = Node::start(Settings::default()).await;
    let (mut reader, mut writer) = (node.client().await, node.client().await);
    writer.ask("REGISTER t").await;
    writer.ask("PUT t one").await;
    assert_eq!(reader.ask("FOLLOW t start").await, "OK 0");
    assert_eq!(records(&reader.receive().await), Some(of(0, &[b"one"])));
    writer.ask("PUT t two").await;
    assert_eq!(records(&reader.receive().await), Some(of(1, &[b"two"])));
    assert_eq!(reader.ask("STOP").await, "END 2");
    assert_eq!(reader.ask("FOLLOW t end").await, "OK 2");
    assert_eq!(reader.ask("PUT t three").await, "END 2");
    assert_eq!(reader.receive().await, "OK");
    // The end of the topic ends it too.
    assert_eq!(reader.ask("FOLLOW t end").await, "OK 3");
    assert_eq!(writer.ask("DROP t").await, "OK");
    assert_eq!(reader.receive().await, "END 3");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_for_records() {
    let node = Node::start(Settings::default()).await;
    let (mut reader, mut writer) = (node.client().await, node.client().await);
    writer.ask("REGISTER t").await;
    reader.send("READ t 0 wait=30000").await;
    writer.ask("PUT t late").await;
    assert_eq!(records(&reader.receive().await), Some(of(0, &[b"late"])));
    assert_eq!(writer.ask("READ t end wait=1").await, "EMPTY 1");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_but_auth_is_answered_without_the_token() {
    let settings = Settings { token: Some("s3cret".into()), ..Settings::default() };
    let node = Node::start(settings).await;
    let mut client = node.client().await;
    let unknown = "ERR unauthenticated say AUTH <token> first";
    assert_eq!(client.ask("REGISTER t").await, unknown);
    assert_eq!(client.ask("TOPICS").await, unknown);
    for wrong in ["s3cre", "s3cret2", "S3cret"] {
        assert_eq!(
            client.ask(format!("AUTH {wrong}")).await,
            "ERR unauthenticated the token is wrong"
        );
    }
    assert_eq!(client.ask("METRICS").await, unknown);
    assert_eq!(client.ask("AUTH s3cret").await, "OK");
    assert_eq!(client.ask("TOPICS").await, "OK");
    assert_eq!(node.client().await.ask("TOPICS").await, unknown);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_need_a_hello() {
    let node = Node::start(Settings::default()).await;
    let mut client = node.client().await;
    client.ask("REGISTER t").await;
    let value = "v".repeat(100_000);
    let large = format!("APPEND t {}\n{value}", value.len());
    assert_eq!(client.ask(&large).await, "ERR invalid frame length");
    assert_eq!(client.ask("HELLO").await, "OK thetis 2");
    assert_eq!(client.ask(&large).await, "OK 0 1 disk");
    assert_eq!(client.ask("GET t").await, format!("OK {value}"));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_and_records_are_there_after_a_restart() {
    let clock = Arc::new(ManualClock::default());
    let meta = Arc::new(MemoryStore::new(clock));
    let wal = Arc::new(MemoryWal::default());
    let node = Node::on(wal.clone(), meta.clone(), Settings::default()).await;
    let mut client = node.client().await;
    client.ask("REGISTER t").await;
    client.ask("APPEND t 1 1 1\nabc").await;
    assert_eq!(client.ask("GET t").await, "OK a");
    client.ask("CURSOR t c").await;
    client.ask("ACK t c 2").await;
    let front = node.front.clone();
    node.stop().await;
    front.close();
    drop(front);
    let node = Node::on(wal, meta, Settings::default()).await;
    let mut client = node.client().await;
    assert_eq!(client.ask("GET t").await, "OK b");
    assert_eq!(client.ask("CURSORS t").await, "OK\nc 2");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_takers_share_the_queue_without_gap_or_double() {
    const RECORDS: usize = 400;
    let node = Node::start(Settings::default()).await;
    let mut writer = node.client().await;
    writer.ask("REGISTER t").await;
    for number in 0..RECORDS {
        writer.send(format!("PUT t {number}")).await;
    }
    for _ in 0..RECORDS {
        assert_eq!(writer.receive().await, "OK");
    }
    let mut takers = Vec::new();
    for _ in 0..4 {
        let mut client = node.client().await;
        takers.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let reply = client.ask("GET t").await;
                match reply.strip_prefix("OK ") {
                    Some(number) => taken.push(number.parse::<usize>().unwrap()),
                    None => return (taken, reply),
                }
            }
        }));
    }
    let mut all = Vec::new();
    for taker in takers {
        let (taken, last) = taker.await.unwrap();
        assert!(taken.is_sorted(), "each taker sees the order of the topic");
        assert_eq!(last, "EMPTY");
        all.extend(taken);
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..RECORDS));
    node.stop().await;
}

/// The bytes that a line of a transcript stands for.
fn unescaped(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [b'\\', after @ ..]) => (b'\\', after),
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).unwrap();
                (u8::from_str_radix(digits, 16).unwrap(), after)
            }
            _ => (*first, after),
        };
        rest = after;
        bytes.push(byte);
    }
    bytes
}

/// Clients in the field hold us to every byte of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcripts_are_followed_to_the_byte() {
    for transcript in
        [include_str!("../golden/first.transcript"), include_str!("../golden/second.transcript")]
    {
        let settings = Settings { address: "node:9091".to_owned(), ..Settings::default() };
        let node = Node::start(settings).await;
        let mut client = node.client().await;
        for line in transcript.lines() {
            match line.split_at(2) {
                ("> ", sent) => client.socket.write_all(&unescaped(sent)).await.unwrap(),
                ("< ", expected) => {
                    let reply = client.receive().await;
                    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let (reply, expected) = (frame(&reply), unescaped(expected));
                    assert_eq!(shown(&reply), shown(&expected), "in answer to the line before");
                    assert_eq!(reply, expected);
                }
                ("# ", _) => {}
                _ => panic!("{line:?} is neither sent nor answered"),
            }
        }
        node.stop().await;
    }
}

/// A client may send a frame in pieces, and each reply leaves in one: a client that reads once has it
/// all, and no timer of the network stands between the halves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_is_one_write_also_to_a_request_in_two_pieces() {
    let node = Node::start(Settings::default()).await;
    let mut client = node.client().await;
    client.ask("REGISTER t").await;
    client.ask("PUT t record").await;
    for (body, answer) in
        [("PUT t more", "OK"), ("GET t", "OK record"), ("READ t 1", "OK 1 2 4\nmore")]
    {
        let request = frame(body.as_bytes());
        let (length, body) = request.split_at(LENGTH_BYTES);
        client.socket.write_all(length).await.unwrap();
        client.socket.write_all(body).await.unwrap();
        let mut reply = [0; 100];
        let read = client.socket.read(&mut reply).await.unwrap();
        assert_eq!(reply[..read], frame(answer.as_bytes())[..]);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_frame_of_a_client_without_tls_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("certificate"), dir.path().join("key"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = thetis_net::tls::Tls::from_files(&certificate, &key).unwrap();
    let node = Node::start(Settings { tls: Some(tls), ..Settings::default() }).await;
    let answer = node.client().await.ask("HELLO").await;
    assert_eq!(answer, "ERR unauthenticated this listener speaks TLS only");

    let connector =
        tokio_rustls::TlsConnector::from(thetis_net::tls::client(&certificate).unwrap());
    let name = "localhost".try_into().unwrap();
    let mut socket = connector.connect(name, node.client().await.socket).await.unwrap();
    socket.write_all(&frame(b"TOPICS")).await.unwrap();
    let mut reply = [0; 6];
    socket.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply, frame(b"OK")[..]);
    node.stop().await;
}
