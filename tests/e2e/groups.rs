//! Consumer groups: rebalance when a member leaves, and committed offsets over restarts.

use std::collections::BTreeSet;

use thetis_e2e::driver::Driver;
use thetis_e2e::reproduce;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::batch::{self, Codec, Producer, Record};
use thetis_e2e::wire::requests::eventually;
use thetis_e2e::wire::{Connection, code};

const PARTITIONS: i32 = 6;
const RECORDS_A_ROUND: i32 = 5;

/// A member as a process, and what it has said so far.
struct Member {
    driver: Driver,
    assigned: BTreeSet<i32>,
    /// Partition and offset of each record shown.
    records: Vec<(i32, i64)>,
}

impl Member {
    fn new(driver: Driver) -> Member {
        Member { driver, assigned: BTreeSet::new(), records: Vec::new() }
    }

    /// Takes in what the member said since the last time.
    fn listen(&mut self) {
        while let Some(line) = self.driver.ready_line() {
            self.hear(&line);
        }
    }

    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        match words.next() {
            Some("assigned") => {
                let list = words.next().unwrap_or_default().split(',');
                self.assigned = list.filter_map(|partition| partition.parse().ok()).collect();
            }
            Some("record") => {
                let partition = words.next().and_then(|word| word.parse().ok());
                let offset = words.next().and_then(|word| word.parse().ok());
                let partition = partition.expect("a record has a partition");
                self.records.push((partition, offset.expect("a record has an offset")));
            }
            _ => {}
        }
    }

    /// Has the member commit what it has shown, and waits until it did.
    fn commit(&mut self) {
        self.driver.send("commit");
        loop {
            let line = self.driver.next_line().expect("a member answers before it ends");
            self.hear(&line);
            if line.starts_with("committed") {
                return;
            }
        }
    }

    fn leave(mut self) {
        self.driver.send("leave");
        self.driver.await_word("left");
        self.driver.finish();
    }
}

#[test]
fn confluent_members() {
    reproduce("groups::confluent_members");
    let start = |bootstrap: &str, topic: &str, group: &str| {
        let options = ["--bootstrap", bootstrap, "--topic", topic, "--group", group];
        Driver::python("member.py", &options)
    };
    life_of_a_group(start);
}

#[test]
fn kafkajs_members() {
    reproduce("groups::kafkajs_members");
    life_of_a_group(|bootstrap: &str, topic: &str, group: &str| {
        Driver::node("member.js", &[bootstrap, topic, group])
    });
}

/// Three members share six partitions; one leaves; the server is killed, then stopped in order; all
/// leave and a new one comes. Everything was committed before each change, so each record must
/// be shown exactly once.
fn life_of_a_group(start: impl Fn(&str, &str, &str) -> Driver) {
    let mut server = Server::start();
    let topic = unique("group");
    let group = unique("members");
    open(&server).create_topic(&topic, PARTITIONS, &[]);
    let bootstrap = server.bootstrap().to_owned();
    let join = || Member::new(start(&bootstrap, &topic, &group));
    let mut seen = BTreeSet::new();

    let mut members = vec![join(), join(), join()];
    await_shares(&mut members, 2);
    round(&server, &topic, &mut members, &mut seen);

    members.pop().expect("there are three").leave();
    await_shares(&mut members, 3);
    round(&server, &topic, &mut members, &mut seen);

    server.restart(Stop::Kill);
    round(&server, &topic, &mut members, &mut seen);

    server.restart(Stop::Term);
    round(&server, &topic, &mut members, &mut seen);

    for member in members {
        member.leave();
    }
    let mut late = vec![join()];
    await_shares(&mut late, 6);
    round(&server, &topic, &mut late, &mut seen);
    server.restart(Stop::Kill);
    for member in late {
        member.leave();
    }
}

/// Waits until the members' partitions are all the topic's, without overlap, and so many for each.
fn await_shares(members: &mut [Member], each: usize) {
    eventually("the partitions are shared out evenly", || {
        for member in members.iter_mut() {
            member.listen();
        }
        let all: BTreeSet<i32> =
            members.iter().flat_map(|member| member.assigned.iter().copied()).collect();
        let even = members.iter().all(|member| member.assigned.len() == each);
        (even && all.len() == each * members.len()).then_some(())
    });
}

/// Produces to every partition, waits until the members have shown it all, and has them commit.
fn round(server: &Server, topic: &str, members: &mut [Member], seen: &mut BTreeSet<(i32, i64)>) {
    let mut expected = seen.clone();
    let mut connection = open(server);
    for partition in 0..PARTITIONS {
        for number in 0..RECORDS_A_ROUND {
            let record = Record::new(batch::now_ms(), format!("value-{number}").as_bytes());
            let bytes = batch::encode(&[record], Codec::None, Producer::ANONYMOUS);
            let produced = connection.produce(topic, partition, &bytes);
            let produced = produced.expect("Produce is answered");
            assert_eq!(produced.code, code::NONE);
            expected.insert((partition, produced.base_offset));
        }
    }
    eventually("all records are shown", || {
        for member in members.iter_mut() {
            member.listen();
            for record in member.records.drain(..) {
                assert!(expected.contains(&record), "{record:?} was never produced");
                assert!(seen.insert(record), "{record:?} was shown again after its commit");
            }
        }
        (seen.len() == expected.len()).then_some(())
    });
    for member in members.iter_mut() {
        member.commit();
    }
}

