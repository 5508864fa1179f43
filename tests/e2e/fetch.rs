//! Fetch: from inside a batch, with limits below a batch, from the start after a trim, at the end.

use thetis_e2e::driver::Driver;
use thetis_e2e::reproduce;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::batch::{self, Batch, Codec, Producer, Record};
use thetis_e2e::wire::requests::{
    EARLIEST, FetchLimits, Fetched, LATEST, eventually, fetch_body, produce_body, read_fetched,
};
use thetis_e2e::wire::{Connection, api, code};

/// Case O26: a fetch at any offset gives the whole batch that holds it, also in the middle; skipping to
/// the next batch would make records unreachable.
#[test]
fn inside_a_batch() {
    reproduce("fetch::inside_a_batch");
    let mut server = Server::start();
    let mut connection = open(&server);
    let topics = [Codec::None, Codec::Zstd].map(|codec| {
        let topic = unique("inside");
        connection.create_topic(&topic, 1, &[]);
        for count in [2, 5, 100, 1] {
            append(&mut connection, &topic, 0, &vec![Record::new(1, b"value"); count], codec);
        }
        topic
    });
    let starts = [0, 2, 7, 107];
    for restart in [false, true] {
        if restart {
            server.restart(Stop::Kill);
            connection = open(&server);
        }
        for topic in &topics {
            // Right after a SIGKILL Apache Kafka has to find its high watermark again.
            eventually("the end of the log is known", || {
                (connection.list_offset(topic, 0, LATEST).offset == 108).then_some(())
            });
            for offset in 0..108 {
                let fetched = connection.fetch_now(topic, 0, offset);
                assert_eq!((fetched.code, fetched.high_watermark), (code::NONE, 108), "{offset}");
                let found = bases(&fetched);
                let first = starts.iter().rposition(|start| *start <= offset);
                let expected = &starts[first.expect("the first starts at 0")..];
                // How many follow is the server's choice.
                assert!(!found.is_empty() && expected.starts_with(&found), "{offset}: {found:?}");
            }
            let at_end = connection.fetch_now(topic, 0, 108);
            assert_eq!((at_end.code, at_end.batches.len()), (code::NONE, 0));
            let beyond = connection.fetch_now(topic, 0, 109);
            assert_eq!((beyond.code, beyond.batches.len()), (code::OFFSET_OUT_OF_RANGE, 0));
            // And what a client makes of it: exactly the records from the asked offset on.
            let found = consume(&server, topic, 50, "{}");
            let offsets: Vec<i64> =
                found.iter().filter_map(|line| line["offset"].as_i64()).collect();
            assert_eq!(offsets, (50..108).collect::<Vec<i64>>());
        }
    }
}

/// Case O3: limits smaller than the first batch still give that batch, and only the first partition
/// that has something may exceed them.
#[test]
fn limits_below_one_batch() {
    reproduce("fetch::limits_below_one_batch");
    let server = Server::start();
    let mut connection = open(&server);
    let topic = unique("narrow");
    connection.create_topic(&topic, 3, &[]);
    let large = Record::new(1, &noise(900 * 1024));
    for partition in [1, 2] {
        append(&mut connection, &topic, partition, std::slice::from_ref(&large), Codec::None);
        for _ in 0..10 {
            append(&mut connection, &topic, partition, &[Record::new(1, b"small")], Codec::None);
        }
    }
    let narrow = FetchLimits { bytes_max: 1, partition_bytes_max: 1, ..FetchLimits::NOW };
    let mut next = 0;
    while next < 11 {
        let fetched = connection.fetch(&topic, &[(0, 0), (1, next), (2, next)], narrow);
        let fetched = fetched.expect("Fetch is answered");
        assert_eq!(fetched.iter().map(|one| one.code).collect::<Vec<i16>>(), [0, 0, 0]);
        assert!(bases(&fetched[0]).is_empty(), "there is nothing");
        assert_eq!(bases(&fetched[1]), [next], "the first with data gives one whole batch");
        assert!(bases(&fetched[2]).is_empty(), "the budget is spent");
        next = fetched[1].batches[0].end_offset();
    }
    let settings =
        r#"{"fetch.max.bytes": 1000, "max.partition.fetch.bytes": 1, "message.max.bytes": 1000}"#;
    let sizes: Vec<u64> = consume_partition(&server, &topic, 1, 0, settings)
        .iter()
        .filter_map(|line| line["size"].as_u64())
        .collect();
    assert_eq!(sizes, [&[900 * 1024][..], &[5; 10]].concat());
}

