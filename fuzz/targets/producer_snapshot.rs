//! Random bytes against `thetis_fuzz::producer_snapshot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::producer_snapshot(data));
