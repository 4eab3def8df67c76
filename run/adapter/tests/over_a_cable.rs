//! The engine's own tests over the adapter: two hosts with a TCP of our own, on a cable in memory. What holds here and
//! over the kernel's TCP is the engine's, and not the transport's.

#![allow(
    clippy::duplicate_mod,
    reason = "each of these is a test program of the engine's, too, and has its helpers"
)]

#[path = "../../engine/tests/bring_up.rs"]
mod bring_up;
#[path = "../../engine/tests/datagrams.rs"]
mod datagrams;
#[path = "../../engine/tests/extended.rs"]
mod extended;
#[path = "../../engine/tests/goodbye.rs"]
mod goodbye;
#[path = "../../engine/tests/loopback.rs"]
mod loopback;
#[path = "../../engine/tests/sidr.rs"]
mod sidr;

#[path = "../../engine/tests/peers/network.rs"]
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

/// And were it the kernel's UDP, so would those of datagrams.
#[test]
fn no_datagram_goes_by_the_kernel() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let number = u32::from(socket.local_addr().unwrap().port()) << 8;
    datagrams::send_to_number(number);
    let error = socket.recv(&mut [0; 64]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}
