//! Any interleaving of clients, log and crashes keeps what the coordinator promises.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;

use super::Code;
use super::message::*;
use super::scene::*;

/// One thing that happens. Members and ids are indices into what the clients have heard so far.
#[derive(Clone, Debug)]
enum Step {
    Join { client: usize, fresh: bool, changed: bool },
    Sync { client: usize },
    Heartbeat { client: usize },
    Leave { client: usize },
    Commit { client: usize, partition: i32 },
    OwnCommit { partition: i32 },
    Forget,
    DeleteGroup,
    Pass { ms: u64 },
    Settle { index: usize, durable: bool },
    Crash,
}

const CLIENTS: usize = 4;

fn any_step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    prop_oneof![
        6 => (client.clone(), prop::bool::weighted(0.2), prop::bool::weighted(0.2))
            .prop_map(|(client, fresh, changed)| Step::Join { client, fresh, changed }),
        6 => client.clone().prop_map(|client| Step::Sync { client }),
        2 => client.clone().prop_map(|client| Step::Heartbeat { client }),
        1 => client.clone().prop_map(|client| Step::Leave { client }),
        4 => (client, 0..3).prop_map(|(client, partition)| Step::Commit { client, partition }),
        1 => (0..3).prop_map(|partition| Step::OwnCommit { partition }),
        1 => Just(Step::Forget),
        1 => Just(Step::DeleteGroup),
        3 => prop_oneof![Just(100), Just(3_000), Just(31_000)].prop_map(|ms| Step::Pass { ms }),
        8 => (0..3usize, prop::bool::weighted(0.85))
            .prop_map(|(index, durable)| Step::Settle { index, durable }),
        1 => Just(Step::Crash),
    ]
}

/// What a client knows of itself.
#[derive(Clone, Default)]
struct Client {
    member_id: String,
    generation: i32,
    /// Member ids it was told of as leader.
    led: Vec<String>,
}

/// Partition and offset of a commit.
type Asked = Option<(i32, i64)>;

/// Clients, log and what has been promised to whom.
struct World {
    scene: Scene,
    clients: Vec<Client>,
    next_reply: u64,
    /// Open requests: who asked, under which id, and what was to be committed.
    open: BTreeMap<ReplyTo, (usize, String, Asked)>,
    /// Batches handed to the log: fate known or not.
    handed: Vec<(Token, Vec<Record>, Option<Written>)>,
    next_offset: i64,
    /// The newest offset answered as committed, by partition.
    promised: BTreeMap<i32, i64>,
    /// Offsets that a deletion, answered or not, may have removed.
    endangered: BTreeSet<i32>,
    generation: i32,
}

impl World {
    fn new() -> World {
        World {
            scene: Scene::new(),
            clients: vec![Client::default(); CLIENTS],
            next_reply: 0,
            open: BTreeMap::new(),
            handed: Vec::new(),
            next_offset: 1,
            promised: BTreeMap::new(),
            endangered: BTreeSet::new(),
            generation: 0,
        }
    }

    fn request(&mut self, client: usize, commits: Asked, request: Request) {
        let reply_to = ReplyTo(self.next_reply);
        self.next_reply += 1;
        let member_id = self.clients[client].member_id.clone();
        self.open.insert(reply_to, (client, member_id, commits));
        self.apply(Event::Request { reply_to, request });
    }

    fn apply(&mut self, event: Event) {
        for effect in self.scene.coordinator.apply(self.scene.now, event) {
            match effect {
                Effect::Persist { token, records } => {
                    assert!(self.handed.last().is_none_or(|(last, _, _)| *last < token));
                    self.handed.push((token, records, None));
                }
                Effect::Reply { to, response } => self.hear(to, response),
            }
        }
        self.scene.coordinator.validate();
        // A group that was deleted begins again at its first generation.
        if self.scene.coordinator.groups.get("g").is_none_or(|group| group.generation == 0) {
            self.generation = 0;
        }
    }

