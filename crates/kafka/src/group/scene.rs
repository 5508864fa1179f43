//! A stage for tests: a coordinator, its log, and transcripts that a person can read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thetis_types::clock::Entropy;

use super::message::*;
use super::record::{Key, decode_group_value, decode_key, decode_offset_value};
use super::{Code, Coordinator, Loading, Settings};

/// Counts, so that the n-th member id is known beforehand.
struct Counting(AtomicU64);

impl Entropy for Counting {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// What the log does with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Log {
    /// Takes it at once.
    Takes,
    /// Holds it until told.
    Holds,
    /// Refuses it at once.
    Refuses,
}

pub(super) struct Scene {
    pub(super) coordinator: Coordinator,
    pub(super) settings: Settings,
    entropy: Arc<Counting>,
    pub(super) now: Now,
    pub(super) log: Log,
    /// What is durable, in order.
    pub(super) durable: Vec<Record>,
    pub(super) held: VecDeque<(Token, Vec<Record>)>,
    asked: BTreeMap<ReplyTo, String>,
    next_reply: u64,
}

pub(super) const DAY_MS: u64 = 24 * 3_600 * 1_000;

impl Scene {
    pub(super) fn new() -> Scene {
        Scene::with(Settings::default())
    }

    pub(super) fn with(settings: Settings) -> Scene {
        let entropy = Arc::new(Counting(AtomicU64::new(0)));
        let now = Now { wall_ms: 1_700_000_000_000, monotonic: Duration::from_secs(1_000) };
        Scene {
            coordinator: Loading::new(settings.clone(), entropy.clone()).start(now),
            settings,
            entropy,
            now,
            log: Log::Takes,
            durable: Vec::new(),
            held: VecDeque::new(),
            asked: BTreeMap::new(),
            next_reply: 0,
        }
    }

    /// Asks in somebody's name; the transcript of what follows.
    pub(super) fn ask(&mut self, who: &str, request: Request) -> String {
        let reply_to = ReplyTo(self.next_reply);
        self.next_reply += 1;
        self.asked.insert(reply_to, who.to_owned());
        self.apply(Event::Request { reply_to, request })
    }

    /// Lets time pass and fires the timers on the way, each when it is due.
    pub(super) fn pass(&mut self, ms: u64) -> String {
        let end = self.now.monotonic + Duration::from_millis(ms);
        let mut lines = Vec::new();
        loop {
            let due = self.coordinator.next_deadline();
            let step = due.min(end).saturating_sub(self.now.monotonic);
            self.now.monotonic += step;
            self.now.wall_ms += i64::try_from(step.as_millis()).unwrap();
            if due > end {
                return lines.concat();
            }
            lines.push(self.apply(Event::Tick));
        }
    }

    /// The log settles the oldest batch it holds.
    pub(super) fn settle(&mut self, written: Written) -> String {
        let (token, records) = self.held.pop_front().expect("a batch is held");
        if written == Written::Durable {
            self.durable.extend(records);
        }
        self.apply(Event::Persisted { token, written })
    }

    /// The process dies and comes back with what is durable.
    pub(super) fn restart(&mut self) {
        self.held.clear();
        self.asked.clear();
        self.coordinator = self.replayed();
    }

    /// Another coordinator from the same log.
    pub(super) fn replayed(&self) -> Coordinator {
        let mut loading = Loading::new(self.settings.clone(), self.entropy.clone());
        for record in &self.durable {
            loading.replay(record).unwrap();
        }
        loading.start(self.now)
    }

    /// Requests without an answer yet.
    pub(super) fn unanswered(&self) -> usize {
        self.asked.len()
    }

