//! Entries in the library's own framing, as they might lie in a journal: read through the library.

use std::sync::OnceLock;

use bytes::Bytes;
use thetis::{Durability, Offset, Options, Thetis};
use thetis_stream::Append;
use thetis_types::{Entry, EntryFormat};

use crate::input::Input;

/// One byte choosing the format, two with the number of records, then the payload of an entry.
pub fn plain_records(data: &[u8]) {
    let mut input = Input::new(data);
    let format = match input.byte() % 8 {
        0 => EntryFormat::Record,
        1 => EntryFormat::KafkaBatch,
        _ => EntryFormat::Records,
    };
    let record_count = match format {
        EntryFormat::Record => 1,
        _ => u32::from(input.u16()).max(1),
    };
    let payload = Bytes::copy_from_slice(input.rest());
    let entry = Entry { record_count, max_timestamp: 5, format, payload: payload.clone() };
    let (thetis, topic) = opened();
    let inner = &topic.partitions[0];
    let range = inner.append(&Append::of(entry)).expect("it is small").wait().expect("a tmp dir");
    let stream = thetis.stream("plain").expect("it exists");
    let base = range.range.start;
    // Enter at the first record and in the middle.
    for from in [base, base.plus(u64::from(record_count) / 2)] {
        let Ok(records) = stream.read(from) else { continue };
        let records: Vec<_> = records.map(|record| record.expect("it began well")).collect();
        let expected = range.range.end.since(from);
        assert_eq!(records.len() as u64, expected, "a record is missing");
        assert!(records.iter().zip(from.0..).all(|(record, at)| record.offset == Offset(at)));
        let bytes: usize = records.iter().map(|record| record.value.len()).sum();
        assert!(bytes <= payload.len());
    }
    inner.trim(range.range.end).expect("it is committed");
}

/// One directory for all runs: what is appended is trimmed again.
fn opened() -> &'static (Thetis, std::sync::Arc<thetis_catalog::Topic>) {
    static OPENED: OnceLock<(Thetis, std::sync::Arc<thetis_catalog::Topic>)> = OnceLock::new();
    OPENED.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory for temporary files");
        let options = Options { durability: Durability::Memory, ..Options::default() };
        let (thetis, _) = Thetis::open_with(dir.path(), options).expect("an empty directory");
        // The directory lives as long as the process; its files are held open.
        drop(dir);
        thetis.stream("plain").expect("a new name");
        let topic = thetis.catalog().get("plain").expect("just made");
        (thetis, topic)
    })
}
