//! Requests recorded from real clients: they are read, and written again as they were.

use super::sample::unframed;
use super::*;

fn from_hex(hex: &str) -> Bytes {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Client id, request and frame of every recorded request.
fn recorded() -> Vec<(String, i16, Request, Bytes)> {
    let lines = include_str!("../../golden/requests.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let frame = from_hex(line.rsplit(' ').next().unwrap());
            let (header, body) = RequestHeader::decode(frame.clone()).unwrap();
            assert!(line.starts_with(&format!("{} {} ", header.api_key, header.api_version)));
            let version = header.api_version;
            let request = Request::decode(header.api().unwrap(), version, body).unwrap();
            (header.client_id.unwrap(), version, request, frame)
        })
        .collect()
}

fn written_again(request: &Request, version: i16, client: &str, frame: &Bytes) -> Bytes {
    let correlation_id = i32::from_be_bytes(*frame[4..].first_chunk().unwrap());
    macro_rules! encode {
        ($($name:ident)*) => {
            match request {
                $( Request::$name(body) => {
                    encode_request(version, correlation_id, Some(client), body).unwrap()
                } )*
            }
        };
    }
    unframed(encode!(
        Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup
        Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups ApiVersions CreateTopics
        DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch DescribeConfigs
        CreatePartitions DeleteGroups AlterConfigs IncrementalAlterConfigs
        DescribeCluster
    ))
}

#[test]
fn requests_of_real_clients_are_written_as_they_were() {
    let recorded = recorded();
    assert!(recorded.len() >= 46);
    for (client, version, request, frame) in recorded {
        let again = written_again(&request, version, &client, &frame);
        assert_eq!(again, frame, "{client} v{version} {request:?}");
    }
}

#[test]
fn batches_of_real_producers_are_accepted() {
    let mut batches = 0;
    for (client, _, request, _) in recorded() {
        let Request::Produce(produce) = request else { continue };
        assert_eq!(produce.topic_data[0].name, "t");
        let bytes = produce.topic_data[0].partition_data[0].records.clone().unwrap();
        let header = crate::records::validate(&bytes).unwrap();
        let batch = crate::records::Batch { header, bytes };
        let records: Vec<_> = batch.records(4096).unwrap().map(Result::unwrap).collect();
        let value = records[0].value.clone().unwrap();
        let start: &[u8] = match client.as_str() {
            "java-none" => b"none-value-0",
            "kcat" => b"kcat-none",
            _ => b"ck-none",
        };
        assert!(value.starts_with(start), "{client}: {value:?}");
        batches += 1;
    }
    assert_eq!(batches, 3);
}