/// From the log's start after DeleteRecords by both libraries: the start is readable, what lies before
/// is out of range, and a restart does not bring it back. After a SIGKILL this is more than Apache
/// Kafka promises: it writes the start down once a minute, unless it is told to do it more often.
#[test]
fn after_a_trim() {
    reproduce("fetch::after_a_trim");
    let mut server = Server::start();
    let mut connection = open(&server);
    let topic = unique("trimmed");
    connection.create_topic(&topic, 1, &[]);
    for _ in 0..10 {
        append(&mut connection, &topic, 0, &vec![Record::new(1, b"value"); 10], Codec::None);
    }
    let mut trim = |library: &str, offset: i64, server: &mut Server, stop| {
        let to = offset.to_string();
        let options = ["trim", "--bootstrap", server.bootstrap(), "--topic", &topic];
        let more = ["--offset", &to, "--library", library];
        Driver::python("records.py", &[&options[..], &more].concat()).finish();
        assert_trimmed(&mut connection, &topic, offset);
        server.restart(stop);
        connection = open(server);
        assert_trimmed(&mut connection, &topic, offset);
        let found = consume(server, &topic, offset, "{}");
        let first = found.first().and_then(|line| line["offset"].as_i64());
        assert_eq!(first, Some(offset), "a client starts at the start");
        assert_eq!(found.len(), usize::try_from(100 - offset).expect("it is positive"));
    };
    trim("confluent", 35, &mut server, Stop::Kill);
    trim("kafka-python", 60, &mut server, Stop::Term);
    let (_, refused) = connection.delete_records(&topic, 0, 101);
    assert_eq!(refused, code::OFFSET_OUT_OF_RANGE, "nothing beyond the end can be deleted");
    let backwards = connection.delete_records(&topic, 0, 10);
    assert_eq!(backwards, (60, code::NONE), "the start never goes down");
}

fn assert_trimmed(connection: &mut Connection, topic: &str, start: i64) {
    assert_eq!(connection.list_offset(topic, 0, EARLIEST).offset, start);
    let fetched = connection.fetch_now(topic, 0, start);
    assert_eq!((fetched.code, fetched.log_start), (code::NONE, start));
    assert!(fetched.batches[0].base_offset <= start && start < fetched.batches[0].end_offset());
    let before = connection.fetch_now(topic, 0, start - 1);
    assert_eq!((before.code, before.batches.len()), (code::OFFSET_OUT_OF_RANGE, 0));
}

/// A fetch at the end waits, and a record that comes later is in the answer to that same fetch. The
/// poll is longer than the test's patience, so only a wake-up can answer it.
#[test]
fn long_poll_at_the_end() {
    reproduce("fetch::long_poll_at_the_end");
    let server = Server::start();
    let (mut reader, mut writer) = (open(&server), open(&server));
    let topic = unique("poll");
    writer.create_topic(&topic, 1, &[]);
    append(&mut writer, &topic, 0, &[Record::new(1, b"before")], Codec::None);
    let patient = FetchLimits { wait_ms: 300_000, bytes_min: 1, ..FetchLimits::NOW };
    let body = fetch_body(&topic, &[(0, 1)], patient);
    let sent = reader.send(api::FETCH, 11, &body).expect("Fetch is sent");
    append(&mut writer, &topic, 0, &[Record::new(1, b"after")], Codec::None);
    let (received, mut answer) = reader.receive().expect("the record wakes the fetch");
    assert_eq!(received, sent);
    let fetched = read_fetched(&mut answer).remove(0);
    let records = fetched.batches[0].records();
    assert_eq!(records, [(1, Record::new(1, b"after"))]);
}

