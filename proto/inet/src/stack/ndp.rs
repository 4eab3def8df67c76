//! Neighbour discovery (RFC 4861): solicitations, advertisements, routers that announce themselves; and what
//! duplicate address detection asks (RFC 4862 section 5.4).

use super::addresses::AddressState;
use super::config::solicited_node;
use super::frame::Mac;
use super::icmp::icmpv6_checksum;
use super::{protocol, Stack};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

pub(super) const ROUTER_ADVERTISEMENT: u8 = 134;
pub(super) const NEIGHBOR_SOLICITATION: u8 = 135;
pub(super) const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

impl Stack {
    /// A message whose checksum is right and whose hop limit is 255 (RFC 4861 sections 6.1.2, 7.1).
    pub(super) fn ndp(&mut self, source: Ipv6Addr, octets: &[u8], now: Duration) {
        let target = octets
            .get(8..24)
            .and_then(|target| <[u8; 16]>::try_from(target).ok());
        match (octets[0], target) {
            (NEIGHBOR_SOLICITATION, Some(target)) => {
                self.solicited(source, Ipv6Addr::from(target), &octets[24..], now);
            }
            (NEIGHBOR_ADVERTISEMENT, Some(target)) => {
                let target = Ipv6Addr::from(target);
                if self.addresses.conflict(IpAddr::V6(target)) {
                    self.counters.duplicate_addresses += 1;
                    return;
                }
                let mac = option(&octets[24..], TARGET_LINK_ADDRESS);
                self.learn(target, mac, false, now);
            }
            (ROUTER_ADVERTISEMENT, _) if octets.len() >= 16 && is_link_local(source) => {
                self.advertised(source, octets, now);
            }
            _ => self.counters.malformed += 1,
        }
    }

    /// A router says for how long it leads beyond the link; 0: it does no longer, which says nothing of another (RFC
    /// 4861 section 6.3.4). Of several the last that spoke is taken.
    fn advertised(&mut self, router: Ipv6Addr, octets: &[u8], now: Duration) {
        let mac = option(&octets[16..], SOURCE_LINK_ADDRESS);
        self.learn(router, mac, true, now);
        let before = self.router;
        let is_current = before.is_some_and(|(current, _)| current == router);
        let lifetime = u16::from_be_bytes([octets[6], octets[7]]);
        let until = now + Duration::from_secs(lifetime.into());
        if lifetime > 0 {
            self.router = Some((router, until));
        } else if is_current {
            self.router = None;
        } else {
            return;
        }
        // What connections remember of their way holds where the same router goes on, or for longer.
        let holds = is_current && before.is_some_and(|(_, before)| before <= until);
        self.routers_changed += u64::from(!holds);
    }

    /// Someone asks for an address; if it is ours, it is told (RFC 4861 section 7.2.3 and 7.2.4).
    fn solicited(&mut self, source: Ipv6Addr, target: Ipv6Addr, options: &[u8], now: Duration) {
        // An unspecified source wants to know whether the address is free (RFC 4862 section 5.4.3).
        let probe = source.is_unspecified();
        match self.addresses.state(IpAddr::V6(target)) {
            Some(AddressState::Preferred) => {}
            Some(AddressState::Tentative) if probe => {
                // Somebody wants the address as we do: nobody gets it.
                self.addresses.conflict(IpAddr::V6(target));
                self.counters.duplicate_addresses += 1;
                return;
            }
            _ => return,
        }
        if !probe {
            self.learn(source, option(options, SOURCE_LINK_ADDRESS), true, now);
        }
        // Who has no address yet is told by telling all.
        let (flags, to) = match probe {
            true => (OVERRIDE, ALL_NODES),
            false => (SOLICITED | OVERRIDE, source),
        };
        let link_option = Some(TARGET_LINK_ADDRESS);
        let message = self.message(NEIGHBOR_ADVERTISEMENT, flags, target, link_option);
        self.send_icmpv6(target, to, message, now);
    }

    /// Asks for the hardware address of a neighbour.
    pub(super) fn solicit(&mut self, target: Ipv6Addr, now: Duration) {
        let own = match self.config.source_for(IpAddr::V6(target), None) {
            Some(IpAddr::V6(own)) if self.addresses.is_usable(IpAddr::V6(own)) => Some(own),
            _ => self.addresses.any_ipv6(),
        };
        // Without an address of ours that may be used there is nobody to answer to.
        let Some(own) = own else { return };
        let link_option = Some(SOURCE_LINK_ADDRESS);
        let message = self.message(NEIGHBOR_SOLICITATION, 0, target, link_option);
        self.send_icmpv6(own, solicited_node(target), message, now);
    }

    /// Asks whether somebody else has an address that is to be ours. The solicitation names no hardware address: its
    /// sender has no address yet (RFC 4861 section 7.2.2).
    pub(super) fn probe(&mut self, target: Ipv6Addr, now: Duration) {
        let message = self.message(NEIGHBOR_SOLICITATION, 0, target, None);
        let group = solicited_node(target);
        self.send_icmpv6(Ipv6Addr::UNSPECIFIED, group, message, now);
    }

    fn message(&self, kind: u8, flags: u8, target: Ipv6Addr, link_option: Option<u8>) -> Vec<u8> {
        let mut message = Vec::with_capacity(32);
        message.extend_from_slice(&[kind, 0, 0, 0, flags, 0, 0, 0]);
        message.extend_from_slice(&target.octets());
        if let Some(link_option) = link_option {
            message.extend_from_slice(&[link_option, 1]);
            message.extend_from_slice(&self.config.mac);
        }
        message
    }

    pub(super) fn send_icmpv6(
        &mut self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        mut message: Vec<u8>,
        now: Duration,
    ) {
        let (source, destination) = (IpAddr::V6(source), IpAddr::V6(destination));
        let checksum = icmpv6_checksum(source, destination, &message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        self.send_packet(source, destination, protocol::ICMPV6, message, now);
    }

    fn learn(&mut self, address: Ipv6Addr, mac: Option<Mac>, create: bool, now: Duration) {
        let Some(mac) = mac.filter(|mac| mac[0] & 1 == 0) else {
            return;
        };
        let frames = self.neighbors.learn(IpAddr::V6(address), mac, create, now);
        frames.into_iter().for_each(|frame| self.enqueue(frame));
    }
}

/// Of fe80::/10, as every router's that announces itself (RFC 4861 section 6.1.2).
fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// The hardware address in an option of this kind. An option of length 0 makes the message invalid (section 4.6).
fn option(mut options: &[u8], wanted: u8) -> Option<Mac> {
    while let [kind, len, ..] = options {
        let len = usize::from(*len) * 8;
        let body = options.get(2..len)?;
        if *kind == wanted {
            return body.first_chunk().copied();
        }
        options = &options[len..];
    }
    None
}
