#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_stream::fuzzing::stream(data));
