//! One large real file: text and machine code of the Rust toolchain, joined in a fixed order, so that
//! two runs on one machine see the same bytes. Not zeros, and not one kind of data.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Bytes of the file: the least that the tests promise to carry.
pub const CORPUS_BYTES: u64 = 100 * 1024 * 1024;
/// Bytes taken from any one file, so that the large libraries do not crowd out the texts.
const SHARE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of text at most; the rest is machine code, which compresses differently.
const TEXT_BYTES_MAX: u64 = 40 * 1024 * 1024;

/// The path of the file, made on first use in the temporary directory of cargo.
///
/// # Panics
/// When the toolchain is too small to fill it.
pub fn corpus() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(make)
}

fn make() -> PathBuf {
    let mut directory = std::env::current_exe().expect("a process knows its own path");
    directory.pop();
    let path = directory.join("corpus.bin");
    if path.metadata().is_ok_and(|metadata| metadata.len() == CORPUS_BYTES) {
        return path;
    }
    let unfinished = directory.join("corpus.unfinished");
    let mut out = File::create(&unfinished).expect("the corpus can be created");
    let mut left = CORPUS_BYTES;
    let root = sysroot();
    // A toolchain without its books has no `share/doc`; then all of it is machine code.
    for (part, part_bytes_max) in [("share/doc", TEXT_BYTES_MAX), ("bin", left), ("lib", left)] {
        let mut files = Vec::new();
        list(&root.join(part), &mut files);
        files.sort();
        let mut part_left = part_bytes_max.min(left);
        for file in files {
            if part_left == 0 {
                break;
            }
            // A toolchain under /usr has neighbours that not everybody may read.
            let Ok(source) = File::open(&file) else { continue };
            let share = part_left.min(SHARE_BYTES_MAX);
            let copied = std::io::copy(&mut source.take(share), &mut out);
            let copied = copied.expect("a file of the toolchain can be copied");
            part_left -= copied;
            left -= copied;
        }
    }
    assert_eq!(left, 0, "the toolchain in {} is too small for the corpus", root.display());
    out.flush().expect("the corpus can be written");
    std::fs::rename(&unfinished, &path).expect("the corpus can be renamed");
    path
}

fn sysroot() -> PathBuf {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let output = output.expect("rustc can be run").stdout;
    PathBuf::from(String::from_utf8(output).expect("a path in UTF-8").trim())
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    if !directory.is_dir() {
        return;
    }
    for entry in std::fs::read_dir(directory).expect("the toolchain can be listed") {
        let entry = entry.expect("the toolchain can be listed");
        let kind = entry.file_type().expect("a file has a type");
        if kind.is_dir() {
            list(&entry.path(), files);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
}
