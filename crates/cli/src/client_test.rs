//! The client against a server that follows a script: what it must survive and what it must tell.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use bytes::Bytes;
use thetis_kafka::records::Codec;
use thetis_kafka::wire::{
    ApiKey, ApiVersion, ApiVersionsResponse, CreateTopicsResponse, ErrorCode,
    FetchPartitionResponse, FetchResponse, FetchTopicResponse, InitProducerIdResponse,
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse, MetadataBroker,
    MetadataPartition, MetadataResponse, MetadataTopic, ProducePartitionResponse, ProduceRequest,
    ProduceResponse, ProduceTopicResponse, Request, RequestHeader, Response,
};
use thetis_types::Outcome;

use super::*;

const TOPIC: &str = "t";

/// What the server does with one Produce.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Act {
    /// Answers with this code.
    Answer(ErrorCode),
    /// Writes it, and closes the connection without a word.
    HangUp,
}

/// A server of one topic with one partition. Ends, and gives the batches it was sent, when a client
/// hangs up after the last act of the script.
struct Server {
    address: Address,
    thread: JoinHandle<Vec<Bytes>>,
}

/// What the server says of itself.
#[derive(Clone, Copy, Default)]
struct Traits {
    /// Gives out no producer ids.
    anonymous: bool,
}

impl Server {
    fn start(script: &[Act], traits: Traits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound port").port();
        let address = Address { host: "127.0.0.1".to_owned(), port };
        let script = script.to_vec();
        let thread = std::thread::spawn(move || {
            let mut script = script.into_iter();
            let mut batches = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().expect("a client");
                let hung_up = serve(&mut stream, port, traits, &mut script, &mut batches);
                if !hung_up {
                    return batches;
                }
            }
        });
        Server { address, thread }
    }

    fn client(&self) -> Client {
        Client::connect(self.address.clone(), None).expect("the server answers")
    }

    fn end(self, client: impl Sized) -> Vec<Bytes> {
        drop(client);
        self.thread.join().expect("the server follows its script")
    }
}

/// Serves one connection; true when it was the server that closed it.
fn serve(
    stream: &mut TcpStream,
    port: u16,
    traits: Traits,
    script: &mut impl Iterator<Item = Act>,
    batches: &mut Vec<Bytes>,
) -> bool {
    loop {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return false;
        }
        let length = usize::try_from(i32::from_be_bytes(length)).expect("a length");
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame).expect("a whole frame");
        let (header, body) = RequestHeader::decode(frame.into()).expect("a request");
        let api = header.api().expect("a known api");
        let request = Request::decode(api, header.api_version, body).expect("a request");
        let response = match request {
            Request::Produce(request) => {
                batches.push(batch_of(&request));
                match script.next().expect("an act for each batch") {
                    Act::HangUp => return true,
                    Act::Answer(code) => produced(code),
                }
            }
            other => answer(&other, port, traits),
        };
        let segments = response.encode(header.api_version, header.correlation_id);
        for segment in segments.expect("an answer that can be written") {
            stream.write_all(&segment).expect("a client that listens");
        }
    }
}

fn batch_of(request: &ProduceRequest) -> Bytes {
    request.topic_data[0].partition_data[0].records.clone().expect("records")
}

fn produced(error_code: ErrorCode) -> Response {
    let partition = ProducePartitionResponse {
        error_code,
        base_offset: if error_code == ErrorCode::None { 40 } else { -1 },
        ..ProducePartitionResponse::default()
    };
    let topic =
        ProduceTopicResponse { name: TOPIC.to_owned(), partition_responses: vec![partition] };
    ProduceResponse { responses: vec![topic], ..ProduceResponse::default() }.into()
}

fn answer(request: &Request, port: u16, traits: Traits) -> Response {
    match request {
        Request::ApiVersions(_) => {
            let spoken = ApiKey::ALL.iter();
            let spoken = spoken.filter(|api| !traits.anonymous || **api != ApiKey::InitProducerId);
            let api_keys = spoken.map(|api| ApiVersion {
                api_key: api.key(),
                min_version: api.version_min(),
                max_version: api.version_max(),
            });
            let api_keys = api_keys.collect();
            ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() }.into()
        }
        Request::Metadata(request) => {
            let host = "127.0.0.1".to_owned();
            let broker = MetadataBroker { node_id: 1, host, port: port.into(), rack: None };
            let partition = MetadataPartition { leader_id: 1, ..MetadataPartition::default() };
            let found = MetadataTopic {
                name: Some(TOPIC.to_owned()),
                partitions: vec![partition],
                ..MetadataTopic::default()
            };
            let named = request.topics.as_ref().and_then(|topics| topics[0].name.clone());
            let missing = MetadataTopic {
                name: named.clone(),
                error_code: ErrorCode::UnknownTopicOrPartition,
                ..MetadataTopic::default()
            };
            let known = named.as_deref().is_none_or(|name| name == TOPIC);
            let topics = vec![if known { found } else { missing }];
            let brokers = vec![broker];
            MetadataResponse { brokers, controller_id: 1, topics, ..MetadataResponse::default() }
                .into()
        }
        Request::InitProducerId(_) => {
            InitProducerIdResponse { producer_id: 5, ..InitProducerIdResponse::default() }.into()
        }
        Request::ListOffsets(request) => {
            let timestamp = request.topics[0].partitions[0].timestamp;
            let offset = if timestamp == thetis_kafka::wire::LATEST_TIMESTAMP { 43 } else { 40 };
            let found = ListOffsetsPartitionResponse { offset, ..Default::default() };
            let topic =
                ListOffsetsTopicResponse { name: TOPIC.to_owned(), partitions: vec![found] };
            ListOffsetsResponse { topics: vec![topic], ..ListOffsetsResponse::default() }.into()
        }
        Request::Fetch(_) => fetched(),
        _ => CreateTopicsResponse::default().into(),
    }
}

