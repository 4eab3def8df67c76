//! What stands between a program's socket calls and the kernel.
//!
//! The hooks of `abi/preload` hand every call on a descriptor to [`stack::Stack`], which decides: nearly
//! always "the kernel's", and for UDP sockets that a rule names, offload.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`batch`] | pure: which datagrams may leave in one call, and when a sender is busy |
//! | [`sender`] | a socket's outgoing datagrams, gathered |
//! | [`split`] | pure: a coalesced receive as the datagrams it was |
//! | [`control`] | pure: control messages as the kernel would have handed them over |
//! | [`receiver`] | a socket's incoming datagrams, split |
//! | [`table`] | descriptors and what they stand for |
//! | [`stack`] | all of it for one process; the one place that decides |
//! | [`flusher`] | the thread that lets nothing wait |
//!
//! The code that runs in a call allocates nothing and takes no lock that a signal handler or a fork
//! could hang: hooks run wherever the program makes the call.

#![forbid(unsafe_code)]

pub mod batch;
pub mod control;
pub mod flusher;
pub mod receiver;
pub mod sender;
pub mod split;
pub mod stack;
pub mod table;

/// An errno value.
pub type Errno = i32;
