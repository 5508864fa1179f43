//! Listeners on real sockets: who gets a session, who is refused and how, and when all ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use thetis_net::tls::{self, Tls};
use thetis_net::{Connection, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const REFUSAL: &[u8] = b"speak TLS";

/// A certificate for `localhost` and its key, as files.
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(dir.path().join("certificate"), cert.pem()).unwrap();
        std::fs::write(dir.path().join("key"), signing_key.serialize_pem()).unwrap();
        Files { dir }
    }

    fn certificate(&self) -> PathBuf {
        self.dir.path().join("certificate")
    }

    fn key(&self) -> PathBuf {
        self.dir.path().join("key")
    }

    fn tls(&self) -> Tls {
        Tls::from_files(&self.certificate(), &self.key()).unwrap()
    }
}

/// A listener whose sessions send back what they get.
struct Echo {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Echo {
    async fn start(tls: Option<Tls>, connections_max: usize) -> Echo {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let options = Options { protocol: "echo", connections_max, tls, plain_refusal: REFUSAL };
        let server = tokio::spawn(thetis_net::serve(socket, options, stopped, echo));
        Echo { address, stop, server }
    }

    async fn plain(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn encrypted(
        &self,
        name: &'static str,
        trusted: &Path,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(tls::client(trusted).unwrap());
        connector.connect(ServerName::try_from(name).unwrap(), self.plain().await).await
    }

    async fn stop(self) {
        self.stop.send(true).unwrap();
        self.server.await.unwrap();
    }
}

async fn echo(
    mut connection: Connection,
    _: SocketAddr,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    if let Connection::Plain(socket) = &connection {
        assert!(socket.nodelay().unwrap());
    }
    let mut buffer = [0; 100];
    loop {
        connection.acknowledge_at_once();
        let read = tokio::select! {
            () = thetis_net::told_to_stop(&mut stop) => return Ok(()),
            read = connection.read(&mut buffer) => read?,
        };
        if read == 0 {
            return Ok(());
        }
        connection.write_all(&buffer[..read]).await?;
        connection.flush().await?;
    }
}

async fn echoes(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) {
    stream.write_all(b"hello").await.unwrap();
    let mut said = [0; 5];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hello");
}

#[tokio::test]
async fn a_certificate_is_shown_and_only_its_name_is_believed() {
    let (files, others) = (Files::new(), Files::new());
    let server = Echo::start(Some(files.tls()), 10).await;
    let mut client = server.encrypted("localhost", &files.certificate()).await.unwrap();
    echoes(&mut client).await;
    for (name, trusted) in [("elsewhere", &files), ("localhost", &others)] {
        let error = server.encrypted(name, &trusted.certificate()).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    echoes(&mut client).await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_without_tls_is_told_so_and_closed() {
    let server = Echo::start(Some(Files::new().tls()), 10).await;
    for said in [&b"hello"[..], b"\x05", b"\x16\x05\0\0"] {
        let mut client = server.plain().await;
        client.write_all(said).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, REFUSAL);
    }
    server.stop().await;
}

#[tokio::test]
async fn tls_is_not_agreed_on_with_a_listener_that_has_none() {
    let files = Files::new();
    let server = Echo::start(None, 10).await;
    // It speaks, but not TLS.
    assert!(server.encrypted("localhost", &files.certificate()).await.is_err());
    echoes(&mut server.plain().await).await;
    server.stop().await;
}

#[tokio::test]
async fn more_than_the_most_are_closed_at_once() {
    let server = Echo::start(None, 1).await;
    let mut first = server.plain().await;
    echoes(&mut first).await;
    let mut second = server.plain().await;
    assert!(matches!(second.read(&mut [0]).await, Ok(0) | Err(_)));
    echoes(&mut first).await;
    server.stop().await;
}

#[tokio::test]
async fn stopping_ends_sessions_and_handshakes() {
    let files = Files::new();
    let server = Echo::start(Some(files.tls()), 10).await;
    let mut silent = server.plain().await;
    let mut client = server.encrypted("localhost", &files.certificate()).await.unwrap();
    echoes(&mut client).await;
    let address = server.address;
    server.stop().await;
    assert!(matches!(silent.read(&mut [0]).await, Ok(0) | Err(_)));
    assert!(TcpStream::connect(address).await.is_err());
}

#[test]
fn files_that_do_not_serve_are_named() {
    let (files, others) = (Files::new(), Files::new());
    let empty = files.dir.path().join("empty");
    std::fs::write(&empty, "no PEM at all\n").unwrap();
    let torn = files.dir.path().join("torn");
    std::fs::write(&torn, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
    let missing = files.dir.path().join("missing");
    for (certificate, key, fault) in [
        (&missing, &files.key(), "could not read"),
        (&empty, &files.key(), "holds no certificate"),
        (&files.key(), &files.key(), "holds no certificate"),
        (&torn, &files.key(), "is not PEM"),
        (&files.certificate(), &missing, "could not read"),
        (&files.certificate(), &files.certificate(), "holds no private key"),
        (&files.certificate(), &others.key(), "do not serve"),
    ] {
        let error = Tls::from_files(certificate, key).unwrap_err().to_string();
        let named = if fault.contains("key") || key == &missing { key } else { certificate };
        assert!(error.contains(fault) && error.contains(&named.display().to_string()), "{error}");
    }
}
