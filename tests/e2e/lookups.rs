//! Offsets by timestamp, and the ends of logs that are empty, short or trimmed.

use thetis_e2e::driver::Driver;
use thetis_e2e::reproduce;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::batch::{self, Codec, Producer, Record};
use thetis_e2e::wire::requests::{EARLIEST, LATEST, Listed};
use thetis_e2e::wire::{Connection, code};

/// Case O1: the first record, in offset order, at or after the time; its own offset and timestamp, never
/// its batch's. Times that run backwards inside a batch must not confuse it. Case O2: offset and
/// timestamp -1, and no error, when there is none.
#[test]
fn by_timestamp() {
    reproduce("lookups::by_timestamp");
    let mut server = Server::start();
    let mut connection = open(&server);
    let codecs = [Codec::None, Codec::Gzip, Codec::SnappyXerial, Codec::Lz4, Codec::Zstd];
    let topics = codecs.map(|codec| {
        let topic = unique("times");
        connection.create_topic(&topic, 1, &[]);
        for batch in [&[2, 4, 6, 8][..], &[100, 50, 200], &[60], &[300]] {
            append(&mut connection, &topic, batch, codec);
        }
        topic
    });
    let split = unique("times-split");
    connection.create_topic(&split, 1, &[]);
    for time in [2, 4, 6, 8] {
        append(&mut connection, &split, &[time], Codec::None);
    }
    for restart in [false, true] {
        if restart {
            server.restart(Stop::Kill);
            connection = open(&server);
        }
        for (topic, codec) in topics.iter().zip(codecs) {
            let context = format!("{codec:?}, restarted: {restart}");
            look_up(&mut connection, topic, &[2, 4, 6, 8, 100, 50, 200, 60, 300], &context);
        }
        look_up(&mut connection, &split, &[2, 4, 6, 8], "one record a batch");
        look_up_with_librdkafka(server.bootstrap(), &topics[4]);
    }
}

/// Compares every interesting time with what a plain search over `times` finds.
fn look_up(connection: &mut Connection, topic: &str, times: &[i64], context: &str) {
    for asked in (0..=10).chain([49, 50, 51, 61, 99, 100, 101, 150, 200, 201, 300, 301, 1 << 40]) {
        let found = connection.list_offset(topic, 0, asked);
        let expected = (0..).zip(times).find(|(_, time)| **time >= asked);
        let (offset, timestamp) = expected.map_or((-1, -1), |(offset, time)| (offset, *time));
        let expected = Listed { code: code::NONE, timestamp, offset };
        assert_eq!(found, expected, "time {asked}, {context}");
    }
}

fn look_up_with_librdkafka(bootstrap: &str, topic: &str) {
    let options = ["--bootstrap", bootstrap, "--topic", topic, "--times", "1,3,9,51,201,301"];
    let mut arguments = vec!["times"];
    arguments.extend(options);
    let found = Driver::python("records.py", &arguments).finish_json();
    let offsets: Vec<Option<i64>> = found.iter().map(|line| line["offset"].as_i64()).collect();
    assert_eq!(offsets, [Some(0), Some(1), Some(4), Some(4), Some(8), None]);
}

/// Case O2 again: on a topic that never held anything, and on one that holds nothing any more.
#[test]
fn by_timestamp_where_nothing_is() {
    reproduce("lookups::by_timestamp_where_nothing_is");
    let server = Server::start();
    let mut connection = open(&server);
    let topic = unique("no-times");
    connection.create_topic(&topic, 1, &[]);
    let nothing = Listed { code: code::NONE, timestamp: -1, offset: -1 };
    assert_eq!(connection.list_offset(&topic, 0, 0), nothing);
    append(&mut connection, &topic, &[10, 20], Codec::None);
    assert_eq!(connection.delete_records(&topic, 0, 2), (2, code::NONE));
    assert_eq!(connection.list_offset(&topic, 0, 5), nothing);
    append(&mut connection, &topic, &[30], Codec::None);
    let third = Listed { code: code::NONE, timestamp: 30, offset: 2 };
    assert_eq!(connection.list_offset(&topic, 0, 5), third);
}

/// A trim inside a batch hides the records before it from the look-up by time too.
#[test]
fn by_timestamp_after_a_trim_inside_a_batch() {
    reproduce("lookups::by_timestamp_after_a_trim_inside_a_batch");
    let server = Server::start();
    let mut connection = open(&server);
    let topic = unique("trimmed-times");
    connection.create_topic(&topic, 1, &[]);
    append(&mut connection, &topic, &[10, 20, 30, 40], Codec::None);
    assert_eq!(connection.delete_records(&topic, 0, 2), (2, code::NONE));
    let found = connection.list_offset(&topic, 0, 1);
    assert_eq!(found.code, code::NONE);
    assert!(found.offset >= 2, "{found:?} lies before the start of the log");
}

/// Case O11: the end is one past the last record, also where nothing is; a consumer there sees the
/// end of the partition and no error.
#[test]
fn ends_of_logs() {
    reproduce("lookups::ends_of_logs");
    let mut server = Server::start();
    let mut connection = open(&server);
    let (empty, one, trimmed) = (unique("empty"), unique("one"), unique("trimmed"));
    for topic in [&empty, &one, &trimmed] {
        connection.create_topic(topic, 1, &[]);
    }
    append(&mut connection, &one, &[1], Codec::None);
    append(&mut connection, &trimmed, &[1, 2, 3, 4, 5, 6, 7], Codec::None);
    assert_eq!(connection.delete_records(&trimmed, 0, -1), (7, code::NONE));
    for restart in [false, true] {
        if restart {
            server.restart(Stop::Kill);
            connection = open(&server);
        }
        for (topic, start, end) in [(&empty, 0, 0), (&one, 0, 1), (&trimmed, 7, 7)] {
            assert_eq!(connection.list_offset(topic, 0, EARLIEST).offset, start, "{topic}");
            assert_eq!(connection.list_offset(topic, 0, LATEST).offset, end, "{topic}");
            let common = ["--bootstrap", server.bootstrap(), "--topic", topic];
            let watermarks = [&["watermarks"], &common[..]].concat();
            let found = Driver::python("records.py", &watermarks).finish_json().remove(0);
            assert_eq!((&found["low"], &found["high"]), (&start.into(), &end.into()), "{topic}");
            let from = end.to_string();
            let consume = [&["consume", "--offset", &from], &common[..]].concat();
            assert!(Driver::python("records.py", &consume).finish().is_empty(), "{topic}");
        }
    }
    append(&mut connection, &trimmed, &[8], Codec::None);
    assert_eq!(connection.list_offset(&trimmed, 0, LATEST).offset, 8);
}

fn append(connection: &mut Connection, topic: &str, times: &[i64], codec: Codec) {
    let records: Vec<Record> = times.iter().map(|time| Record::new(*time, b"value")).collect();
    let bytes = batch::encode(&records, codec, Producer::ANONYMOUS);
    let produced = connection.produce(topic, 0, &bytes).expect("Produce is answered");
    assert_eq!(produced.code, code::NONE, "{codec:?}");
}

fn open(server: &Server) -> Connection {
    Connection::open(server.bootstrap()).expect("the server listens")
}
