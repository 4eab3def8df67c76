//! The start of a stream: an MPA Request and its Reply (RFC 5044 section 7.1, RFC 6581), each with the sender's
//! connection data.
//!
//! The Request asks for peer-to-peer mode, so that either end may send first. Markers are never asked for, and an end
//! that asks is refused: what stands between the octets of a stream would have to be told from them one by one.

use weft_iwarp::mpa::frame::{
    Enhanced, FrameError, FrameKind, RtrSet, StartFrame, ENHANCED_LEN, HEADER_LEN, NOT_NEGOTIATED,
};
use weft_iwarp::startup::{Rtr, REVISION_5044, REVISION_6581};

use crate::connection_data::{ConnectionData, ConnectionDataError, CONNECTION_DATA_LEN};

/// Octets of a Request, and the most of a Reply.
pub const START_LEN: usize = HEADER_LEN + ENHANCED_LEN + CONNECTION_DATA_LEN;
/// Octets that tell a Request from a plain program's first octets.
pub const KEY_LEN: usize = 16;

/// Reads that may be outstanding: the ready-to-receive FPDU may be one, and a stream has no others.
const DEPTH: u16 = 1;
/// What a peer may want to have outstanding. It is let have that, and reads nothing.
const PEER_DEPTH_MAX: u16 = 128;

/// Why no stream comes of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartFault {
    /// The octets are no MPA frame.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The peer wants markers.
    #[error("the peer wants markers, which streams do not have")]
    Markers,
    /// Neither RFC 5044's revision nor RFC 6581's.
    #[error("MPA revision {0}")]
    Revision(u8),
    /// The Reply does not answer the peer-to-peer mode that was asked for.
    #[error("a Reply without peer-to-peer mode")]
    PeerToPeer,
    /// The peer is no stream's.
    #[error("{0}")]
    Data(#[from] ConnectionDataError),
    /// The peer refused.
    #[error("the peer refused the connection")]
    Rejected,
}

/// A peer's Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the peer says of itself.
    pub peer: ConnectionData,
    /// Octets of the Request.
    pub len: usize,
    crc: bool,
    revision: u8,
    enhanced: Option<Enhanced>,
}

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// What the peer says of itself.
    pub peer: ConnectionData,
    /// FPDUs carry a CRC, both ways.
    pub crc: bool,
    /// The end that asked sends this first. At the end that answered it says what will come; any FPDU will do.
    pub ready_to_receive: Option<Rtr>,
}

/// Whether a connection's first octets are a Request's, as far as there are any: `None` while that is open.
pub fn is_request(octets: &[u8]) -> Option<bool> {
    let key = FrameKind::Request.key();
    let len = octets.len().min(KEY_LEN);
    if octets[..len] != key[..len] {
        return Some(false);
    }
    (len == KEY_LEN).then_some(true)
}

/// The Request of an end that says this of itself, and wants a CRC or not.
pub fn request(own: &ConnectionData, crc: bool) -> [u8; START_LEN] {
    let frame = StartFrame {
        kind: FrameKind::Request,
        markers: false,
        crc,
        rejected: false,
        reserved: 0,
        revision: REVISION_6581,
        enhanced: Some(Enhanced {
            peer_to_peer: true,
            rtr: RtrSet::WRITE_AND_READ,
            ird: DEPTH,
            ord: DEPTH,
        }),
        private_data: own.to_octets(),
    };
    put(&frame).0
}

/// Reads a Request: it, or how many octets it takes to say more.
///
/// # Errors
/// No stream can come of it.
pub fn read_request(octets: &[u8]) -> Result<Result<Request, usize>, StartFault> {
    let frame = match StartFrame::parse_in_place(FrameKind::Request, octets)? {
        Ok(frame) => frame,
        Err(need) => return Ok(Err(need)),
    };
    check(&frame)?;
    Ok(Ok(Request {
        peer: ConnectionData::from_octets(frame.private_data)?,
        len: frame.wire_len(),
        crc: frame.crc,
        revision: frame.revision,
        enhanced: frame.enhanced,
    }))
}

impl Request {
    /// The Reply of an end that says this of itself and wants a CRC or not, its length, and what is agreed then.
    pub fn accept(&self, own: &ConnectionData, crc: bool) -> ([u8; START_LEN], usize, Agreed) {
        let crc = crc || self.crc;
        let ready_to_receive = self.enhanced.as_ref().and_then(selected);
        let enhanced = self.enhanced.map(|asked| Enhanced {
            peer_to_peer: asked.peer_to_peer,
            rtr: ready_to_receive.map_or(RtrSet::NONE, RtrSet::from),
            ird: negotiated(asked.ord, PEER_DEPTH_MAX),
            ord: negotiated(asked.ird, DEPTH),
        });
        let (octets, len) = put(&StartFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc,
            rejected: false,
            reserved: 0,
            revision: self.revision,
            enhanced,
            private_data: own.to_octets(),
        });
        let agreed = Agreed {
            peer: self.peer,
            crc,
            ready_to_receive,
        };
        (octets, len, agreed)
    }
}

