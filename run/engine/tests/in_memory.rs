//! The engine's own tests over a network in memory: what holds here and over the kernel's TCP is the engine's, and not
//! the transport's.

#![allow(
    clippy::duplicate_mod,
    reason = "each of these is a test program of its own, too, and has its helpers"
)]

#[path = "bring_up.rs"]
mod bring_up;
#[path = "extended.rs"]
mod extended;
#[path = "goodbye.rs"]
mod goodbye;
#[path = "loopback.rs"]
mod loopback;

#[path = "peers/network.rs"]
mod network;

use std::net::SocketAddr;

/// Were the kernel's TCP used after all, all the others would pass and show nothing.
#[test]
fn nothing_listens_in_the_kernel() {
    let (_channel, id, address): (_, _, SocketAddr) = loopback::common::listener("127.0.0.1");
    let refused = std::net::TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    id.destroy();
}
