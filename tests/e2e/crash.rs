//! SIGKILL at random moments under load, many times, with an oracle outside the server.
//!
//! Three producers, each with its own partition and identity, send numbered batches with acks=all
//! and up to five in flight. After each kill they do what an idempotent client does: they send what was
//! not answered again, with the same sequence numbers. The log of each partition must then be exactly the
//! producer's batches in order, without a gap, a double or a stranger, and each at the offset that its
//! acknowledgement named.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use thetis_e2e::reproduce;
use thetis_e2e::say;
use thetis_e2e::seed::{Dice, process_seed, unique};
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::batch::{self, Batch, Codec, Producer, Record};
use thetis_e2e::wire::requests::{LATEST, produce_body, read_produced};
use thetis_e2e::wire::{Connection, api, code};

/// Kills; `THETIS_E2E_CRASH_ROUNDS` overrides it.
const ROUNDS: u64 = 50;
const PRODUCERS: i32 = 3;
/// What a Kafka client keeps unanswered at most, and what the server must remember.
const IN_FLIGHT_MAX: usize = 5;
/// Milliseconds under load before each kill: from before the first flush to many flushes.
const LOAD_MS: std::ops::Range<u64> = 5..400;

/// A batch that was sent: its content follows from these numbers.
#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: i32,
    count: i32,
    timestamp: i64,
    seed: u64,
}

impl Sent {
    fn records(self) -> Vec<Record> {
        let mut dice = Dice::new(self.seed);
        let record = |number: i32| {
            let size = usize::try_from(dice.between(0, 1000)).expect("it is small");
            let fill = dice.next_u64().to_le_bytes();
            let value: Vec<u8> = fill.iter().copied().cycle().take(size).collect();
            let key = format!("{}", self.sequence + number);
            Record { timestamp: self.timestamp, key: Some(key.into_bytes()), value: Some(value) }
        };
        (0..self.count).map(record).collect()
    }
}

/// One producer: what it knows to be stored, and what it does not know.
struct Writer {
    topic: String,
    partition: i32,
    id: i64,
    epoch: i16,
    dice: Dice,
    next_sequence: i32,
    /// Answered, with the offset the answer named; in order.
    acked: Vec<(Sent, i64)>,
    /// How many of these were found after the last kill.
    found: usize,
    /// Not answered; in order.
    unanswered: VecDeque<Sent>,
}

impl Writer {
    /// Sends until the connection breaks, and gives the reason.
    fn load(&mut self, connection: &mut Connection) -> std::io::Result<Infallible> {
        loop {
            while self.unanswered.len() < IN_FLIGHT_MAX {
                let sent = Sent {
                    sequence: self.next_sequence,
                    count: i32::try_from(self.dice.between(1, 20)).expect("it is small"),
                    timestamp: batch::now_ms(),
                    seed: self.dice.next_u64(),
                };
                self.next_sequence += sent.count;
                self.unanswered.push_back(sent);
                self.send(connection, sent)?;
            }
            self.receive(connection)?;
        }
    }

    /// After a restart: sends the unanswered again, as the same attempts.
    fn resolve(&mut self, connection: &mut Connection) -> std::io::Result<()> {
        // Pipelined requests cannot wait for the leader one by one; this one does for all.
        connection.list_offset(&self.topic, self.partition, LATEST);
        for sent in self.unanswered.clone() {
            self.send(connection, sent)?;
        }
        while !self.unanswered.is_empty() {
            self.receive(connection)?;
        }
        Ok(())
    }

    fn send(&self, connection: &mut Connection, sent: Sent) -> std::io::Result<()> {
        let producer = Producer { id: self.id, epoch: self.epoch, sequence: sent.sequence };
        let bytes = batch::encode(&sent.records(), Codec::None, producer);
        let body = produce_body(&self.topic, self.partition, -1, &bytes);
        connection.send(api::PRODUCE, 7, &body).map(|_| ())
    }

    fn receive(&mut self, connection: &mut Connection) -> std::io::Result<()> {
        let (_, answer) = connection.receive()?;
        let produced = read_produced(answer);
        let sent = self.unanswered.pop_front().expect("an answer belongs to a request");
        assert_eq!(produced.code, code::NONE, "partition {}, {sent:?}", self.partition);
        self.acked.push((sent, produced.base_offset));
        Ok(())
    }

