//! The commands of those who build Thetis. Owns the choice of the command; what each does is in its
//! module. Nothing of the product depends on it, and it depends on nothing of the product.

mod bench;
mod command;
mod count;
mod test;
mod tidy;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test   install what the tests need, then run every check and every test
  tidy   check the house rules that no compiler checks
  bench  measure beside rivals: `bench embedded`, `bench kafka`, `bench text`,
         `bench topics`, `bench recovery`; each takes --help.
         `bench plot FILE` draws what was measured. With --rivals, builds RocksDB and raft-engine too";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test"] => test::run(&repository()),
        ["tidy"] => tidy::run(&repository()),
        ["bench", rest @ ..] => bench::run(&repository(), rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The directory of the repository.
fn repository() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}
