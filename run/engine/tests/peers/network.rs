//! The network that a test program runs over: the kernel's TCP, or one that this crate's `made.rs` makes.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Once;

use weft_engine::settings::Settings;

/// What the crate has whose test this is: these tests are another crate's, too, for its network.
mod made {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/made.rs"));
}

/// Whether this test program runs over a network within the process. A test whose other end is a plain socket or
/// another process then has nothing to ask, and says so.
pub fn is_in_memory() -> bool {
    made::is_made()
}

/// Starts the engine over this program's network, before the first object is made.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if is_in_memory() {
            let (settings, _) = Settings::from_env();
            // Another module of this program, with its own copy of this one, may have been first.
            let _ = weft_engine::start_on(settings, made::network());
        }
    });
}
