//! Addresses as words of the segment: IPv4 is mapped to IPv6, the port has a word of its own.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub(super) fn address_words(addr: SocketAddr) -> [u64; 3] {
    let octets = match addr.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let half = |range: std::ops::Range<usize>| {
        octets[range]
            .iter()
            .fold(0u64, |word, octet| word << 8 | u64::from(*octet))
    };
    [half(0..8), half(8..16), u64::from(addr.port())]
}

pub(super) fn address_of(words: [u64; 3]) -> SocketAddr {
    let ip = Ipv6Addr::from((u128::from(words[0]) << 64) | u128::from(words[1]));
    let ip = match ip.to_ipv4_mapped() {
        Some(v4) => IpAddr::V4(v4),
        None => IpAddr::V6(ip),
    };
    SocketAddr::new(ip, words[2] as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_their_words() {
        for text in ["127.0.0.1:7471", "[fe80::1]:1", "[::]:65535", "10.1.2.3:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(address_of(address_words(addr)), addr);
        }
    }
}
