//! The C library's socket calls, in front of the sockets face: conversions, the panic boundary, the way back.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `real`, `calls` | the calls behind ours, found at load time; those that hooks make themselves |
//! | `start`, `stack` | loading and unloading; the sockets face of the process |
//! | `edge` | what every hook does: the program's memory, errno, panics |
//! | `mine`, `socket` | whose descriptor it is; what the hooks ask of a socket of ours |
//! | `udp`, `tcp` | the kinds of those: UDP sockets, TCP sockets |
//! | `send`, `receive`, `wait`, `looking`, `sets`, `sifted`, `limit` | data out, in, and waiting for it |
//! | `rsockets` | the functions of rsocket(7), which are hooks by other names |
//! | `messages` | lists of messages, received one by one |
//! | `descriptors`, `options` | descriptors made, doubled and closed; socket options and names |
//! | `internal`, `stdio`, `printing`, `aio` | streams, `dprintf` and aio: what the C library does by calls of its own |
//! | `process` | fork, exec, exit, and bare system calls |
//! | `exec` | which programs started from here have this one's connections |
//!
//! A hook runs wherever the program makes the call: in a signal handler, in a child of `vfork`, while a
//! library loads. So none allocates or takes a lock of the standard library, and all are `C-unwind`: the
//! cancellation of a thread unwinds through them, and where it can nothing is held.

// The lint (Rust 1.99) wants `open`, `read` and their like declared as the standard library declares them, which is
// not `C-unwind`. Older compilers do not know it.
#![allow(unknown_lints, invalid_runtime_symbol_definitions)]

#[macro_use]
mod real;

mod aio;
mod calls;
mod descriptors;
mod edge;
mod epoll;
mod exec;
mod internal;
mod limit;
mod looking;
mod messages;
mod mine;
mod options;
mod printing;
mod process;
mod receive;
mod rsockets;
mod send;
mod sets;
mod sifted;
mod socket;
mod stack;
mod start;
mod stdio;
mod tcp;
mod timeout;
mod udp;
mod wait;
