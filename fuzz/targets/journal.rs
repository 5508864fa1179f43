//! Random bytes against `thetis_fuzz::journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::journal(data));
