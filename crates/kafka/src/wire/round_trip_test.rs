//! Every message in every version served: what is written reads back, and no bytes can make the
//! decoder panic.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::sample::{Sample, Source, for_each_api, unframed, written};
use super::*;

fn reads_back<T: Wire + Sample + PartialEq + fmt::Debug>(api: ApiKey, version: i16, seed: u64) {
    let message = T::sample(&mut Source::new(seed, version), false);
    let bytes = written(api, version, &message);
    assert!(bytes.len() >= T::bytes_min(version, api.flexible(version)));
    let mut reader = Reader::new(bytes, version, api.flexible(version));
    assert_eq!(T::decode(&mut reader, false).as_ref(), Ok(&message), "{api} v{version} #{seed}");
    assert_eq!(reader.remaining(), 0, "{api} v{version} #{seed}");
}

#[test]
fn every_message_reads_back_in_every_version() {
    fn visit<R>()
    where
        R: Call + Sample + PartialEq + fmt::Debug,
        R::Response: Sample + PartialEq + fmt::Debug,
    {
        for version in R::API.version_min()..=R::API.version_max() {
            for seed in 0..200 {
                reads_back::<R>(R::API, version, seed);
                reads_back::<R::Response>(R::API, version, seed);
            }
        }
    }
    for_each_api!(visit);
}

/// Truncating a valid message anywhere is an error, never a panic and never a shorter message.
#[test]
fn every_truncation_is_an_error() {
    fn truncated<T: Wire + Sample>(api: ApiKey, version: i16) {
        let message = T::sample(&mut Source::new(7, version), false);
        let bytes = written(api, version, &message);
        for end in 0..bytes.len() {
            let mut reader = Reader::new(bytes.slice(..end), version, api.flexible(version));
            assert!(T::decode(&mut reader, false).is_err(), "{api} v{version} cut at {end}");
        }
    }
    fn visit<R: Call + Sample>()
    where
        R::Response: Sample,
    {
        for version in R::API.version_min()..=R::API.version_max() {
            truncated::<R>(R::API, version);
            truncated::<R::Response>(R::API, version);
        }
    }
    for_each_api!(visit);
}

/// Decodes `bytes` as every request and response in every version.
fn decode_as_everything(bytes: &Bytes) {
    thread_local!(static BYTES: std::cell::RefCell<Bytes> = const {
        std::cell::RefCell::new(Bytes::new())
    });
    BYTES.set(bytes.clone());
    fn visit<R: Call>() {
        let bytes = BYTES.with_borrow(Bytes::clone);
        for version in R::API.version_min()..=R::API.version_max() {
            let request = Request::decode(R::API, version, bytes.clone());
            if let Ok(request) = request {
                assert_eq!(request.api(), R::API);
            }
            let response = decode_response::<R>(version, bytes.clone());
            if let Err(error) = response {
                assert!(error.at <= bytes.len() && !error.what.is_empty(), "{error}");
            }
        }
    }
    for_each_api!(visit);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        decode_as_everything(&bytes);
        if let Ok((header, body)) = RequestHeader::decode(bytes.clone()) {
            prop_assert!(body.len() + 8 <= bytes.len());
            prop_assert_eq!(header.api_key.to_be_bytes(), [bytes[0], bytes[1]]);
        }
    }

    /// Bytes near a valid message get further into the decoder than random ones.
    #[test]
    fn mutated_messages_never_panic(
        seed in any::<u64>(),
        edits in proptest::collection::vec((any::<u64>(), any::<u8>()), 1..6),
    ) {
        fn mutated<T: Wire + Sample>(
            api: ApiKey,
            version: i16,
            seed: u64,
            edits: &[(u64, u8)],
        ) -> Result<(), TestCaseError> {
            let message = T::sample(&mut Source::new(seed, version), false);
            let mut bytes = written(api, version, &message).to_vec();
            for (place, value) in edits {
                if !bytes.is_empty() {
                    let place = usize::try_from(place % bytes.len() as u64).unwrap();
                    bytes[place] = *value;
                }
            }
            let length = bytes.len();
            let mut reader = Reader::new(bytes.into(), version, api.flexible(version));
            match T::decode(&mut reader, false) {
                Ok(_) => prop_assert!(reader.remaining() <= length),
                Err(error) => prop_assert!(error.at <= length && !error.what.is_empty()),
            }
            Ok(())
        }
        thread_local!(static CASE: std::cell::RefCell<(u64, Vec<(u64, u8)>)> = const {
            std::cell::RefCell::new((0, Vec::new()))
        });
        CASE.set((seed, edits));
        fn visit<R: Call + Sample>()
        where
            R::Response: Sample,
        {
            let (seed, edits) = CASE.with_borrow(Clone::clone);
            for version in R::API.version_min()..=R::API.version_max() {
                mutated::<R>(R::API, version, seed, &edits).unwrap();
                mutated::<R::Response>(R::API, version, seed, &edits).unwrap();
            }
        }
        for_each_api!(visit);
    }
}

#[test]
fn a_huge_compact_count_is_refused_without_memory() {
    let body = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x07]);
    let error = Request::decode(ApiKey::Metadata, 9, body).unwrap_err();
    assert_eq!(error.what, "MetadataRequest.topics");
    assert!(matches!(error.fault, DecodeFault::Count { count: 0x7fff_fffe, have: 0, .. }));
}

