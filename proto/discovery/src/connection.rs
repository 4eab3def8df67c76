//! What a question is about: a connection, named by its two ends.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What travels between the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum About {
    /// The octets of a TCP connection.
    Stream,
    /// UDP datagrams.
    Datagrams,
}

impl About {
    /// Every value.
    pub const ALL: [About; 2] = [About::Stream, About::Datagrams];

    pub(crate) fn to_octet(self) -> u8 {
        match self {
            About::Stream => 1,
            About::Datagrams => 2,
        }
    }

    pub(crate) fn from_octet(octet: u8) -> Option<About> {
        About::ALL.into_iter().find(|one| one.to_octet() == octet)
    }
}

/// One end: an address and a port. An IPv4 address is the IPv4-mapped IPv6 one, so that each end has one form.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Default,
)]
#[repr(C)]
pub struct End {
    address: [u8; 16],
    /// In network order.
    port: [u8; 2],
}

/// Octets of an [`End`].
pub(crate) const END_LEN: usize = 18;
const _: () = assert!(core::mem::size_of::<End>() == END_LEN);

impl End {
    /// This address and port.
    pub fn new(address: IpAddr, port: u16) -> End {
        let address = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        End {
            address: address.octets(),
            port: port.to_be_bytes(),
        }
    }

    /// The address; an IPv4-mapped one as the IPv4 address in it.
    pub fn address(&self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self.address)).to_canonical()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        u16::from_be_bytes(self.port)
    }

    /// Address and port, without a scope.
    pub fn to_socket_addr(&self) -> SocketAddr {
        SocketAddr::new(self.address(), self.port())
    }

    /// Whether a socket can be connected from or to it: it has a port, and the address is one host's.
    pub fn is_one(&self) -> bool {
        let address = self.address();
        let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        self.port() != 0 && !address.is_unspecified() && !address.is_multicast() && !is_broadcast
    }
}

impl From<SocketAddr> for End {
    fn from(addr: SocketAddr) -> End {
        End::new(addr.ip(), addr.port())
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_socket_addr().fmt(f)
    }
}

/// A connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Connection {
    /// What travels on it.
    pub about: About,
    /// The end that connects, and asks.
    pub client: End,
    /// The end that is connected to, and asked.
    pub server: End,
}

impl Connection {
    /// Whether there can be such a connection: both ends are one host's, and of one family.
    pub fn is_possible(&self) -> bool {
        let families = [self.client, self.server].map(|end| end.address().is_ipv4());
        self.client.is_one() && self.server.is_one() && families[0] == families[1]
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} -> {:?}", self.client, self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn end(text: &str) -> End {
        text.parse::<SocketAddr>().unwrap().into()
    }

    fn connection(client: &str, server: &str) -> Connection {
        Connection {
            about: About::Stream,
            client: end(client),
            server: end(server),
        }
    }

    #[test]
    fn an_ipv4_end_has_one_form() {
        assert_eq!(end("192.0.2.1:80"), end("[::ffff:192.0.2.1]:80"));
        assert_eq!(
            end("[::ffff:192.0.2.1]:80").address().to_string(),
            "192.0.2.1"
        );
        assert_ne!(end("192.0.2.1:80"), end("192.0.2.1:81"));
        assert_eq!(
            end("[2001:db8::1]:7").to_socket_addr().to_string(),
            "[2001:db8::1]:7"
        );
    }

    #[test]
    fn a_connection_has_two_hosts_of_one_family() {
        assert!(connection("192.0.2.1:1", "192.0.2.2:2").is_possible());
        assert!(connection("[::1]:1", "[fe80::2]:2").is_possible());
        for (client, server) in [
            ("192.0.2.1:0", "192.0.2.2:2"),
            ("192.0.2.1:1", "192.0.2.2:0"),
            ("192.0.2.1:1", "[2001:db8::1]:2"),
            ("0.0.0.0:1", "192.0.2.2:2"),
            ("[::]:1", "[::1]:2"),
            ("192.0.2.1:1", "224.0.0.1:2"),
            ("192.0.2.1:1", "255.255.255.255:2"),
            ("[2001:db8::1]:1", "[ff02::1]:2"),
        ] {
            assert!(
                !connection(client, server).is_possible(),
                "{client} {server}"
            );
        }
    }

    #[test]
    fn it_is_shown_from_client_to_server() {
        let shown = connection("192.0.2.1:40000", "[::ffff:192.0.2.2]:6379").to_string();
        assert_eq!(shown, "192.0.2.1:40000 -> 192.0.2.2:6379");
    }
}
