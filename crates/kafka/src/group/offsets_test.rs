//! Committing, reading, deleting and expiring offsets, as transcripts.

use super::message::{Commit, CommitPartition, FetchOffsets, Join, Request, Token, Written};
use super::scene::*;
use super::settings::{Settings, TOMBSTONES_PER_BATCH_MAX};
use super::{Event, InFlight};

fn ask_commit(scene: &mut Scene, commit: Commit) -> String {
    scene.ask("c", Request::Commit(commit))
}

/// A commit of a consumer that manages its partitions itself.
fn own(partition: i32, at: i64) -> Commit {
    commit("", -1, partition, at)
}

fn forget(topic: &str) -> Request {
    Request::ForgetTopic { topic: topic.into() }
}

fn delete() -> Request {
    Request::DeleteGroup { group_id: "g".into() }
}

/// Incident: after a restart of the broker the group read from zero. Text and leader epoch count,
/// and so does the offset of a topic nobody wrote to since.
#[test]
fn an_offset_comes_back_whole_after_a_restart() {
    let mut s = Scene::new();
    s.stable(&["a"]);
    let whole =
        CommitPartition { leader_epoch: 7, metadata: "half way \u{2713}".into(), ..offset(3, 500) };
    let commit = Commit { topics: vec![("t".into(), vec![whole])], ..commit("a#1", 1, 0, 0) };
    assert_eq!(ask_commit(&mut s, commit), "log: g/t-3=500\nc: commit t-3:None\n");
    let expected = "f: offsets t-3=500/7\"half way \u{2713}\"\n";
    assert_eq!(s.ask("f", fetch_all()), expected);
    s.restart();
    assert_eq!(s.ask("f", fetch_all()), expected);
    let some = FetchOffsets { group_id: "g".into(), topics: Some(vec![("t".into(), vec![3, 4])]) };
    assert_eq!(
        s.ask("f", Request::FetchOffsets(some)),
        "f: offsets t-3=500/7\"half way \u{2713}\" t-4=-1/-1\"\"\n"
    );
}

#[test]
fn an_offset_is_neither_answered_nor_readable_before_it_is_durable() {
    let mut s = Scene::new();
    s.log = Log::Holds;
    assert_eq!(ask_commit(&mut s, own(0, 5)), "log: g/t-0=5\n");
    assert_eq!(ask_commit(&mut s, own(0, 6)), "log: g/t-0=6\n", "the second does not wait");
    assert_eq!(s.ask("f", fetch_all()), "f: offsets \n");
    assert_eq!(s.settle(Written::Durable), "c: commit t-0:None\n");
    assert_eq!(s.ask("f", fetch_all()), "f: offsets t-0=5/-1\"\"\n");
    assert_eq!(s.settle(Written::Not), "c: commit t-0:CoordinatorNotAvailable\n");
    assert_eq!(s.ask("f", fetch_all()), "f: offsets t-0=5/-1\"\"\n");
}

/// The log's order is the order of tokens. Acting on reports as they come would leave the older
/// offset in memory and the newer one in the log.
#[test]
fn reports_out_of_order_do_not_turn_an_offset_back() {
    let mut s = Scene::new();
    s.log = Log::Holds;
    ask_commit(&mut s, own(0, 5));
    ask_commit(&mut s, own(0, 6));
    s.held.swap(0, 1);
    assert_eq!(s.settle(Written::Durable), "", "the first is still open");
    assert_eq!(s.settle(Written::Durable), "c: commit t-0:None\nc: commit t-0:None\n");
    assert_eq!(s.ask("f", fetch_all()), "f: offsets t-0=6/-1\"\"\n");
    let unknown = Event::Persisted { token: Token(99), written: Written::Durable };
    assert_eq!(s.apply(unknown), "", "a report about nothing changes nothing");
}

