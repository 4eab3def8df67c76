//! The 40 octets before a datagram's payload in the receive: the global route header, in the layout of IPv6.
//!
//! IPv4 addresses stand in it as IPv4-mapped ones, as in GIDs. Devices of RoCE v2 leave an IPv4 header in the last
//! 20 octets instead; readers tell the two layouts apart by themselves or by what the completion says of the packet
//! (UCX, which drops what does not fit). This layout is right for both kinds of readers: the destination ends in the
//! same four octets in either.

use core::net::{IpAddr, Ipv6Addr};

use super::header::HEADER_LEN;

/// Octets of the area.
pub const GRH_LEN: usize = 40;
const UDP: u8 = 17;
const UDP_HEADER_LEN: usize = 8;
/// What senders start with; how much of it was left the kernel does not tell.
const HOPS: u8 = 64;

/// The area for a datagram with `payload` octets.
pub fn grh(from: IpAddr, to: IpAddr, payload: usize) -> [u8; GRH_LEN] {
    let len = (UDP_HEADER_LEN + HEADER_LEN + payload) as u16;
    let mut grh = [0; GRH_LEN];
    grh[0] = 0x60;
    grh[4..6].copy_from_slice(&len.to_be_bytes());
    grh[6] = UDP;
    grh[7] = HOPS;
    grh[8..24].copy_from_slice(&v6(from).octets());
    grh[24..40].copy_from_slice(&v6(to).octets());
    grh
}

/// The ends of a datagram, sender first, from its area; `None` when it holds no such header.
pub fn ends(grh: &[u8; GRH_LEN]) -> Option<(IpAddr, IpAddr)> {
    let at = |start: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&grh[start..start + 16]);
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    };
    (grh[0] >> 4 == 6).then(|| (at(8), at(24)))
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_addresses_are_mapped() {
        let (from, to) = ("192.0.2.1".parse().unwrap(), "192.0.2.9".parse().unwrap());
        let area = grh(from, to, 100);
        assert_eq!(area[0], 0x60);
        assert_eq!(area[4..6], 136u16.to_be_bytes());
        assert_eq!(area[18..24], [0xFF, 0xFF, 192, 0, 2, 1]);
        // A reader that expects an IPv4 header finds the destination where it looks.
        assert_eq!(area[36..], [192, 0, 2, 9]);
        assert_eq!(ends(&area), Some((from, to)));
    }

    #[test]
    fn an_ipv6_header_fills_the_area() {
        let (from, to) = ("2001:db8::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let area = grh(from, to, 0);
        assert_eq!(area[0], 0x60);
        assert_eq!(area[4..8], [0, 36, 17, 64]);
        assert_eq!(ends(&area), Some((from, to)));
    }

    #[test]
    fn other_octets_are_no_header() {
        assert_eq!(ends(&[0; GRH_LEN]), None);
    }
}
