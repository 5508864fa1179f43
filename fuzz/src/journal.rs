//! A journal directory with mutated bytes: listed, decoded and verified offline, then opened, read,
//! appended to, closed and opened again.

use std::io::IoSlice;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use thetis_journal::disk::Promise;
use thetis_journal::sim::SimDisk;
use thetis_journal::verify::verify;
use thetis_journal::{Append, Disk, Journal, Options, RecoveredStream, inspect};
use thetis_types::{
    AttemptId, Durability, Entry, EntryFormat, Epoch, Head, HeadVersion, Offset, StreamId,
};

use crate::input::Input;

/// The smallest a journal file may be, so that many runs fit into a second.
const FILE_BYTES: u64 = 16 << 10;
/// Changes made to one image.
const CHANGES_MAX: usize = 32;
/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;

type Image = Vec<(String, Vec<u8>)>;

fn options() -> Options {
    Options { file_bytes: FILE_BYTES, tail_cache_bytes: 1 << 20, ..Options::default() }
}

/// One byte choosing an image and whether checksums are made right, then changes: the file (one
/// byte), the place (two bytes, little-endian), the number of bytes (one) and the bytes; no bytes
/// at all cut the file off there.
pub fn journal(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    let mut image = images()[usize::from(choice >> 1) % images().len()].clone();
    let mut changes = 0;
    while !input.is_empty() && changes < CHANGES_MAX {
        changes += 1;
        let files = image.len();
        let file = &mut image[usize::from(input.byte()) % files].1;
        let at = usize::from(input.u16()) % (file.len() + 1);
        let count = usize::from(input.byte());
        let bytes = input.bytes(count);
        if count == 0 {
            file.truncate(at);
        } else {
            let end = (at + bytes.len()).min(file.len());
            file[at..end].copy_from_slice(&bytes[..end - at]);
        }
    }
    if choice & 1 == 1 {
        image.iter_mut().for_each(|(_, file)| repair(file));
    }
    let disk = written(&image);
    look(&disk);
    open(&disk);
}

/// What the command line does, on a directory that it does not trust.
fn look(disk: &SimDisk) {
    let files = inspect::files(disk).expect("the disk itself is sound");
    for file in files {
        let Ok(frames) = inspect::frames(disk, file.sequence) else { continue };
        for frame in frames {
            if let Some(header) = &frame.header {
                let _ = inspect::payload(disk, file.sequence, frame.at, header);
            }
        }
    }
    let _ = verify(disk, |_| {});
}

/// Opens, reads everything, appends to every stream, and opens again: what was there still is.
fn open(disk: &SimDisk) {
    let Ok((journal, recovery)) = Journal::open(Arc::new(disk.clone()), options()) else { return };
    let found: Vec<(RecoveredStream, Vec<Bytes>)> =
        recovery.streams.iter().map(|stream| (*stream, read(&journal, stream))).collect();
    let mut ends = Vec::new();
    for (stream, _) in &found {
        ends.push(append(&journal, stream.stream, stream.head));
    }
    journal.close().expect("the disk itself is sound");
    drop(journal);
    let (journal, recovery) = Journal::open(Arc::new(disk.clone()), options())
        .expect("a directory that was opened and closed opens again");
    for ((before, payloads), end) in found.iter().zip(ends) {
        let mut again = recovery.streams.iter().filter(|stream| stream.stream == before.stream);
        let again = again.next().expect("a stream that was found is found again");
        assert_eq!(again.head.end, end, "{before:?}");
        let until = RecoveredStream { head: before.head, ..*before };
        assert_eq!(read(&journal, &until), *payloads, "{before:?}");
    }
}

/// Every payload that can be read; an error where one cannot is an answer, too.
fn read(journal: &Journal, stream: &RecoveredStream) -> Vec<Bytes> {
    let log = journal.log(stream.stream);
    let (start, end) = (stream.start, stream.head.end);
    let _ = log.headers(start, end, 1_000);
    let _ = log.first_at_time(start, end, 0);
    let _ = log.max_time(start, end);
    let _ = log.bytes_between(start, end);
    let _ = log.epoch_end(stream.head.epoch, start, end);
    let mut payloads = Vec::new();
    let mut at = start;
    while at < end {
        let Ok(entries) = log.read(at, end, READ_BYTES) else { break };
        assert!(!entries.is_empty(), "silence below the end of {stream:?}");
        for entry in entries {
            assert!(entry.range().contains(at), "{:?} does not cover {at}", entry.range());
            at = entry.range().end;
            payloads.push(entry.payload);
        }
    }
    payloads
}

/// Appends one entry behind `head`, unless no number is left; returns the stream's end.
fn append(journal: &Journal, stream: StreamId, head: Head) -> Offset {
    let room = head.end.0 < thetis_types::limits::OFFSET_MAX
        && head.version.0 < u64::MAX
        && head.bytes < u64::MAX / 2;
    if !room {
        return head.end;
    }
    let entry = entry(b"after");
    let appended = journal.log(stream).append(&[Append {
        epoch: head.epoch,
        version: head.version.next(),
        base_offset: head.end,
        attempt: AttemptId::NONE,
        entry: &entry,
    }]);
    journal.wait(appended.expect("there is room"), Durability::Disk).expect("a sound disk");
    head.end.plus(1)
}

