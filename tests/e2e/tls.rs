//! Listeners under TLS: clients that believe the certificate get through, others are told why not.

use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use thetis_e2e::server::{Server, program};
use thetis_e2e::{reproduce, say};

/// A certificate for this machine and its key, in files.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("names are good");
        let write = |name: &str, pem: String| {
            std::fs::write(dir.path().join(name), pem).expect("the directory can be written to");
        };
        write("certificate.pem", made.cert.pem());
        write("key.pem", made.signing_key.serialize_pem());
        Files(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Flags that put both listeners under TLS.
    fn flags(&self) -> Vec<String> {
        let (certificate, key) = (self.path("certificate.pem"), self.path("key.pem"));
        ["text", "kafka"]
            .iter()
            .flat_map(|front| {
                [
                    format!("--{front}-tls-certificate-file={certificate}"),
                    format!("--{front}-tls-key-file={key}"),
                ]
            })
            .collect()
    }
}

/// Runs to its end with `input` on standard input.
fn run(command: &mut Command, input: &str) -> (Option<i32>, String, String) {
    say(&format!("  $ {command:?}"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    // A program that refuses does not read.
    let _ignored = std::io::Write::write_all(&mut stdin, input.as_bytes());
    drop(stdin);
    let Output { status, stdout, stderr } =
        child.wait_with_output().expect("a child can be waited for");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

fn thetis(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(program());
    for (name, _) in std::env::vars_os() {
        // What steers the tests is no setting of the program.
        if name.to_string_lossy().starts_with("THETIS_") {
            command.env_remove(name);
        }
    }
    run(command.args(arguments), input)
}

#[test]
fn the_text_front_under_tls() {
    const TEST: &str = "tls::the_text_front_under_tls";
    reproduce(TEST);
    let (files, others) = (Files::new(), Files::new());
    let Some(server) = Server::start_with_text_and(TEST, &files.flags()) else { return };
    let address = server.text();
    let trusted = files.path("certificate.pem");
    let repl = |address: &str, more: &[&str]| {
        let arguments = [&["repl", "--addr", address], more].concat();
        thetis(&arguments, "register t\nput t one\nget t\n")
    };
    let (code, said, wrong) = repl(address, &["--tls-ca", &trusted]);
    assert_eq!((code, said.as_str()), (Some(0), "OK\nOK\nOK one\n"), "{wrong}");

    let (code, _, wrong) = repl(address, &[]);
    assert_eq!(code, Some(1), "{wrong}");
    assert!(wrong.contains("speaks TLS only") && wrong.contains("--tls-ca FILE"), "{wrong}");

    let (code, _, wrong) = repl(address, &["--tls-ca", &others.path("certificate.pem")]);
    assert_eq!(code, Some(4), "{wrong}");
    assert!(wrong.contains("certificate"), "{wrong}");

    let other_name = address.replace("127.0.0.1", "127.0.0.2");
    let (code, _, wrong) = repl(&other_name, &["--tls-ca", &trusted]);
    assert_eq!(code, Some(4), "{wrong}");

    let (code, _, wrong) = repl(address, &["--tls-ca", &files.path("missing.pem")]);
    assert_eq!(code, Some(2), "{wrong}");
    assert!(wrong.contains("missing.pem"), "{wrong}");

    let Some(plain) = Server::start_with_text(TEST) else { return };
    let (code, _, wrong) = repl(plain.text(), &["--tls-ca", &trusted]);
    assert_eq!(code, Some(4), "{wrong}");
    assert!(wrong.contains("does not speak TLS; connect without"), "{wrong}");
}

#[test]
fn the_kafka_front_under_tls() {
    const TEST: &str = "tls::the_kafka_front_under_tls";
    reproduce(TEST);
    let files = Files::new();
    let Some(server) = Server::start_with_text_and(TEST, &files.flags()) else { return };
    let trusted = files.path("certificate.pem");
    let kcat = |arguments: &[&str], input: &str| {
        let mut command = Command::new("kcat");
        command.args(["-b", server.bootstrap(), "-X", "security.protocol=ssl"]);
        command.args(["-X", &format!("ssl.ca.location={trusted}")]);
        command.args(["-X", "ssl.endpoint.identification.algorithm=https"]);
        run(command.args(arguments), input)
    };
    let (code, _, wrong) = kcat(&["-P", "-t", "t", "-p", "0"], "one\ntwo\n");
    assert_eq!(code, Some(0), "{wrong}");
    let (code, said, wrong) = kcat(&["-C", "-t", "t", "-o", "beginning", "-e", "-q"], "");
    assert_eq!((code, said.as_str()), (Some(0), "one\ntwo\n"), "{wrong}");

    // Our own commands too.
    let list = ["topic", "list", "--server", server.bootstrap()];
    let (code, said, wrong) = thetis(&[&list[..], &["--tls-ca", &trusted]].concat(), "");
    assert!(code == Some(0) && said.contains('t'), "{said}{wrong}");
    let (code, _, wrong) = thetis(&list, "");
    assert_ne!(code, Some(0), "{wrong}");
}

#[test]
fn a_certificate_that_does_not_serve_is_named() {
    const TEST: &str = "tls::a_certificate_that_does_not_serve_is_named";
    reproduce(TEST);
    let (files, others) = (Files::new(), Files::new());
    let data = files.path("data");
    let (certificate, key) = (files.path("certificate.pem"), others.path("key.pem"));
    let serve = ["serve", "--kafka", "127.0.0.1:0", "--text", "127.0.0.1:0", "--data", &data];
    let flags = ["--text-tls-certificate-file", &certificate, "--text-tls-key-file", &key];
    let (code, _, wrong) = thetis(&[&serve[..], &flags].concat(), "");
    assert_eq!(code, Some(1), "{wrong}");
    assert!(wrong.contains(&certificate) && wrong.contains(&key), "{wrong}");
    let (code, _, wrong) = thetis(&[&serve[..], &flags[..2]].concat(), "");
    assert_eq!(code, Some(2), "{wrong}");
    assert!(wrong.contains("text.tls_key_file is not; TLS needs both files"), "{wrong}");
}
