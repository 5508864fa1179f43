//! Seeds: inputs made from the golden files of the crates, in the shape each target wants, so that a
//! fuzzer begins behind every door. Nothing is kept twice; the example `seed` writes them.

use thetis_catalog::config::KEYS;
use thetis_kafka::wire::ApiKey;

/// Seeds of the target of this name; none for one that needs none.
#[must_use]
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "kafka_request" => requests(),
        "kafka_response" => responses(),
        "record_batches" => batches(),
        "group_log" => group_log(),
        "producer_snapshot" => both_ways(&producer_snapshot()),
        "journal" => journal(),
        "metadata_key" => keys(),
        "stream_record" => stream_record(),
        "topic_record" => {
            vec![include_bytes!("../../crates/catalog/golden/topic-record-v1.bin").to_vec()]
        }
        "plain_records" => vec![b"\x02\x03\0\x01\0\0\0a\0\0\0\0\x02\0\0\0bc".to_vec()],
        "config_file" => config_files(),
        "config_value" => config_values(),
        "stream_model" => stream_models(),
        _ => Vec::new(),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks_exact(2).map(|pair| str::from_utf8(pair).expect("hex digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex digits")).collect()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// With the leading byte that leaves checksums alone, and with the one that makes them right.
fn both_ways(bytes: &[u8]) -> Vec<Vec<u8>> {
    [0, 1].map(|repairs| [&[repairs], bytes].concat()).to_vec()
}

/// As recorded from real clients.
fn requests() -> Vec<Vec<u8>> {
    let recorded = include_str!("../../crates/kafka/golden/requests.txt");
    lines(recorded).map(|line| hex(line.rsplit(' ').next().unwrap_or_default())).collect()
}

/// Of every API in every version, an answer of zeros: nothing happened, nothing is there.
fn responses() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (api, key) in (0..).zip(ApiKey::ALL) {
        for (version, _) in (0..).zip(key.version_min()..=key.version_max()) {
            let mut seed = vec![api, version];
            seed.resize(66, 0);
            seeds.push(seed);
        }
    }
    seeds
}

/// The batches within the recorded requests, and a batch in every codec.
fn batches() -> Vec<Vec<u8>> {
    use thetis_kafka::records::{Attributes, BatchBuilder, Codec, Header};
    let mut seeds = Vec::new();
    for codec in Codec::ALL {
        let mut builder = BatchBuilder::new(Attributes::new(codec)).producer(7, 0, 3);
        let headers = [Header { key: "trace".into(), value: None }];
        for index in 0..20 {
            let value = format!("a value that repeats itself, {index}");
            builder
                .push(1_700_000_000_000 + index, Some(b"key"), Some(value.as_bytes()), &headers)
                .expect("a small batch");
        }
        let batch = builder.build().expect("a batch with records");
        seeds.extend(both_ways(&batch));
        seeds.extend(both_ways(&[&batch[..], &batch[..]].concat()));
    }
    for request in requests() {
        // The magic of a batch stands 16 bytes behind its start.
        for at in (16..request.len().saturating_sub(61)).filter(|at| request[*at] == 2) {
            let length = &request[at - 8..at - 4];
            let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
            let end = usize::try_from(length).ok().map(|length| at - 4 + length);
            if let Some(batch) = end.and_then(|end| request.get(at - 16..end)) {
                seeds.extend(both_ways(batch));
            }
        }
    }
    seeds
}

