//! UDP datagrams over connections of the kernel's TCP or the adapter's (decisions 0034, 0037 and 0044).
//!
//! The program's calls ask [`Offload`] about a UDP socket, which has a [`Port`]: may this datagram take a connection
//! (a *carrier*), and has one come that way? One thread for each process asks other processes, connects, and runs the
//! state machines of `proto/uoe`. What runs in a program's call allocates nothing and takes no lock that a signal
//! handler or a fork could hang.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`offload`] | what the program's calls ask for, and what they share with the thread |
//! | [`port`] | one UDP socket: how it sends and receives over carriers |
//! | [`inlet`] | datagrams that came over carriers and wait for the program |
//! | `sending`, `taking` | the program's sends and receives |
//! | `requiring` | sends that never go plainly |
//! | `thread`, `worker` | the thread as calls see it; what is known of it |
//! | `owned`, `owning` | sockets that several processes have |
//! | `heads` | who may take the head of a socket's queue in the kernel |
//! | `marked` | numbers that each process has for itself |
//! | `turns` | threads that send to several destinations in turn |
//! | `suitable` | which sockets take datagrams over carriers |
//! | `paths` | where a socket's datagrams go |
//! | `pause` | how a send sleeps that found no room |
//! | `left` | sockets that the program has closed while datagrams of theirs wait |
//! | `link` | the octets of one carrier that are to leave |
//! | `flushing` | gives what waits there to the kernel's TCP |
//! | `frames` | where segments end that leave by the adapter |
//! | `mail` | what calls tell the thread |
//! | `nonces` | how Weft's own datagrams are told from the program's |
//! | [`stat`] | what others see of that while the process lives |
//! | [`counts`] | what has become of datagrams |
//! | `service` | the thread |

#![forbid(unsafe_code)]

pub mod counts;
mod flushing;
mod frames;
mod heads;
pub mod inlet;
mod left;
mod link;
mod mail;
mod marked;
mod nonces;
pub mod offload;
mod owned;
mod owning;
mod paths;
mod pause;
pub mod port;
mod requiring;
pub mod sending;
mod service;
pub mod stat;
mod suitable;
mod taking;
mod thread;
mod turns;
mod worker;

pub use offload::{choose_network, Offload};
pub use owning::Use;
pub use pause::Pause;
pub use port::Port;
pub use sending::{Sending, Sent};
pub use taking::Taken;