#[test]
fn who_may_commit() {
    let mut s = Scene::new();
    assert_eq!(
        ask_commit(&mut s, commit("a#1", 1, 0, 1)),
        "c: commit t-0:IllegalGeneration\n",
        "a generation of a group that does not exist"
    );
    s.stable(&["a", "b"]);
    assert_eq!(ask_commit(&mut s, own(0, 1)), "c: commit t-0:UnknownMemberId\n");
    assert_eq!(ask_commit(&mut s, commit("a#1", 2, 0, 1)), "c: commit t-0:IllegalGeneration\n");
    assert_eq!(ask_commit(&mut s, commit("z#9", 1, 0, 1)), "c: commit t-0:UnknownMemberId\n");
    // In a rebalance a member still says how far it came under the generation it holds.
    s.ask("a", Request::Join(rejoin("a#1")));
    assert_eq!(ask_commit(&mut s, commit("b#2", 1, 0, 2)), "log: g/t-0=2\nc: commit t-0:None\n");
    s.ask("b", Request::Join(rejoin("b#2")));
    assert_eq!(ask_commit(&mut s, commit("b#2", 1, 0, 3)), "c: commit t-0:IllegalGeneration\n");
    assert_eq!(ask_commit(&mut s, commit("b#2", 2, 0, 3)), "c: commit t-0:RebalanceInProgress\n");
    s.ask("x", leave(&["a#1", "b#2"]));
    assert_eq!(
        ask_commit(&mut s, own(0, 4)),
        "log: g/t-0=4\nc: commit t-0:None\n",
        "an empty group takes an operator's commit"
    );
}

#[test]
fn a_commit_keeps_the_session_alive() {
    let mut s = Scene::new();
    s.stable(&["a"]);
    for at in 0..3 {
        s.pass(20_000);
        let said = ask_commit(&mut s, commit("a#1", 1, 0, at));
        assert_eq!(said, format!("log: g/t-0={at}\nc: commit t-0:None\n"));
    }
}

#[test]
fn one_partition_is_refused_and_the_others_are_not() {
    let settings =
        Settings { offset_metadata_bytes_max: 3, offsets_per_group_max: 2, ..Settings::default() };
    let mut s = Scene::with(settings);
    let with_text = |p: i32, text: &str| CommitPartition { metadata: text.into(), ..offset(p, 1) };
    let topics = vec![
        ("t".into(), vec![with_text(0, "abc"), with_text(1, "abcd"), with_text(2, "")]),
        ("u".repeat(250), vec![offset(0, 1)]),
        ("v".into(), vec![offset(0, 1)]),
    ];
    assert_eq!(
        ask_commit(&mut s, Commit { topics, ..own(0, 0) }),
        format!(
            "log: g/t-0=1, g/t-2=1\nc: commit t-0:None t-1:OffsetMetadataTooLarge t-2:None \
             {}-0:UnknownTopicOrPartition v-0:CoordinatorLoadInProgress\n",
            "u".repeat(250)
        )
    );
    assert_eq!(ask_commit(&mut s, own(2, 9)), "log: g/t-2=9\nc: commit t-2:None\n");
}

#[test]
fn commits_under_way_are_bounded() {
    let mut s = Scene::with(Settings { commits_in_flight_max: 1, ..Settings::default() });
    s.log = Log::Holds;
    ask_commit(&mut s, own(0, 1));
    assert_eq!(ask_commit(&mut s, own(0, 2)), "c: commit t-0:CoordinatorLoadInProgress\n");
    s.settle(Written::Durable);
    assert_eq!(ask_commit(&mut s, own(0, 2)), "log: g/t-0=2\n");
}

/// Incident: a topic made again under its old name was read from the old topic's offset. What was
/// being committed when the topic went must go too, and stay gone after a restart.
#[test]
fn offsets_of_a_deleted_topic_go_with_it() {
    let mut s = Scene::new();
    ask_commit(&mut s, own(0, 100));
    ask_commit(&mut s, Commit { group_id: "h".into(), ..own(1, 100) });
    let other = Commit { topics: vec![("u".into(), vec![offset(0, 7)])], ..own(0, 0) };
    ask_commit(&mut s, other);
    s.log = Log::Holds;
    ask_commit(&mut s, own(2, 100));
    assert_eq!(s.ask("d", forget("t")), "log: g/t-0 gone, g/t-2 gone, h/t-1 gone\n");
    assert_eq!(s.settle(Written::Durable), "c: commit t-2:None\n");
    assert_eq!(s.settle(Written::Durable), "d: forgotten None\n");
    for _ in 0..2 {
        assert_eq!(s.ask("f", fetch_all()), "f: offsets u-0=7/-1\"\"\n");
        assert_eq!(s.ask("?", Request::List), "?: groups g::Empty\n", "h had nothing else");
        s.restart();
    }
}

