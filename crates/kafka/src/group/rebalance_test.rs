//! Joining, syncing, leaving and falling silent, as transcripts.

use super::message::{Join, Leave, MemberIdentity, Request, Written};
use super::scene::*;
use super::settings::Settings;

fn ask_join(scene: &mut Scene, join: Join) -> String {
    let who = join.client_id.clone();
    scene.ask(&who, Request::Join(join))
}

/// Without the first refusal, a client that disconnects while it joins leaves a member behind for
/// a whole session.
#[test]
fn a_new_member_learns_its_id_first() {
    let mut s = Scene::new();
    assert_eq!(ask_join(&mut s, join("a")), "a: join MemberIdRequired id=a#1\n");
    assert_eq!(ask_join(&mut s, rejoin("a#1")), "");
    assert_eq!(s.pass(2_999), "");
    assert_eq!(s.pass(1), "a: joined 1 range as a#1 led by a#1 [a#1]\n");
    assert_eq!(
        s.ask("a", sync("a#1", 1, &["a#1"])),
        "log: g generation 1 [a#1]\na: synced for a#1\n"
    );
    assert_eq!(s.ask("?", describe()), "?: Stable consumer range [a#1=for a#1]\n");
    assert_eq!(s.ask("a", heartbeat("a#1", 1)), "a: heartbeat None\n");
}

#[test]
fn an_id_that_is_not_used_lapses_with_the_session_timeout() {
    let mut s = Scene::new();
    ask_join(&mut s, join("a"));
    assert_eq!(s.ask("?", Request::List), "?: groups g::Empty\n");
    assert_eq!(s.pass(30_000), "");
    assert_eq!(ask_join(&mut s, rejoin("a#1")), "a: join UnknownMemberId id=a#1\n");
    assert_eq!(s.ask("?", Request::List), "?: groups \n");
}

/// Members that arrive together at start get one generation, not one each.
#[test]
fn the_first_rebalance_is_put_off_while_members_keep_arriving() {
    let mut s = Scene::new();
    let old = |name| Join { requires_known_member_id: false, ..join(name) };
    ask_join(&mut s, old("a"));
    assert_eq!(s.pass(2_000), "");
    ask_join(&mut s, old("b"));
    assert_eq!(s.pass(3_000), "", "put off once more for b");
    assert_eq!(
        s.pass(1_000),
        "a: joined 1 range as a#1 led by a#1 [a#1 b#2]\n\
         b: joined 1 range as b#2 led by a#1 []\n"
    );
}

/// Incident: a client of version 0, which has no rebalance timeout, had it read as -1; everybody
/// was thrown out at once, for ever.
#[test]
fn without_a_rebalance_timeout_the_session_timeout_serves() {
    let mut s = Scene::new();
    let v0 =
        |name| Join { rebalance_timeout_ms: -1, requires_known_member_id: false, ..join(name) };
    ask_join(&mut s, v0("a"));
    s.pass(3_000);
    s.ask("a", sync("a#1", 1, &["a#1"]));
    assert_eq!(ask_join(&mut s, v0("b")), "", "b waits for a");
    assert_eq!(s.pass(20_000), "");
    assert_eq!(s.ask("a", heartbeat("a#1", 1)), "a: heartbeat RebalanceInProgress\n");
    let again = Join { member_id: id("a#1"), ..v0("a") };
    assert_eq!(
        ask_join(&mut s, again),
        "a: joined 2 range as a#1 led by a#1 [a#1 b#2]\n\
         b: joined 2 range as b#2 led by a#1 []\n"
    );
    assert_eq!(s.ask("b", sync("b#2", 2, &[])), "");
    assert_eq!(
        s.ask("a", sync("a#1", 2, &["a#1", "b#2"])),
        "log: g generation 2 [a#1 b#2]\na: synced for a#1\nb: synced for b#2\n"
    );
}

#[test]
fn who_does_not_rejoin_in_time_is_left_behind() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    let changed = Join { protocols: vec![protocol("range"), protocol("sticky")], ..rejoin("b#2") };
    assert_eq!(ask_join(&mut s, changed), "");
    // a stays alive but does not rejoin.
    for _ in 0..5 {
        s.pass(10_000);
        assert_eq!(s.ask("a", heartbeat("a#1", 1)), "a: heartbeat RebalanceInProgress\n");
    }
    assert_eq!(s.pass(10_000), "b: joined 2 range as b#2 led by b#2 [b#2]\n");
    assert_eq!(s.ask("a", heartbeat("a#1", 1)), "a: heartbeat UnknownMemberId\n");
}

