//! What a sleeper sees, for Miri. Beside its module, which `tests/orderings.rs` compiles as well.

use std::cell::UnsafeCell;

use crate::parked::{Parked, Told};

/// Written by the teller alone, before it tells; read by the sleeper alone, after it was told.
struct Shared(UnsafeCell<u32>);

// SAFETY: as the text above says; Miri fails the test when it is not so.
#[expect(unsafe_code, reason = "a cell without a lock is what is tested")]
unsafe impl Sync for Shared {}

impl Shared {
    fn get(&self) -> *mut u32 {
        self.0.get()
    }
}

/// Small enough for Miri, which sees a race when an ordering is weakened.
#[test]
#[expect(unsafe_code, reason = "a cell without a lock is what is tested")]
fn what_was_written_before_telling_is_seen() {
    for _ in 0..8 {
        let (shared, parked) = (Shared(UnsafeCell::new(0)), Parked::here(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: nobody reads before it is told.
                unsafe { *shared.get() = 7 };
                parked.tell(Told::Reached);
            });
            assert_eq!(parked.sleep(None), Some(Told::Reached));
            // SAFETY: told, so the write is done.
            assert_eq!(unsafe { *shared.get() }, 7);
        });
    }
}
