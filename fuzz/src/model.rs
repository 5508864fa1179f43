//! A stream against a vector, over a history read from bytes. The comparison is the one that the
//! stream's own tests make.

use thetis_types::Durability;

use crate::input::Input;

#[path = "../../crates/stream/tests/model/world.rs"]
mod world;

use world::{Step, run};

/// Steps of one history.
const STEPS_MAX: usize = 200;

/// One byte choosing the durability, then two for each step.
pub fn stream_model(data: &[u8]) {
    let mut input = Input::new(data);
    let level = if input.byte() & 1 == 0 { Durability::Disk } else { Durability::Os };
    let mut steps = Vec::new();
    while !input.is_empty() && steps.len() < STEPS_MAX {
        let (kind, size) = (input.byte(), input.byte());
        let (records, percent) = (1 + u32::from(size % 4), u64::from(size) % 120);
        steps.push(match kind % 16 {
            0..=2 => Step::Append { records, expected: None },
            3 => Step::Append { records, expected: Some(0) },
            4 => Step::Append { records, expected: Some(if size < 128 { -1 } else { 1 }) },
            5..=7 => Step::Start { records },
            8 | 9 => Step::Finish,
            10 => Step::Read { percent },
            11 => Step::Trim { percent },
            12 => Step::Acquire,
            13 if size < 128 => Step::Release,
            13 => Step::Zombie,
            14 => Step::FailFlush,
            _ => Step::Crash,
        });
    }
    run(level, None, steps);
}