#[test]
fn the_protocol_with_most_votes_among_the_common_ones_wins() {
    let mut s = Scene::new();
    let offers = |name, protocols: &[&str]| Join {
        protocols: protocols.iter().map(|p| protocol(p)).collect(),
        requires_known_member_id: false,
        ..join(name)
    };
    ask_join(&mut s, offers("a", &["x", "range", "sticky"]));
    ask_join(&mut s, offers("b", &["sticky", "range"]));
    ask_join(&mut s, offers("c", &["sticky", "range"]));
    assert_eq!(
        ask_join(&mut s, offers("d", &["x", "y"])),
        "d: join InconsistentGroupProtocol id=\n",
        "nothing in common with all"
    );
    let other = Join { protocol_type: "connect".into(), ..offers("e", &["range"]) };
    assert_eq!(ask_join(&mut s, other), "e: join InconsistentGroupProtocol id=\n");
    assert_eq!(
        s.pass(6_000),
        "a: joined 1 sticky as a#1 led by a#1 [a#1 b#2 c#3]\n\
         b: joined 1 sticky as b#2 led by a#1 []\n\
         c: joined 1 sticky as c#3 led by a#1 []\n"
    );
}

#[test]
fn a_join_is_checked_before_its_group() {
    let mut s = Scene::new();
    let cases = [
        (Join { group_id: String::new(), ..join("a") }, "InvalidGroupId"),
        (Join { group_id: "x".repeat(40_000), ..join("a") }, "InvalidGroupId"),
        (Join { session_timeout_ms: 5_999, ..join("a") }, "InvalidSessionTimeout"),
        (Join { session_timeout_ms: 1_800_001, ..join("a") }, "InvalidSessionTimeout"),
        (Join { protocols: Vec::new(), ..join("a") }, "InconsistentGroupProtocol"),
        (Join { protocol_type: String::new(), ..join("a") }, "InconsistentGroupProtocol"),
        (
            Join { protocols: vec![protocol("x"), protocol("x")], ..join("a") },
            "InconsistentGroupProtocol",
        ),
        (Join { member_id: "stranger".into(), ..join("a") }, "UnknownMemberId"),
    ];
    for (join, code) in cases {
        let said = ask_join(&mut s, join);
        assert!(said.starts_with(&format!("a: join {code} ")), "{said} is not {code}");
        assert_eq!(s.ask("?", Request::List), "?: groups \n", "nothing is left behind");
    }
    for ok in [6_000, 1_800_000] {
        let said = ask_join(&mut s, Join { session_timeout_ms: ok, ..join("a") });
        assert!(said.starts_with("a: join MemberIdRequired"), "{said}");
    }
}

/// In a stable group only the leader, or a change, makes a rebalance; a follower that lost its
/// answer asks again and disturbs nobody.
#[test]
fn a_known_member_rejoins_a_stable_group() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    assert_eq!(ask_join(&mut s, rejoin("b#2")), "b: joined 1 range as b#2 led by a#1 []\n");
    assert_eq!(s.ask("b", sync("b#2", 1, &[])), "b: synced for b#2\n");
    assert_eq!(ask_join(&mut s, rejoin("a#1")), "", "the leader means it");
    assert_eq!(s.ask("b", heartbeat("b#2", 1)), "b: heartbeat RebalanceInProgress\n");
    assert_eq!(s.ask("b", sync("b#2", 1, &[])), "b: sync RebalanceInProgress\n");
    assert_eq!(
        ask_join(&mut s, rejoin("b#2")),
        "a: joined 2 range as a#1 led by a#1 [a#1 b#2]\n\
         b: joined 2 range as b#2 led by a#1 []\n"
    );
}

#[test]
fn a_join_repeated_before_the_sync_is_answered_again() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    ask_join(&mut s, rejoin("a#1"));
    ask_join(&mut s, rejoin("b#2"));
    assert_eq!(
        ask_join(&mut s, rejoin("a#1")),
        "a: joined 2 range as a#1 led by a#1 [a#1 b#2]\n",
        "same generation, same members"
    );
    assert_eq!(s.ask("b", sync("b#2", 2, &[])), "");
    assert_eq!(s.ask("b2", sync("b#2", 2, &[])), "b: sync RebalanceInProgress\n", "given up");
    let changed = Join { protocols: vec![protocol_of("t2")], ..rejoin("a#1") };
    assert_eq!(
        ask_join(&mut s, changed),
        "b2: sync RebalanceInProgress\n",
        "a change begins another rebalance"
    );
}

fn protocol_of(topic: &str) -> super::message::Protocol {
    super::message::Protocol { name: "range".into(), metadata: subscription(&[topic]) }
}

