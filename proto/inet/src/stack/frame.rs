//! Frames that leave.

use crate::checksum::Checksum;
use crate::tcp::ConnectionId;
use alloc::vec::Vec;
use core::ops::Range;

/// Octets of an Ethernet header.
pub const ETHERNET_LEN: usize = 14;

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
    /// Ethernet, IP and TCP or UDP headers.
    pub head: Vec<u8>,
    /// What follows.
    pub payload: Payload,
    /// For a device with a virtio-net header. Its TCP or UDP checksum field holds the sum of the pseudo header; where
    /// the device does not finish it, [`Frame::finish_checksum`] does.
    pub vnet: VnetHeader,
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
