//! The offload engine's TCP over the emulated link, on virtual time.

mod hosts;
mod pair;
mod placement;
mod placing;
mod seeds;
mod snapshot;
mod tables;
mod transfer;
