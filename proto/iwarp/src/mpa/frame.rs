//! The MPA Request and Reply frames (RFC 5044 section 7.1.1, RFC 6581 sections 6 and 9).

use crate::wire::u16_at;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Octets before the private data.
pub const HEADER_LEN: usize = 20;
/// The most octets of private data, the enhanced block included.
pub const MAX_PRIVATE_DATA: usize = 512;
/// Octets of the enhanced block at the front of the private data (RFC 6581 section 9).
pub const ENHANCED_LEN: usize = 4;
/// IRD or ORD of this value means: do not negotiate (RFC 6581 section 9.1). Also the largest value of the fields.
pub const NOT_NEGOTIATED: u16 = 0x3fff;

const KEY_LEN: usize = 16;
const M: u8 = 0x80;
const C: u8 = 0x40;
const R: u8 = 0x20;
const S: u8 = 0x10;
const RESERVED: u8 = 0x0f;

/// Which of the two frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameKind {
    /// From the Initiator.
    Request,
    /// From the Responder.
    Reply,
}

impl FrameKind {
    /// The 16 octets a frame of this kind begins with.
    pub const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            FrameKind::Request => b"MPA ID Req Frame",
            FrameKind::Reply => b"MPA ID Rep Frame",
        }
    }
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameKind::Request => "MPA Request",
            FrameKind::Reply => "MPA Reply",
        })
    }
}

/// Kinds of ready-to-receive FPDU (RFC 6581 section 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RtrSet {
    /// Flag B: a zero-length Send. It takes a receive buffer of the Responder.
    pub send: bool,
    /// Flag C: a zero-length RDMA Write.
    pub write: bool,
    /// Flag D: a zero-length RDMA Read.
    pub read: bool,
}

impl RtrSet {
    /// No kind at all.
    pub const NONE: RtrSet = RtrSet {
        send: false,
        write: false,
        read: false,
    };
    /// The two kinds deployed RNICs know.
    pub const WRITE_AND_READ: RtrSet = RtrSet {
        send: false,
        write: true,
        read: true,
    };

    /// The kinds in both sets.
    #[must_use]
    pub const fn and(self, other: RtrSet) -> RtrSet {
        RtrSet {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// No kind is in the set.
    pub const fn is_empty(self) -> bool {
        !self.send && !self.write && !self.read
    }
}

/// The enhanced block (RFC 6581 section 9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Enhanced {
    /// Flag A: the Initiator sends a ready-to-receive FPDU.
    pub peer_to_peer: bool,
    /// Flags B, C and D.
    pub rtr: RtrSet,
    /// 14 bits; [`NOT_NEGOTIATED`] is special.
    pub ird: u16,
    /// 14 bits; [`NOT_NEGOTIATED`] is special.
    pub ord: u16,
}

impl Enhanced {
    const A: u16 = 0x8000;
    const B: u16 = 0x4000;
    const C: u16 = 0x8000;
    const D: u16 = 0x4000;
    const DEPTH: u16 = 0x3fff;

    /// The four octets; IRD and ORD are cut to their 14 bits.
    pub fn to_octets(&self) -> [u8; ENHANCED_LEN] {
        let flag = |set: bool, mask: u16| if set { mask } else { 0 };
        let first = flag(self.peer_to_peer, Enhanced::A)
            | flag(self.rtr.send, Enhanced::B)
            | (self.ird & Enhanced::DEPTH);
        let second = flag(self.rtr.write, Enhanced::C)
            | flag(self.rtr.read, Enhanced::D)
            | (self.ord & Enhanced::DEPTH);
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d]
    }

    /// Reads the four octets.
    pub fn from_octets(octets: [u8; ENHANCED_LEN]) -> Enhanced {
        let (first, second) = (u16_at(&octets, 0), u16_at(&octets, 2));
        Enhanced {
            peer_to_peer: first & Enhanced::A != 0,
            rtr: RtrSet {
                send: first & Enhanced::B != 0,
                write: second & Enhanced::C != 0,
                read: second & Enhanced::D != 0,
            },
            ird: first & Enhanced::DEPTH,
            ord: second & Enhanced::DEPTH,
        }
    }
}

