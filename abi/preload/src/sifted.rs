//! What a wait for readiness comes to, once framing was taken away.

use std::ffi::c_int;

/// What is left of what the kernel calls ready.
pub struct Sifted {
    /// How many.
    pub left: c_int,
    /// What was taken away the kernel goes on reporting, and nothing wakes who waits once it is ready after all: room
    /// of the peer's, octets of one that was asked what it is.
    pub looks_again: bool,
}

impl Sifted {
    /// All of them.
    pub fn nothing(ready: c_int) -> Sifted {
        Sifted {
            left: ready,
            looks_again: false,
        }
    }
}
