//! Random bytes against `thetis_fuzz::topic_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thetis_fuzz::topic_record(data));