/// Offsets 40 to 44 in one batch: more than the end at 43 that ListOffsets told.
fn fetched() -> Response {
    let records: Vec<NewRecord> = (0..5).map(record).collect();
    let batch = batches::seal(&records, None, Codec::Gzip).expect("a batch");
    let mut batch = batch.to_vec();
    batch[..8].copy_from_slice(&40_i64.to_be_bytes());
    let partition = FetchPartitionResponse {
        records: Bytes::from(batch).into(),
        high_watermark: 45,
        ..FetchPartitionResponse::default()
    };
    let topic = FetchTopicResponse {
        topic: TOPIC.to_owned(),
        partitions: vec![partition],
        ..FetchTopicResponse::default()
    };
    FetchResponse { responses: vec![topic], ..FetchResponse::default() }.into()
}

fn record(number: u8) -> NewRecord {
    NewRecord { key: None, value: Bytes::from(vec![number]), timestamp: 1_000 }
}

fn producer(server: &Server) -> Producer {
    let options = ProducerOptions { partition: None, batch_bytes: 1024, compression: Codec::None };
    Producer::new(server.client(), TOPIC, options).expect("a topic")
}

/// Without the resend of the very same bytes a lost answer would be a lost or a doubled batch.
#[test]
fn a_batch_whose_answer_was_lost_is_sent_again_as_the_same_attempt() {
    let script = [Act::HangUp, Act::Answer(ErrorCode::None)];
    let server = Server::start(&script, Traits::default());
    let mut producer = producer(&server);
    producer.add(record(1)).unwrap();
    producer.add(record(2)).unwrap();
    producer.flush().unwrap();
    let written = producer.written();
    assert_eq!((written[0].records, written[0].first_offset, written[0].last_offset), (2, 40, 41));
    let sent = server.end(producer);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], sent[1]);
}

/// A server that answered "written long ago" must not make the client fail or write again.
#[test]
fn a_duplicate_counts_as_written() {
    let script = [Act::HangUp, Act::Answer(ErrorCode::DuplicateSequenceNumber)];
    let server = Server::start(&script, Traits::default());
    let mut producer = producer(&server);
    producer.add(record(1)).unwrap();
    producer.flush().unwrap();
    assert_eq!(producer.written()[0].records, 1);
    assert_eq!(server.end(producer).len(), 2);
}

#[test]
fn without_producer_ids_a_lost_answer_is_uncertain_and_nothing_is_sent_twice() {
    let script = [Act::HangUp];
    let server = Server::start(&script, Traits { anonymous: true });
    let mut producer = producer(&server);
    producer.add(record(1)).unwrap();
    let error = producer.flush().unwrap_err();
    assert!(matches!(error, ClientError::Uncertain { records: 1, .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::MayHaveCommitted);
    // The script is over and the server waits for one more client, to see it hang up.
    let address = server.address.clone();
    let batches = server.end((producer, TcpStream::connect((address.host, address.port)).unwrap()));
    assert_eq!(batches.len(), 1);
}

#[test]
fn a_refusal_is_certain_and_names_the_code() {
    let script = [Act::Answer(ErrorCode::MessageTooLarge)];
    let server = Server::start(&script, Traits::default());
    let mut producer = producer(&server);
    producer.add(record(1)).unwrap();
    let error = producer.flush().unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotCommitted);
    assert_eq!(error.to_string(), "could not write to t/0: MESSAGE_TOO_LARGE (10)");
    assert_eq!(server.end(producer).len(), 1);
}

#[test]
fn a_refusal_that_passes_is_tried_again() {
    let script = [Act::Answer(ErrorCode::NotLeaderOrFollower), Act::Answer(ErrorCode::None)];
    let server = Server::start(&script, Traits::default());
    let mut producer = producer(&server);
    producer.add(record(1)).unwrap();
    producer.flush().unwrap();
    assert_eq!(server.end(producer).len(), 2);
}

/// A batch is answered whole: what lies before the place asked for and after the end seen at the
/// start is not the reader's.
#[test]
fn a_reader_gets_exactly_the_offsets_between_its_start_and_the_end() {
    let server = Server::start(&[], Traits::default());
    let options = ConsumerOptions { partition: None, start: Start::Offset(41), follow: false };
    let mut consumer = Consumer::new(server.client(), TOPIC, &options).unwrap();
    let records = consumer.next().unwrap().unwrap();
    let offsets: Vec<i64> = records.iter().map(|fetched| fetched.record.offset).collect();
    assert_eq!(offsets, [41, 42]);
    assert_eq!(records[0].record.value.as_deref(), Some(&[1_u8][..]));
    assert_eq!(consumer.next().unwrap(), None);
    server.end(consumer);
}

#[test]
fn an_offset_that_is_not_there_is_refused_with_those_that_are() {
    let server = Server::start(&[], Traits::default());
    let options = ConsumerOptions { partition: None, start: Start::Offset(99), follow: false };
    let error = Consumer::new(server.client(), TOPIC, &options).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "partition 0 of t has offsets from 40 up to 43, not 99");
    server.end(());
}

#[test]
fn a_misspelt_topic_names_the_one_that_is_there() {
    let server = Server::start(&[], Traits::default());
    let mut client = server.client();
    let error = client.topic("tt", false).unwrap_err();
    let nearest = match error {
        ClientError::UnknownTopic { nearest, .. } => nearest,
        other => panic!("{other}"),
    };
    assert_eq!(nearest.as_deref(), Some(TOPIC));
    server.end(client);
}
