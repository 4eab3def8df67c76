//! The software RNIC as data: protection domains, memory regions, completion queues, shared
//! receive queues and queue pairs.
//!
//! Nothing here makes a system call, takes a lock or touches memory it does not own. A driver
//! (the host engine, a simulator, a test) hands in octets and work requests, and takes out
//! octets to send, placements and completions. Memory and completion queues are reached through
//! the [`host::Host`] trait.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`types`] | work requests, completions, attributes |
//! | [`mr`] | memory regions and the checks on STag, bounds and rights |
//! | [`cq`] | completion queues and the arming of their events |
//! | [`srq`] | shared receive queues |
//! | [`qp`] | the queue pair over one iWARP stream |
//! | [`placing`] | octets of a stream that arrive in any order: placed at once, or kept until their turn |
//! | [`ud`] | the queue pair that sends datagrams |
//! | [`sidr`] | how a program finds the queue pair that serves datagrams at a port |
//! | [`outgoing`] | what is framed and waits for the transport |
//! | [`host`] | what a queue pair asks of its driver |
//! | [`simulated`] | a driver's side in memory, for tests |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cq;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod host;
pub mod mr;
pub mod outgoing;
pub mod placing;
pub mod qp;
mod scatter;
pub mod sidr;
pub mod simulated;
pub mod srq;
pub mod types;
pub mod ud;
pub mod wqe;

/// The protocol crate, for drivers that run MPA start-up.
pub use weft_iwarp as iwarp;
