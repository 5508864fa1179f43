//! Acknowledged means kept, and sent twice means stored once.

use thetis_e2e::driver::Driver;
use thetis_e2e::reproduce;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::batch::{self, Codec, Producer, Record};
use thetis_e2e::wire::requests::{LATEST, Produced};
use thetis_e2e::wire::{Connection, code};

/// Case O5: each of the last five batches, sent again, is answered with success and its first
/// offset, also after a restart; older ones and gaps are refused; nothing is ever appended twice.
///
/// Apache Kafka remembers only the last batch over a restart and refuses the four before it with
/// OUT_OF_ORDER_SEQUENCE_NUMBER, which makes a client give up a batch that is stored. This asks for more.
#[test]
fn repeated_batches() {
    reproduce("idempotence::repeated_batches");
    let mut server = Server::start();
    let mut connection = open(&server);
    let topic = unique("repeat");
    connection.create_topic(&topic, 1, &[]);
    let (id, epoch) = connection.init_producer().expect("InitProducerId is answered");
    let now = batch::now_ms();
    let send = |connection: &mut Connection, sequence: i32| {
        let records = [Record::new(now, b"one"), Record::new(now, b"two")];
        let producer = Producer { id, epoch, sequence };
        let bytes = batch::encode(&records, Codec::None, producer);
        connection.produce(&topic, 0, &bytes).expect("Produce is answered")
    };
    let stored = |offset: i64| Produced { code: code::NONE, base_offset: offset };
    for number in 0..6 {
        assert_eq!(send(&mut connection, number * 2), stored(i64::from(number) * 2));
    }
    for restart in [None, Some(Stop::Kill), Some(Stop::Term)] {
        if let Some(stop) = restart {
            server.restart(stop);
            connection = open(&server);
        }
        for number in 1..6 {
            let again = send(&mut connection, number * 2);
            assert_eq!(again, stored(i64::from(number) * 2), "batch {number}, {restart:?}");
        }
        let old = send(&mut connection, 0).code;
        let refusals = [code::DUPLICATE_SEQUENCE_NUMBER, code::OUT_OF_ORDER_SEQUENCE_NUMBER];
        assert!(refusals.contains(&old), "a batch before the last five got {old}");
        let gap = send(&mut connection, 20).code;
        assert_eq!(gap, code::OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap in the sequence");
        assert_eq!(connection.list_offset(&topic, 0, LATEST).offset, 12, "{restart:?}");
    }
    assert_eq!(send(&mut connection, 12), stored(12), "the next batch is still taken");
    let another = connection.init_producer().expect("InitProducerId is answered");
    assert_ne!(another.0, id, "an identity is given once, over restarts too");
}

/// Case O7: all delivery reports are in, then SIGKILL at once; every record is there, at the offset
/// its report named.
#[test]
fn acknowledged_survives_kill() {
    reproduce("idempotence::acknowledged_survives_kill");
    let mut server = Server::start();
    let topic = unique("kept");
    open(&server).create_topic(&topic, 1, &[]);
    let bootstrap = server.bootstrap().to_owned();
    let options = ["--bootstrap", bootstrap.as_str(), "--topic", &topic];
    let mut producer = Driver::python("records.py", &[&["produce"], &options[..]].concat());
    for number in 0..2000 {
        producer.send(&format!(r#"{{"value": "{number:08x}"}}"#));
    }
    let reports = producer.finish_json();
    server.restart(Stop::Kill);
    assert_eq!(reports.len(), 2000);
    let found = Driver::python("records.py", &[&["consume"], &options[..]].concat()).finish_json();
    assert_eq!(found.len(), 2000);
    for (offset, (report, record)) in (0_u64..).zip(reports.iter().zip(&found)) {
        assert_eq!(report["error"], serde_json::Value::Null);
        assert_eq!(report["offset"], offset);
        assert_eq!(record["offset"], offset);
        assert_eq!(record["value"], format!("{offset:08x}"));
    }
}

fn open(server: &Server) -> Connection {
    Connection::open(server.bootstrap()).expect("the server listens")
}