/// An MPA Request or Reply. `P` holds the private data: `Vec<u8>`, or `&[u8]` where nothing may be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartFrame<P = Vec<u8>> {
    /// Request or Reply.
    pub kind: FrameKind,
    /// M: the sender of this frame wants markers in what it receives.
    pub markers: bool,
    /// C: the sender of this frame wants the CRC.
    pub crc: bool,
    /// R: the connection is refused. Means nothing in a Request.
    pub rejected: bool,
    /// The four reserved bits. Weft sends 0; siw marks its large FPDUs with 0x8.
    pub reserved: u8,
    /// 1 RFC 5044, 2 RFC 6581. What to make of others is the receiver's business.
    pub revision: u8,
    /// S with the block it announces. Only revision 2 has it.
    pub enhanced: Option<Enhanced>,
    /// What the ULP gets: private data without the enhanced block.
    pub private_data: P,
}

/// Why octets are no start-up frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum FrameError {
    /// The key is neither frame's.
    #[error("key is not that of an MPA frame")]
    Key,
    /// The key is the other frame's: both ends are Initiators, or both Responders.
    #[error("key is that of the peer's own role")]
    OtherKind,
    /// PD_Length is above 512.
    #[error("PD_Length {0} is above {MAX_PRIVATE_DATA}")]
    PrivateDataLength(u16),
    /// S is set, but PD_Length leaves no room for the enhanced block.
    #[error("PD_Length {0} is too small for flag S")]
    EnhancedLength(u16),
}

impl<P: AsRef<[u8]>> StartFrame<P> {
    /// The octets of the frame; `None` when the private data does not fit.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut octets = vec![0; self.wire_len()];
        self.put(&mut octets).map(|_| octets)
    }

    /// Writes the frame to the front of `out` and gives its length in octets; `None` when the private data does not
    /// fit the frame, or the frame `out`.
    pub fn put(&self, out: &mut [u8]) -> Option<usize> {
        let enhanced = self.enhanced.map(|block| block.to_octets());
        let enhanced: &[u8] = enhanced.as_ref().map_or(&[], |octets| octets);
        let private_data = self.private_data.as_ref();
        let pd_length = enhanced.len() + private_data.len();
        if pd_length > MAX_PRIVATE_DATA {
            return None;
        }
        let flag = |set: bool, mask: u8| if set { mask } else { 0 };
        let flags = flag(self.markers, M)
            | flag(self.crc, C)
            | flag(self.rejected, R)
            | flag(self.enhanced.is_some(), S)
            | (self.reserved & RESERVED);
        let out = out.get_mut(..HEADER_LEN + pd_length)?;
        let (header, behind) = out.split_at_mut(HEADER_LEN);
        header[..KEY_LEN].copy_from_slice(self.kind.key());
        header[KEY_LEN..18].copy_from_slice(&[flags, self.revision]);
        header[18..].copy_from_slice(&(pd_length as u16).to_be_bytes());
        behind[..enhanced.len()].copy_from_slice(enhanced);
        behind[enhanced.len()..].copy_from_slice(private_data);
        Some(HEADER_LEN + pd_length)
    }

    /// Octets of the frame on the wire.
    pub fn wire_len(&self) -> usize {
        let enhanced = if self.enhanced.is_some() {
            ENHANCED_LEN
        } else {
            0
        };
        HEADER_LEN + enhanced + self.private_data.as_ref().len()
    }
}

