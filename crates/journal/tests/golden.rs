//! The golden file of format version 1: read as it is, and written again byte for byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use thetis_journal::sim::SimDisk;
use thetis_journal::verify::verify;
use thetis_journal::{Append, Disk, Journal, Options, OsDisk};
use thetis_types::{
    AttemptId, Durability, Entry, EntryFormat, Epoch, HeadVersion, Offset, StreamId,
};

const NAME: &str = "0000000000000001.journal";

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v1")
}

fn entries() -> Vec<(StreamId, u64, Entry)> {
    let entry = |record_count, max_timestamp, format, payload: &'static [u8]| Entry {
        record_count,
        max_timestamp,
        format,
        payload: Bytes::from_static(payload),
    };
    vec![
        (StreamId(1), 1, entry(1, 1_700_000_000_000, EntryFormat::Record, b"first")),
        (StreamId(2), 1, entry(3, -1, EntryFormat::Records, b"three records")),
        (StreamId(1), 2, entry(2, 1_700_000_000_001, EntryFormat::KafkaBatch, b"second")),
    ]
}

/// The journal of the example, written by this build.
fn written() -> Vec<u8> {
    // The seed fixes the file's id.
    let disk = SimDisk::new(1);
    // Without the timer, nothing but the appends decides what is written.
    let os_flush_interval = std::time::Duration::from_secs(3600);
    let options = Options { file_bytes: 16 << 10, os_flush_interval, ..Options::default() };
    let (journal, _) = Journal::open(Arc::new(disk.clone()), options).unwrap();
    for (stream, version, entry) in entries() {
        let log = journal.log(stream);
        let base_offset = log.head().map_or(Offset(0), |head| head.end);
        let at = log.append(&[Append {
            epoch: Epoch(7),
            version: HeadVersion(version),
            base_offset,
            attempt: AttemptId { since: base_offset, nonce: 0xfeed },
            entry: &entry,
        }]);
        journal.wait(at.unwrap(), Durability::Disk).unwrap();
    }
    journal.close().unwrap();
    let file = disk.open(NAME).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn the_golden_file_is_written_byte_for_byte() {
    let path = golden().join(NAME);
    assert_eq!(written(), std::fs::read(path).unwrap(), "the format changed without a new version");
}

#[test]
fn the_golden_file_is_read() {
    let report = verify(&OsDisk::existing(golden()).unwrap(), |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((report.files, report.entries), (1, 3));
    // Opening writes, so a copy is opened.
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(golden().join(NAME), dir.path().join(NAME)).unwrap();
    let disk = Arc::new(OsDisk::new(dir.path()).unwrap());
    let (journal, _) = Journal::open(disk, Options::default()).unwrap();
    for (stream, version, entry) in entries() {
        let log = journal.log(stream);
        let until = log.head().unwrap().end;
        let stored = log.read(Offset(0), until, usize::MAX).unwrap();
        let stored = stored.iter().find(|it| it.version == HeadVersion(version)).unwrap();
        assert_eq!(stored.payload, entry.payload);
        assert_eq!(stored.record_count, entry.record_count);
        assert_eq!(stored.max_timestamp, entry.max_timestamp);
        assert_eq!((stored.format, stored.epoch), (entry.format, Epoch(7)));
        assert_eq!(stored.attempt.nonce, 0xfeed);
    }
}