/// The golden keys with each of the golden values, and one log of all.
fn group_log() -> Vec<Vec<u8>> {
    let golden = include_str!("../../crates/kafka/golden/consumer-offsets.txt");
    let mut records: Vec<(&str, Vec<u8>)> = Vec::new();
    for line in lines(golden) {
        let Some((name, bytes)) = line.split_once(": ") else { continue };
        match records.last_mut() {
            Some((last, so_far)) if *last == name => so_far.extend(hex(bytes)),
            _ => records.push((name, hex(bytes))),
        }
    }
    let key_of = |kind: &str| {
        let found = records.iter().find(|(name, _)| name.starts_with(&format!("{kind}-key")));
        found.map_or_else(Vec::new, |(_, key)| key.clone())
    };
    let mut seeds = Vec::new();
    for (name, value) in records.iter().filter(|(name, _)| name.contains("-value")) {
        let key = key_of(name.split('-').next().unwrap_or_default());
        let length = u16::try_from(value.len()).expect("golden values are small");
        let key_length = u8::try_from(key.len()).expect("golden keys are small");
        seeds.push([&[key_length], &length.to_le_bytes()[..], &key, value].concat());
        seeds.push([&[key_length, 0xff, 0xff], &key[..]].concat());
    }
    seeds.push(seeds.concat());
    seeds
}

fn producer_snapshot() -> Vec<u8> {
    let golden = include_str!("../../crates/kafka/golden/producer-snapshot-v1.txt");
    lines(golden).flat_map(hex).collect()
}

/// Each image as it is; and with one change in a header, a frame, a footer, and a file cut off.
fn journal() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for choice in 0..6 {
        seeds.push(vec![choice]);
        for (at, byte) in [(9_u16, 2), (4096 + 6, 3), (4096 + 20, 7), (8192 + 40, 1), (16_368, 9)] {
            let [low, high] = at.to_le_bytes();
            seeds.push(vec![choice, 0, low, high, 1, byte]);
        }
        seeds.push(vec![choice, 0, 0, 0x20, 0]);
    }
    seeds
}

fn keys() -> Vec<Vec<u8>> {
    use thetis_meta::Key;
    let key = Key::of("topic").number(7).text("a\0b").bytes(&[0, 255, 1]);
    let plain = Key::root().number(u64::MAX).text("orders").bytes(b"x");
    let stream = include_bytes!("../../crates/stream/golden/stream-record-v1.bin");
    vec![key.as_bytes().to_vec(), plain.as_bytes().to_vec(), stream.to_vec()]
}

fn stream_record() -> Vec<Vec<u8>> {
    let golden = include_bytes!("../../crates/stream/golden/stream-record-v1.bin");
    let mut seeds = vec![[&[2], &golden[..]].concat()];
    seeds.push([&[0, 2, 1, 1, 0][..], &7_u32.to_le_bytes()].concat());
    seeds.push([&[1, 3, 1, 1, 0][..], &7_u64.to_le_bytes()].concat());
    seeds
}

fn config_files() -> Vec<Vec<u8>> {
    [
        "durability = \"os\"\n\n[journal]\nfile_bytes = \"8MiB\"\nos_flush_interval = \"5ms\"\n",
        "journal.file_bytes = 8_388_608\ntopic = { partitions = 7, auto_create = false }\n",
        "[kafka]\nlisten = \"[::1]:9092\"\nadvertised = \"example.org:19092\"\n",
        "[topic]\nretention = \"forever\"\nmessage_bytes_max = \"2MiB\"\n[log]\nlevel = \"debug\"\n",
        "data.dir = '/a \\ b'\n[data]\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Every setting's own default, and some texts that look like more.
fn config_values() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (choice, setting) in (0..).zip(crate::config::defaults()) {
        seeds.push([&[choice], setting.as_bytes()].concat());
        for text in ["18446744073709551615KiB", "1.5h", "[::]:0", "-1", "never"] {
            seeds.push([&[choice], text.as_bytes()].concat());
        }
    }
    assert!(seeds.len() > KEYS.len());
    seeds
}

fn stream_models() -> Vec<Vec<u8>> {
    (0..8_u8)
        .map(|seed| {
            let step = |index: u8| index.wrapping_mul(37).wrapping_add(seed.wrapping_mul(101));
            (0..=80).map(step).collect()
        })
        .collect()
}
