//! ARP (RFC 826).

use super::egress::ethernet;
use super::frame::{Frame, Mac, Payload, VnetHeader};
use super::Stack;
use alloc::vec::Vec;
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
        let Some(own) = self.config.ipv4.map(|own| own.address) else {
            return;
        };
        let sender = packet.sender_ipv4_addr();
        let to_us = packet.target_ipv4_addr() == own;
        // Nobody else speaks for us, and no group has one hardware address.
        let sane = sender != own && !sender.is_unspecified() && packet.sender_mac[0] & 1 == 0;
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
                sender,
            );
            self.enqueue(answer);
        }
    }

    pub(super) fn ask_by_arp(&mut self, address: Ipv4Addr) {
        let request = self.arp_frame(ArpOperation::REQUEST, [0xff; 6], [0; 6], address);
        self.enqueue(request);
    }

    fn arp_frame(&self, operation: ArpOperation, to: Mac, target: Mac, address: Ipv4Addr) -> Frame {
        let own = self
            .config
            .ipv4
            .map_or(Ipv4Addr::UNSPECIFIED, |own| own.address);
        let packet = ArpEthIpv4Packet {
            operation,
            sender_mac: self.config.mac,
            sender_ipv4: own.octets(),
            target_mac: target,
            target_ipv4: address.octets(),
        };
        let mut head = Vec::with_capacity(42);
        head.extend_from_slice(&ethernet(to, self.config.mac, EtherType::ARP));
        head.extend_from_slice(&packet.to_bytes());
        Frame {
            head,
            payload: Payload::Empty,
            vnet: VnetHeader::default(),
        }
    }
}
