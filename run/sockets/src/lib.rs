//! What stands between a program's socket calls and the kernel.
//!
//! The hooks of `abi/preload` hand every call on a descriptor to [`stack::Stack`], which decides: nearly
//! always "the kernel's", and for UDP sockets that a rule names, offload. How datagrams are gathered and split is in
//! `proto/datagram`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`receiver`] | a socket's incoming datagrams, split |
//! | [`table`] | descriptors and what they stand for |
//! | [`stack`] | all of it for one process; the one place that decides |
//! | [`flusher`] | the thread that lets nothing wait |
//!
//! The code that runs in a call allocates nothing and takes no lock that a signal handler or a fork
//! could hang: hooks run wherever the program makes the call.

#![forbid(unsafe_code)]

pub mod flusher;
pub mod receiver;
pub mod stack;
pub mod table;

pub use weft_datagram::{batch, control, sender, split, Errno};
