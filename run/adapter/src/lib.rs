//! The offload adapter inside the program: TCP/IP of our own on a device, as a network that queue pairs run over
//! (decision 0032).
//!
//! One [`Driver`] stands on each interface: the device, `weft_inet`'s stack, what its connections have taken to send
//! and received, and the clock, behind one lock. Whoever polls or posts runs it, and the engine's service thread does
//! when nobody does. [`Inline`] is the network: connections to and from the addresses of its drivers are theirs, all
//! others are the kernel's.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `network.rs`, `drivers.rs` | [`Inline`]: which address is whose |
//! | `hold.rs`, `bound.rs`, `listener.rs`, `connection.rs`, `datagrams.rs` | the engine's traits over a driver |
//! | [`setup`] | settings to drivers, and what is wrong with them in words |
//! | `driver` | the loop: frames in, events, frames out, deadlines |
//! | `fuzzing.rs` | the body of a fuzz target |
//! | `link.rs`, `cable.rs`, `faulty.rs` | what carries frames: a device, or a cable in memory, which may lose some |

#![forbid(unsafe_code)]

mod bound;
pub mod cable;
mod connection;
mod datagrams;
mod driver;
mod drivers;
pub mod faulty;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hold;
pub mod link;
mod listener;
mod network;
pub mod setup;

pub use driver::{Counters, Driver, Interface};
pub use link::Link;
pub use network::Inline;
