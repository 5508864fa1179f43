//! Random bytes against `thetis_fuzz::kafka_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::kafka_response(data));
