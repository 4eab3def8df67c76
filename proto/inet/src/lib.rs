//! The offload engine's stack as data: Ethernet, ARP and neighbour discovery, IPv4 and IPv6, ICMP, UDP and TCP.
//!
//! The crate makes no system call, reads no clock and draws no random number: frames, commands, secrets and the time
//! go in; frames, events and deadlines come out. Time is a [`core::time::Duration`] since any epoch the caller likes,
//! and never goes backwards.
//!
//! | module | what it holds | source |
//! | --- | --- | --- |
//! | [`tcp`] | the TCP machine: connections, listeners, congestion control | RFC 9293 and those it names |
//! | [`stack`] | an interface with addresses: what arrives in frames to TCP, UDP, ARP, NDP, ICMP, and back | RFC 791, 8200, 826, 4861, 792, 4443 |
//! | [`checksum`] | the Internet checksum, whole and partial | RFC 1071 |
//!
//! The TCP machine handles numbers only: it says which octets of the stream go into the segment to be sent, and where
//! in the stream the octets of a received segment belong. The octets stay where they are, in the program's buffers and
//! in the received frame, until someone places them.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod checksum;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod stack;
pub mod tcp;
