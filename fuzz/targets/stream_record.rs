//! Random bytes against `thetis_fuzz::stream_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::stream_record(data));
