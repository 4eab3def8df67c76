//! UDP datagrams over offloaded connections, as data (decision 0034).
//!
//! A *carrier* is a connection between two processes; datagrams travel on it in frames, and programs see UDP. The crate
//! makes no system call, has no clock and draws no random number: octets, commands, nonces and the time go in; octets,
//! events and deadlines come out. Times are lengths since a moment of the caller's choice. What every datagram passes
//! through allocates nothing; where a peer makes this end keep something, memory is allocated within bounds.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`frame`] | the octets before a datagram, keyed; parts of datagrams |
//! | [`deframer`] | frames out of a stream that comes in order |
//! | [`segments`] | frames out of a stream whose segments come in any order |
//! | [`overdue`] | what has been missing for too long |
//! | [`messages`] | datagrams put together from parts |
//! | [`gather`] | frames that leave in one call |
//! | [`greeting`] | what both ends say first |
//! | [`control`] | what they tell each other on channel 0 |
//! | [`proof`] | the datagrams of Weft's own that travel by UDP |
//! | [`carrier`] | one carrier: channels, proofs, pings, its end |
//! | [`destinations`] | who is worth asking for a carrier, and when again |
//! | [`way`] | plain or carrier, with order kept |
//! | [`admission`] | what becomes of a datagram that cannot leave at once |
//! | [`queue`], [`ring`] | datagrams that wait, within bounds |
//! | [`end`] | an address and a port |
//! | [`fault`] | what a peer can do wrong |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "fuzzing"))]
extern crate std;

pub mod admission;
mod ages;
pub mod carrier;
pub mod control;
mod controls;
pub mod deframer;
pub mod destinations;
pub mod end;
pub mod fault;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gather;
pub mod greeting;
mod islands;
pub mod messages;
pub mod overdue;
pub mod proof;
pub mod queue;
mod ranges;
pub mod ring;
pub mod segments;
pub mod way;

pub use carrier::Carrier;
pub use control::Control;
pub use deframer::Deframer;
pub use end::End;
pub use fault::Fault;
pub use frame::{Head, Key, Part};
pub use greeting::Greeting;
pub use segments::Segments;