    fn hear(&mut self, to: ReplyTo, response: Response) {
        let (client, asked_as, commits) =
            self.open.remove(&to).expect("each request is answered once");
        match response {
            Response::Join(joined) => {
                if !joined.member_id.is_empty() {
                    self.clients[client].member_id = joined.member_id;
                }
                if joined.code == Code::None {
                    assert!(joined.generation >= self.generation, "generations never go back");
                    self.generation = joined.generation;
                    assert!(!joined.leader.is_empty());
                    self.clients[client].generation = joined.generation;
                    self.clients[client].led =
                        joined.members.into_iter().map(|m| m.member_id).collect();
                } else if matches!(joined.code, Code::UnknownMemberId | Code::FencedInstanceId) {
                    self.clients[client] = Client::default();
                }
            }
            Response::Commit(topics) if topics[0].1[0].1 == Code::None => {
                let (partition, offset) = commits.expect("a commit was asked");
                assert!(self.is_durable(partition, offset), "answered before it was durable");
                self.promised.insert(partition, offset);
            }
            Response::Sync(synced) if synced.code == Code::None => {
                let text = String::from_utf8(synced.assignment.to_vec()).unwrap();
                // A static member that comes back to a stable group gets a new id, and what was
                // assigned to the old one.
                let is_static = |id: &str| id.starts_with("i-");
                let is_own = text == asked_as || (is_static(&text) && is_static(&asked_as));
                assert!(text.is_empty() || is_own, "{text} is for another");
            }
            _ => {}
        }
    }

    fn is_durable(&self, partition: i32, offset: i64) -> bool {
        let key = super::record::offset_key("g", "t", partition);
        let says = |record: &Record| {
            let value = record.value.as_ref().filter(|_| record.key == key)?;
            Some(super::record::decode_offset_value(value).unwrap().offset == offset)
        };
        self.scene.durable.iter().any(|record| says(record) == Some(true))
    }

    /// The log settles batches in its order, and may report them in another.
    fn settle(&mut self, index: usize, durable: bool) {
        let Some(at) = self.handed.iter().position(|(_, _, fate)| fate.is_none()) else { return };
        let written = if durable { Written::Durable } else { Written::Not };
        self.handed[at].2 = Some(written);
        if durable {
            self.scene.durable.extend(self.handed[at].1.clone());
        }
        // `index` later fates are decided before this one is reported.
        if index == 0 {
            self.report();
        }
    }

    /// Reports known fates, newest first: the worst order.
    fn report(&mut self) {
        let handed = std::mem::take(&mut self.handed);
        let (known, open): (Vec<_>, Vec<_>) =
            handed.into_iter().partition(|(_, _, fate)| fate.is_some());
        self.handed = open;
        for (token, _, written) in known.into_iter().rev() {
            let written = written.expect("known");
            self.apply(Event::Persisted { token, written });
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join { client, fresh, changed } => {
                let name = format!("c{client}");
                let is_static = client == 0;
                let member_id =
                    if fresh { String::new() } else { self.clients[client].member_id.clone() };
                let mut protocols = vec![protocol("range")];
                if changed {
                    protocols.push(protocol("sticky"));
                }
                let group_instance_id = is_static.then(|| "i".to_owned());
                let asked = Join { member_id, group_instance_id, protocols, ..join(&name) };
                self.request(client, None, Request::Join(asked));
            }
            Step::Sync { client } => {
                let Client { member_id, generation, led } = self.clients[client].clone();
                let assign = |m: String| (m.clone(), Bytes::from(m));
                let asked = Sync {
                    group_id: "g".into(),
                    member_id,
                    group_instance_id: None,
                    generation,
                    protocol_type: None,
                    protocol: None,
                    assignments: led.into_iter().map(assign).collect(),
                };
                self.request(client, None, Request::Sync(asked));
            }
            Step::Heartbeat { client } => {
                let Client { member_id, generation, .. } = self.clients[client].clone();
                self.request(client, None, heartbeat(&member_id, generation));
            }
            Step::Leave { client } => {
                let member_id = self.clients[client].member_id.clone();
                self.request(client, None, leave(&[&member_id]));
            }
            Step::Commit { client, partition } => {
                let Client { member_id, generation, .. } = self.clients[client].clone();
                self.commit(client, &member_id, generation, partition);
            }
            Step::OwnCommit { partition } => self.commit(0, "", -1, partition),
            Step::Forget => {
                self.endangered.extend(0..3);
                self.request(0, None, Request::ForgetTopic { topic: "t".into() });
            }
            Step::DeleteGroup => {
                self.endangered.extend(0..3);
                self.request(0, None, Request::DeleteGroup { group_id: "g".into() });
            }
            Step::Pass { ms } => {
                self.scene.now.monotonic += std::time::Duration::from_millis(ms);
                self.scene.now.wall_ms += i64::try_from(ms).unwrap();
                self.apply(Event::Tick);
            }
            Step::Settle { index, durable } => self.settle(index, durable),
            Step::Crash => self.crash(),
        }
    }