/// A few bytes on the wire can be a structure of fifty in memory.
#[test]
fn memory_for_one_frame_is_bounded() {
    // Topics without names, two bytes each on the wire.
    let count = 5_000_000u32;
    let mut body = BytesMut::new();
    body.extend_from_slice(&count.to_be_bytes());
    body.resize(4 + 2 * count as usize, 0);
    let error = Request::decode(ApiKey::Metadata, 1, body.freeze()).unwrap_err();
    assert!(matches!(error.fault, DecodeFault::Budget { .. }), "{error}");
}

#[test]
fn unknown_tags_are_skipped_and_ours_survive() {
    let mut response = ProduceResponse { throttle_time_ms: 5, ..Default::default() };
    response.node_endpoints.push(NodeEndpoint { node_id: 3, ..Default::default() });
    let bytes = written(ApiKey::Produce, 10, &response);
    let tags = bytes.len() - 15;
    assert_eq!(bytes[tags..tags + 3], [1, 0, 12], "one tag, number 0, twelve bytes: {bytes:?}");
    let mut with_unknown = BytesMut::from(&bytes[..tags]);
    with_unknown.extend_from_slice(&[2]);
    with_unknown.extend_from_slice(&bytes[tags + 1..]);
    with_unknown.extend_from_slice(&[99, 2, 0xaa, 0xbb]);
    let mut reader = Reader::new(with_unknown.freeze(), 10, true);
    assert_eq!(ProduceResponse::decode(&mut reader, false), Ok(response));
    assert_eq!(reader.remaining(), 0);
}

#[test]
fn headers_of_requests_read_back() {
    for version in [0, 3, 4] {
        let request = ApiVersionsRequest::default();
        let frame = unframed(encode_request(version, 9, Some("c"), &request).unwrap());
        let (header, body) = RequestHeader::decode(frame).unwrap();
        let expected = RequestHeader {
            api_key: 18,
            api_version: version,
            correlation_id: 9,
            client_id: Some("c".into()),
        };
        assert_eq!(header, expected);
        assert_eq!(Request::decode(ApiKey::ApiVersions, version, body), Ok(request.into()));
    }
}

/// The session must be able to answer what it cannot read.
#[test]
fn an_unserved_version_still_has_a_header() {
    let frame = Bytes::from_static(&[0, 18, 0, 99, 0, 0, 0, 7, 0xff]);
    let (header, body) = RequestHeader::decode(frame).unwrap();
    assert_eq!((header.api(), header.api_version), (Some(ApiKey::ApiVersions), 99));
    assert_eq!((header.correlation_id, body.len()), (7, 1));
    let refused = Request::decode(ApiKey::ApiVersions, 99, body).unwrap_err();
    assert_eq!(refused.fault, DecodeFault::Version { found: 99, min: 0, max: 4 });
    let produce = Request::decode(ApiKey::Produce, 2, Bytes::new()).unwrap_err();
    assert_eq!(produce.fault, DecodeFault::Version { found: 2, min: 3, max: 11 });
}

#[test]
fn an_answer_has_the_header_of_its_api() {
    let heartbeat = Response::from(HeartbeatResponse::default());
    // Correlation id, tags of the header; throttle, error, tags of the body.
    let frame = unframed(heartbeat.encode(4, 0x0102_0304).unwrap());
    assert_eq!(frame[..], [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    let read = decode_response::<HeartbeatRequest>(4, frame).unwrap();
    assert_eq!(read, (0x0102_0304, HeartbeatResponse::default()));
    // ApiVersions: no tags in the header, whatever the version.
    let versions = Response::from(ApiVersionsResponse::default());
    let frame = unframed(versions.encode(3, 1).unwrap());
    assert_eq!(frame[..], [0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_refused_version_of_api_versions_is_understood() {
    let answer = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion,
        api_keys: ApiKey::advertised(),
        ..Default::default()
    };
    let frame = unframed(Response::from(answer.clone()).encode(0, 1).unwrap());
    assert_eq!(decode_response::<ApiVersionsRequest>(4, frame), Ok((1, answer)));
}

#[test]
fn null_is_sent_as_empty_to_versions_without_null() {
    let all = MetadataRequest { topics: None, ..Default::default() };
    assert_eq!(written(ApiKey::Metadata, 0, &all)[..], [0, 0, 0, 0]);
    assert_eq!(written(ApiKey::Metadata, 1, &all)[..], [0xff; 4]);
}

#[test]
fn frames_come_out_one_by_one() {
    let mut buffer = BytesMut::from(&[0, 0, 0, 2, 7, 8, 0, 0, 0, 1][..]);
    assert_eq!(split_frame(&mut buffer, 2), Ok(Some(Bytes::from_static(&[7, 8]))));
    assert_eq!(split_frame(&mut buffer, 2), Ok(None));
    assert_eq!(
        split_frame(&mut BytesMut::from(&[0, 0, 0, 3][..]), 2),
        Err(FrameError::TooLarge { bytes: 3, max: 2 })
    );
    assert_eq!(split_frame(&mut BytesMut::from(&[0xff; 4][..]), 2), Err(FrameError::Negative(-1)));
}

#[test]
fn every_api_is_advertised_once_in_order() {
    let keys: Vec<i16> = ApiKey::advertised().iter().map(|api| api.api_key).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    for api in ApiKey::ALL {
        assert_eq!(ApiKey::from_key(api.key()), Some(*api));
        assert!(api.version_advertised_min() <= api.version_min());
        assert!(api.version_min() <= api.version_max());
    }
}
