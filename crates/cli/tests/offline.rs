//! `inspect` and `verify` over a journal that was really written, then really damaged.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use bytes::Bytes;
use thetis_journal::{Append, Journal, Options, OsDisk};
use thetis_types::{
    AttemptId, Durability, Entry, EntryFormat, Epoch, HeadVersion, Offset, StreamId,
};

const ENTRIES: u64 = 20;

/// Writes a journal of one stream into `data`, closed in order.
fn write_journal(data: &Path) {
    let disk = OsDisk::new(data.join("journal")).expect("a directory");
    let options = Options { file_bytes: 1 << 20, ..Options::default() };
    let (journal, _) = Journal::open(Arc::new(disk), options).expect("an empty journal");
    let log = journal.log(StreamId(7));
    for number in 0..ENTRIES {
        let entry = Entry {
            record_count: 1,
            max_timestamp: -1,
            format: EntryFormat::Record,
            payload: Bytes::from(vec![b'x'; 100]),
        };
        let append = Append {
            epoch: Epoch(1),
            version: HeadVersion(number + 1),
            base_offset: Offset(number),
            attempt: AttemptId::NONE,
            entry: &entry,
        };
        let position = log.append(&[append]).expect("room");
        journal.wait(position, Durability::Disk).expect("a healthy disk");
    }
    journal.close().expect("a healthy disk");
}

fn thetis(data: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_thetis"))
        .args(args)
        .arg("--data")
        .arg(data)
        .current_dir(data)
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The JSON lines of a command.
fn lines(data: &Path, args: &[&str]) -> Vec<serde_json::Value> {
    let (_, stdout, _) = thetis(data, args);
    stdout.lines().map(|line| serde_json::from_str(line).expect("json")).collect()
}

#[test]
fn a_sound_journal_is_shown_and_called_sound() {
    let data = tempfile::tempdir().unwrap();
    write_journal(data.path());
    let (code, stdout, stderr) = thetis(data.path(), &["verify"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(
        stdout.starts_with("sound: ") && stdout.contains("20 entries of 1 streams"),
        "{stdout}"
    );
    let files = lines(data.path(), &["inspect", "--json"]);
    assert_eq!(files[0]["entries"], ENTRIES);
    assert_eq!(files[0]["sealed"], true);
    let sequence = files[0]["sequence"].to_string();
    let frames = lines(data.path(), &["inspect", "--json", "--file", &sequence, "--stream", "7"]);
    let entries: Vec<_> = frames.iter().filter(|frame| frame["kind"] == "entry").collect();
    let offsets: Vec<_> = entries.iter().map(|frame| frame["offset"].as_u64().unwrap()).collect();
    assert_eq!(offsets, (0..ENTRIES).collect::<Vec<_>>());
}

#[test]
fn a_flipped_bit_is_found_where_it_is_and_told_by_the_exit_code() {
    let data = tempfile::tempdir().unwrap();
    write_journal(data.path());
    let files = lines(data.path(), &["inspect", "--json"]);
    let sequence = files[0]["sequence"].to_string();
    let frames = lines(data.path(), &["inspect", "--json", "--file", &sequence]);
    let victim = frames.iter().find(|frame| frame["offset"] == 9).unwrap();
    let at = victim["at"].as_u64().unwrap() + victim["bytes"].as_u64().unwrap() / 2;
    let path = data.path().join("journal").join(files[0]["name"].as_str().unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 4;
    std::fs::write(&path, bytes).unwrap();

    let (code, stdout, _) = thetis(data.path(), &["verify"]);
    assert_eq!(code, Some(3), "{stdout}");
    assert!(stdout.contains("DAMAGED: ") && stdout.contains("[o9, o10)"), "{stdout}");
    let found = lines(data.path(), &["verify", "--json"]);
    let summary = found.last().unwrap();
    assert_eq!(summary["sound"], false);
    let names = |line: &&serde_json::Value| line["kind"] == "damage" && line["start"] == 9;
    assert!(found.iter().any(|line| names(&line)), "{found:?}");
    assert_eq!(thetis(data.path(), &["inspect", "--file", &sequence]).0, Some(3));
}

#[test]
fn a_directory_without_a_journal_is_named_and_not_created() {
    let data = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = thetis(data.path(), &["verify"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.contains("there is no journal at ") && stderr.contains("--data DIR"),
        "{stderr}"
    );
    assert!(!data.path().join("journal").exists());
}
