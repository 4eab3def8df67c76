//! A rate of a socket's own, which Weft keeps for the program (`abi/include/weft/sockets.h`).

use std::net::UdpSocket;

use anyhow::{Context, Result};
use weft_os::as_programs;

/// The level and the option, as that header has them.
const SOL_WEFT: i32 = 0x5745_4654;
const WEFT_SO_RATE: i32 = 2;
/// Key of the sender's time on a core for an octet: what a pace costs it.
pub(super) const SENDER_CPU: &str = "sender_cpu_ns_per_octet";
/// Octets of the headers of a datagram: the rate is one of packets.
const HEADERS: f64 = 28.0;

/// Has the socket send datagrams of so many octets this far apart.
pub(super) fn set(socket: &UdpSocket, size: usize, nanoseconds_each: f64) -> Result<()> {
    let rate = rate(size, nanoseconds_each);
    as_programs::set_wide_option(socket, SOL_WEFT, WEFT_SO_RATE, rate)
        .context("the socket has no rate of its own (WEFT_SO_RATE)")
}

/// Bits of packets a second.
fn rate(size: usize, nanoseconds_each: f64) -> u64 {
    ((size as f64 + HEADERS) * 8e9 / nanoseconds_each) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_packets() {
        assert_eq!(rate(972, 80_000.0), 100_000_000);
    }

    #[test]
    fn a_socket_of_the_kernels_has_none() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let complaint = set(&socket, 1000, 80_000.0).unwrap_err().to_string();
        assert!(complaint.contains("WEFT_SO_RATE"), "{complaint}");
    }
}
