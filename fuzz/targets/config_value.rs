//! Random bytes against `thetis_fuzz::config_value`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::config_value(data));
