#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_discovery_proto::fuzzing::discovery(data));
