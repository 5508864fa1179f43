//! Retention by age and by size: what goes, what stays, and what cannot be judged.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

#[path = "house/rig.rs"]
mod rig;

use std::time::Duration;

use rig::{Rig, append, spec};
use thetis_catalog::Catalog;
use thetis_stream::{Read, Stream};
use thetis_types::Offset;
use thetis_types::clock::ManualClock;

const NOW: i64 = ManualClock::START_MS;
const HOUR: i64 = 3_600_000;

/// A topic of one partition with this configuration.
fn topic(catalog: &Catalog, configs: &[(&str, &str)]) -> Stream {
    let mut spec = spec("orders", 1);
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    spec.configs = configs.iter().map(pair).collect();
    catalog.create(spec).unwrap().partitions[0].clone()
}

/// What is left after retention ran once.
fn start(catalog: &Catalog, stream: &Stream) -> u64 {
    let before = stream.trim_offset();
    let trimmed = catalog.retain();
    assert_eq!(trimmed == 1, stream.trim_offset() > before, "counted wrongly");
    stream.trim_offset().0
}

#[test]
fn what_is_too_old_goes_and_nothing_younger() {
    let rig = Rig::new();
    let catalog = rig.open();
    let stream = topic(&catalog, &[("retention.ms", "3600000")]);
    for age in [3 * HOUR, 2 * HOUR, HOUR + 1, HOUR, HOUR - 1, 0] {
        append(&stream, NOW - age, 0);
    }
    assert_eq!(start(&catalog, &stream), 3, "exactly what is older than an hour goes");
    assert_eq!(start(&catalog, &stream), 3);
    rig.clock.advance(Duration::from_millis(1));
    assert_eq!(start(&catalog, &stream), 4);
    rig.clock.advance(Duration::from_secs(7_200));
    assert_eq!(start(&catalog, &stream), 6);
    assert_eq!(stream.read(Offset(6), 10).unwrap(), Read::End(Offset(6)), "emptied, and goes on");
    assert_eq!(append(&stream, NOW, 0).range.start, Offset(6));
    let again = rig.open();
    assert_eq!(again.get("orders").unwrap().partitions[0].trim_offset(), Offset(6));
}

/// Whatever the order of timestamps, the cut is a prefix: it ends at the first that stays.
#[test]
fn a_young_record_keeps_the_older_ones_behind_it() {
    let rig = Rig::new();
    let catalog = rig.open();
    let stream = topic(&catalog, &[("retention.ms", "1000")]);
    for age in [9_000, 0, 9_000] {
        append(&stream, NOW - age, 0);
    }
    assert_eq!(start(&catalog, &stream), 1);
}

#[test]
fn odd_timestamps_cut_nothing_that_cannot_be_judged() {
    for (timestamp, goes) in [(-1, false), (i64::MIN, false), (0, true), (NOW + 99 * HOUR, false)] {
        let rig = Rig::new();
        let catalog = rig.open();
        let stream = topic(&catalog, &[("retention.ms", "1000")]);
        append(&stream, NOW - HOUR, 0);
        append(&stream, timestamp, 0);
        append(&stream, NOW - HOUR, 0);
        assert_eq!(start(&catalog, &stream), if goes { 3 } else { 1 }, "stamped {timestamp}");
    }
}

#[test]
fn what_is_too_much_goes_oldest_first() {
    let rig = Rig::new();
    let catalog = rig.open();
    let stream = topic(&catalog, &[("retention.ms", "-1"), ("retention.bytes", "250")]);
    for _ in 0..5 {
        rig::append_bytes(&stream, NOW, 100);
    }
    // 250 bytes must remain, so three entries of 100 do.
    assert_eq!(start(&catalog, &stream), 2);
    assert_eq!(start(&catalog, &stream), 2);
    rig::append_bytes(&stream, -1, 100);
    assert_eq!(start(&catalog, &stream), 3, "size does not ask for a timestamp");
    rig::append_bytes(&stream, NOW, 1_000);
    assert_eq!(start(&catalog, &stream), 6, "the last entry is larger than the limit alone");
}

#[test]
fn a_limit_of_zero_bytes_empties_and_either_limit_is_enough() {
    let rig = Rig::new();
    let catalog = rig.open();
    let configs = [("retention.ms", "3600000"), ("retention.bytes", "0")];
    let stream = topic(&catalog, &configs);
    append(&stream, NOW, 0);
    append(&stream, NOW + HOUR, 0);
    assert_eq!(start(&catalog, &stream), 2);
}

#[test]
fn an_empty_topic_one_that_starts_late_and_one_that_is_compacted() {
    let rig = Rig::new();
    let catalog = rig.open();
    let stream = topic(&catalog, &[("retention.ms", "1000")]);
    assert_eq!(start(&catalog, &stream), 0);
    for age in [5_000, 4_000, 3_000, 0] {
        append(&stream, NOW - age, 0);
    }
    stream.trim(Offset(2)).unwrap();
    assert_eq!(start(&catalog, &stream), 3);
    let keep = [("cleanup.policy".to_owned(), "compact".to_owned())].into();
    catalog.set_configs("orders", keep).unwrap();
    rig.clock.advance(Duration::from_secs(30 * 86_400));
    assert_eq!(start(&catalog, &stream), 3, "compaction is not deletion");
}
