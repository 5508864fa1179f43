//! Random bytes against `thetis_fuzz::kafka_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::kafka_request(data));
