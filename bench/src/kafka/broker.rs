//! Brokers to measure: ours, and Apache Kafka from a class path. Owns how each is started.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use thetis_kafka::wire::MetadataRequest;

use super::connection::Connection;
use crate::process::Process;

/// What Apache Kafka's own start script gives the JVM.
const JVM: [&str; 6] = [
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
];
/// A version of Metadata that both brokers speak.
const METADATA_VERSION: i16 = 9;
/// The identity of a cluster that nobody else joins: 16 bytes in base64.
const CLUSTER_ID: &str = "dGhldGlzLWJlbmNoLTAwMQ";

/// A broker that takes requests.
pub(crate) struct Broker {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

/// Starts our server, from beside this program, on `dir`.
pub(crate) fn ours(dir: &Path, flags: &[&str]) -> Result<Broker> {
    let binary = std::env::current_exe()?.with_file_name("thetis");
    let mut command = Command::new(&binary);
    command.args(["serve", "--json", "--kafka", "127.0.0.1:0", "--log-level", "warn", "--data"]);
    command.arg(dir.join("data")).args(flags);
    let (process, address) = Process::start(&mut command, &dir.join("log"), |log| {
        let is_ready = |line: &str| {
            let ready: Value = serde_json::from_str(line).ok()?;
            ready["kafka"].as_str()?.parse().ok()
        };
        log.lines().find_map(is_ready)
    })?;
    Ok(Broker { process, address })
}

/// Starts Apache Kafka as broker and controller in one, with its defaults: among them, that nothing
/// is flushed.
pub(crate) fn apache(dir: &Path, class_path: &Path) -> Result<Broker> {
    let class_path = fs::read_to_string(class_path)
        .with_context(|| format!("could not read {}", class_path.display()))?;
    let (port, controller_port) = (free_port()?, free_port()?);
    let properties = dir.join("server.properties");
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller_port}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
         controller.listener.names=CONTROLLER\noffsets.topic.replication.factor=1\n\
         log.dirs={}\n",
        dir.join("data").display()
    );
    fs::write(&properties, text)?;
    let java = || {
        let mut java = Command::new("java");
        java.args(JVM).args(["-cp", class_path.trim()]);
        java
    };
    let mut format = java();
    format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]).arg(&properties);
    let formatted = format.output().context("could not start java")?;
    if !formatted.status.success() {
        bail!("could not format: {}", String::from_utf8_lossy(&formatted.stderr));
    }
    let mut command = java();
    command.arg("kafka.Kafka").arg(&properties);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    // What it logs depends on the class path; that it answers does not.
    let (process, ()) = Process::start(&mut command, &dir.join("log"), |_log| {
        let mut client = Connection::open(address).ok()?;
        let answer = client.call(METADATA_VERSION, &MetadataRequest::default()).ok()?;
        (!answer.brokers.is_empty()).then_some(())
    })?;
    Ok(Broker { process, address })
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
