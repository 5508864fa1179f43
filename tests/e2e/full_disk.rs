//! A full disk, and space again (case O24), on a file system of its own that is made to fill up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use thetis_e2e::reproduce;
use thetis_e2e::say;
use thetis_e2e::seed::unique;
use thetis_e2e::server::{Server, Stop};
use thetis_e2e::wire::batch::{self, Codec, Producer, Record};
use thetis_e2e::wire::requests::{LATEST, eventually};
use thetis_e2e::wire::{Connection, code};

/// Room for a few journal files, and the ballast that takes some of it away.
const DISK: &str = "size=320m";
const BALLAST_BYTES: usize = 100 << 20;
/// Produce requests of about 900 KB: more than the disk holds.
const PRODUCES_MAX: i64 = 500;
const KAFKA_STORAGE_ERROR: i16 = 56;

/// A file system over a directory, unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn over(path: &Path) -> Option<Mount> {
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "none"]).arg(path).output();
        mount.is_ok_and(|done| done.status.success()).then(|| Mount(path.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Producers get a storage error and no acknowledgement that is later missing; reads go on, also after
/// a restart while full; topics can be deleted; writes come back without a restart once there is space.
#[test]
fn writes_come_back() {
    let test = "full_disk::writes_come_back";
    reproduce(test);
    let Some(mut server) = Server::start_ours(test) else { return };
    let data = server.data().expect("our own server has a directory");
    server.stop(Stop::Term);
    fs::remove_dir_all(&data).expect("an empty server's directory can go");
    fs::create_dir_all(&data).expect("the directory is made again");
    let Some(_mount) = Mount::over(&data) else {
        say(&format!("SKIPPED {test}: a file system can be mounted by root only"));
        return;
    };
    let ballast = data.join("ballast");
    fs::write(&ballast, vec![1_u8; BALLAST_BYTES]).expect("the ballast fits");
    server.start_again();

    let mut connection = Connection::open(server.bootstrap()).expect("the server listens");
    let (topic, other) = (unique("full"), unique("deleted"));
    connection.create_topic(&topic, 1, &[]);
    connection.create_topic(&other, 1, &[]);
    let acknowledged = fill(&mut connection, &topic);
    say(&format!("  full after {acknowledged} batches"));
    assert!(acknowledged > 10, "it was never empty");
    reads(&mut connection, &topic, acknowledged);

    server.restart(Stop::Kill);
    let mut connection = Connection::open(server.bootstrap()).expect("it starts while full");
    reads(&mut connection, &topic, acknowledged);
    connection.delete_topic(&other);

    fs::remove_file(&ballast).expect("the ballast goes");
    eventually("writes come back", || {
        (produce(&mut connection, &topic) == code::NONE).then_some(())
    });
    reads(&mut connection, &topic, acknowledged + 1);
}

/// Produces until that is refused; returns how many batches were acknowledged.
fn fill(connection: &mut Connection, topic: &str) -> i64 {
    for acknowledged in 0..PRODUCES_MAX {
        match produce(connection, topic) {
            code::NONE => {}
            refused => {
                assert_eq!(refused, KAFKA_STORAGE_ERROR);
                return acknowledged;
            }
        }
    }
    panic!("the disk never filled up");
}

fn produce(connection: &mut Connection, topic: &str) -> i16 {
    let record = Record::new(batch::now_ms(), &[7; 900_000]);
    let bytes = batch::encode(&[record], Codec::None, Producer::ANONYMOUS);
    connection.produce(topic, 0, &bytes).expect("Produce is answered").code
}

/// The end is where the acknowledgements say, and first and last record can be read.
fn reads(connection: &mut Connection, topic: &str, count: i64) {
    assert_eq!(connection.list_offset(topic, 0, LATEST).offset, count);
    for offset in [0, count - 1] {
        let fetched = connection.fetch_now(topic, 0, offset);
        assert_eq!(fetched.code, code::NONE);
        assert_eq!(fetched.batches.first().map(|batch| batch.base_offset), Some(offset));
    }
}
