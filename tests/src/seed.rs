//! Seeded chance: one seed for the process, printed with every test, so that a failure can be run
//! again with the same choices. When things happen inside the server is not covered by the seed.

use std::sync::OnceLock;

/// A small generator (SplitMix64): good enough to choose moments and sizes, and the same everywhere.
#[derive(Debug, Clone)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// A generator that repeats its numbers for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice { state: seed }
    }

    /// The next number, any of the 64-bit ones.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `low..high`; `low` must be below `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "an empty range has no number: {low}..{high}");
        low + self.next_u64() % (high - low)
    }
}

/// The seed of this process: `THETIS_E2E_SEED` if it is set, else the process id, so that each run
/// makes other choices.
#[must_use]
pub fn process_seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| match std::env::var("THETIS_E2E_SEED") {
        Ok(text) => text.parse().expect("THETIS_E2E_SEED must be a number of 64 bits"),
        Err(_) => u64::from(std::process::id()),
    })
}

/// A name that no other test of this or another run uses: external brokers keep their topics.
#[must_use]
pub fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{number}", std::process::id())
}