/// Case O6: offset, metadata and leader epoch of a commit survive both ways to end.
#[test]
fn committed_offset_survives_restarts() {
    reproduce("groups::committed_offset_survives_restarts");
    let mut server = Server::start();
    let topic = unique("committed");
    let group = unique("reader");
    let mut connection = open(&server);
    connection.create_topic(&topic, 1, &[]);
    let records: Vec<Record> = (0..1000).map(|time| Record::new(time, b"v")).collect();
    let bytes = batch::encode(&records, Codec::None, Producer::ANONYMOUS);
    let produced = connection.produce(&topic, 0, &bytes).expect("Produce is answered");
    assert_eq!(produced.code, code::NONE);
    let bootstrap = server.bootstrap().to_owned();
    let act = |act: &str, more: &[&str]| {
        let mut arguments = vec![act, "--bootstrap", &bootstrap, "--topic", &topic];
        arguments.extend(["--group", group.as_str()]);
        arguments.extend(more);
        Driver::python("records.py", &arguments).finish_json().remove(0)
    };
    act("commit", &["--offset", "500", "--metadata", "half way, ünïcode"]);
    for stop in [Stop::Term, Stop::Kill] {
        server.restart(stop);
        let found = act("committed", &[]);
        assert_eq!(found["offset"], 500, "after {stop:?}");
        assert_eq!(found["metadata"], "half way, ünïcode", "after {stop:?}");
        assert_eq!(found["epoch"], 0, "after {stop:?}");
    }
}

/// Case O10: JoinGroup v0 has no rebalance timeout. The session timeout stands in for it; taken as
/// -1 or 0, the first member would be thrown out while the second joins.
#[test]
fn join_group_v0() {
    reproduce("groups::join_group_v0");
    let server = Server::start();
    let group = unique("v0");
    let (mut first, mut second) = (open(&server), open(&server));
    first.find_coordinator(&group);
    let session_ms = 30_000;
    let sent = "JoinGroup is sent";

    let alone = eventually("the coordinator has loaded its groups", || {
        first.send_join_v0(&group, "", session_ms).expect(sent);
        let joined = first.receive_join_v0();
        let loading = [
            code::COORDINATOR_LOAD_IN_PROGRESS,
            code::COORDINATOR_NOT_AVAILABLE,
            code::NOT_COORDINATOR,
        ];
        (!loading.contains(&joined.code)).then_some(joined)
    });
    assert_eq!((alone.code, &alone.leader), (code::NONE, &alone.member));
    first.send_sync_v0(&group, &alone, &[(&alone.member, b"all")]).expect(sent);
    assert_eq!(first.receive_sync_v0(), (code::NONE, b"all".to_vec()));

    second.send_join_v0(&group, "", session_ms).expect(sent);
    eventually("the first member is told of the rebalance", || {
        let heartbeat = first.heartbeat(&group, &alone);
        assert!(
            heartbeat == code::NONE || heartbeat == code::REBALANCE_IN_PROGRESS,
            "the first member's heartbeat got {heartbeat}"
        );
        (heartbeat == code::REBALANCE_IN_PROGRESS).then_some(())
    });
    first.send_join_v0(&group, &alone.member, session_ms).expect(sent);
    let (led, followed) = (first.receive_join_v0(), second.receive_join_v0());
    assert_eq!((led.code, followed.code), (code::NONE, code::NONE));
    assert_eq!(led.generation, followed.generation);
    assert_eq!((&led.leader, &followed.leader), (&led.member, &led.member));
    assert_eq!(led.members.len(), 2, "{led:?}");
    assert!(followed.members.is_empty(), "only the leader is told the members");

    let shares: [(&str, &[u8]); 2] = [(&led.member, b"one"), (&followed.member, b"two")];
    second.send_sync_v0(&group, &followed, &[]).expect(sent);
    first.send_sync_v0(&group, &led, &shares).expect(sent);
    assert_eq!(first.receive_sync_v0(), (code::NONE, b"one".to_vec()));
    assert_eq!(second.receive_sync_v0(), (code::NONE, b"two".to_vec()));
    assert_eq!(first.heartbeat(&group, &led), code::NONE);
    assert_eq!(second.heartbeat(&group, &followed), code::NONE);
}

fn open(server: &Server) -> Connection {
    Connection::open(server.bootstrap()).expect("the server listens")
}
