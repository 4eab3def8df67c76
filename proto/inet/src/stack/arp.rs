//! ARP (RFC 826).

use super::egress::ethernet;
use super::frame::{Frame, Head, Mac, Payload, VnetHeader};
use super::Stack;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use etherparse::{ArpEthIpv4Packet, ArpOperation, ArpPacket, EtherType};

impl Stack {
    /// A request, an answer, or an announcement.
    pub(super) fn arp(&mut self, octets: &[u8], now: Duration) {
        let packet = ArpPacket::from_slice(octets).ok();
        let Some(packet) = packet.and_then(|packet| packet.try_eth_ipv4().ok()) else {
            self.counters.malformed += 1;
            return;
        };
        let (sender, target) = (packet.sender_ipv4_addr(), packet.target_ipv4_addr());
        let to_us = self.addresses.is_usable(IpAddr::V4(target));
        // Nobody else speaks for us, and no group has one hardware address.
        let sane = self.addresses.state(IpAddr::V4(sender)).is_none()
            && !sender.is_unspecified()
            && packet.sender_mac[0] & 1 == 0;
        if sane {
            let frames = self
                .neighbors
                .learn(IpAddr::V4(sender), packet.sender_mac, to_us, now);
            frames.into_iter().for_each(|frame| self.enqueue(frame));
        }
        if to_us && packet.operation == ArpOperation::REQUEST {
            let answer = self.arp_frame(
                ArpOperation::REPLY,
                packet.sender_mac,
                packet.sender_mac,
                target,
                sender,
            );
            self.enqueue(answer);
        }
    }

    pub(super) fn ask_by_arp(&mut self, address: Ipv4Addr) {
        let Some(IpAddr::V4(own)) = self.config.source_for(IpAddr::V4(address), None) else {
            return;
        };
        let request = self.arp_frame(ArpOperation::REQUEST, [0xff; 6], [0; 6], own, address);
        self.enqueue(request);
    }

    fn arp_frame(
        &self,
        operation: ArpOperation,
        to: Mac,
        target: Mac,
        own: Ipv4Addr,
        address: Ipv4Addr,
    ) -> Frame {
        let packet = ArpEthIpv4Packet {
            operation,
            sender_mac: self.config.mac,
            sender_ipv4: own.octets(),
            target_mac: target,
            target_ipv4: address.octets(),
        };
        let mut head = Head::new(&ethernet(to, self.config.mac, EtherType::ARP));
        head.push(&packet.to_bytes());
        Frame {
            head,
            payload: Payload::Empty,
            vnet: VnetHeader::default(),
            looped: false,
        }
    }
}
