//! What stands between a program's socket calls and the kernel.
//!
//! The hooks of `abi/preload` ask [`stack::Stack`] what a descriptor stands for: nearly always nothing of ours, and the
//! call goes to the C library unchanged. Else it is a socket of some kind, and the kind decides what becomes of the
//! call.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`stack`] | which kinds there are, for one process |
//! | [`udp`] | a kind: UDP sockets, whose datagrams are gathered and split |
//! | [`verdict`] | what a kind says of a call |
//! | [`descriptors`] | descriptors made, duplicated, inherited and closed, for any kind |
//! | [`table`] | what each descriptor stands for |
//! | `inodes`, [`references`] | descriptors of one socket: how they are found, how many they are |
//! | [`pool`], `numbers` | records of sockets, by number |
//!
//! The code that runs in a call allocates nothing and takes no lock that a signal handler or a fork
//! could hang: hooks run wherever the program makes the call.

#![forbid(unsafe_code)]

pub mod descriptors;
mod inodes;
mod numbers;
pub mod pool;
pub mod references;
pub mod stack;
pub mod table;
pub mod udp;
pub mod verdict;

pub use weft_datagram::{control, Errno};
