//! The 40 octets before a datagram's payload in the receive: the IP header, as with RoCE v2.
//!
//! An IPv6 header fills them; an IPv4 header stands in the last 20, behind zeros.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header::HEADER_LEN;

/// Octets of the area.
pub const GRH_LEN: usize = 40;
const IPV4_AT: usize = 20;
const UDP: u8 = 17;
const UDP_HEADER_LEN: usize = 8;
/// What senders start with; how much of it was left the kernel does not tell.
const HOPS: u8 = 64;

/// The area for a datagram with `payload` octets.
pub fn grh(from: IpAddr, to: IpAddr, payload: usize) -> [u8; GRH_LEN] {
    let len = (UDP_HEADER_LEN + HEADER_LEN + payload) as u16;
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, len),
        _ => ipv6(v6(from), v6(to), len),
    }
}

/// The ends of a datagram, sender first, from its area; `None` when it holds no IP header.
pub fn ends(grh: &[u8; GRH_LEN]) -> Option<(IpAddr, IpAddr)> {
    if grh[0] >> 4 == 6 {
        let at = |start: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&grh[start..start + 16]);
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
        };
        return Some((at(8), at(24)));
    }
    let header = &grh[IPV4_AT..];
    let at = |start: usize| {
        let octets = [
            header[start],
            header[start + 1],
            header[start + 2],
            header[start + 3],
        ];
        IpAddr::V4(Ipv4Addr::from(octets))
    };
    (header[0] == 0x45 && checksum(header) == 0).then(|| (at(12), at(16)))
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, len: u16) -> [u8; GRH_LEN] {
    let mut grh = [0; GRH_LEN];
    grh[0] = 0x60;
    grh[4..6].copy_from_slice(&len.to_be_bytes());
    grh[6] = UDP;
    grh[7] = HOPS;
    grh[8..24].copy_from_slice(&from.octets());
    grh[24..40].copy_from_slice(&to.octets());
    grh
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, len: u16) -> [u8; GRH_LEN] {
    let mut grh = [0; GRH_LEN];
    let header = &mut grh[IPV4_AT..];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(20 + len).to_be_bytes());
    header[8] = HOPS;
    header[9] = UDP;
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    grh
}

/// The Internet checksum (RFC 1071); 0 over a header that has the right one.
fn checksum(header: &[u8]) -> u16 {
    let words = header
        .chunks_exact(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_header_stands_in_the_last_twenty_octets() {
        let (from, to) = ("192.0.2.1".parse().unwrap(), "192.0.2.9".parse().unwrap());
        let area = grh(from, to, 100);
        assert_eq!(area[..20], [0; 20]);
        assert_eq!(area[20], 0x45);
        assert_eq!(area[22..24], 156u16.to_be_bytes());
        assert_eq!(area[29], 17);
        assert_eq!(area[32..36], [192, 0, 2, 1]);
        assert_eq!(ends(&area), Some((from, to)));
    }

    #[test]
    fn the_checksum_is_the_one_of_the_textbook() {
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xC0, 0xA8, 0, 1, 0xC0, 0xA8, 0,
            0xC7,
        ];
        assert_eq!(checksum(&header), 0xB861);
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
        let mut broken = grh(
            "192.0.2.1".parse().unwrap(),
            "192.0.2.9".parse().unwrap(),
            8,
        );
        broken[35] ^= 1;
        assert_eq!(ends(&broken), None);
    }
}