    /// Compares the log with what was sent, from the batch numbered `first` to the end.
    fn check(&self, connection: &mut Connection, first: usize) {
        assert!(self.unanswered.is_empty(), "everything was resolved");
        let mut next_offset = self.end_offset(first);
        let mut expected = self.acked[first..].iter();
        loop {
            let fetched = connection.fetch_now(&self.topic, self.partition, next_offset);
            assert_eq!(fetched.code, code::NONE);
            if next_offset == fetched.high_watermark {
                break;
            }
            assert!(!fetched.batches.is_empty(), "{next_offset} < {}", fetched.high_watermark);
            for stored in &fetched.batches {
                let (sent, acked_offset) = expected.next().unwrap_or_else(|| {
                    panic!("partition {} ends with a batch that was not sent", self.partition)
                });
                assert_eq!(stored.base_offset, next_offset, "offsets are dense: {sent:?}");
                self.compare(stored, *sent, *acked_offset);
                next_offset = stored.end_offset();
            }
        }
        assert_eq!(expected.len(), 0, "acknowledged batches lost from {}", self.partition);
    }

    /// Where the log ends after so many batches.
    fn end_offset(&self, count: usize) -> i64 {
        let last = count.checked_sub(1).map(|last| self.acked[last]);
        last.map_or(0, |(sent, offset)| offset + i64::from(sent.count))
    }

    fn compare(&self, stored: &Batch, sent: Sent, acked_offset: i64) {
        let context = format!("partition {}, {sent:?}", self.partition);
        assert_eq!(stored.base_offset, acked_offset, "it lies where it was acked: {context}");
        assert_eq!(stored.producer.id, self.id, "{context}");
        assert_eq!(stored.producer.sequence, sent.sequence, "no gap, no double: {context}");
        let records: Vec<Record> = stored.records().into_iter().map(|(_, one)| one).collect();
        assert!(records == sent.records(), "other records than were sent: {context}");
    }
}

#[test]
fn killed_under_load() {
    let test = "crash::killed_under_load";
    reproduce(test);
    let Some(mut server) = Server::start_ours(test) else { return };
    let rounds = std::env::var("THETIS_E2E_CRASH_ROUNDS")
        .map_or(ROUNDS, |text| text.parse().expect("THETIS_E2E_CRASH_ROUNDS is a number"));
    let mut dice = Dice::new(process_seed());
    let topic = unique("crash");
    let mut connection = open(&server);
    connection.create_topic(&topic, PRODUCERS, &[]);
    let mut writers: Vec<Writer> = (0..PRODUCERS)
        .map(|partition| {
            let (id, epoch) = connection.init_producer().expect("InitProducerId is answered");
            let dice = Dice::new(dice.next_u64());
            Writer {
                topic: topic.clone(),
                partition,
                id,
                epoch,
                dice,
                next_sequence: 0,
                acked: Vec::new(),
                found: 0,
                unanswered: VecDeque::new(),
            }
        })
        .collect();
    for round in 0..rounds {
        let load = Duration::from_millis(dice.between(LOAD_MS.start, LOAD_MS.end));
        kill_under_load(&mut server, &mut writers, load);
        for writer in &mut writers {
            let mut connection = open(&server);
            let found_before = writer.found;
            writer.resolve(&mut connection).expect("the server answers after its restart");
            writer.check(&mut connection, found_before);
            writer.found = writer.acked.len();
        }
        if round % 10 == 9 {
            let acked: usize = writers.iter().map(|writer| writer.acked.len()).sum();
            say(&format!("  {} kills, {acked} batches acknowledged and found", round + 1));
        }
    }
    // And all of it, from the first round on, outlives an orderly end as well.
    server.restart(Stop::Term);
    let mut connection = open(&server);
    for writer in &writers {
        writer.check(&mut connection, 0);
    }
}

/// Loads the server from one thread for each producer, kills it meanwhile, and starts it again.
fn kill_under_load(server: &mut Server, writers: &mut [Writer], load: Duration) {
    let address = server.bootstrap().to_owned();
    std::thread::scope(|scope| {
        for writer in writers {
            let address = &address;
            scope.spawn(move || {
                let mut connection = Connection::open(address).expect("the server listens");
                // It ends when the kill breaks the connection.
                let Err(_broken) = writer.load(&mut connection);
            });
        }
        // The moment of the kill is the experiment: there is nothing to wait for.
        std::thread::sleep(load);
        server.stop(Stop::Kill);
    });
    server.start_again();
}

fn open(server: &Server) -> Connection {
    Connection::open(server.bootstrap()).expect("the server listens")
}