#[test]
fn a_superseded_join_is_answered_too() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    s.ask("a", Request::Join(rejoin("a#1")));
    assert_eq!(s.ask("a2", Request::Join(rejoin("a#1"))), "a: join RebalanceInProgress id=a#1\n");
    assert_eq!(s.unanswered(), 1);
}

#[test]
fn generations_and_members_are_checked() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    assert_eq!(s.ask("a", heartbeat("a#1", 2)), "a: heartbeat IllegalGeneration\n");
    assert_eq!(s.ask("a", heartbeat("a#9", 1)), "a: heartbeat UnknownMemberId\n");
    assert_eq!(s.ask("a", sync("a#1", 2, &[])), "a: sync IllegalGeneration\n");
    assert_eq!(s.ask("a", sync("a#9", 1, &[])), "a: sync UnknownMemberId\n");
    let Request::Sync(wrong) = sync("a#1", 1, &[]) else { unreachable!() };
    let wrong = super::message::Sync { protocol: Some("sticky".into()), ..wrong };
    assert_eq!(s.ask("a", Request::Sync(wrong)), "a: sync InconsistentGroupProtocol\n");
    let mut elsewhere = heartbeat("a#1", 1);
    if let Request::Heartbeat(beat) = &mut elsewhere {
        beat.group_id = "nowhere".into();
    }
    assert_eq!(s.ask("a", elsewhere), "a: heartbeat UnknownMemberId\n");
}

#[test]
fn a_silent_member_is_thrown_out_and_the_others_rebalance() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    s.pass(20_000);
    s.ask("b", heartbeat("b#2", 1));
    assert_eq!(s.pass(9_999), "");
    assert_eq!(s.ask("b", heartbeat("b#2", 1)), "b: heartbeat None\n");
    s.pass(1);
    assert_eq!(s.ask("b", heartbeat("b#2", 1)), "b: heartbeat RebalanceInProgress\n");
    assert_eq!(ask_join(&mut s, rejoin("b#2")), "b: joined 2 range as b#2 led by b#2 [b#2]\n");
}

#[test]
fn the_last_to_fall_silent_leaves_an_empty_group_on_record() {
    let mut s = Scene::new();
    s.stable(&["a"]);
    assert_eq!(s.pass(30_000), "log: g generation 2 []\n");
    assert_eq!(s.ask("?", describe()), "?: Empty consumer  []\n");
}

/// Else a restart would bring back members that are gone, and retention would begin late.
#[test]
fn the_record_of_an_emptied_group_is_tried_again() {
    let mut s = Scene::new();
    s.stable(&["a"]);
    s.log = Log::Refuses;
    s.ask("a", leave(&["a#1"]));
    assert_eq!(s.pass(1_000), "log: g generation 2 []\n");
    s.log = Log::Takes;
    assert_eq!(s.pass(1_000), "log: g generation 2 []\n");
    assert_eq!(s.pass(10_000), "");
    s.restart();
    assert_eq!(s.ask("?", describe()), "?: Empty consumer  []\n");
}

#[test]
fn who_joins_but_does_not_sync_is_thrown_out() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    ask_join(&mut s, rejoin("a#1"));
    ask_join(&mut s, rejoin("b#2"));
    assert!(s.ask("b", sync("b#2", 2, &[])).is_empty(), "b waits for a");
    for _ in 0..5 {
        s.pass(10_000);
        assert_eq!(s.ask("a", heartbeat("a#1", 2)), "a: heartbeat None\n");
    }
    assert_eq!(s.pass(10_000), "b: sync RebalanceInProgress\n");
    assert_eq!(s.ask("a", heartbeat("a#1", 2)), "a: heartbeat UnknownMemberId\n");
    assert_eq!(ask_join(&mut s, rejoin("b#2")), "b: joined 3 range as b#2 led by b#2 [b#2]\n");
}

#[test]
fn members_leave_in_batches() {
    let mut s = Scene::new();
    s.stable(&["a", "b", "c"]);
    assert_eq!(
        s.ask("x", leave(&["a#1", "z#9", "b#2"])),
        "x: left None [a#1:None z#9:UnknownMemberId b#2:None]\n"
    );
    assert_eq!(ask_join(&mut s, rejoin("c#3")), "c: joined 2 range as c#3 led by c#3 [c#3]\n");
    assert_eq!(s.ask("c", leave(&["c#3"])), "log: g generation 3 []\nc: left None [c#3:None]\n");
    let nobody = Request::Leave(Leave { group_id: "nobody".into(), members: vec![] });
    assert_eq!(s.ask("x", nobody), "x: left None []\n");
}