/// The Reply that refuses whatever was asked, and its length.
pub fn reject() -> ([u8; START_LEN], usize) {
    put(&StartFrame {
        kind: FrameKind::Reply,
        markers: false,
        crc: false,
        rejected: true,
        reserved: 0,
        revision: REVISION_5044,
        enhanced: None,
        private_data: [],
    })
}

/// Reads the Reply to [`request`], with the same `crc`: what is agreed and the octets of the Reply, or how many it
/// takes to say more.
///
/// # Errors
/// No stream comes of it.
pub fn read_reply(octets: &[u8], crc: bool) -> Result<Result<(Agreed, usize), usize>, StartFault> {
    let frame = match StartFrame::parse_in_place(FrameKind::Reply, octets)? {
        Ok(frame) => frame,
        Err(need) => return Ok(Err(need)),
    };
    if frame.rejected {
        return Err(StartFault::Rejected);
    }
    check(&frame)?;
    let ready_to_receive = frame.enhanced.as_ref().and_then(selected);
    let agreed = Agreed {
        peer: ConnectionData::from_octets(frame.private_data)?,
        crc: crc || frame.crc,
        ready_to_receive: Some(ready_to_receive.ok_or(StartFault::PeerToPeer)?),
    };
    Ok(Ok((agreed, frame.wire_len())))
}

fn put<P: AsRef<[u8]>>(frame: &StartFrame<P>) -> ([u8; START_LEN], usize) {
    let mut octets = [0; START_LEN];
    let len = frame.put(&mut octets);
    (
        octets,
        len.unwrap_or_else(|| unreachable!("connection data fits")),
    )
}

fn check(frame: &StartFrame<&[u8]>) -> Result<(), StartFault> {
    if frame.markers {
        return Err(StartFault::Markers);
    }
    if !(REVISION_5044..=REVISION_6581).contains(&frame.revision) {
        return Err(StartFault::Revision(frame.revision));
    }
    Ok(())
}

/// Of the kinds of ready-to-receive FPDU that are named, the one that leaves least behind.
fn selected(block: &Enhanced) -> Option<Rtr> {
    let kind = if block.rtr.write {
        Rtr::Write
    } else if block.rtr.read {
        Rtr::Read
    } else if block.rtr.send {
        Rtr::Send
    } else {
        return None;
    };
    block.peer_to_peer.then_some(kind)
}

