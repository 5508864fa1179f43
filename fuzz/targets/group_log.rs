//! Random bytes against `thetis_fuzz::group_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::group_log(data));