#[test]
fn a_topic_that_could_not_be_forgotten_is_not_said_to_be() {
    let mut s = Scene::new();
    ask_commit(&mut s, own(0, 100));
    s.log = Log::Refuses;
    assert_eq!(s.ask("d", forget("t")), "log: g/t-0 gone\nd: forgotten CoordinatorNotAvailable\n");
    assert_eq!(s.ask("f", fetch_all()), "f: offsets t-0=100/-1\"\"\n");
}

#[test]
fn a_large_topic_is_forgotten_batch_by_batch() {
    let mut s = Scene::new();
    let count = i32::try_from(TOMBSTONES_PER_BATCH_MAX).unwrap() + 1;
    let partitions = (0..count).map(|p| offset(p, 1)).collect();
    ask_commit(&mut s, Commit { topics: vec![("t".into(), partitions)], ..own(0, 0) });
    let said = s.ask("d", forget("t"));
    assert_eq!(said.matches("log: ").count(), 2);
    assert!(said.ends_with("d: forgotten None\n"));
    assert_eq!(s.ask("?", Request::List), "?: groups \n");
}

#[test]
fn a_group_is_deleted_when_it_is_empty() {
    let mut s = Scene::new();
    assert_eq!(s.ask("d", delete()), "d: deleted GroupIdNotFound\n");
    s.stable(&["a"]);
    ask_commit(&mut s, commit("a#1", 1, 0, 5));
    assert_eq!(s.ask("d", delete()), "d: deleted NonEmptyGroup\n");
    s.ask("a", leave(&["a#1"]));
    s.log = Log::Holds;
    ask_commit(&mut s, own(1, 6));
    assert_eq!(s.ask("d", delete()), "log: g/t-0 gone, g/t-1 gone, g gone\n");
    assert_eq!(s.ask("e", delete()), "", "waits for the first");
    assert_eq!(s.settle(Written::Durable), "c: commit t-1:None\n");
    assert_eq!(s.settle(Written::Durable), "d: deleted None\ne: deleted GroupIdNotFound\n");
    assert_eq!(s.ask("?", Request::List), "?: groups \n");
    s.restart();
    assert_eq!(s.ask("?", Request::List), "?: groups \n");
}

/// The tombstones settle after the group was deleted and its name used again; they must neither
/// be counted against the new group nor take its offset.
#[test]
fn a_deleted_group_is_made_again_while_tombstones_are_under_way() {
    let mut s = Scene::new();
    ask_commit(&mut s, own(0, 5));
    s.log = Log::Holds;
    assert_eq!(s.ask("d", delete()), "log: g/t-0 gone\n");
    assert_eq!(s.ask("t", forget("t")), "log: g/t-0 gone\n");
    assert_eq!(s.settle(Written::Durable), "d: deleted None\n");
    assert_eq!(ask_commit(&mut s, own(0, 8)), "log: g/t-0=8\n");
    assert_eq!(s.settle(Written::Durable), "t: forgotten None\n");
    assert_eq!(s.settle(Written::Durable), "c: commit t-0:None\n");
    for _ in 0..2 {
        assert_eq!(s.ask("f", fetch_all()), "f: offsets t-0=8/-1\"\"\n");
        s.restart();
    }
}

/// Each would find the other's tombstones under way and write more of them, for ever.
#[test]
fn a_topic_forgotten_twice_at_once_is_forgotten() {
    let mut s = Scene::new();
    ask_commit(&mut s, own(0, 5));
    s.log = Log::Holds;
    assert_eq!(s.ask("x", forget("t")), "log: g/t-0 gone\n");
    assert_eq!(s.ask("y", forget("t")), "log: g/t-0 gone\n");
    assert_eq!(s.settle(Written::Durable), "x: forgotten None\n");
    assert_eq!(s.settle(Written::Durable), "y: forgotten None\n");
    assert_eq!(s.ask("?", Request::List), "?: groups \n");
}

#[test]
fn a_deletion_that_the_log_refuses_leaves_the_group() {
    let mut s = Scene::new();
    ask_commit(&mut s, own(0, 5));
    s.log = Log::Refuses;
    assert_eq!(s.ask("d", delete()), "log: g/t-0 gone\nd: deleted CoordinatorNotAvailable\n");
    assert_eq!(s.ask("f", fetch_all()), "f: offsets t-0=5/-1\"\"\n");
}

