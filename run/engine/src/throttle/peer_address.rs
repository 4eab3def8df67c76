//! Which addresses count as one peer.
//!
//! Whoever has one address often has many for the asking: a local user all of 127.0.0.0/8 and every address of this
//! machine, a host on an IPv6 network all of its 64 bits. What bounds a peer by its address bounds it by these.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Stands for every address of this machine.
pub(crate) const THIS_MACHINE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// So old may be what the kernel said of the machine's addresses.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// Tells whose address one is; knows the addresses of this machine.
#[derive(Debug, Default)]
pub(crate) struct PeerAddress {
    own: Vec<IpAddr>,
    asked: Option<Duration>,
}

impl PeerAddress {
    /// The one address that stands for all addresses of the peer that has this one.
    pub(crate) fn of(&mut self, address: IpAddr, now: Duration) -> IpAddr {
        let is_own = |address| {
            // Asking takes longer than a connect, so not for each.
            if self.asked.is_none_or(|asked| asked + KNOWN_FOR <= now) {
                self.asked = Some(now);
                self.own = weft_os::ifaces::interfaces()
                    .into_iter()
                    .flat_map(|interface| interface.addrs)
                    .collect();
            }
            self.own.contains(&address)
        };
        one_peer(address, is_own)
    }
}

fn one_peer(address: IpAddr, is_own: impl FnOnce(IpAddr) -> bool) -> IpAddr {
    let address = address.to_canonical();
    if address.is_loopback() || is_own(address) {
        return THIS_MACHINE;
    }
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => first_bits(v6, 64),
    }
}

/// The network that a peer's neighbours are in too: of IPv4 24 bits, of IPv6 48.
pub(super) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address {
        THIS_MACHINE => THIS_MACHINE,
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from(u32::from(v4) & (u32::MAX << 8))),
        IpAddr::V6(v6) => first_bits(v6, 48),
    }
}

fn first_bits(address: Ipv6Addr, bits: u32) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(
        u128::from(address) & (u128::MAX << (128 - bits)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_addresses_of_this_machine_are_one_peer() {
        let own = ["10.0.0.9", "2001:db8:0:7::9"].map(address);
        let whom = |text: &str| one_peer(address(text), |a| own.contains(&a));
        for text in [
            "127.0.0.1",
            "127.255.3.4",
            "::1",
            "::ffff:127.0.0.9",
            "10.0.0.9",
            "::ffff:10.0.0.9",
            "2001:db8:0:7::9",
        ] {
            assert_eq!(whom(text), THIS_MACHINE, "{text}");
        }
        // A container on the machine's bridge, another host, and one beside the machine in its IPv6 network.
        assert_eq!(whom("10.0.0.10"), address("10.0.0.10"));
        assert_eq!(whom("::ffff:10.0.0.10"), address("10.0.0.10"));
        assert_eq!(whom("2001:db8:0:7::a"), address("2001:db8:0:7::"));
    }

    #[test]
    fn the_kernel_is_asked_for_the_machines_addresses() {
        let mut whom = PeerAddress::default();
        let now = Duration::from_secs(7);
        for interface in weft_os::ifaces::interfaces() {
            for own in interface.addrs {
                assert_eq!(whom.of(own, now), THIS_MACHINE, "{own}");
            }
        }
        let elsewhere = address("192.0.2.1");
        assert_eq!(whom.of(elsewhere, now), elsewhere);
        whom.own.push(elsewhere);
        assert_eq!(whom.of(elsewhere, now), THIS_MACHINE, "known for a second");
        assert_eq!(whom.of(elsewhere, now + KNOWN_FOR), elsewhere);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let network = address("2001:db8:0:7::");
        for text in ["2001:db8:0:7::1", "2001:db8:0:7:ffff::1"] {
            assert_eq!(one_peer(address(text), |_| false), network);
        }
        let other = one_peer(address("2001:db8:0:8::1"), |_| false);
        assert_ne!(other, network);
        assert_eq!(neighbourhood(other), neighbourhood(network));
        assert_ne!(
            neighbourhood(address("2001:db8:1::")),
            neighbourhood(network)
        );
    }

    #[test]
    fn a_neighbourhood_of_ipv4_has_256_addresses() {
        let of = |text| neighbourhood(address(text));
        assert_eq!(of("10.1.2.3"), of("10.1.2.254"));
        assert_ne!(of("10.1.2.3"), of("10.1.3.3"));
        assert_ne!(of("127.0.0.1"), of("127.0.0.0"), "this machine is apart");
    }
}