    pub(super) fn apply(&mut self, event: Event) -> String {
        let mut lines = String::new();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.coordinator.apply(self.now, event) {
                match effect {
                    Effect::Reply { to, response } => {
                        let who = self.asked.remove(&to).expect("each request is answered once");
                        lines += &format!("{who}: {}\n", show(&response));
                    }
                    Effect::Persist { token, records } => {
                        lines += &format!("log: {}\n", show_records(&records));
                        match self.log {
                            Log::Holds => self.held.push_back((token, records)),
                            Log::Takes => {
                                self.durable.extend(records);
                                events.push_back(Event::Persisted {
                                    token,
                                    written: Written::Durable,
                                });
                            }
                            Log::Refuses => {
                                events.push_back(Event::Persisted { token, written: Written::Not })
                            }
                        }
                    }
                }
            }
        }
        self.coordinator.validate();
        lines
    }

    /// A stable group `g` of these dynamic members, who lead in order of name: `a#1`, `b#2`, ...
    pub(super) fn stable(&mut self, names: &[&str]) {
        let mut ids = Vec::new();
        for (index, name) in names.iter().enumerate() {
            ids.push(format!("{name}#{}", index + 1));
            self.ask(name, Request::Join(Join { requires_known_member_id: false, ..join(name) }));
        }
        self.pass(u64::try_from(self.settings.initial_rebalance_delay.as_millis()).unwrap() * 3);
        for id in ids.iter().rev() {
            let shares: Vec<&str> = ids.iter().map(String::as_str).collect();
            self.ask(id, sync(id, 1, &shares));
        }
        assert!(self.ask("?", describe()).starts_with("?: Stable"), "stable");
    }
}

/// The full id of the n-th member id made, from its short form `name#n`; other ids as they are.
pub(super) fn id(short: &str) -> String {
    let Some((name, n)) = short.split_once('#') else { return short.to_owned() };
    let n: u64 = n.parse().unwrap();
    format!("{name}-00000000-0000-4{:03x}-8000-{:012x}", 2 * n - 1, 2 * n)
}

/// The inverse of [`id`].
fn short(id: &str) -> String {
    let short = || {
        let (name, random) = id.split_once("-00000000-0000-4")?;
        let last = u64::from_str_radix(random.rsplit_once('-')?.1, 16).ok()?;
        Some(format!("{name}#{}", last / 2))
    };
    short().unwrap_or_else(|| id.to_owned())
}

pub(super) fn protocol(name: &str) -> Protocol {
    Protocol { name: name.to_owned(), metadata: subscription(&["t"]) }
}

/// A consumer's subscription to topics.
pub(super) fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 1];
    bytes.extend(u32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        bytes.extend(u16::try_from(topic.len()).unwrap().to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    Bytes::from(bytes)
}

/// A first join of group `g` as a modern client makes it.
pub(super) fn join(client: &str) -> Join {
    Join {
        group_id: "g".into(),
        member_id: String::new(),
        group_instance_id: None,
        client_id: client.into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol("range")],
        requires_known_member_id: true,
        can_skip_assignment: true,
    }
}

/// A join with an id.
pub(super) fn rejoin(member: &str) -> Join {
    Join { member_id: id(member), ..join(member.split('#').next().unwrap()) }
}

/// A join of a static member that does not know its id.
pub(super) fn static_join(instance: &str) -> Join {
    Join { group_instance_id: Some(instance.into()), ..join(instance) }
}

/// A sync in which each of `members` is assigned its own name.
pub(super) fn sync(member: &str, generation: i32, members: &[&str]) -> Request {
    Request::Sync(Sync {
        group_id: "g".into(),
        member_id: id(member),
        group_instance_id: None,
        generation,
        protocol_type: Some("consumer".into()),
        protocol: None,
        assignments: members.iter().map(|m| (id(m), Bytes::from(format!("for {m}")))).collect(),
    })
}

pub(super) fn heartbeat(member: &str, generation: i32) -> Request {
    Request::Heartbeat(Heartbeat {
        group_id: "g".into(),
        member_id: id(member),
        group_instance_id: None,
        generation,
    })
}

pub(super) fn leave(members: &[&str]) -> Request {
    let identity = |m: &&str| MemberIdentity { member_id: id(m), group_instance_id: None };
    Request::Leave(Leave { group_id: "g".into(), members: members.iter().map(identity).collect() })
}

pub(super) fn offset(partition: i32, offset: i64) -> CommitPartition {
    let metadata = String::new();
    CommitPartition { partition, offset, leader_epoch: -1, metadata, timestamp_ms: None }
}

/// A member's commit of one offset of topic `t`.
pub(super) fn commit(member: &str, generation: i32, partition: i32, at: i64) -> Commit {
    Commit {
        group_id: "g".into(),
        member_id: id(member),
        group_instance_id: None,
        generation,
        retention_ms: None,
        topics: vec![("t".into(), vec![offset(partition, at)])],
    }
}

