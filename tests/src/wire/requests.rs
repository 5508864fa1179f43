//! The requests that the tests send, each in one fixed version, and what the tests read of the answers.

use std::time::Duration;

use super::batch::{self, Batch};
use super::codec::{Reader, Writer};
use super::{Connection, api, code};

/// How often, and how long apart, a question is asked again that a broker may answer late, such as
/// whether a new topic has a leader. Together one minute.
const ASK_AGAIN: u32 = 600;
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Milliseconds that a broker may take for an administrative act or for acks=-1.
const BROKER_TIMEOUT_MS: i32 = 30_000;

/// Asks until the answer is something.
///
/// # Panics
/// When it never is.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..ASK_AGAIN {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(ASK_AGAIN_AFTER);
    }
    panic!("waited in vain until {what}");
}

/// A consumer's subscription to no topic: version 0, no topics, no user data. Apache Kafka looks into
/// it, and a group whose members send anything else never finishes its rebalance.
const SUBSCRIPTION: &[u8] = &[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// What Produce said about a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Produced {
    /// The error code.
    pub code: i16,
    /// Where the batch begins; -1 on errors.
    pub base_offset: i64,
}

/// What Fetch said about a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// The error code.
    pub code: i16,
    /// The end of what is committed.
    pub high_watermark: i64,
    /// The first offset that is kept.
    pub log_start: i64,
    /// Whole batches.
    pub batches: Vec<Batch>,
}

/// What to fetch, and how long to wait for it.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// Milliseconds of the long poll.
    pub wait_ms: i32,
    /// Bytes to wait for.
    pub bytes_min: i32,
    /// Bytes of the whole answer.
    pub bytes_max: i32,
    /// Bytes for each partition.
    pub partition_bytes_max: i32,
}

impl FetchLimits {
    /// Answer at once with up to 64 MiB.
    pub const NOW: FetchLimits = FetchLimits {
        wait_ms: 0,
        bytes_min: 0,
        bytes_max: 64 << 20,
        partition_bytes_max: 64 << 20,
    };
}

/// What ListOffsets said about a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The error code.
    pub code: i16,
    /// The timestamp of the record, or -1.
    pub timestamp: i64,
    /// The offset, or -1.
    pub offset: i64,
}

/// ListOffsets for the end of the log.
pub const LATEST: i64 = -1;
/// ListOffsets for the start of the log.
pub const EARLIEST: i64 = -2;

/// What JoinGroup said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The error code.
    pub code: i16,
    /// The generation of the group.
    pub generation: i32,
    /// Who leads.
    pub leader: String,
    /// Who we are.
    pub member: String,
    /// Everybody, if we lead.
    pub members: Vec<String>,
}

impl Connection {
    /// ApiVersions in any version, also in ones that do not exist: the rest of the answer.
    ///
    /// # Errors
    /// As `call`.
    pub fn api_versions(&mut self, version: i16) -> std::io::Result<Reader> {
        let mut body = Writer::new();
        if version >= 3 {
            body.compact_string("thetis-e2e").compact_string("1").tags();
        }
        self.call(api::API_VERSIONS, version, &body)
    }

    /// Creates a topic and waits until every partition has a leader that answers. It keeps its records
    /// for ever: many of the tests' records are from 1970, and retention goes by their own time.
    ///
    /// # Panics
    /// When it cannot be created.
    pub fn create_topic(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
        let mut body = Writer::new();
        body.count(1).string(Some(topic)).i32(partitions).i16(1).count(0);
        let configs = [&[("retention.ms", "-1")], configs].concat();
        body.count(configs.len());
        for (name, value) in configs {
            body.string(Some(name)).string(Some(value));
        }
        body.i32(BROKER_TIMEOUT_MS).bool(false);
        let mut answer = self.call(api::CREATE_TOPICS, 2, &body).expect("CreateTopics is answered");
        answer.i32();
        assert_eq!(answer.count(), 1);
        answer.string();
        let (failure, message) = (answer.i16(), answer.string());
        assert_eq!(failure, code::NONE, "{topic} could not be created: {message:?}");
        for partition in 0..partitions {
            eventually("a new partition has a leader", || {
                let listed = self.list_offset(topic, partition, LATEST);
                (listed.code == code::NONE).then_some(())
            });
        }
    }