impl StartFrame {
    /// Reads a frame of this kind at the front of `octets`: the frame, or how many octets it takes to say more.
    /// A frame that cannot be right is refused at its first wrong octet.
    pub fn parse(kind: FrameKind, octets: &[u8]) -> Result<Result<StartFrame, usize>, FrameError> {
        let frame = StartFrame::parse_in_place(kind, octets)?;
        Ok(frame.map(|frame| StartFrame {
            kind: frame.kind,
            markers: frame.markers,
            crc: frame.crc,
            rejected: frame.rejected,
            reserved: frame.reserved,
            revision: frame.revision,
            enhanced: frame.enhanced,
            private_data: frame.private_data.to_vec(),
        }))
    }
}

impl<'a> StartFrame<&'a [u8]> {
    /// [`StartFrame::parse`] that leaves the private data where it is.
    pub fn parse_in_place(
        kind: FrameKind,
        octets: &'a [u8],
    ) -> Result<Result<StartFrame<&'a [u8]>, usize>, FrameError> {
        check_key(kind, octets)?;
        let Some(header) = octets.get(..HEADER_LEN) else {
            return Ok(Err(HEADER_LEN));
        };
        let (flags, revision, pd_length) = (header[16], header[17], u16_at(header, 18));
        // Before revision 2 the bit of S is reserved.
        let has_enhanced = flags & S != 0 && revision >= 2;
        if usize::from(pd_length) > MAX_PRIVATE_DATA {
            return Err(FrameError::PrivateDataLength(pd_length));
        }
        if has_enhanced && usize::from(pd_length) < ENHANCED_LEN {
            return Err(FrameError::EnhancedLength(pd_length));
        }
        let len = HEADER_LEN + usize::from(pd_length);
        let Some(private_data) = octets.get(HEADER_LEN..len) else {
            return Ok(Err(len));
        };
        let (enhanced, private_data) = match private_data.split_first_chunk() {
            Some((block, rest)) if has_enhanced => (Some(Enhanced::from_octets(*block)), rest),
            _ => (None, private_data),
        };
        Ok(Ok(StartFrame {
            kind,
            markers: flags & M != 0,
            crc: flags & C != 0,
            rejected: flags & R != 0,
            reserved: flags & RESERVED,
            revision,
            enhanced,
            private_data,
        }))
    }
}