pub(super) fn fetch_all() -> Request {
    Request::FetchOffsets(FetchOffsets { group_id: "g".into(), topics: None })
}

pub(super) fn describe() -> Request {
    Request::Describe { group_id: "g".into() }
}

fn show_codes(topics: &[(String, Vec<(i32, Code)>)]) -> String {
    let mut shown = Vec::new();
    for (topic, partitions) in topics {
        shown.extend(partitions.iter().map(|(p, code)| format!("{topic}-{p}:{code:?}")));
    }
    shown.join(" ")
}

pub(super) fn show(response: &Response) -> String {
    match response {
        Response::Join(j) if j.code != Code::None => {
            format!("join {:?} id={}", j.code, short(&j.member_id))
        }
        Response::Join(j) => {
            let members: Vec<String> = j.members.iter().map(|m| short(&m.member_id)).collect();
            format!(
                "joined {} {} as {} led by {} [{}]{}",
                j.generation,
                j.protocol.as_deref().unwrap_or("-"),
                short(&j.member_id),
                short(&j.leader),
                members.join(" "),
                if j.skip_assignment { " skip" } else { "" }
            )
        }
        Response::Sync(s) if s.code != Code::None => format!("sync {:?}", s.code),
        Response::Sync(s) => format!("synced {}", String::from_utf8_lossy(&s.assignment)),
        Response::Heartbeat(code) => format!("heartbeat {code:?}"),
        Response::Leave(l) => {
            let name = |m: &MemberIdentity| match &m.group_instance_id {
                Some(instance) => format!("{}/{instance}", short(&m.member_id)),
                None => short(&m.member_id),
            };
            let members: Vec<String> =
                l.members.iter().map(|(m, code)| format!("{}:{code:?}", name(m))).collect();
            format!("left {:?} [{}]", l.code, members.join(" "))
        }
        Response::Commit(topics) => format!("commit {}", show_codes(topics)),
        Response::FetchOffsets(topics) => {
            let mut shown = Vec::new();
            for (topic, partitions) in topics {
                shown.extend(partitions.iter().map(|o| {
                    let (p, at, epoch) = (o.partition, o.offset, o.leader_epoch);
                    format!("{topic}-{p}={at}/{epoch}{:?}", o.metadata)
                }));
            }
            format!("offsets {}", shown.join(" "))
        }
        Response::List(groups) => {
            let of = |g: &Listing| format!("{}:{}:{}", g.group_id, g.protocol_type, g.state);
            format!("groups {}", groups.iter().map(of).collect::<Vec<_>>().join(" "))
        }
        Response::Describe(d) => {
            let members: Vec<String> = d
                .members
                .iter()
                .map(|m| {
                    format!("{}={}", short(&m.member_id), String::from_utf8_lossy(&m.assignment))
                })
                .collect();
            format!("{} {} {} [{}]", d.state, d.protocol_type, d.protocol, members.join(", "))
        }
        Response::DeleteGroup(code) => format!("deleted {code:?}"),
        Response::DeleteOffsets { code, topics } => {
            format!("deleted {code:?} {}", show_codes(topics))
        }
        Response::ForgetTopic(code) => format!("forgotten {code:?}"),
    }
}

fn show_records(records: &[Record]) -> String {
    let show = |record: &Record| match decode_key(&record.key).unwrap() {
        Key::Offset { group_id, topic, partition } => match &record.value {
            None => format!("{group_id}/{topic}-{partition} gone"),
            Some(value) => {
                format!(
                    "{group_id}/{topic}-{partition}={}",
                    decode_offset_value(value).unwrap().offset
                )
            }
        },
        Key::Group { group_id } => match &record.value {
            None => format!("{group_id} gone"),
            Some(value) => {
                let value = decode_group_value(value).unwrap();
                let members: Vec<String> =
                    value.members.iter().map(|m| short(&m.member_id)).collect();
                format!("{group_id} generation {} [{}]", value.generation, members.join(" "))
            }
        },
    };
    records.iter().map(show).collect::<Vec<_>>().join(", ")
}
