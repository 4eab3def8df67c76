//! UDP datagrams that leave and arrive many in one call, as data.
//!
//! The crate decides which datagrams may leave together, takes coalesced ones apart again, and says which control
//! messages each would have come with. It makes no system call, allocates nothing and has no lock: it runs within a
//! program's socket calls, wherever those are made. Errors are the kernel's numbers ([`Errno`]).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`batch`] | which datagrams may leave in one call, and when a sender is busy |
//! | [`destination`] | where a datagram goes |
//! | [`sender`] | a socket's outgoing datagrams, gathered |
//! | [`split`] | a coalesced receive as the datagrams it was |
//! | [`control`] | control messages as the kernel would have handed them over |
//! | [`kernel`] | numbers of Linux that these speak in |

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod batch;
pub mod control;
pub mod destination;
pub mod kernel;
pub mod sender;
pub mod split;

/// An errno value.
pub type Errno = i32;