/// With acks=0 there is no answer at all: the next answer on the connection belongs to the next
/// request, and the record is there all the same.
#[test]
fn acks_zero_is_not_answered() {
    reproduce("fetch::acks_zero_is_not_answered");
    let server = Server::start();
    let mut connection = open(&server);
    let topic = unique("acks-0");
    connection.create_topic(&topic, 1, &[]);
    for number in 0..3 {
        let record = Record::new(number, format!("value-{number}").as_bytes());
        let bytes = batch::encode(&[record], Codec::None, Producer::ANONYMOUS);
        let body = produce_body(&topic, 0, 0, &bytes);
        connection.send(api::PRODUCE, 7, &body).expect("Produce is sent");
    }
    // `list_offset` asserts that the answer's id is its own. Requests of one connection are worked on
    // in the order they were sent, so it sees the three records although nobody said they are stored.
    assert_eq!(connection.list_offset(&topic, 0, LATEST).offset, 3);
    let options = ["produce", "--bootstrap", server.bootstrap(), "--topic", &topic];
    let mut producer = Driver::python("records.py", &[&options[..], &["--acks", "0"]].concat());
    producer.send(r#"{"value": "6c617374"}"#);
    let said = producer.finish_json();
    assert_eq!(said[0]["error"], serde_json::Value::Null);
    eventually("the record without acknowledgement is there", || {
        (connection.list_offset(&topic, 0, LATEST).offset == 4).then_some(())
    });
    // One answer may end before the log does, such as at the end of a segment.
    let mut next = 0;
    while next < 4 {
        let fetched = connection.fetch_now(&topic, 0, next);
        assert_eq!((fetched.code, fetched.batches[0].base_offset), (code::NONE, next));
        next = fetched.batches.last().map_or(next, Batch::end_offset);
    }
}

/// A message of 20 MB is refused by a topic with the usual limit, with the code that tells a client not to
/// try again, and taken by a topic whose `max.message.bytes` is higher.
#[test]
fn twenty_megabytes() {
    reproduce("fetch::twenty_megabytes");
    let server = Server::start();
    let mut connection = open(&server);
    let (usual, wide) = (unique("usual"), unique("wide"));
    connection.create_topic(&usual, 1, &[]);
    connection.create_topic(&wide, 1, &[("max.message.bytes", "26214400")]);
    let size = 20_000_000;
    let record = Record::new(1, &noise(size));
    let bytes = batch::encode(&[record], Codec::None, Producer::ANONYMOUS);
    let refused = connection.produce(&usual, 0, &bytes).expect("Produce is answered");
    assert_eq!((refused.code, refused.base_offset), (code::MESSAGE_TOO_LARGE, -1));
    assert_eq!(connection.list_offset(&usual, 0, LATEST).offset, 0);
    let taken = connection.produce(&wide, 0, &bytes).expect("Produce is answered");
    assert_eq!((taken.code, taken.base_offset), (code::NONE, 0));
    // A fetch with usual limits gets it whole.
    let limits = FetchLimits { partition_bytes_max: 1 << 20, ..FetchLimits::NOW };
    let fetched = connection.fetch(&wide, &[(0, 0)], limits).expect("Fetch is answered");
    assert_eq!(fetched[0].batches[0].bytes.len(), bytes.len());
    for (topic, expected) in [(&usual, Some("MSG_SIZE_TOO_LARGE")), (&wide, None)] {
        let options = ["produce", "--bootstrap", server.bootstrap(), "--topic", topic];
        let mut producer = Driver::python("records.py", &options);
        producer.send(&format!(r#"{{"size": {size}}}"#));
        assert_eq!(producer.finish_json()[0]["error"].as_str(), expected, "{topic}");
    }
    let sizes: Vec<u64> =
        consume(&server, &wide, 0, "{}").iter().filter_map(|line| line["size"].as_u64()).collect();
    assert_eq!(sizes, [20_000_000, 20_000_000]);
}

/// Bytes that do not compress and are not the same everywhere.
fn noise(size: usize) -> Vec<u8> {
    let mut dice = thetis_e2e::seed::Dice::new(1);
    let words = std::iter::repeat_with(|| dice.next_u64().to_le_bytes());
    words.flatten().take(size).collect()
}

fn bases(fetched: &Fetched) -> Vec<i64> {
    fetched.batches.iter().map(|batch| batch.base_offset).collect()
}

fn consume(server: &Server, topic: &str, offset: i64, settings: &str) -> Vec<serde_json::Value> {
    consume_partition(server, topic, 0, offset, settings)
}

fn consume_partition(
    server: &Server,
    topic: &str,
    partition: i32,
    offset: i64,
    settings: &str,
) -> Vec<serde_json::Value> {
    let (partition, offset) = (partition.to_string(), offset.to_string());
    let options = ["consume", "--bootstrap", server.bootstrap(), "--topic", topic];
    let more = ["--partition", &partition, "--offset", &offset, "--settings", settings];
    Driver::python("records.py", &[&options[..], &more].concat()).finish_json()
}

fn append(
    connection: &mut Connection,
    topic: &str,
    partition: i32,
    records: &[Record],
    codec: Codec,
) {
    let bytes = batch::encode(records, codec, Producer::ANONYMOUS);
    let produced = connection.produce(topic, partition, &bytes).expect("Produce is answered");
    assert_eq!(produced.code, code::NONE);
}

fn open(server: &Server) -> Connection {
    Connection::open(server.bootstrap()).expect("the server listens")
}
