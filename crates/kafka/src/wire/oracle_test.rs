//! Every message in every version against another implementation of the protocol: it must read
//! what we write, write the same bytes again, and find the same values under the same names.

use bytes::BytesMut;
use kafka_protocol::messages::{ApiKey as TheirKey, RequestKind, ResponseKind};

use super::sample::{Sample, Source, for_each_api, written};
use super::*;

/// `name: number` and `name: "text"` pairs of a debug print, sorted, through wrappers like `Some(`.
fn named_values(debug: &str) -> Vec<String> {
    let mut pairs = Vec::new();
    for (place, _) in debug.match_indices(": ") {
        let name = debug[..place].rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next();
        let mut value = &debug[place + 2..];
        while let Some((wrapper, inner)) = value.split_once('(')
            && wrapper.chars().all(char::is_alphanumeric)
            && !wrapper.is_empty()
        {
            value = inner;
        }
        let end = match value.strip_prefix('"') {
            Some(text) => text.find('"').map(|end| end + 2),
            None => value.find(|c: char| !(c.is_ascii_digit() || c == '-')),
        };
        if let (Some(name), Some(end @ 1..)) = (name, end) {
            pairs.push(format!("{name}={}", &value[..end]));
        }
    }
    pairs.sort();
    pairs
}

/// The pairs without those that print differently: error codes are names here and numbers there,
/// ids have dashes there.
fn comparable(mut pairs: Vec<String>) -> Vec<String> {
    pairs.retain(|pair| !pair.contains("error_code=") && !pair.contains("topic_id="));
    pairs
}

fn assert_same_values(ours: &str, theirs: &str, case: &str) {
    let theirs = comparable(named_values(theirs));
    for pair in comparable(named_values(ours)) {
        assert!(theirs.contains(&pair), "{case}: {pair} is not among {theirs:?}");
    }
}

/// Versions both know.
fn shared_versions(api: ApiKey) -> (TheirKey, impl Iterator<Item = i16>) {
    let their_key = TheirKey::try_from(api.key()).unwrap();
    let theirs = their_key.valid_versions();
    let versions = api.version_min()..=api.version_max();
    (their_key, versions.filter(move |version| (theirs.min..=theirs.max).contains(version)))
}

#[test]
fn another_implementation_reads_and_writes_the_same_bytes() {
    fn visit<R>()
    where
        R: Call + Sample + fmt::Debug,
        R::Response: Sample + fmt::Debug,
    {
        let (their_key, versions) = shared_versions(R::API);
        let mut tried = 0;
        for version in versions {
            for seed in 0..40 {
                let case = format!("{} v{version} #{seed}", R::API);
                let mut source = Source::new(seed, version);
                let request = R::sample(&mut source, false);
                let ours = written(R::API, version, &request);
                let mut rest = ours.clone();
                let theirs = RequestKind::decode(their_key, &mut rest, version).expect(&case);
                assert!(rest.is_empty(), "{case}: {} bytes left", rest.len());
                assert_same_values(&format!("{request:?}"), &format!("{theirs:?}"), &case);
                let mut again = BytesMut::new();
                theirs.encode(&mut again, version).expect(&case);
                assert_eq!(again, ours, "{case}: {request:?} {theirs:?}");

                let response = R::Response::sample(&mut source, false);
                let ours = written(R::API, version, &response);
                let mut rest = ours.clone();
                let theirs = ResponseKind::decode(their_key, &mut rest, version).expect(&case);
                assert!(rest.is_empty(), "{case}: {} bytes left", rest.len());
                assert_same_values(&format!("{response:?}"), &format!("{theirs:?}"), &case);
                let mut again = BytesMut::new();
                theirs.encode(&mut again, version).expect(&case);
                assert_eq!(again, ours, "{case}: {response:?} {theirs:?}");
                tried += 1;
            }
        }
        assert!(tried > 0, "{} shares no version", R::API);
    }
    for_each_api!(visit);
}

#[test]
fn header_versions_agree() {
    for api in ApiKey::ALL {
        let (their_key, versions) = shared_versions(*api);
        for version in versions {
            let ours = if api.flexible(version) { 2 } else { 1 };
            assert_eq!(their_key.request_header_version(version), ours, "{api} v{version}");
            let ours = i16::from(api.response_header_flexible(version));
            assert_eq!(their_key.response_header_version(version), ours, "{api} v{version}");
        }
    }
}
