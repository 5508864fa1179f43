//! Random bytes against `thetis_fuzz::record_batches`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::record_batches(data));
