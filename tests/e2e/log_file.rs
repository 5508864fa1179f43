//! The file that log lines go to.

use thetis_e2e::reproduce;
use thetis_e2e::server::{Server, Stop, free_address, serve};

#[test]
fn log_lines_are_appended_to_the_file() {
    const TEST: &str = "log_file::log_lines_are_appended_to_the_file";
    reproduce(TEST);
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let path = home.path().join("thetis.log");
    let flags = [format!("--log-file={}", path.display()), "--log-format=json".to_owned()];
    let Some(mut server) = Server::start_with_text_and(TEST, &flags) else { return };
    let stops = || {
        let text = std::fs::read_to_string(&path).expect("the file is there");
        text.lines().filter(|line| line.contains("\"message\":\"stopped\"")).count()
    };
    server.stop(Stop::Term);
    assert_eq!(stops(), 1);
    server.start_again();
    server.stop(Stop::Term);
    assert_eq!(stops(), 2, "the lines of the first start stay");
    assert!(!server.log().contains("\"message\""), "{}", server.log());
}

#[test]
fn a_log_file_without_its_directory_is_refused() {
    const TEST: &str = "log_file::a_log_file_without_its_directory_is_refused";
    reproduce(TEST);
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let data = home.path().join("data");
    let mut command = serve(&data, &free_address());
    command.arg("--log-file").arg(home.path().join("missing/thetis.log"));
    let output = command.output().expect("the program can be started");
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{wrong}");
    assert!(wrong.contains("log.file") && wrong.contains("make it first"), "{wrong}");
    assert!(!data.exists(), "nothing was begun");
}
