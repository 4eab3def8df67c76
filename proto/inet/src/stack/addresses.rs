//! The interface's own addresses, and whether each may be used: duplicate address detection (RFC 4862 section 5.4).
//!
//! An IPv6 address is tentative until nobody has objected for a second. What would leave from it waits as long; what
//! arrives for it is dropped. The first solicitation leaves at once: the random delay of section 5.4.2 spares links on
//! which many machines start together, and an adapter starts when its program does.

use super::config::{solicited_node, StackConfig};
use super::frame::Frame;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

/// Time between solicitations, and from the last one to the use of the address (RFC 4861 section 10, RETRANS_TIMER).
const RETRANSMIT_TIME: Duration = Duration::from_secs(1);
/// Frames that wait for one address to become usable. The newest are kept: TCP repeats the rest.
const WAITING_FRAMES_MAX: usize = 16;

/// Whether an address of the interface may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressState {
    /// Somebody else may have it: it is being asked for.
    Tentative,
    /// It is ours.
    Preferred,
    /// Somebody else has it. It stays unused.
    Duplicate,
}

/// The table.
#[derive(Debug)]
pub(super) struct Addresses {
    entries: Vec<Entry>,
    /// None is tentative: most of the time.
    settled: bool,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    state: AddressState,
    /// Solicitations still to be sent.
    solicitations: u32,
    /// When to ask next, or to take the address when all was asked. None: as soon as the time is known.
    at: Option<Duration>,
    /// Frames from this address, with where they go to.
    waiting: Vec<(IpAddr, Frame)>,
}

/// What detection wants done.
#[derive(Debug)]
pub(super) enum Step {
    /// Ask who has this address.
    Ask(Ipv6Addr),
    /// An address may be used: these frames waited for it, each with where it goes to.
    Send {
        /// The address.
        source: IpAddr,
        /// The frames.
        frames: Vec<(IpAddr, Frame)>,
    },
}

impl Addresses {
    pub fn new(config: &StackConfig) -> Addresses {
        let link_local = config
            .speaks_ipv6()
            .then(|| IpAddr::V6(config.link_local()));
        let all = config.addresses.iter().map(|own| own.address);
        let mut addresses = Addresses {
            entries: Vec::new(),
            settled: config.dad_transmits == 0 || !config.speaks_ipv6(),
        };
        for address in all.chain(link_local) {
            if addresses.state(address).is_some() {
                continue;
            }
            let asks = address.is_ipv6() && config.dad_transmits > 0;
            addresses.entries.push(Entry {
                address,
                state: match asks {
                    true => AddressState::Tentative,
                    false => AddressState::Preferred,
                },
                solicitations: config.dad_transmits,
                at: None,
                waiting: Vec::new(),
            });
        }
        addresses
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (IpAddr, AddressState)> + '_ {
        self.entries
            .iter()
            .map(|entry| (entry.address, entry.state))
    }

    /// None where the address is not ours at all.
    pub fn state(&self, address: IpAddr) -> Option<AddressState> {
        let mut all = self.entries.iter();
        all.find(|entry| entry.address == address)
            .map(|entry| entry.state)
    }

    /// The address is ours, to be used.
    pub fn is_usable(&self, address: IpAddr) -> bool {
        self.state(address) == Some(AddressState::Preferred)
    }

    /// An address of IPv6 that may be used.
    pub fn any_ipv6(&self) -> Option<Ipv6Addr> {
        self.all().find_map(|(address, state)| match address {
            IpAddr::V6(address) if state == AddressState::Preferred => Some(address),
            _ => None,
        })
    }

    /// One of our addresses is asked for at this group.
    pub fn is_solicited_at(&self, group: Ipv6Addr) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry.address, IpAddr::V6(own) if solicited_node(own) == group))
    }

    /// No address is tentative.
    #[inline]
    pub fn settled(&self) -> bool {
        self.settled
    }

    /// Somebody else has the address, or asks for it as we do (RFC 4862 sections 5.4.3 and 5.4.4). Says whether that
    /// ended a detection.
    pub fn conflict(&mut self, address: IpAddr) -> bool {
        let tentative =
            |entry: &&mut Entry| entry.address == address && entry.state == AddressState::Tentative;
        let Some(entry) = self.entries.iter_mut().find(tentative) else {
            return false;
        };
        entry.state = AddressState::Duplicate;
        entry.waiting = Vec::new();
        self.settle();
        true
    }

    /// A frame from a tentative address waits until that may be used.
    pub fn wait(&mut self, source: IpAddr, destination: IpAddr, frame: Frame) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.address == source) {
            if entry.waiting.len() == WAITING_FRAMES_MAX {
                entry.waiting.remove(0);
            }
            entry.waiting.push((destination, frame));
        }
    }

    /// What is due at `now`. Call it until it gives nothing.
    pub fn poll(&mut self, now: Duration) -> Option<Step> {
        if self.settled {
            return None;
        }
        let due = |entry: &&mut Entry| {
            entry.state == AddressState::Tentative && entry.at.is_none_or(|at| at <= now)
        };
        let entry = self.entries.iter_mut().find(due)?;
        entry.at = Some(now + RETRANSMIT_TIME);
        if entry.solicitations > 0 {
            entry.solicitations -= 1;
            if let IpAddr::V6(address) = entry.address {
                return Some(Step::Ask(address));
            }
        }
        entry.state = AddressState::Preferred;
        let source = entry.address;
        let frames = core::mem::take(&mut entry.waiting);
        self.settle();
        Some(Step::Send { source, frames })
    }

    /// When to poll next.
    pub fn deadline(&self) -> Option<Duration> {
        if self.settled {
            return None;
        }
        let tentative = |entry: &&Entry| entry.state == AddressState::Tentative;
        let entries = self.entries.iter().filter(tentative);
        entries
            .map(|entry| entry.at.unwrap_or(Duration::ZERO))
            .min()
    }

    fn settle(&mut self) {
        let tentative = |entry: &Entry| entry.state == AddressState::Tentative;
        self.settled = !self.entries.iter().any(tentative);
    }
}