fn entry(payload: &'static [u8]) -> Entry {
    Entry {
        record_count: 1,
        max_timestamp: 1_700_000_000_000,
        format: EntryFormat::Record,
        payload: Bytes::from_static(payload),
    }
}

/// The images: the golden file; a directory as a crash leaves it; one of several sealed files.
fn images() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let golden = include_bytes!("../../crates/journal/golden/v1/0000000000000001.journal");
        let golden = vec![("0000000000000001.journal".to_owned(), golden.to_vec())];
        vec![golden, made(6, false), made(60, true)]
    })
}

/// A directory into which three streams were written, trimmed in the middle.
fn made(entries: u64, closes: bool) -> Image {
    let disk = SimDisk::new(7);
    let (journal, _) = Journal::open(Arc::new(disk.clone()), options()).expect("a new disk");
    for index in 0..entries {
        let log = journal.log(StreamId(1 + index % 3));
        let head = log.head().unwrap_or_default();
        let entry = entry(&[b'x'; 300]);
        let at = log.append(&[Append {
            epoch: Epoch(1),
            version: HeadVersion(head.version.0 + 1),
            base_offset: head.end,
            attempt: AttemptId { since: head.end, nonce: index + 1 },
            entry: &entry,
        }]);
        journal.wait(at.expect("a new disk has room"), Durability::Disk).expect("a sound disk");
        if index == entries / 2 {
            journal.log(StreamId(1)).trim(Offset(1));
        }
    }
    if closes {
        journal.close().expect("a sound disk");
    }
    let disk = disk.crash();
    let mut names = disk.list().expect("a sound disk");
    names.retain(|name| name.ends_with(".journal"));
    names.sort_unstable();
    names.into_iter().map(|name| (name.clone(), bytes_of(&disk, &name))).collect()
}

fn bytes_of(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).expect("it was listed");
    let len = file.len().expect("a sound disk");
    let mut bytes = vec![0; usize::try_from(len).expect("a small file")];
    file.read_at(&mut bytes, 0).expect("within the file");
    bytes
}

fn written(image: &Image) -> SimDisk {
    let disk = SimDisk::new(11);
    for (name, bytes) in image {
        let file = disk.create(name, bytes.len() as u64).expect("an empty disk has room");
        file.write_at(&[IoSlice::new(bytes)], 0, Promise::Durable).expect("a sound disk");
    }
    disk.sync_dir().expect("a sound disk");
    disk
}

/// Makes every checksum right that can be found, by docs/formats/journal.md.
fn repair(file: &mut [u8]) {
    const BLOCK: usize = 4096;
    if file.len() < BLOCK {
        return;
    }
    for at in [0, 2048] {
        let crc = crc32c::crc32c(&file[at..at + 60]);
        put_u32(file, at + 60, crc);
    }
    let id: [u8; 8] = file[16..24].try_into().expect("eight bytes");
    for at in (BLOCK..file.len().saturating_sub(96)).step_by(8) {
        match &file[at..at + 8] {
            [b'T', b'h', b'F', b'r', ..] => repair_frame(file, at, &id),
            b"ThFooter" => {
                let crc = crc32c::crc32c(&file[at..at + 28]);
                put_u32(file, at + 28, crc);
            }
            _ => {}
        }
    }
    repair_trailer(file);
}

fn repair_frame(file: &mut [u8], at: usize, id: &[u8; 8]) {
    let payload = at + 96;
    let end = payload.saturating_add(usize_at(file, at + 64, 4));
    if let Some(payload) = file.get(payload..end) {
        let crc = crc32c::crc32c(payload);
        put_u32(file, at + 68, crc);
    }
    let salt = crc32c::crc32c_append(crc32c::crc32c(id), &(at as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(salt, &file[at..at + 92]);
    put_u32(file, at + 92, crc);
}

fn repair_trailer(file: &mut [u8]) {
    let Some(trailer) = file.len().checked_sub(96) else { return };
    if &file[trailer..trailer + 8] != b"ThSealed" {
        return;
    }
    let (tables, runs) = (usize_at(file, trailer + 40, 8), usize_at(file, trailer + 48, 4));
    for run in (0..runs).map(|index| tables.saturating_add(index.saturating_mul(96))) {
        if run.saturating_add(96) > trailer {
            break;
        }
        let rows = usize_at(file, run + 64, 8);
        let end = rows.saturating_add(usize_at(file, run + 28, 4).saturating_mul(32));
        if let Some(rows) = file.get(rows..end) {
            let crc = crc32c::crc32c(rows);
            put_u32(file, run + 72, crc);
        }
    }
    if let Some(tables) = file.get(tables..trailer) {
        let crc = crc32c::crc32c(tables);
        put_u32(file, trailer + 60, crc);
    }
    let crc = crc32c::crc32c(&file[trailer..trailer + 92]);
    put_u32(file, trailer + 92, crc);
}

fn usize_at(file: &[u8], at: usize, bytes: usize) -> usize {
    let mut wide = [0; 8];
    wide[..bytes].copy_from_slice(&file[at..at + bytes]);
    usize::try_from(u64::from_le_bytes(wide)).unwrap_or(usize::MAX)
}

fn put_u32(file: &mut [u8], at: usize, value: u32) {
    file[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
