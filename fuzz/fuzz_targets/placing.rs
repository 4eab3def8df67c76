#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_verbs::fuzzing::placing::placing(data));
