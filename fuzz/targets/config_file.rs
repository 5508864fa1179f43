//! Random bytes against `thetis_fuzz::config_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::config_file(data));
