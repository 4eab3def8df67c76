//! The network that a test program runs over: the kernel's TCP, or in `in_memory.rs` queues in memory.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::{Arc, Once};

use weft_engine::carrier::memory::Memory;
use weft_engine::settings::Settings;

/// Whether this test program runs over the network in memory. A test whose other end is a plain socket or another
/// process then has nothing to ask, and says so.
pub fn is_in_memory() -> bool {
    env!("CARGO_CRATE_NAME") == "in_memory"
}

/// Starts the engine over this program's network, before the first object is made.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if is_in_memory() {
            let (settings, _) = Settings::from_env();
            // Another module of this program, with its own copy of this one, may have been first.
            let _ = weft_engine::start_on(settings, Arc::new(Memory::default()));
        }
    });
}
