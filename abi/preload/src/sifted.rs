//! What a wait for readiness comes to, once framing was taken away.

use std::ffi::c_int;

/// What is left of what the kernel calls ready.
pub struct Sifted {
    /// How many.
    pub left: c_int,
    /// Room to send was taken away, which the kernel goes on reporting.
    pub hides_room: bool,
}

impl Sifted {
    /// All of them.
    pub fn nothing(ready: c_int) -> Sifted {
        Sifted {
            left: ready,
            hides_room: false,
        }
    }
}
