//! The stream core against a plain vector, over random histories. The comparison is `world`'s.

#[path = "model/world.rs"]
mod world;

use proptest::prelude::*;
use thetis_types::Durability;
use world::{Step, run};

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_u32..5, prop::option::of(-1_i64..2))
            .prop_map(|(records, expected)| Step::Append { records, expected }),
        4 => (1_u32..5).prop_map(|records| Step::Start { records }),
        3 => Just(Step::Finish),
        4 => (0_u64..120).prop_map(|percent| Step::Read { percent }),
        1 => (0_u64..110).prop_map(|percent| Step::Trim { percent }),
        1 => Just(Step::Acquire),
        1 => Just(Step::Release),
        1 => Just(Step::Zombie),
        1 => Just(Step::FailFlush),
        2 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn a_stream_is_a_vector_at_disk(steps in steps()) {
        run(Durability::Disk, None, steps);
    }

    #[test]
    fn a_stream_is_a_vector_at_os(steps in steps()) {
        run(Durability::Os, None, steps);
    }

    #[test]
    fn a_stream_whose_appends_are_safe_at_once_is_a_vector(steps in steps()) {
        run(Durability::Os, Some(Durability::Os), steps);
    }
}
