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
//! | [`tcp`] | a kind: TCP sockets, whose octets may go as DDP |
//! | [`ddp`] | a connection whose octets go as DDP |
//! | [`verdict`] | what a kind says of a call |
//! | [`kind`] | what a kind is asked by descriptors |
//! | [`descriptors`] | descriptors made, duplicated, inherited and closed, for any kind |
//! | [`table`] | what each descriptor stands for |
//! | `inodes`, [`references`] | descriptors of one socket: how they are found, how many they are |
//! | [`pool`], `numbers` | records of sockets, by number |
//! | `flusher`, `waiting` | the thread that lets nothing wait, and in which sockets something does |
//! | `ends` | the addresses that rules look at |
//!
//! The code that runs in a call allocates nothing and takes no lock that a signal handler or a fork
//! could hang: hooks run wherever the program makes the call.

#![forbid(unsafe_code)]

pub mod ddp;
pub mod descriptors;
mod discovering;
mod ends;
mod flusher;
mod inodes;
pub mod kind;
mod numbers;
pub mod pool;
pub mod references;
pub mod stack;
pub mod table;
pub mod tcp;
pub mod udp;
pub mod verdict;
mod waiting;

pub use weft_datagram::{control, Errno};
