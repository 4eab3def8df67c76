//! The version of this library, as text that can be read in the file as well as by a program.

const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// `weft run` compares it with its own version before it puts the library into a program. For C it is
/// `extern const char weft_version[];`.
#[allow(non_upper_case_globals)]
#[no_mangle]
pub static weft_version: [u8; TEXT.len()] = match TEXT.as_bytes().first_chunk() {
    Some(text) => *text,
    None => unreachable!(),
};
