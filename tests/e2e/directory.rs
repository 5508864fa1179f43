//! The data directory: one server at a time, and no guessing at formats of the future.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use thetis_e2e::reproduce;
use thetis_e2e::say;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop, free_address, serve};
use thetis_e2e::wire::batch::{self, Codec, Producer, Record};
use thetis_e2e::wire::{Connection, code};

/// A second server on the same directory ends with a failure that names the directory, and the first
/// goes on undisturbed.
#[test]
fn in_use() {
    let test = "directory::in_use";
    reproduce(test);
    let Some(server) = Server::start_ours(test) else { return };
    let data = server.data().expect("our own server has a directory");
    let (code, said) = run(&mut serve(&data, &free_address()));
    assert_ne!(code, Some(0), "a second server started:\n{said}");
    assert!(said.contains(&*data.to_string_lossy()), "it must name the directory:\n{said}");
    let lower = said.to_lowercase();
    assert!(lower.contains("in use") || lower.contains("lock"), "it must say why:\n{said}");
    assert!(!lower.contains("panicked"), "a refusal is no panic:\n{said}");
    let mut connection = Connection::open(server.bootstrap()).expect("the first still listens");
    connection.create_topic(&unique("undisturbed"), 1, &[]);
}

/// A journal file whose header names a version of the future, with a checksum that fits: the server must
/// say that it is too old, change nothing, and find its data again when the file is as it was.
#[test]
fn newer_format() {
    let test = "directory::newer_format";
    reproduce(test);
    let Some(mut server) = Server::start_ours(test) else { return };
    let data = server.data().expect("our own server has a directory");
    let topic = unique("kept");
    let mut connection = Connection::open(server.bootstrap()).expect("the server listens");
    connection.create_topic(&topic, 1, &[]);
    let record = Record::new(batch::now_ms(), b"value");
    let bytes = batch::encode(&[record], Codec::None, Producer::ANONYMOUS);
    let produced = connection.produce(&topic, 0, &bytes).expect("Produce is answered");
    assert_eq!(produced.code, code::NONE);
    server.stop(Stop::Term);
    let mut journals = Vec::new();
    find_journals(&data, &mut journals);
    if journals.is_empty() && std::env::var_os("THETIS_E2E_BINARY").is_some() {
        say(&format!("SKIPPED {test}: this server keeps no journal files"));
        return;
    }
    assert!(!journals.is_empty(), "no *.journal in {}", data.display());
    let before: Vec<Vec<u8>> = journals.iter().map(|path| read(path)).collect();
    let newer: Vec<Vec<u8>> = before.iter().map(|bytes| of_the_future(bytes)).collect();
    write_all(&journals, &newer);

    let (exit, said) = run(&mut serve(&data, server.bootstrap()));
    assert_ne!(exit, Some(0), "it started:\n{said}");
    let lower = said.to_lowercase();
    assert!(lower.contains("version") && lower.contains("newer"), "it must say why:\n{said}");
    assert!(!lower.contains("panicked"), "a refusal is no panic:\n{said}");
    for (path, bytes) in journals.iter().zip(&newer) {
        assert!(read(path) == *bytes, "{} was changed", path.display());
    }

    write_all(&journals, &before);
    server.start_again();
    let mut connection = Connection::open(server.bootstrap()).expect("the server listens");
    assert_eq!(connection.fetch_now(&topic, 0, 0).batches.len(), 1);
}

/// The header stands twice: at byte 0 and at byte 2048. Its version is the two bytes at 8, and its last
/// four bytes are the CRC32C of the sixty before them (docs/formats/journal.md).
fn of_the_future(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for at in [0, 2048] {
        let header = &mut bytes[at..at + 64];
        let version = u16::from_le_bytes([header[8], header[9]]);
        header[8..10].copy_from_slice(&(version + 1).to_le_bytes());
        let crc = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

fn find_journals(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the data directory can be listed") {
        let path = entry.expect("the data directory can be listed").path();
        if path.is_dir() {
            find_journals(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "journal") {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("a journal file can be read")
}

fn write_all(paths: &[PathBuf], contents: &[Vec<u8>]) {
    for (path, bytes) in paths.iter().zip(contents) {
        fs::write(path, bytes).expect("a journal file can be written");
    }
}

/// Runs a program to its end: exit code and all it wrote.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("the server's program can be started");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}
