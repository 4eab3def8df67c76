//! The offload engine's TCP over the emulated link, on virtual time.

mod pair;
mod transfer;
