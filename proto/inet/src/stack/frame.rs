//! Frames that leave.

use crate::checksum::Checksum;
use crate::tcp::segment::MAX_HEADER_LEN;
use crate::tcp::ConnectionId;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut, Range};

/// Octets of an Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// Octets of the longest IP header that is written.
const IP_LEN_MAX: usize = 40;
/// Octets of the longest [`Head`]: Ethernet, IPv6 and TCP with all its options.
pub const HEAD_LEN_MAX: usize = ETHERNET_LEN + IP_LEN_MAX + MAX_HEADER_LEN;

/// An address of Ethernet.
pub type Mac = [u8; 6];

/// What the virtio-net header of a frame says (OASIS virtio 1.2, section 5.1.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VnetHeader {
    /// VIRTIO_NET_HDR_F_NEEDS_CSUM: the device finishes the checksum.
    pub needs_checksum: bool,
    /// VIRTIO_NET_HDR_GSO_*: 0 none, 1 TCPv4, 4 TCPv6.
    pub gso_type: u8,
    /// Octets of the headers.
    pub header_len: u16,
    /// Octets of data in each segment.
    pub gso_size: u16,
    /// Where the checksummed part begins.
    pub checksum_start: u16,
    /// Where in that part the checksum stands.
    pub checksum_offset: u16,
}

/// The headers of a frame, kept in place: a frame costs no allocation.
#[derive(Clone, Copy)]
pub struct Head {
    octets: [u8; HEAD_LEN_MAX],
    len: u8,
}

impl Head {
    /// Headers begin with these octets.
    ///
    /// # Panics
    /// With more than [`HEAD_LEN_MAX`] of them.
    #[inline]
    pub fn new(first: &[u8]) -> Head {
        let mut head = Head {
            octets: [0; HEAD_LEN_MAX],
            len: 0,
        };
        head.push(first);
        head
    }

    /// More octets follow.
    ///
    /// # Panics
    /// With more than [`HEAD_LEN_MAX`] of them in all.
    #[inline]
    pub fn push(&mut self, octets: &[u8]) {
        let at = usize::from(self.len);
        self.octets[at..at + octets.len()].copy_from_slice(octets);
        self.len += octets.len() as u8;
    }
}

impl Deref for Head {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

impl DerefMut for Head {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.octets[..usize::from(self.len)]
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        **self == **other
    }
}

impl Eq for Head {}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// What follows the headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Nothing.
    Empty,
    /// These octets.
    Octets(Vec<u8>),
    /// A part of what a connection sends, by reference.
    Stream {
        /// The connection.
        connection: ConnectionId,
        /// Offsets in its stream.
        range: Range<u64>,
    },
}

/// A frame to send: headers, then payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Ethernet, IP and TCP headers.
    pub head: Head,
    /// What follows.
    pub payload: Payload,
    /// For a device with a virtio-net header. Its TCP or UDP checksum field holds the sum of the pseudo header; where
    /// the device does not finish it, [`Frame::finish_checksum`] does.
    pub vnet: VnetHeader,
    /// It is for the interface itself: give it to [`super::Stack::handle_frame`] as
    /// [`super::FrameInfo::LOOPED`] and not to the device, which would not bring it back.
    pub looped: bool,
}

impl Frame {
    /// Puts the whole checksum in, for devices that do not. `payload` gives the octets of the payload in pieces. Not
    /// for frames that the device cuts.
    pub fn finish_checksum<'a>(&mut self, payload: impl IntoIterator<Item = &'a [u8]>) {
        if !core::mem::take(&mut self.vnet.needs_checksum) {
            return;
        }
        let start = usize::from(self.vnet.checksum_start);
        let at = start + usize::from(self.vnet.checksum_offset);
        let mut sum = Checksum::default();
        sum.add(&self.head[start..]);
        payload.into_iter().for_each(|octets| sum.add(octets));
        // UDP: 0 would say that there is none (RFC 768). The other zero is as good for TCP.
        let checksum = match sum.finish() {
            0 => 0xffff,
            checksum => checksum,
        };
        self.head[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}