/// A static member that restarts within its session takes its place again; nobody else notices.
#[test]
fn a_static_member_returns_without_a_rebalance() {
    let mut s = Scene::new();
    ask_join(&mut s, static_join("i"));
    ask_join(&mut s, Join { requires_known_member_id: false, ..join("b") });
    s.pass(6_000);
    s.ask("b", sync("b#2", 1, &[]));
    s.ask("i", sync("i#1", 1, &["i#1", "b#2"]));

    s.log = Log::Holds;
    assert_eq!(ask_join(&mut s, static_join("i")), "log: g generation 1 [b#2 i#3]\n");
    let mut old = heartbeat("i#1", 1);
    if let Request::Heartbeat(beat) = &mut old {
        beat.group_instance_id = Some("i".into());
    }
    assert_eq!(s.ask("old", old.clone()), "", "a refusal waits for what it rests on");
    assert_eq!(
        s.settle(Written::Durable),
        "i: joined 1 range as i#3 led by i#3 [b#2 i#3] skip\n\
         old: heartbeat FencedInstanceId\n"
    );
    s.log = Log::Takes;
    assert_eq!(s.ask("i", sync("i#3", 1, &[])), "i: synced for i#1\n", "as assigned before");
    assert_eq!(s.ask("b", heartbeat("b#2", 1)), "b: heartbeat None\n");

    let older = Join { can_skip_assignment: false, ..static_join("i") };
    assert_eq!(
        ask_join(&mut s, older),
        "log: g generation 1 [b#2 i#4]\ni: joined 1 range as i#4 led by i#3 []\n",
        "an older client must not take itself for the leader"
    );
}

#[test]
fn a_static_return_that_the_log_refuses_is_undone() {
    let mut s = Scene::new();
    ask_join(&mut s, static_join("i"));
    s.pass(6_000);
    s.ask("i", sync("i#1", 1, &["i#1"]));
    s.log = Log::Refuses;
    assert_eq!(
        ask_join(&mut s, static_join("i")),
        "log: g generation 1 [i#2]\ni: join CoordinatorNotAvailable id=\n"
    );
    assert_eq!(s.ask("i", heartbeat("i#1", 1)), "i: heartbeat None\n");
}

#[test]
fn a_static_return_with_another_protocol_rebalances() {
    let mut s = Scene::new();
    let both = |join| Join { protocols: vec![protocol("range"), protocol("sticky")], ..join };
    ask_join(&mut s, both(static_join("i")));
    s.pass(6_000);
    s.ask("i", sync("i#1", 1, &["i#1"]));
    let other = Join { protocols: vec![protocol("sticky")], ..static_join("i") };
    assert_eq!(ask_join(&mut s, other), "i: joined 2 sticky as i#2 led by i#2 [i#2]\n");
}

#[test]
fn the_elder_of_two_with_one_instance_id_is_fenced() {
    let mut s = Scene::new();
    ask_join(&mut s, static_join("i"));
    let second = Join { client_id: "j".into(), ..static_join("i") };
    assert_eq!(ask_join(&mut s, second), "i: join FencedInstanceId id=i#1\n");
    assert_eq!(s.pass(6_000), "j: joined 1 range as i#2 led by i#2 [i#2]\n");
    let fenced = Join { group_instance_id: Some("i".into()), ..rejoin("i#1") };
    assert_eq!(ask_join(&mut s, fenced), "i: join FencedInstanceId id=i#1\n");
    let unknown = Join { group_instance_id: Some("k".into()), ..rejoin("i#2") };
    assert_eq!(ask_join(&mut s, unknown), "i: join UnknownMemberId id=i#2\n");
}

/// A static member keeps its place through a rebalance it sleeps through; an operator can end that.
#[test]
fn a_static_member_is_removed_by_its_instance_id() {
    let mut s = Scene::new();
    ask_join(&mut s, static_join("i"));
    ask_join(&mut s, Join { requires_known_member_id: false, ..join("b") });
    s.pass(6_000);
    s.ask("b", sync("b#2", 1, &[]));
    s.ask("i", sync("i#1", 1, &[]));
    let by_instance = Request::Leave(Leave {
        group_id: "g".into(),
        members: vec![
            MemberIdentity { member_id: String::new(), group_instance_id: Some("i".into()) },
            MemberIdentity { member_id: String::new(), group_instance_id: Some("j".into()) },
        ],
    });
    assert_eq!(s.ask("x", by_instance), "x: left None [/i:None /j:UnknownMemberId]\n");
    assert_eq!(ask_join(&mut s, rejoin("b#2")), "b: joined 2 range as b#2 led by b#2 [b#2]\n");
}

