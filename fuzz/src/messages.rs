//! Messages of the Kafka protocol: requests as a server takes them off a socket, answers as the
//! command line's client does. What was read must be written and read again as the same.

use bytes::{Bytes, BytesMut};
use thetis_kafka::wire::*;

use crate::input::Input;

/// A frame without its length: header and body of any API in any version.
pub fn kafka_request(data: &[u8]) {
    let Ok((header, body)) = RequestHeader::decode(Bytes::copy_from_slice(data)) else { return };
    let Some(api) = header.api() else { return };
    let Ok(request) = Request::decode(api, header.api_version, body) else { return };
    macro_rules! write_again {
        ($($name:ident)*) => {
            match &request {
                $(Request::$name(body) => write(&header, body),)*
            }
        };
    }
    let again = write_again!(
        Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup
        Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups ApiVersions CreateTopics
        DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch DescribeConfigs
        CreatePartitions DeleteGroups AlterConfigs IncrementalAlterConfigs DescribeCluster
    );
    let (header_again, body) = RequestHeader::decode(again).expect("a header just written");
    assert_eq!(header_again, header);
    let read = Request::decode(api, header.api_version, body).expect("a request just written");
    assert_eq!(read, request);
}

fn write<R: Call>(header: &RequestHeader, body: &R) -> Bytes {
    let client = header.client_id.as_deref();
    let segments = encode_request(header.api_version, header.correlation_id, client, body);
    unframed(segments.expect("what was read can be written"))
}

fn unframed(segments: Vec<Bytes>) -> Bytes {
    let mut buffer: BytesMut =
        segments.iter().flat_map(|segment| segment.iter().copied()).collect();
    let frame = split_frame(&mut buffer, FRAME_BYTES_MAX).expect("a length just written");
    assert!(buffer.is_empty(), "the length is not that of the frame");
    frame.expect("the whole frame is there")
}

/// One byte choosing an API, one choosing a version, then the frame of an answer without its length.
pub fn kafka_response(data: &[u8]) {
    let mut input = Input::new(data);
    let api = ApiKey::ALL[usize::from(input.byte()) % ApiKey::ALL.len()];
    let versions: Vec<i16> = (api.version_min()..=api.version_max()).collect();
    let version = versions[usize::from(input.byte()) % versions.len()];
    let frame = Bytes::copy_from_slice(input.rest());
    macro_rules! read {
        ($($name:ident $request:ident)*) => {
            match api {
                $(ApiKey::$name => read::<$request>(version, frame),)*
            }
        };
    }
    read!(
        Produce ProduceRequest Fetch FetchRequest ListOffsets ListOffsetsRequest
        Metadata MetadataRequest OffsetCommit OffsetCommitRequest OffsetFetch OffsetFetchRequest
        FindCoordinator FindCoordinatorRequest JoinGroup JoinGroupRequest
        Heartbeat HeartbeatRequest LeaveGroup LeaveGroupRequest SyncGroup SyncGroupRequest
        DescribeGroups DescribeGroupsRequest ListGroups ListGroupsRequest
        ApiVersions ApiVersionsRequest CreateTopics CreateTopicsRequest
        DeleteTopics DeleteTopicsRequest DeleteRecords DeleteRecordsRequest
        InitProducerId InitProducerIdRequest OffsetForLeaderEpoch OffsetForLeaderEpochRequest
        DescribeConfigs DescribeConfigsRequest CreatePartitions CreatePartitionsRequest
        DeleteGroups DeleteGroupsRequest AlterConfigs AlterConfigsRequest IncrementalAlterConfigs IncrementalAlterConfigsRequest
        DescribeCluster DescribeClusterRequest
    );
}

fn read<R: Call>(version: i16, frame: Bytes)
where
    Response: From<R::Response>,
{
    // An answer of version 0 to a question of a later one says that it is not served.
    let refused = ErrorCode::UnsupportedVersion.code().to_be_bytes();
    let is_refusal = R::API == ApiKey::ApiVersions && frame.get(4..6) == Some(&refused);
    let version = if is_refusal { 0 } else { version };
    let Ok((correlation_id, answer)) = decode_response::<R>(version, frame) else { return };
    let answer = Response::from(answer);
    let segments = answer.encode(version, correlation_id).expect("what was read can be written");
    let again = decode_response::<R>(version, unframed(segments)).expect("an answer just written");
    assert_eq!(again.0, correlation_id);
    assert_eq!(Response::from(again.1), answer);
}
