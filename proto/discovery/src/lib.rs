//! How a Weft process finds out whether the other end of a connection is Weft, as data.
//!
//! Whoever connects sends one UDP datagram, the *question*, beside the SYN. A Weft process at the other end answers
//! *yes*; everybody else says nothing (decision 0030). Here are the two messages, and what both sides remember: octets
//! and the time go in, verdicts and deadlines come out. The crate makes no system call, has no clock and allocates
//! nothing. Times are lengths since a moment of the caller's choice, which for what lies in shared memory has to be one
//! and the same for all processes.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`connection`] | what a question is about |
//! | [`message`] | question and answer as octets |
//! | [`asking`] | the client: one question, until it is settled |
//! | [`memory`] | the client: what was learnt of servers, for a minute |
//! | [`answering`] | the server: which questions are looked into, and when again |
//! | [`limits`] | the server: how many questions an address may ask |
//! | [`expected`] | the server: connections that a yes was said for |
//! | `places` | tables of fixed size, which the others lie in |
//!
//! [`Memory`] and [`Expected`] are plain data without a pointer, and empty while they are zero, so that they can lie in
//! memory which several processes share.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fuzzing"))]
extern crate std;

pub mod answering;
pub mod asking;
pub mod connection;
pub mod expected;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod limits;
pub mod memory;
pub mod message;
mod places;

pub use answering::Answering;
pub use asking::Asking;
pub use connection::{About, Connection, End};
pub use expected::Expected;
pub use memory::{Known, Memory};
pub use message::{Answer, Question, TakesCarriers};