#[test]
fn single_offsets_are_deleted_unless_their_topic_is_read() {
    let mut s = Scene::new();
    s.stable(&["a"]);
    let partitions = vec![("t".into(), vec![offset(0, 1)]), ("u".into(), vec![offset(0, 1)])];
    ask_commit(&mut s, Commit { topics: partitions, ..commit("a#1", 1, 0, 0) });
    let ask = Request::DeleteOffsets {
        group_id: "g".into(),
        topics: vec![("t".into(), vec![0]), ("u".into(), vec![0, 1])],
    };
    assert_eq!(
        s.ask("d", ask.clone()),
        "log: g/u-0 gone\nd: deleted None t-0:GroupSubscribedToTopic u-0:None u-1:None\n"
    );
    s.ask("a", leave(&["a#1"]));
    assert_eq!(s.ask("d", ask), "log: g/t-0 gone\nd: deleted None t-0:None u-0:None u-1:None\n");
}

#[test]
fn offsets_expire_seven_days_after_the_group_became_empty() {
    let mut s = Scene::new();
    s.stable(&["a"]);
    ask_commit(&mut s, commit("a#1", 1, 0, 5));
    for _ in 0..8 {
        // A day of commits on another topic; t is read, so its offset stays however old it is.
        for _ in 0..DAY_MS / 25_000 {
            s.pass(25_000);
            s.ask("a", heartbeat("a#1", 1));
        }
    }
    s.ask("a", leave(&["a#1"]));
    assert_eq!(s.pass(7 * DAY_MS - 1), "");
    assert_eq!(s.ask("f", fetch_all()), "f: offsets t-0=5/-1\"\"\n");
    assert_eq!(s.pass(600_001), "log: g/t-0 gone\nlog: g gone\n");
    assert_eq!(s.ask("?", Request::List), "?: groups \n");
    s.restart();
    assert_eq!(s.ask("?", Request::List), "?: groups \n");
}

#[test]
fn offsets_of_a_group_without_members_expire_after_their_commit() {
    let mut s = Scene::new();
    ask_commit(&mut s, own(0, 5));
    s.pass(6 * DAY_MS);
    ask_commit(&mut s, own(1, 5));
    assert_eq!(s.pass(DAY_MS + 600_000), "log: g/t-0 gone\n");
    ask_commit(&mut s, Commit { retention_ms: Some(1_000), ..own(2, 5) });
    assert_eq!(s.pass(600_000), "log: g/t-2 gone\n", "its own retention");
    assert_eq!(s.pass(6 * DAY_MS), "log: g/t-1 gone\n");
}

#[test]
fn offsets_expire_by_steps() {
    let mut s = Scene::new();
    let count = i32::try_from(TOMBSTONES_PER_BATCH_MAX).unwrap() + 1;
    let partitions = (0..count).map(|p| offset(p, 1)).collect();
    ask_commit(&mut s, Commit { topics: vec![("t".into(), partitions)], ..own(0, 0) });
    ask_commit(&mut s, Commit { group_id: "h".into(), ..own(0, 0) });
    assert_eq!(s.pass(7 * DAY_MS + 600_000).matches("log: ").count(), 3, "two for g, one for h");
    assert_eq!(s.ask("?", Request::List), "?: groups \n");
}

#[test]
fn a_snapshot_replays_to_the_same_state_and_waits_for_the_log() {
    let mut s = Scene::new();
    s.stable(&["a"]);
    ask_commit(&mut s, commit("a#1", 1, 0, 5));
    ask_commit(&mut s, commit("a#1", 1, 0, 6));
    s.ask("b", Request::Join(Join { requires_known_member_id: false, ..join("b") }));
    s.log = Log::Holds;
    ask_commit(&mut s, commit("a#1", 1, 1, 7));
    assert_eq!(s.coordinator.snapshot(), Err(InFlight { count: 1 }));
    s.settle(Written::Durable);
    let snapshot = s.coordinator.snapshot().unwrap();
    assert_eq!(snapshot.len(), 3, "one group, two offsets");
    s.durable = snapshot.clone();
    s.restart();
    assert_eq!(s.coordinator.snapshot(), Ok(snapshot));
    assert_eq!(s.ask("?", describe()), "?: Stable consumer range [a#1=for a#1]\n");
    assert_eq!(s.ask("f", fetch_all()), "f: offsets t-0=6/-1\"\" t-1=7/-1\"\"\n");
}
