//! How Weft processes find each other: what asks, and what answers (decision 0030, docs/discovery.md).
//!
//! A client asks beside its SYN ([`Asker`]), or while it sends datagrams ([`Inquiry`]). A process whose listeners may
//! be asked for has one thread that answers ([`Answering`]), and writes down what it promised with a yes
//! ([`Promises`]), for whoever of the processes of a family accepts the connection. What is said on the wire, and what
//! is remembered, is `proto/discovery`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`asker`] | questions that are under way, and what was learnt |
//! | [`inquiry`] | a question about datagrams, which no call waits for |
//! | [`answering`] | the listeners that may be asked for, and the thread that answers for them |
//! | [`promises`] | the connections that a yes was said for |
//!
//! Which process it is in, all of it knows by `weft_os::process`, which has to [watch](weft_os::process::watch) for
//! forks. What runs in a program's call allocates nothing and takes no lock that a signal handler or a fork could hang;
//! to begin to serve a listener starts a thread.

#![forbid(unsafe_code)]

pub mod answering;
pub mod asker;
pub mod inquiry;
pub mod promises;

use std::time::Duration;

pub use answering::{Answering, Owner, Standing};
pub use asker::{Asker, Ticket};
pub use inquiry::{Inquiry, Learnt};
pub use promises::Promises;
pub use weft_discovery_proto::asking::Outcome;
pub use weft_discovery_proto::expected::{First, REQUEST_TIMEOUT};
pub use weft_discovery_proto::{About, Connection, End, Known, TakesCarriers};

/// The time, since a moment that is the same for all processes of this machine.
#[inline]
pub fn now() -> Duration {
    Duration::from_nanos(weft_os::dgram::now())
}