    /// Deletes a topic.
    ///
    /// # Panics
    /// When it cannot be deleted.
    pub fn delete_topic(&mut self, topic: &str) {
        let mut body = Writer::new();
        body.count(1).string(Some(topic)).i32(BROKER_TIMEOUT_MS);
        let mut answer = self.call(api::DELETE_TOPICS, 1, &body).expect("DeleteTopics is answered");
        answer.i32();
        answer.count();
        answer.string();
        assert_eq!(answer.i16(), code::NONE, "{topic} could not be deleted");
    }

    /// The id of a topic, or `None` when there is no such topic.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn topic_id(&mut self, topic: &str) -> Option<[u8; 16]> {
        let mut body = Writer::new();
        body.compact_count(1).raw(&[0; 16]).compact_string(topic).tags();
        body.bool(false).bool(false).tags();
        let mut answer = self.call(api::METADATA, 12, &body).expect("Metadata is answered");
        answer.i32();
        for _ in 0..answer.compact_count() {
            answer.i32();
            answer.compact_string();
            answer.i32();
            answer.compact_string();
            answer.tags();
        }
        answer.compact_string();
        answer.i32();
        assert_eq!(answer.compact_count(), 1);
        let failure = answer.i16();
        assert_eq!(answer.compact_string(), topic);
        (failure == code::NONE).then(|| answer.uuid())
    }

    /// Produce with acks=-1; asks again while the partition has no leader, as clients do.
    ///
    /// # Errors
    /// As `call`: the server may have been killed.
    pub fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: &[u8],
    ) -> std::io::Result<Produced> {
        let body = produce_body(topic, partition, -1, batch);
        eventually("the partition has a leader", || {
            let produced = self.call(api::PRODUCE, 7, &body).map(read_produced);
            let leaderless =
                produced.as_ref().is_ok_and(|one| one.code == code::NOT_LEADER_OR_FOLLOWER);
            (!leaderless).then_some(produced)
        })
    }

    /// Fetch of several partitions of one topic, in the order given.
    ///
    /// # Errors
    /// As `call`.
    pub fn fetch(
        &mut self,
        topic: &str,
        wanted: &[(i32, i64)],
        limits: FetchLimits,
    ) -> std::io::Result<Vec<Fetched>> {
        let mut answer = self.call(api::FETCH, 11, &fetch_body(topic, wanted, limits))?;
        Ok(read_fetched(&mut answer))
    }

    /// Fetch of one partition, at once; asks again while the partition has no leader.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn fetch_now(&mut self, topic: &str, partition: i32, offset: i64) -> Fetched {
        eventually("the partition has a leader", || {
            let fetched = self.fetch(topic, &[(partition, offset)], FetchLimits::NOW);
            let fetched = fetched.expect("Fetch is answered").remove(0);
            (fetched.code != code::NOT_LEADER_OR_FOLLOWER).then_some(fetched)
        })
    }

    /// Fetch v13 of partition 0 of a topic named by id: the error code, or that of the whole answer.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn fetch_code_by_id(&mut self, id: [u8; 16], offset: i64) -> i16 {
        let mut body = Writer::new();
        body.i32(-1).i32(0).i32(0).i32(1 << 20).i8(0).i32(0).i32(-1).compact_count(1).raw(&id);
        body.compact_count(1).i32(0).i32(-1).i64(offset).i32(-1).i64(-1).i32(1 << 20).tags();
        body.tags().compact_count(0).compact_string("").tags();
        let mut answer = self.call(api::FETCH, 13, &body).expect("Fetch is answered");
        answer.i32();
        let whole = answer.i16();
        answer.i32();
        if whole != code::NONE || answer.compact_count() == 0 {
            return whole;
        }
        assert_eq!(answer.uuid(), id);
        assert_eq!(answer.compact_count(), 1);
        answer.i32();
        answer.i16()
    }

    /// ListOffsets v4 of one partition: by time, or `LATEST` or `EARLIEST`; asks again while the
    /// partition has no leader.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn list_offset(&mut self, topic: &str, partition: i32, timestamp: i64) -> Listed {
        eventually("the partition has a leader", || {
            let listed = self.list_offset_once(topic, partition, timestamp);
            (listed.code != code::NOT_LEADER_OR_FOLLOWER).then_some(listed)
        })
    }

    fn list_offset_once(&mut self, topic: &str, partition: i32, timestamp: i64) -> Listed {
        let mut body = Writer::new();
        body.i32(-1).i8(0).count(1).string(Some(topic)).count(1);
        body.i32(partition).i32(-1).i64(timestamp);
        let mut answer = self.call(api::LIST_OFFSETS, 4, &body).expect("ListOffsets is answered");
        answer.i32();
        assert_eq!(answer.count(), 1);
        answer.string();
        assert_eq!(answer.count(), 1);
        assert_eq!(answer.i32(), partition);
        Listed { code: answer.i16(), timestamp: answer.i64(), offset: answer.i64() }
    }

    /// DeleteRecords of one partition below `offset`: the new start and the error code.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn delete_records(&mut self, topic: &str, partition: i32, offset: i64) -> (i64, i16) {
        let mut body = Writer::new();
        body.count(1).string(Some(topic)).count(1).i32(partition).i64(offset);
        body.i32(BROKER_TIMEOUT_MS);
        let answer = self.call(api::DELETE_RECORDS, 1, &body);
        let mut answer = answer.expect("DeleteRecords is answered");
        answer.i32();
        answer.count();
        answer.string();
        answer.count();
        answer.i32();
        (answer.i64(), answer.i16())
    }

    /// InitProducerId without transactions: id and epoch.
    ///
    /// # Errors
    /// As `call`.
    pub fn init_producer(&mut self) -> std::io::Result<(i64, i16)> {
        let mut body = Writer::new();
        body.string(None).i32(BROKER_TIMEOUT_MS);
        for _ in 0..ASK_AGAIN {
            let mut answer = self.call(api::INIT_PRODUCER_ID, 1, &body)?;
            answer.i32();
            match answer.i16() {
                code::NONE => return Ok((answer.i64(), answer.i16())),
                code::COORDINATOR_LOAD_IN_PROGRESS | code::COORDINATOR_NOT_AVAILABLE => {
                    std::thread::sleep(ASK_AGAIN_AFTER);
                }
                failure => panic!("InitProducerId failed with {failure}"),
            }
        }
        panic!("InitProducerId was never ready")
    }

    /// Waits until the coordinator of a group is there.
    ///
    /// # Panics
    /// When it never is.
    pub fn find_coordinator(&mut self, group: &str) {
        let mut body = Writer::new();
        body.string(Some(group));
        eventually("the group has a coordinator", || {
            let answer = self.call(api::FIND_COORDINATOR, 0, &body);
            (answer.expect("FindCoordinator is answered").i16() == code::NONE).then_some(())
        });
    }

    /// JoinGroup v0, which has no rebalance timeout: sends it only, since the answer may have to wait
    /// for other members.
    ///
    /// # Errors
    /// As `send`.
    pub fn send_join_v0(
        &mut self,
        group: &str,
        member: &str,
        session_ms: i32,
    ) -> std::io::Result<i32> {
        let mut body = Writer::new();
        body.string(Some(group)).i32(session_ms).string(Some(member)).string(Some("consumer"));
        body.count(1).string(Some("range")).blob(SUBSCRIPTION);
        self.send(api::JOIN_GROUP, 0, &body)
    }

    /// The answer to `send_join_v0`.
    ///
    /// # Panics
    /// When there is none.
    pub fn receive_join_v0(&mut self) -> Joined {
        let (_, mut answer) = self.receive().expect("JoinGroup is answered");
        let failure = answer.i16();
        let generation = answer.i32();
        answer.string();
        let leader = answer.string().unwrap_or_default();
        let member = answer.string().unwrap_or_default();
        let mut members = Vec::new();
        for _ in 0..answer.count() {
            members.push(answer.string().expect("a member has a name"));
            assert_eq!(answer.blob(), SUBSCRIPTION);
        }
        Joined { code: failure, generation, leader, member, members }
    }

    /// SyncGroup v0: sends it only.
    ///
    /// # Errors
    /// As `send`.
    pub fn send_sync_v0(
        &mut self,
        group: &str,
        joined: &Joined,
        assignments: &[(&str, &[u8])],
    ) -> std::io::Result<i32> {
        let mut body = Writer::new();
        body.string(Some(group)).i32(joined.generation).string(Some(&joined.member));
        body.count(assignments.len());
        for (member, assignment) in assignments {
            body.string(Some(member)).blob(assignment);
        }
        self.send(api::SYNC_GROUP, 0, &body)
    }

    /// The answer to `send_sync_v0`: error code and assignment.
    ///
    /// # Panics
    /// When there is none.
    pub fn receive_sync_v0(&mut self) -> (i16, Vec<u8>) {
        let (_, mut answer) = self.receive().expect("SyncGroup is answered");
        (answer.i16(), answer.blob())
    }

    /// Heartbeat v0: the error code.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn heartbeat(&mut self, group: &str, joined: &Joined) -> i16 {
        let mut body = Writer::new();
        body.string(Some(group)).i32(joined.generation).string(Some(&joined.member));
        self.call(api::HEARTBEAT, 0, &body).expect("Heartbeat is answered").i16()
    }
}