/// As much of the key as is there is right. The first wrong octet says whose it is, so that the answer does not
/// depend on how many came with it.
fn check_key(kind: FrameKind, octets: &[u8]) -> Result<(), FrameError> {
    let other = match kind {
        FrameKind::Request => FrameKind::Reply,
        FrameKind::Reply => FrameKind::Request,
    };
    let keys = kind.key().iter().zip(other.key());
    for (octet, (right, others)) in octets.iter().zip(keys) {
        if octet != right {
            return Err(if octet == others {
                FrameError::OtherKind
            } else {
                FrameError::Key
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn enhanced()(peer_to_peer: bool, send: bool, write: bool, read: bool, ird in 0u16..0x4000, ord in 0u16..0x4000)
            -> Enhanced {
            Enhanced { peer_to_peer, rtr: RtrSet { send, write, read }, ird, ord }
        }
    }

    prop_compose! {
        fn frame()(
            request: bool, markers: bool, crc: bool, rejected: bool, reserved in 0u8..16,
            (revision, enhanced) in prop_oneof![
                (0u8..=255).prop_map(|revision| (revision, None)),
                (2u8..=255, enhanced()).prop_map(|(revision, block)| (revision, Some(block))),
            ],
            private_data in proptest::collection::vec(any::<u8>(), 0..=508),
        ) -> StartFrame {
            let kind = if request { FrameKind::Request } else { FrameKind::Reply };
            StartFrame { kind, markers, crc, rejected, reserved, revision, enhanced, private_data }
        }
    }

    proptest! {
        #[test]
        fn round_trip(frame in frame(), behind in proptest::collection::vec(any::<u8>(), 0..9)) {
            let mut octets = frame.encode().unwrap();
            prop_assert_eq!(octets.len(), frame.wire_len());
            octets.extend_from_slice(&behind);
            prop_assert_eq!(StartFrame::parse(frame.kind, &octets), Ok(Ok(frame)));
        }

        /// What it asks for is never more than the frame has, and always more than there is.
        #[test]
        fn incomplete_frames_ask_for_more(frame in frame()) {
            let octets = frame.encode().unwrap();
            for cut in 0..octets.len() {
                let need = StartFrame::parse(frame.kind, &octets[..cut]).unwrap().unwrap_err();
                prop_assert!(cut < need && need <= octets.len());
            }
        }
    }

    fn empty(kind: FrameKind) -> StartFrame {
        StartFrame {
            kind,
            markers: false,
            crc: false,
            rejected: false,
            reserved: 0,
            revision: 1,
            enhanced: None,
            private_data: Vec::new(),
        }
    }

    /// The four frames the wire reference writes out.
    #[test]
    fn written_out_frames() {
        let mut request = empty(FrameKind::Request);
        request.crc = true;
        assert_eq!(
            request.encode().unwrap(),
            b"MPA ID Req Frame\x40\x01\x00\x00"
        );

        request.revision = 2;
        request.enhanced = Some(Enhanced {
            peer_to_peer: true,
            rtr: RtrSet::WRITE_AND_READ,
            ird: 32,
            ord: 32,
        });
        let octets = b"MPA ID Req Frame\x50\x02\x00\x04\x80\x20\xc0\x20";
        assert_eq!(request.encode().unwrap(), octets);

        let mut reply = request.clone();
        reply.kind = FrameKind::Reply;
        reply.enhanced.as_mut().unwrap().rtr.write = false;
        let octets = b"MPA ID Rep Frame\x50\x02\x00\x04\x80\x20\x40\x20";
        assert_eq!(reply.encode().unwrap(), octets);

        let mut reject = empty(FrameKind::Reply);
        reject.rejected = true;
        assert_eq!(
            reject.encode().unwrap(),
            b"MPA ID Rep Frame\x20\x01\x00\x00"
        );
    }

    #[test]
    fn a_wrong_key_is_refused_at_its_first_wrong_octet() {
        assert_eq!(
            StartFrame::parse(FrameKind::Request, b"GET"),
            Err(FrameError::Key)
        );
        assert_eq!(
            StartFrame::parse(FrameKind::Request, b"MPA ID Re"),
            Ok(Err(HEADER_LEN))
        );
        assert_eq!(
            StartFrame::parse(FrameKind::Request, b"MPA ID Rep"),
            Err(FrameError::OtherKind)
        );
        assert_eq!(
            StartFrame::parse(FrameKind::Reply, b"MPA ID Rep frame"),
            Err(FrameError::Key)
        );
    }

    #[test]
    fn private_data_lengths() {
        let mut frame = empty(FrameKind::Request);
        frame.private_data = vec![7; 513];
        assert_eq!(frame.encode(), None);
        frame.private_data.pop();
        assert_eq!(frame.encode().unwrap().len(), 532);
        assert_eq!(frame.put(&mut [0; 531]), None, "there is no room for it");

        let too_long = b"MPA ID Req Frame\x00\x01\x02\x01";
        assert_eq!(
            StartFrame::parse(FrameKind::Request, too_long),
            Err(FrameError::PrivateDataLength(513))
        );
        let no_block = b"MPA ID Req Frame\x10\x02\x00\x03";
        assert_eq!(
            StartFrame::parse(FrameKind::Request, no_block),
            Err(FrameError::EnhancedLength(3))
        );
    }

    #[test]
    fn flag_s_means_nothing_in_revision_1() {
        let octets = b"MPA ID Req Frame\x10\x01\x00\x00";
        let frame = StartFrame::parse(FrameKind::Request, octets)
            .unwrap()
            .unwrap();
        assert_eq!(frame.enhanced, None);
    }
}
