//! An address and a port.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Octets of an end on the wire.
pub const END_LEN: usize = 18;

/// One end of UDP: an address and a port. An IPv4 address has one form, be it IPv4-mapped or not; there is no scope.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    address: IpAddr,
    port: u16,
}

impl End {
    /// This address and port.
    pub const fn new(address: IpAddr, port: u16) -> End {
        End {
            address: address.to_canonical(),
            port,
        }
    }

    /// The address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As a socket has it.
    pub fn to_socket_addr(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// Address (IPv4 as IPv4-mapped IPv6) and port, in network order.
    pub fn to_octets(&self) -> [u8; END_LEN] {
        let address = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut octets = [0; END_LEN];
        octets[..16].copy_from_slice(&address.octets());
        octets[16..].copy_from_slice(&self.port.to_be_bytes());
        octets
    }

    /// Reads an end.
    pub fn from_octets(octets: &[u8; END_LEN]) -> End {
        let mut address = [0; 16];
        address.copy_from_slice(&octets[..16]);
        let port = u16::from_be_bytes([octets[16], octets[17]]);
        End::new(Ipv6Addr::from(address).into(), port)
    }
}

impl From<SocketAddr> for End {
    fn from(addr: SocketAddr) -> End {
        End::new(addr.ip(), addr.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_one_form() {
        let end = |text: &str| End::from(text.parse::<SocketAddr>().unwrap());
        assert_eq!(end("192.0.2.1:80"), end("[::ffff:192.0.2.1]:80"));
        for text in ["192.0.2.1:80", "[2001:db8::1]:65535", "0.0.0.0:0"] {
            let end = end(text);
            assert_eq!(End::from_octets(&end.to_octets()), end);
            assert_eq!(
                std::string::ToString::to_string(&end.to_socket_addr()),
                text
            );
        }
        assert_eq!(
            end("192.0.2.1:258").to_octets()[10..],
            [255, 255, 192, 0, 2, 1, 1, 2]
        );
    }
}