/// The body of Produce v7 for one partition.
#[must_use]
pub fn produce_body(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Writer {
    let mut body = Writer::new();
    body.string(None).i16(acks).i32(BROKER_TIMEOUT_MS).count(1).string(Some(topic));
    body.count(1).i32(partition).blob(batch);
    body
}

/// Reads the answer to Produce v7 for one partition.
///
/// # Panics
/// When it is malformed.
#[must_use]
pub fn read_produced(mut answer: Reader) -> Produced {
    assert_eq!(answer.count(), 1);
    answer.string();
    assert_eq!(answer.count(), 1);
    answer.i32();
    Produced { code: answer.i16(), base_offset: answer.i64() }
}

/// The body of Fetch v11, without a session.
#[must_use]
pub fn fetch_body(topic: &str, wanted: &[(i32, i64)], limits: FetchLimits) -> Writer {
    let mut body = Writer::new();
    body.i32(-1).i32(limits.wait_ms).i32(limits.bytes_min).i32(limits.bytes_max).i8(0);
    body.i32(0).i32(-1).count(1).string(Some(topic)).count(wanted.len());
    for (partition, offset) in wanted {
        body.i32(*partition).i32(-1).i64(*offset).i64(-1).i32(limits.partition_bytes_max);
    }
    body.count(0).string(Some(""));
    body
}

/// Reads the answer to Fetch v11 for one topic.
///
/// # Panics
/// When it is malformed.
#[must_use]
pub fn read_fetched(answer: &mut Reader) -> Vec<Fetched> {
    answer.i32();
    assert_eq!(answer.i16(), code::NONE, "Fetch as a whole");
    answer.i32();
    assert_eq!(answer.count(), 1);
    answer.string();
    let mut partitions = Vec::new();
    for _ in 0..answer.count() {
        answer.i32();
        let failure = answer.i16();
        let high_watermark = answer.i64();
        answer.i64();
        let log_start = answer.i64();
        for _ in 0..answer.count() {
            answer.raw(16);
        }
        answer.i32();
        let batches = batch::decode(&answer.blob());
        partitions.push(Fetched { code: failure, high_watermark, log_start, batches });
    }
    partitions
}
