//! Random bytes against `thetis_fuzz::metadata_key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::metadata_key(data));
