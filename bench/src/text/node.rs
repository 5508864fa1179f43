//! Nodes to measure: ours, and one of Walrus from a binary. Owns how each is started.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::Value;

use super::client::{Acknowledge, Client};
use crate::process::Process;

/// Ports tried for one that a Walrus node can have.
const PORTS_TRIED_MAX: usize = 1_000;

/// A node that takes requests.
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

/// Starts our server, from beside this program, on `dir`.
pub(crate) fn ours(dir: &Path) -> Result<Node> {
    let mut command = Command::new(std::env::current_exe()?.with_file_name("thetis"));
    command.args(["serve", "--json", "--kafka", "127.0.0.1:0", "--text", "127.0.0.1:0"]);
    command.args(["--durability", "disk", "--log-level", "warn", "--data"]).arg(dir.join("data"));
    let (process, address) = Process::start(&mut command, &dir.join("log"), |log| {
        let is_ready = |line: &str| {
            let ready: Value = serde_json::from_str(line).ok()?;
            ready["text"].as_str()?.parse().ok()
        };
        log.lines().find_map(is_ready)
    })?;
    Ok(Node { process, address })
}

/// Starts a Walrus node that is a cluster by itself, with its defaults. It is ready when it has made
/// the topic it makes by itself.
pub(crate) fn walrus(binary: &Path, dir: &Path) -> Result<Node> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port(|_| true)?));
    // The last digit is taken for the node's number.
    let raft_port = free_port(|port| port % 10 == 1)?;
    let mut command = Command::new(binary);
    command.args(["--node-id", "1", "--raft-host", "127.0.0.1", "--client-host", "127.0.0.1"]);
    command.args(["--raft-port", &raft_port.to_string()]);
    command.args(["--client-port", &address.port().to_string()]);
    command.arg("--data-dir").arg(dir.join("data"));
    let (process, ()) = Process::start(&mut command, &dir.join("log"), |_log| {
        let mut client = Client::open(address, Acknowledge::AtOnce).ok()?;
        client.ask(&[b"STATE logs"]).ok()?.starts_with(b"{").then_some(())
    })?;
    Ok(Node { process, address })
}

/// A port that was free a moment ago.
fn free_port(fits: impl Fn(u16) -> bool) -> Result<u16> {
    for _ in 0..PORTS_TRIED_MAX {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        if fits(port) {
            return Ok(port);
        }
    }
    anyhow::bail!("no port that fits is free")
}
