//! What all segments of a connection have in common on the way out: Ethernet and IP header, and the sum of the pseudo
//! header. Made once and copied, as long as nothing changed that it was made of.

use super::frame::{Head, ETHERNET_LEN};
use crate::checksum::Checksum;
use crate::tcp::ConnectionId;
use alloc::vec::Vec;
use core::time::Duration;

/// Octets of an IPv4 header without options.
const IPV4_LEN: usize = 20;
/// Where the fields of the IPv4 header stand that differ from segment to segment.
const TOTAL_LEN: usize = ETHERNET_LEN + 2;
const IDENTIFICATION: usize = ETHERNET_LEN + 4;
const HEADER_CHECKSUM: usize = ETHERNET_LEN + 10;
/// Where the length stands in the IPv6 header.
const PAYLOAD_LEN: usize = ETHERNET_LEN + 4;

/// The headers of one connection.
#[derive(Debug)]
pub(super) struct Flow {
    connection: ConnectionId,
    /// Ethernet and IP header of a segment without octets.
    head: Head,
    /// The pseudo header of such a segment.
    pseudo: Checksum,
    /// For the interface itself.
    pub looped: bool,
    /// Which state of the routes it belongs to.
    epoch: u64,
    /// After this time the neighbour has to be confirmed.
    fresh_until: Duration,
}

/// The flows, by the place of their connection.
#[derive(Debug, Default)]
pub(super) struct Flows {
    by_slot: Vec<Option<Flow>>,
}

impl Flows {
    /// The flow of a connection, when it still holds.
    #[inline]
    pub fn get(&self, connection: ConnectionId, epoch: u64, now: Duration) -> Option<&Flow> {
        let flow = self.by_slot.get(connection.slot())?.as_ref()?;
        let holds = flow.connection == connection && flow.epoch == epoch && now <= flow.fresh_until;
        holds.then_some(flow)
    }

    /// Keeps a flow in the place of the one before.
    pub fn put(&mut self, flow: Flow) {
        let slot = flow.connection.slot();
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        self.by_slot[slot] = Some(flow);
    }
}

impl Flow {
    /// From the Ethernet and IP header of any segment of the connection, and the pseudo header of one of no octets.
    pub fn new(
        connection: ConnectionId,
        mut head: Head,
        pseudo: Checksum,
        looped: bool,
        epoch: u64,
        fresh_until: Duration,
    ) -> Flow {
        if head.len() == ETHERNET_LEN + IPV4_LEN {
            for field in [TOTAL_LEN, IDENTIFICATION, HEADER_CHECKSUM] {
                head[field..field + 2].fill(0);
            }
            let mut sum = Checksum::default();
            sum.add(&head[ETHERNET_LEN..]);
            let partial = sum.partial();
            head[HEADER_CHECKSUM..HEADER_CHECKSUM + 2].copy_from_slice(&partial.to_be_bytes());
        }
        Flow {
            connection,
            head,
            pseudo,
            looped,
            epoch,
            fresh_until,
        }
    }

    /// Ethernet and IP header of a segment of `len` octets; none where no packet holds so many.
    #[inline]
    pub fn head(&self, len: usize, identification: u16) -> Option<Head> {
        let mut head = self.head;
        let mut put =
            |at: usize, value: u16| head[at..at + 2].copy_from_slice(&value.to_be_bytes());
        if self.head.len() == ETHERNET_LEN + IPV4_LEN {
            let total = u16::try_from(IPV4_LEN + len).ok()?;
            put(TOTAL_LEN, total);
            put(IDENTIFICATION, identification);
            let common = [self.head[HEADER_CHECKSUM], self.head[HEADER_CHECKSUM + 1]];
            let sum = u32::from(u16::from_be_bytes(common)) + u32::from(total);
            let sum = sum + u32::from(identification);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            put(HEADER_CHECKSUM, !(sum as u16));
        } else {
            put(PAYLOAD_LEN, u16::try_from(len).ok()?);
        }
        Some(head)
    }

    /// The sum of the pseudo header of a segment of `len` octets.
    #[inline]
    pub fn pseudo(&self, len: usize) -> Checksum {
        self.pseudo.with_word(len as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{protocol, Cidr, Stack, StackConfig};
    use super::*;
    use crate::tcp::Secret;
    use core::net::{IpAddr, Ipv4Addr};
    use proptest::prelude::*;

    proptest! {
        /// What is patched into the common header is what a header made for the segment alone has.
        #[test]
        fn a_patched_header_is_the_one_made_anew(
            first in 0usize..65_515, len in 0usize..65_515, identification: u16, ipv6: bool, hosts: [u8; 2],
        ) {
            let address = |last: u8| -> IpAddr {
                match ipv6 {
                    true => [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last].into(),
                    false => Ipv4Addr::new(10, 0, 0, last).into(),
                }
            };
            let (own, peer) = (address(hosts[0]), address(hosts[1]));
            let addresses = Vec::from([Cidr::new(own, 8)]);
            let mut stack = Stack::new(StackConfig::new([2, 0, 0, 0, 0, 1], addresses, Secret([0; 16])));
            let head = stack.ip_head(own, peer, protocol::TCP, first).unwrap();
            let none = Checksum::pseudo(own, peer, protocol::TCP, 0);
            let connection = ConnectionId::default();
            let flow = Flow::new(connection, head, none, false, 0, Duration::ZERO);
            stack.identification = identification.wrapping_sub(1);
            let anew = stack.ip_head(own, peer, protocol::TCP, len).unwrap();
            prop_assert_eq!(flow.head(len, identification), Some(anew));
            let sum = Checksum::pseudo(own, peer, protocol::TCP, len);
            prop_assert_eq!(flow.pseudo(len).partial() % 0xffff, sum.partial() % 0xffff);
            prop_assert_eq!(flow.head(65_536, 0), None);
        }
    }

    #[test]
    fn a_flow_holds_for_its_connection_its_routes_and_its_time() {
        let mut flows = Flows::default();
        let connection = ConnectionId::default();
        let until = Duration::from_secs(9);
        let head = Head::new(&[0; ETHERNET_LEN + IPV4_LEN]);
        flows.put(Flow::new(
            connection,
            head,
            Checksum::default(),
            false,
            3,
            until,
        ));
        assert!(flows.get(connection, 3, until).is_some());
        assert!(flows.get(connection, 4, until).is_none());
        assert!(flows
            .get(connection, 3, until + Duration::from_nanos(1))
            .is_none());
    }
}
