//! A byte stream over DDP, as rsockets (version 1) puts it on the wire, as data.
//!
//! The octets of a stream travel as RDMA Writes. To a peer that is not Weft each is followed sooner or later by a Send
//! of four octets, the *message word*, that says how many there were. The crate makes and reads the framing around them
//! and never holds an octet of the stream itself: where the next ones lie, and how many, is all it says. It makes no
//! system call, has no clock and allocates nothing: it runs within a program's socket calls, wherever those are made.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`start`] | MPA Request and Reply with the two ends' connection data |
//! | [`connection_data`] | what each end says of itself in them |
//! | [`word`] | the message word |
//! | [`frame`] | the FPDUs of a stream and their sizes |
//! | [`sender`] | the sending direction: windows, credits, what leaves next |
//! | [`plan`] | one send as FPDUs, and what of it a socket took |
//! | [`receiver`] | the receiving direction: framing told from the stream's octets |
//! | [`map`] | memory that one end maps for the other |
//! | [`fault`] | what a peer can do wrong |
//!
//! A connection has one [`Sender`] and one [`Receiver`]. Both are plain data without a pointer, so that they can lie in
//! memory which several processes share.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fuzzing"))]
extern crate std;

pub mod connection_data;
pub mod fault;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod map;
pub mod plan;
pub mod receiver;
pub mod sender;
pub mod start;
pub mod word;

pub use connection_data::{ConnectionData, Target};
pub use fault::Fault;
pub use map::Map;
pub use plan::Plan;
pub use receiver::{Event, Next, Receiver};
pub use sender::Sender;
pub use word::Word;
