//! How two Weft peers find each other.
//!
//! RFC 5044 gives a receiver no way to say which FPDU it likes, hardware is known to choke on
//! large ones, and an echoed start-up flag proves nothing. But the STag and TO of a zero-length
//! Write or Read are free and must not be checked (RFC 5041 section 5.2), so the initiator's
//! ready-to-receive message carries an announcement in its TO, and a responder that knows the
//! announcement answers with a zero-length Write that carries one too. Anybody else ignores
//! both. See decision 0004.
//!
//! A side that has to know and was told nothing asks: it sends a zero-length Read with an
//! announcement. Every peer answers that, a Weft peer with its announcement first.

use weft_iwarp::{ReadRequest, Rtr, Stag};

use super::requester::Step;
use super::{FpduPolicy, Peer, Qp};

/// The upper six octets of an announcement.
const MAGIC: u64 = 0x5745_4654_0001_0000;

/// The upper octets of what a question tells (`acknowledged`).
const RETRIES: u64 = 0x5745_4654_0002_0000;

/// The tagged offset that says how often a Send of this side's may find no receive.
pub(super) const fn retries_told(count: u8) -> u64 {
    RETRIES | count as u64
}

/// The count, if `to` tells one.
fn retries_heard(to: u64) -> Option<u8> {
    let count = (to & 0xFF) as u8;
    (to == retries_told(count)).then_some(count)
}

/// What a Weft peer says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Announcement {
    /// The longest ULPDU it takes, where that is more than the EMSS allows.
    ulpdu: Option<usize>,
}

/// The tagged offset that says: this side is Weft, and takes ULPDUs up to the MPA maximum unless
/// they are to stay at the EMSS.
pub(super) const fn announcement(policy: FpduPolicy) -> u64 {
    MAGIC
        | match policy {
            FpduPolicy::Emss => 0,
            FpduPolicy::Auto | FpduPolicy::Large => weft_iwarp::mpa::fpdu::MAX_ULPDU as u64,
        }
}

/// What the peer says of itself, if `to` is an announcement.
pub(super) fn announced(to: u64) -> Option<Announcement> {
    let ulpdu = (to & 0xFFFF) as usize;
    let ulpdu = match ulpdu {
        0 => None,
        1..128 => return None,
        128.. => Some(ulpdu.min(weft_iwarp::mpa::fpdu::MAX_ULPDU)),
    };
    (to & !0xFFFF == MAGIC).then_some(Announcement { ulpdu })
}

impl Qp {
    /// Whether the peer is known to be Weft.
    pub fn peer_is_weft(&self) -> bool {
        self.stream.as_ref().is_some_and(|s| s.peer == Peer::Weft)
    }

    /// The driver knows from the start-up that the peer is Weft.
    pub fn set_peer_is_weft(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.peer = Peer::Weft;
        }
    }

    pub(super) fn note_zero_length_write(&mut self, stag: Stag, to: u64) {
        if stag == Stag::RTR {
            self.note_announcement(to);
        }
    }

    pub(super) fn note_read_request(&mut self, request: &ReadRequest) {
        if request.size == 0 && request.sink_stag == Stag::RTR {
            self.note_announcement(request.sink_to);
            if let Some(count) = retries_heard(request.sink_to) {
                self.receiving.retries = Some(count);
            }
        }
    }

    /// A Weft peer says what it is; it is told the same, once.
    fn note_announcement(&mut self, to: u64) {
        let (Some(stream), Some(announcement)) = (&mut self.stream, announced(to)) else {
            return;
        };
        stream.peer = Peer::Weft;
        if let (Some(ulpdu), true) = (announcement.ulpdu, stream.fpdu_policy != FpduPolicy::Emss) {
            stream.outbound.set_mulpdu(ulpdu);
            stream.follows_emss = false;
        }
        if !stream.announced {
            stream.announced = true;
            let own = self::announcement(stream.fpdu_policy);
            self.requester.queue_announcement(own);
        }
    }

    /// A Read without size was answered. A Weft peer would have announced itself before.
    pub(super) fn note_detection_response(&mut self) {
        if let Some(stream) = &mut self.stream {
            if stream.peer == Peer::Unknown {
                stream.peer = Peer::Foreign;
            }
        }
    }

    /// Asks the peer what it is. It answers such a Read even where it allows no Reads.
    pub(super) fn detect_peer(&mut self) -> Step {
        let outstanding = self.reads.len();
        if let Some(stream) = &mut self.stream {
            if !stream.detection_sent && outstanding < usize::from(stream.ord.max(1)) {
                stream.detection_sent = true;
                let to = announcement(stream.fpdu_policy);
                self.requester.queue_rtr(Rtr::Read, to);
                self.frame_control();
            }
        }
        Step::Blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: usize = weft_iwarp::mpa::fpdu::MAX_ULPDU;

    #[test]
    fn only_an_announcement_is_one() {
        let large = announcement(FpduPolicy::Auto);
        let says = |ulpdu| Some(Announcement { ulpdu });
        assert_eq!(announced(large), says(Some(LONGEST)));
        assert_eq!(announced(announcement(FpduPolicy::Emss)), says(None));
        for other in [0, 1, u64::MAX, MAGIC | 1, MAGIC | 127, large ^ (1 << 40)] {
            assert_eq!(announced(other), None, "{other:#x}");
        }
        assert_eq!(announced(MAGIC | 0xFFFF), says(Some(LONGEST)), "clamped");
    }

    #[test]
    fn a_count_of_retries_is_told_and_heard() {
        for count in [0, 1, 6, 7, 255] {
            assert_eq!(retries_heard(retries_told(count)), Some(count));
            assert_eq!(announced(retries_told(count)), None);
        }
        for other in [0, u64::MAX, RETRIES | 256, announcement(FpduPolicy::Auto)] {
            assert_eq!(retries_heard(other), None, "{other:#x}");
        }
    }
}
