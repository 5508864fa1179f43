//! Random bytes against `thetis_fuzz::stream_model`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::stream_model(data));
