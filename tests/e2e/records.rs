//! Records come out as they went in: null and empty, doubled headers, every codec from every library.

use serde_json::{Value, json};

use thetis_e2e::driver::Driver;
use thetis_e2e::reproduce;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::batch::{self, Codec, Producer, Record};
use thetis_e2e::wire::{Connection, code};

/// The codecs by their names in clients' settings.
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// Case O13: null stays null and empty stays empty, in keys, values and headers; headers keep their
/// order and their doubles.
#[test]
fn null_and_empty() {
    reproduce("records::null_and_empty");
    let mut server = Server::start();
    let mut connection = open(&server);
    let headers = json!([["a", null], ["a", ""], ["a", "78"], ["", "79"], ["a", null]]);
    let topic = unique("null");
    connection.create_topic(&topic, 1, &[]);
    let options = ["produce", "--bootstrap", server.bootstrap(), "--topic", &topic];
    let mut producer = Driver::python("records.py", &options);
    for codec in CODECS {
        for (key, value) in shapes() {
            let shown = |part: Option<&str>| part.unwrap_or("null").to_owned();
            let (key, value, headers) = (shown(key), shown(value), wire_headers(&headers));
            let line = json!({"key": key, "value": value, "headers": headers, "codec": codec});
            producer.send(&line.to_string());
        }
    }
    producer.finish();
    for restart in [false, true] {
        if restart {
            server.restart(Stop::Kill);
        }
        for library in ["confluent", "kafka-python"] {
            let found = consume(&server, &topic, library);
            assert_eq!(found.len(), shapes().len() * CODECS.len(), "{library}");
            for (record, (key, value)) in found.iter().zip(shapes().into_iter().cycle()) {
                assert_eq!(record["key"], json!(key), "{library}");
                assert_eq!(record["value"], json!(value), "{library}");
                assert_eq!(record["headers"], headers, "{library}");
            }
        }
    }
}

/// Keys and values in hexadecimal.
fn shapes() -> [(Option<&'static str>, Option<&'static str>); 5] {
    [
        (None, Some("76")),
        (Some(""), Some("76")),
        (Some("6b"), None),
        (Some("6b"), Some("")),
        (None, None),
    ]
}

/// The driver takes null as a word.
fn wire_headers(headers: &Value) -> Vec<[String; 2]> {
    let headers = headers.as_array().expect("headers are a list");
    let text = |value: &Value| value.as_str().unwrap_or("null").to_owned();
    headers.iter().map(|pair| [text(&pair[0]), text(&pair[1])]).collect()
}

/// Case O9: every codec that a producer uses, times every compression that a topic asks for, from two
/// producing libraries and from raw batches (snappy in both its forms), read by both libraries.
#[test]
fn codecs() {
    reproduce("records::codecs");
    let server = Server::start();
    let mut connection = open(&server);
    for kind in ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] {
        let topic = unique("codec");
        connection.create_topic(&topic, 1, &[("compression.type", kind)]);
        let mut expected = Vec::new();
        for library in ["confluent", "kafka-python"] {
            let options = ["produce", "--bootstrap", server.bootstrap(), "--topic", &topic];
            let more = ["--library", library];
            let mut producer = Driver::python("records.py", &[&options[..], &more].concat());
            for (codec, number) in CODECS.into_iter().flat_map(|codec| [(codec, 0), (codec, 1)]) {
                // More than one snappy block, and compressible.
                let value = hex(&format!("{codec}, {library}, {number};").repeat(2000));
                producer.send(&json!({ "value": value, "codec": codec }).to_string());
                expected.push(value);
            }
            producer.finish();
        }
        for codec in Codec::ALL {
            let plain = format!("raw {codec:?};").repeat(9000);
            let sent =
                batch::encode(&[Record::new(1, plain.as_bytes())], codec, Producer::ANONYMOUS);
            let produced = connection.produce(&topic, 0, &sent).expect("Produce is answered");
            assert_eq!(produced.code, code::NONE, "{codec:?} into {kind}");
            if kind == "producer" {
                assert_untouched(&mut connection, &topic, produced.base_offset, &sent);
            }
            expected.push(hex(&plain));
        }
        for library in ["confluent", "kafka-python"] {
            let found = consume(&server, &topic, library);
            assert_eq!(found.len(), expected.len(), "{library} from {kind}");
            for (record, value) in found.iter().zip(&expected) {
                assert!(record["value"] == **value, "{library} from {kind}: {}", record["offset"]);
            }
        }
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// What the producer sent is stored as it is: only base offset and leader epoch may differ.
fn assert_untouched(connection: &mut Connection, topic: &str, offset: i64, sent: &[u8]) {
    let fetched = connection.fetch_now(topic, 0, offset).batches.remove(0);
    assert_eq!(fetched.base_offset, offset);
    assert_eq!(fetched.bytes[8..12], sent[8..12], "length");
    assert_eq!(fetched.bytes[16..], sent[16..], "from the magic on");
}

fn consume(server: &Server, topic: &str, library: &str) -> Vec<Value> {
    let options = ["consume", "--bootstrap", server.bootstrap(), "--topic", topic];
    let more = ["--library", library];
    Driver::python("records.py", &[&options[..], &more].concat()).finish_json()
}

fn open(server: &Server) -> Connection {
    Connection::open(server.bootstrap()).expect("the server listens")
}
