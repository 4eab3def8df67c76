//! The offload engine's TCP over the emulated link, on virtual time.

mod hosts;
mod pair;
mod seeds;
mod transfer;
