//! Writes the seeds of every target to `corpus/TARGET/`, beside what a fuzzer has found there.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    for (target, _) in thetis_fuzz::TARGETS {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&directory)?;
        let seeds = thetis_fuzz::seeds::of(target);
        for (index, seed) in seeds.iter().enumerate() {
            fs::write(directory.join(format!("seed-{index:03}")), seed)?;
        }
        println!("{target}: {} seeds", seeds.len());
    }
    Ok(())
}
