//! Every seed through its target, and inputs that once failed: without libFuzzer, on any toolchain.

use thetis_fuzz::{TARGETS, seeds};

/// Prefixes and single changed bytes of the seeds are what a fuzzer tries first.
#[test]
fn seeds_and_their_neighbours_pass() {
    for (name, target) in TARGETS {
        let seeds = seeds::of(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        target(&[]);
        for seed in seeds {
            target(&seed);
            let step = (seed.len() / 8).max(1);
            for at in (0..seed.len()).step_by(step) {
                target(&seed[..at]);
                let mut changed = seed.clone();
                changed[at] ^= 0x80;
                target(&changed);
            }
        }
    }
}

#[test]
fn every_target_has_its_binary() {
    let manifest = include_str!("../Cargo.toml");
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"targets/{name}.rs\"")), "{name}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len(), "a binary of no target");
}
