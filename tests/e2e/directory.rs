//! The data directory: one server at a time, and no guessing at formats of the future.

use std::process::Command;

use thetis_e2e::reproduce;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, free_address, serve};
use thetis_e2e::wire::Connection;

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

/// Runs a program to its end: exit code and all it wrote.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("the server's program can be started");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}