fn negotiated(asked: u16, max: u16) -> u16 {
    if asked == NOT_NEGOTIATED {
        NOT_NEGOTIATED
    } else {
        asked.min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::Receiver;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::vec::Vec;
    use weft_iwarp::{Initiator, InitiatorEvent, Responder, ResponderEvent, StartConfig};

    fn own(stag: u32) -> ConnectionData {
        Receiver::connection_data(stag, 0x1000, stag + 1, 0x2000)
    }

    fn config(own: &ConnectionData, crc: bool) -> StartConfig {
        StartConfig {
            crc,
            private_data: own.to_octets().to_vec(),
            ..StartConfig::default()
        }
    }

    #[test]
    fn two_streams_agree() {
        for (asked, answered) in [(false, false), (true, false), (false, true)] {
            let octets = request(&own(1), asked);
            let request = read_request(&octets).unwrap().unwrap();
            assert_eq!((request.peer, request.len), (own(1), START_LEN));
            let (reply, len, theirs) = request.accept(&own(5), answered);
            let (ours, read) = read_reply(&reply[..len], asked).unwrap().unwrap();
            assert_eq!(read, len);
            assert_eq!((ours.peer, theirs.peer), (own(5), own(1)));
            assert_eq!(
                (ours.crc, theirs.crc),
                (asked || answered, asked || answered)
            );
            let kinds = (ours.ready_to_receive, theirs.ready_to_receive);
            assert_eq!(kinds, (Some(Rtr::Write), Some(Rtr::Write)));
        }
    }

    #[test]
    fn the_verbs_answer_a_stream() {
        let now = Duration::ZERO;
        let mut responder = Responder::new(StartConfig::default(), now);
        responder.handle_bytes(&request(&own(1), false), now);
        let Some(ResponderEvent::Request(asked)) = responder.poll_event() else {
            panic!("no request");
        };
        assert!(asked.peer_to_peer);
        assert_eq!(asked.private_data, own(1).to_octets());
        let established = responder.accept(own(5).to_octets().to_vec(), 1, 1).unwrap();
        let reply = responder.poll_transmit().unwrap();
        let (agreed, len) = read_reply(&reply, false).unwrap().unwrap();
        assert_eq!((agreed.peer, len), (own(5), reply.len()));
        assert_eq!(
            (agreed.crc, agreed.ready_to_receive),
            (true, established.rtr)
        );
    }

    #[test]
    fn the_verbs_ask_a_stream() {
        let now = Duration::ZERO;
        for (rtr, kind) in [
            (RtrSet::WRITE_AND_READ, Rtr::Write),
            (RtrSet::from(Rtr::Read), Rtr::Read),
            (RtrSet::from(Rtr::Send), Rtr::Send),
        ] {
            let asks = StartConfig {
                rtr,
                ..config(&own(1), true)
            };
            let mut initiator = Initiator::new(asks, now);
            let octets = initiator.poll_transmit().unwrap();
            let request = read_request(&octets).unwrap().unwrap();
            let (reply, len, agreed) = request.accept(&own(5), false);
            assert_eq!((agreed.crc, agreed.ready_to_receive), (true, Some(kind)));
            initiator.handle_bytes(&reply[..len], now);
            let Some(InitiatorEvent::Accepted(established)) = initiator.poll_event() else {
                panic!("not accepted");
            };
            assert_eq!(established.rtr, Some(kind));
            assert_eq!(established.private_data, own(5).to_octets());
        }
    }

    #[test]
    fn a_peer_of_the_first_revision_is_answered_in_it() {
        let asks = StartConfig {
            revision: REVISION_5044,
            ..config(&own(1), false)
        };
        let mut initiator = Initiator::new(asks, Duration::ZERO);
        let octets = initiator.poll_transmit().unwrap();
        let request = read_request(&octets).unwrap().unwrap();
        let (reply, len, agreed) = request.accept(&own(5), false);
        assert_eq!(agreed.ready_to_receive, None);
        initiator.handle_bytes(&reply[..len], Duration::ZERO);
        assert!(matches!(
            initiator.poll_event(),
            Some(InitiatorEvent::Accepted(_))
        ));
    }

    #[test]
    fn what_cannot_be_a_stream_is_refused() {
        let good = request(&own(1), false);
        let refusal = |change: &dyn Fn(&mut [u8])| {
            let mut octets = good;
            change(&mut octets);
            read_request(&octets).unwrap_err()
        };
        assert_eq!(refusal(&|octets| octets[16] |= 0x80), StartFault::Markers);
        assert_eq!(refusal(&|octets| octets[17] = 3), StartFault::Revision(3));
        assert!(matches!(
            refusal(&|octets| octets[24] = 9),
            StartFault::Data(_)
        ));
        let asked = read_request(&good).unwrap().unwrap();
        let (reply, len, _) = asked.accept(&own(5), false);
        let refusal = |change: &dyn Fn(&mut [u8])| {
            let mut octets = reply;
            change(&mut octets);
            read_reply(&octets[..len], false).unwrap_err()
        };
        assert_eq!(
            refusal(&|octets| octets[20] &= !0x80),
            StartFault::PeerToPeer
        );
        let (octets, len) = reject();
        assert_eq!(read_reply(&octets[..len], false), Err(StartFault::Rejected));
    }

    #[test]
    fn a_request_is_told_from_other_octets_at_the_first_that_differs() {
        let octets = request(&own(1), false);
        for len in 0..KEY_LEN {
            assert_eq!(is_request(&octets[..len]), None);
            let mut other = octets[..=len].to_vec();
            other[len] ^= 1;
            assert_eq!(is_request(&other), Some(false));
        }
        assert_eq!(is_request(&octets), Some(true));
    }

    proptest! {
        #[test]
        fn incomplete_frames_ask_for_more(cut in 0..START_LEN) {
            let octets = request(&own(1), false);
            let need = read_request(&octets[..cut]).unwrap().unwrap_err();
            prop_assert!(cut < need && need <= START_LEN);
        }

        #[test]
        fn anything_at_all_is_read_or_refused(behind in proptest::collection::vec(any::<u8>(), 0..80)) {
            for kind in [FrameKind::Request, FrameKind::Reply] {
                let mut octets: Vec<u8> = kind.key().to_vec();
                octets.extend_from_slice(&behind);
                let _ = (read_request(&octets), read_reply(&octets, false));
            }
        }
    }
}
