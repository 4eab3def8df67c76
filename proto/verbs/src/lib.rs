//! The software RNIC as data: protection domains, memory regions, completion queues, shared
//! receive queues and queue pairs.
//!
//! Nothing here makes a system call, takes a lock or touches memory it does not own. A driver
//! (the host engine, a simulator, a test) hands in octets, work requests and the time, and
//! takes out octets to send, placements and completions. Memory and completion queues are
//! reached through the [`host::Host`] trait.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod types;
