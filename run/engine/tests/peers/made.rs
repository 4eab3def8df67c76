// The network of `in_memory.rs`. Included, and so without a document of its own.

use std::sync::Arc;

use weft_engine::carrier::memory::Memory;
use weft_engine::carrier::Network;

/// Whether this test program runs over it.
pub fn is_made() -> bool {
    env!("CARGO_CRATE_NAME") == "in_memory"
}

/// A network.
pub fn network() -> Arc<dyn Network> {
    Arc::new(Memory::default())
}
