//! A real file of 100 MiB goes through a topic of eight partitions, and the server is killed half way.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use thetis_e2e::corpus::{CORPUS_BYTES, corpus};
use thetis_e2e::driver::Driver;
use thetis_e2e::reproduce;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::Connection;

const PARTITIONS: i32 = 8;
/// Chunks into which the client programs cut the file: six sizes in turn, 433,221 bytes a round; 242
/// rounds and two chunks more.
const CHUNKS: u64 = 1454;

#[test]
fn confluent_gzip() {
    reproduce("files::confluent_gzip");
    confluent("gzip");
}

#[test]
fn confluent_snappy() {
    reproduce("files::confluent_snappy");
    confluent("snappy");
}

#[test]
fn confluent_lz4() {
    reproduce("files::confluent_lz4");
    confluent("lz4");
}

#[test]
fn confluent_zstd() {
    reproduce("files::confluent_zstd");
    confluent("zstd");
}

/// One way through for librdkafka: an idempotent producer rides over a SIGKILL, so nothing may be
/// missing and nothing may be doubled.
fn confluent(codec: &str) {
    let mut server = Server::start();
    let topic = unique(&format!("file-{codec}"));
    create(&server, &topic);
    let bootstrap = server.bootstrap().to_owned();
    let arguments = |act, file| {
        let options = ["--bootstrap", &bootstrap, "--topic", &topic, "--codec", codec];
        let mut all = vec![act, "--file", file];
        all.extend(options);
        all.into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    let produce = arguments("produce", text(corpus()));
    let produce: Vec<&str> = produce.iter().map(String::as_str).collect();
    carry(&mut server, Driver::python("chunks.py", &produce));
    let out = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    let consume = arguments("consume", text(out.path()));
    let consume: Vec<&str> = consume.iter().map(String::as_str).collect();
    let said = Driver::python("chunks.py", &consume).finish();
    assert_eq!(said.last().expect("it counts its chunks"), &format!("chunks {CHUNKS}"));
    assert_same_bytes(out.path());
}

#[test]
fn kafkajs_uncompressed() {
    reproduce("files::kafkajs_uncompressed");
    kafkajs("none");
}

#[test]
fn kafkajs_gzip() {
    reproduce("files::kafkajs_gzip");
    kafkajs("gzip");
}

fn kafkajs(codec: &str) {
    let mut server = Server::start();
    let topic = unique(&format!("file-js-{codec}"));
    create(&server, &topic);
    let bootstrap = server.bootstrap().to_owned();
    let produce = ["produce", &bootstrap, &topic, text(corpus()), codec];
    carry(&mut server, Driver::node("chunks.js", &produce));
    let out = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    let said =
        Driver::node("chunks.js", &["consume", &bootstrap, &topic, text(out.path())]).finish();
    assert_eq!(said.last().expect("it counts its chunks"), &format!("chunks {CHUNKS}"));
    assert_same_bytes(out.path());
}

/// Lets the producer come to the middle, kills the server, starts it again, and waits for the end.
fn carry(server: &mut Server, mut producer: Driver) {
    loop {
        let acked: u64 = producer.await_word("acked ").parse().expect("a count");
        if acked >= CHUNKS / 2 {
            break;
        }
    }
    server.restart(Stop::Kill);
    let said = producer.finish();
    assert_eq!(said.last().expect("it says how many"), &format!("done {CHUNKS}"));
}

/// kcat is built on a librdkafka of 2023. It sends whole files as messages, one partition each; its
/// producer is not told to be idempotent, so the server is not killed under it but between.
#[test]
fn kcat_zstd() {
    reproduce("files::kcat_zstd");
    let mut server = Server::start();
    let topic = unique("file-kcat");
    create(&server, &topic);
    let bootstrap = server.bootstrap().to_owned();
    let pieces = tempfile::tempdir().expect("a temporary directory can be made");
    let names = cut(pieces.path(), 900_000);
    for partition in 0..PARTITIONS {
        let mut command = Command::new("kcat");
        command.args(["-P", "-b", &bootstrap, "-t", &topic, "-z", "zstd", "-X", "acks=all"]);
        command.args(["-p", &partition.to_string()]).current_dir(pieces.path());
        command.args(ours(&names, partition));
        Driver::spawn(&mut command).finish();
    }
    server.restart(Stop::Kill);
    let mut found = vec![Vec::new(); names.len()];
    for partition in 0..PARTITIONS {
        let slots = (0..names.len()).filter(|index| index % 8 == position(partition));
        let messages = kcat_messages(&bootstrap, &topic, partition);
        assert_eq!(messages.len(), ours(&names, partition).len(), "partition {partition}");
        for (slot, message) in slots.zip(messages) {
            found[slot] = message;
        }
    }
    let expected = fs::read(corpus()).expect("the corpus can be read");
    assert!(found.concat() == expected, "kcat gave other bytes than it took");
}

/// All messages of one partition: kcat prints each one's length, a line end, and its bytes.
fn kcat_messages(bootstrap: &str, topic: &str, partition: i32) -> Vec<Vec<u8>> {
    let partition = partition.to_string();
    let output = Command::new("kcat")
        .args(["-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-p", &partition])
        .args(["-o", "beginning", "-f", "%S\n%s", "-X", "check.crcs=true"])
        .output()
        .expect("kcat can be started");
    assert!(output.status.success(), "kcat: {}", String::from_utf8_lossy(&output.stderr));
    let mut rest = output.stdout.as_slice();
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').expect("a length has a line");
        let length = std::str::from_utf8(&rest[..end]).expect("a length is text");
        let length: usize = length.parse().expect("a length is a number");
        let (message, tail) = rest[end + 1..].split_at(length);
        messages.push(message.to_vec());
        rest = tail;
    }
    messages
}

/// Cuts the corpus into files, and gives their names in order.
fn cut(directory: &Path, piece_bytes: u64) -> Vec<String> {
    let mut source = fs::File::open(corpus()).expect("the corpus can be opened");
    let mut names = Vec::new();
    loop {
        let mut piece = Vec::new();
        let read = (&mut source).take(piece_bytes).read_to_end(&mut piece);
        if read.expect("the corpus can be read") == 0 {
            return names;
        }
        let name = format!("piece-{:04}", names.len());
        let file = fs::File::create(directory.join(&name));
        file.and_then(|mut file| file.write_all(&piece)).expect("a piece can be written");
        names.push(name);
    }
}

fn ours(names: &[String], partition: i32) -> Vec<&String> {
    names.iter().skip(position(partition)).step_by(8).collect()
}

fn position(partition: i32) -> usize {
    usize::try_from(partition).expect("a partition is not negative")
}

fn create(server: &Server, topic: &str) {
    let mut connection = Connection::open(server.bootstrap()).expect("the server listens");
    connection.create_topic(topic, PARTITIONS, &[]);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the paths of the tests are UTF-8")
}

fn assert_same_bytes(path: &Path) {
    let found = fs::read(path).expect("the file can be read");
    assert_eq!(u64::try_from(found.len()).ok(), Some(CORPUS_BYTES), "length of the file");
    let expected = fs::read(corpus()).expect("the corpus can be read");
    // Not assert_eq: it would print both files.
    assert!(found == expected, "the file came out with other bytes than it went in");
}
