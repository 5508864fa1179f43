//! Random bytes against `thetis_fuzz::plain_records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::plain_records(data));