    fn commit(&mut self, client: usize, member: &str, generation: i32, partition: i32) {
        let at = self.next_offset;
        self.next_offset += 1;
        let asked = Request::Commit(commit(member, generation, partition, at));
        self.request(client, Some((partition, at)), asked);
    }

    /// Everything not durable is lost, with all open requests; what was promised is not.
    fn crash(&mut self) {
        self.handed.clear();
        self.open.clear();
        self.scene.restart();
        self.scene.coordinator.validate();
        // A generation is recorded with its assignment; one that was still forming is gone.
        self.generation = 0;
        let read = self.committed();
        for (partition, promised) in &self.promised {
            if !self.endangered.contains(partition) {
                let found = read.get(partition).copied().unwrap_or(-1);
                assert!(found >= *promised, "partition {partition}: {found} after {promised}");
            }
        }
    }

    fn committed(&mut self) -> BTreeMap<i32, i64> {
        let event = Event::Request { reply_to: ReplyTo(u64::MAX), request: fetch_all() };
        let effects = self.scene.coordinator.apply(self.scene.now, event);
        let [Effect::Reply { response: Response::FetchOffsets(topics), .. }] = &effects[..] else {
            panic!("{effects:?}")
        };
        let of_t = topics.iter().flat_map(|(_, partitions)| partitions);
        of_t.map(|o| (o.partition, o.offset)).collect()
    }

    /// Lets everything come to rest: the log takes what it has, and time passes.
    fn rest(&mut self) {
        for _ in 0..20 {
            while self.handed.iter().any(|(_, _, fate)| fate.is_none()) {
                self.settle(1, true);
            }
            self.report();
            self.step(Step::Pass { ms: 61_000 });
        }
        assert!(self.handed.is_empty(), "the log is never done");
    }
}

proptest! {
    /// `validate` checks leader, instance ids and timers after each event, and that a stable or
    /// empty group is what its record says.
    #[test]
    fn any_history_keeps_the_promises(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.rest();
        prop_assert!(world.open.is_empty(), "never answered: {:?}", world.open);
        prop_assert_eq!(world.scene.coordinator.in_flight_count(), 0);
        // State is a pure replay of the log, and so is the snapshot.
        let live = world.scene.coordinator.snapshot().unwrap();
        prop_assert_eq!(&live, &world.scene.replayed().snapshot().unwrap());
        world.scene.durable.clone_from(&live);
        prop_assert_eq!(&live, &world.scene.replayed().snapshot().unwrap());
        world.crash();
    }

    /// A crash after any prefix of the log leaves a state that replays, and offsets in it are
    /// never newer than the log's.
    #[test]
    fn any_prefix_of_the_log_replays(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        let durable = world.scene.durable.clone();
        for length in 0..=durable.len() {
            world.scene.durable.truncate(0);
            world.scene.durable.extend_from_slice(&durable[..length]);
            let replayed = world.scene.replayed();
            replayed.validate();
            let newest: BTreeMap<&Bytes, &Bytes> = durable[..length]
                .iter()
                .fold(BTreeMap::new(), |mut live, record| {
                    match &record.value {
                        Some(value) => live.insert(&record.key, value),
                        None => live.remove(&record.key),
                    };
                    live
                });
            let snapshot = replayed.snapshot().unwrap();
            let found: BTreeMap<&Bytes, &Bytes> = snapshot
                .iter()
                .map(|record| (&record.key, record.value.as_ref().unwrap()))
                .collect();
            prop_assert_eq!(found, newest);
        }
    }
}