#[test]
fn a_group_takes_members_up_to_its_size() {
    let mut s = Scene::with(Settings { group_size_max: 2, ..Settings::default() });
    s.stable(&["a", "b"]);
    assert_eq!(ask_join(&mut s, join("c")), "c: join GroupMaxSizeReached id=\n");
    assert_eq!(ask_join(&mut s, rejoin("b#2")), "b: joined 1 range as b#2 led by a#1 []\n");
}

#[test]
fn groups_and_deferred_requests_are_bounded() {
    let settings = Settings { groups_max: 1, deferred_requests_max: 1, ..Settings::default() };
    let mut s = Scene::with(settings);
    s.stable(&["a"]);
    let other = Join { group_id: "h".into(), ..join("x") };
    assert_eq!(ask_join(&mut s, other), "x: join CoordinatorLoadInProgress id=\n");
    s.log = Log::Holds;
    assert_eq!(s.ask("a", leave(&["a#1"])), "log: g generation 2 []\na: left None [a#1:None]\n");
    assert_eq!(s.ask("b", heartbeat("a#1", 1)), "");
    assert_eq!(s.ask("c", heartbeat("a#1", 1)), "c: heartbeat CoordinatorLoadInProgress\n");
    assert_eq!(s.settle(Written::Durable), "b: heartbeat UnknownMemberId\n");
}

/// An assignment that is not durable could differ from the one a restart hands out.
#[test]
fn an_assignment_is_answered_when_it_is_durable() {
    let mut s = Scene::new();
    ask_join(&mut s, Join { requires_known_member_id: false, ..join("a") });
    s.pass(3_000);
    s.log = Log::Holds;
    assert_eq!(s.ask("a", sync("a#1", 1, &["a#1"])), "log: g generation 1 [a#1]\n");
    assert_eq!(s.pass(60_000), "", "timers of the group stand still");
    assert_eq!(s.ask("a", heartbeat("a#1", 1)), "");
    assert_eq!(s.settle(Written::Durable), "a: synced for a#1\na: heartbeat None\n");
}

#[test]
fn an_assignment_that_the_log_refuses_makes_everybody_join_anew() {
    let mut s = Scene::new();
    ask_join(&mut s, Join { requires_known_member_id: false, ..join("a") });
    s.pass(3_000);
    s.log = Log::Refuses;
    assert_eq!(
        s.ask("a", sync("a#1", 1, &["a#1"])),
        "log: g generation 1 [a#1]\na: sync CoordinatorNotAvailable\n"
    );
    assert_eq!(ask_join(&mut s, rejoin("a#1")), "a: joined 2 range as a#1 led by a#1 [a#1]\n");
}

/// CRASH(@C): the generation that was forming was promised to nobody but its members, who join anew.
#[test]
fn a_rebalance_does_not_live_through_a_restart() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    ask_join(&mut s, rejoin("a#1"));
    ask_join(&mut s, Join { requires_known_member_id: false, ..join("c") });
    ask_join(&mut s, rejoin("b#2"));
    s.restart();
    assert_eq!(s.ask("c", sync("c#3", 2, &[])), "c: sync UnknownMemberId\n");
    assert_eq!(s.ask("a", sync("a#1", 2, &["a#1"])), "a: sync IllegalGeneration\n");
    assert_eq!(s.ask("b", heartbeat("b#2", 1)), "b: heartbeat None\n");
}

#[test]
fn ids_given_out_are_bounded() {
    let mut s = Scene::with(Settings { group_size_max: 1, ..Settings::default() });
    ask_join(&mut s, join("a"));
    assert_eq!(ask_join(&mut s, join("b")), "b: join CoordinatorLoadInProgress id=\n");
    s.pass(30_000);
    assert_eq!(ask_join(&mut s, join("b")), "b: join MemberIdRequired id=b#3\n");
}

/// CRASH(@D)
#[test]
fn a_stable_group_lives_through_a_restart_and_its_sessions_start_anew() {
    let mut s = Scene::new();
    s.stable(&["a", "b"]);
    s.pass(29_000);
    s.restart();
    assert_eq!(s.pass(29_000), "");
    assert_eq!(s.ask("b", heartbeat("b#2", 1)), "b: heartbeat None\n");
    assert_eq!(s.ask("b", sync("b#2", 1, &[])), "b: synced for b#2\n");
    s.pass(1_000);
    assert_eq!(s.ask("b", heartbeat("b#2", 1)), "b: heartbeat RebalanceInProgress\n");
}
