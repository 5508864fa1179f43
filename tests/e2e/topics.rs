//! Topics are administered; one that is deleted and made again under the same name is another topic.

use thetis_e2e::driver::Driver;
use thetis_e2e::reproduce;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::batch::{self, Codec, Producer, Record};
use thetis_e2e::wire::requests::{EARLIEST, LATEST, eventually};
use thetis_e2e::wire::{Connection, code};

/// Case O12: new id, offsets from 0, nothing of the old one, and the group's commits for it are gone.
#[test]
fn deleted_and_made_again() {
    reproduce("topics::deleted_and_made_again");
    let mut server = Server::start();
    let mut connection = open(&server);
    let (topic, group) = (unique("again"), unique("reader"));
    connection.create_topic(&topic, 1, &[]);
    append(&mut connection, &topic, 100, b"old");
    let bootstrap = server.bootstrap().to_owned();
    let act = |act: &str, more: &[&str]| {
        let options = ["--bootstrap", &bootstrap, "--topic", &topic, "--group", &group];
        Driver::python("records.py", &[&[act], &options[..], more].concat()).finish_json()
    };
    act("commit", &["--offset", "100", "--metadata", "all"]);
    let old_id = connection.topic_id(&topic).expect("the topic is there");
    assert_ne!(old_id, [0; 16]);
    assert_eq!(connection.fetch_code_by_id(old_id, 0), code::NONE);

    connection.delete_topic(&topic);
    eventually("the topic is gone", || connection.topic_id(&topic).is_none().then_some(()));
    let gone = connection.fetch_now(&topic, 0, 0);
    assert_eq!((gone.code, gone.batches.len()), (code::UNKNOWN_TOPIC_OR_PARTITION, 0));
    connection.create_topic(&topic, 1, &[]);
    let new_id = connection.topic_id(&topic).expect("the topic is there again");
    assert_ne!(new_id, old_id);
    assert_eq!(connection.list_offset(&topic, 0, LATEST).offset, 0);
    append(&mut connection, &topic, 5, b"new");

    for restart in [None, Some(Stop::Kill), Some(Stop::Term)] {
        if let Some(stop) = restart {
            server.restart(stop);
            connection = open(&server);
        }
        assert_eq!(connection.topic_id(&topic), Some(new_id), "{restart:?}");
        assert_eq!(connection.list_offset(&topic, 0, EARLIEST).offset, 0);
        assert_eq!(connection.list_offset(&topic, 0, LATEST).offset, 5);
        let by_old_id = connection.fetch_code_by_id(old_id, 0);
        let refusals = [code::UNKNOWN_TOPIC_ID, code::INCONSISTENT_TOPIC_ID];
        assert!(refusals.contains(&by_old_id), "a fetch by the old id got {by_old_id}");
        let found = act("consume", &[]);
        let values: Vec<&str> = found.iter().filter_map(|line| line["value"].as_str()).collect();
        assert_eq!(values, ["6e6577"; 5], "{restart:?}");
        eventually("the group's commit for the old topic is gone", || {
            act("committed", &[])[0]["offset"].is_null().then_some(())
        });
    }
}

/// What scripts of platform engineers do all day, each answered as Apache Kafka answers.
#[test]
fn administered() {
    reproduce("topics::administered");
    let server = Server::start();
    let (topic, group) = (unique("admin"), unique("admins"));
    let options = ["--bootstrap", server.bootstrap(), "--topic", &topic, "--group", &group];
    let seen = Driver::python("admin.py", &options).finish_json().remove(0);
    let expected = serde_json::json!({
        "create_too_replicated": "INVALID_REPLICATION_FACTOR",
        "create_bad_config": "INVALID_CONFIG",
        "validate_only": null,
        "after_validate_only": false,
        "create": null,
        "create_again": "TOPIC_ALREADY_EXISTS",
        "create_bad_name": "TOPIC_EXCEPTION",
        "partitions": 2,
        "fewer": "INVALID_PARTITIONS",
        "more": null,
        "partitions_after": 5,
        "retention": ["3600000", 1],
        "segment_is_default": true,
        "set": null,
        "append": null,
        "append_to_number": "INVALID_CONFIG",
        "unset": null,
        "unknown_key": "INVALID_CONFIG",
        "altered": {"max.message.bytes": "2000", "cleanup.policy": "delete,compact"},
        "too_large": "MSG_SIZE_TOO_LARGE",
        "end": 10,
        "low_watermark": 4,
        "received": ["4", "5", "6", "7", "8", "9"],
        "listed": ["STABLE"],
        "members": 1,
        "assigned": 5,
        "delete_used_group": "NON_EMPTY_GROUP",
        "committed": [10],
        "delete_group": null,
        "delete_group_again": "GROUP_ID_NOT_FOUND",
        "nodes": 1,
        "cluster_id_length": 22,
        "controller_is_a_node": true,
        "delete": null,
        "delete_again": "UNKNOWN_TOPIC_OR_PART",
    });
    for (name, expected) in expected.as_object().expect("an object") {
        assert_eq!(&seen[name], expected, "{name}");
    }
    assert!(seen["keys"].as_u64() >= Some(25), "all settings are listed: {}", seen["keys"]);
    assert_ne!(seen["retention_source_after"], 1, "an unset value is the topic's no more");
}

fn append(connection: &mut Connection, topic: &str, count: usize, value: &[u8]) {
    let records = vec![Record::new(1, value); count];
    let bytes = batch::encode(&records, Codec::None, Producer::ANONYMOUS);
    let produced = connection.produce(topic, 0, &bytes).expect("Produce is answered");
    assert_eq!(produced.code, code::NONE);
}

fn open(server: &Server) -> Connection {
    Connection::open(server.bootstrap()).expect("the server listens")
}
