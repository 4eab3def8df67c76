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

use weft_iwarp::Rtr;

/// How large FPDUs may become (decision 0004).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FpduPolicy {
    /// To the EMSS, larger with a peer that has shown to be Weft.
    #[default]
    Auto,
    /// Never larger than the EMSS.
    Emss,
    /// As large as MPA allows, whoever the peer is.
    Large,
}

/// What the other end of a stream is known to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Peer {
    /// It has shown neither.
    #[default]
    Unknown,
    /// It has announced itself; it knows what no RFC says.
    Weft,
    /// It answered without announcing itself.
    Foreign,
}

/// The upper six octets of an announcement.
const MAGIC: u64 = 0x5745_4654_0001_0000;

/// The upper octets of what an acknowledgement request tells (`acknowledgements`).
const RETRIES: u64 = 0x5745_4654_0002_0000;

/// The tagged offset that says how often a Send of this side's may find no receive.
pub(super) const fn retries_told(count: u8) -> u64 {
    RETRIES | count as u64
}

/// The count, if `to` tells one.
pub(super) fn retries_heard(to: u64) -> Option<u8> {
    let count = (to & 0xFF) as u8;
    (to == retries_told(count)).then_some(count)
}

/// In the lower octets of an announcement, beside the length, which is even: each TCP segment holds whole FPDUs.
const ALIGNED: u64 = 1;
/// The upper octets of what says where the rings of two ends on one machine are to be had.
const MEETING: u64 = 0x5746_0000_0000_0000;

/// Says to a Weft peer where the ends meet, if both are on one machine: a random number of 48 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MeetingNumber(u64);

impl MeetingNumber {
    /// The lower 48 bits of `number`.
    pub fn new(number: u64) -> MeetingNumber {
        MeetingNumber(number & !(0xFFFF << 48))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The tagged offset that tells the number.
pub(super) const fn meeting_told(number: MeetingNumber) -> u64 {
    MEETING | number.0
}

/// The number, if `to` tells one.
pub(super) fn meeting_heard(to: u64) -> Option<MeetingNumber> {
    let number = MeetingNumber::new(to);
    (to == meeting_told(number)).then_some(number)
}

/// What a Weft peer says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Announcement {
    /// The longest ULPDU it takes, where that is more than the EMSS allows.
    ulpdu: Option<usize>,
    /// It puts whole FPDUs into each segment.
    aligned: bool,
}

/// The tagged offset that says: this side is Weft, and takes ULPDUs up to the MPA maximum unless
/// they are to stay at the EMSS. `aligned` says that its segments hold whole FPDUs.
const fn announcement(policy: FpduPolicy, aligned: bool) -> u64 {
    MAGIC
        | if aligned { ALIGNED } else { 0 }
        | match policy {
            FpduPolicy::Emss => 0,
            FpduPolicy::Auto | FpduPolicy::Large => weft_iwarp::mpa::fpdu::MAX_ULPDU as u64,
        }
}

/// What the peer says of itself, if `to` is an announcement.
fn announced(to: u64) -> Option<Announcement> {
    let aligned = to & ALIGNED != 0;
    let ulpdu = (to & 0xFFFF & !ALIGNED) as usize;
    let ulpdu = match ulpdu {
        0 => None,
        1..128 => return None,
        128.. => Some(ulpdu.min(weft_iwarp::mpa::fpdu::MAX_ULPDU)),
    };
    (to & !0xFFFF == MAGIC).then_some(Announcement { ulpdu, aligned })
}

/// How far two ends have found out about each other.
#[derive(Debug)]
pub(super) struct Detection {
    policy: FpduPolicy,
    /// This side puts whole FPDUs into each segment.
    aligned: bool,
    peer: Peer,
    /// So does the peer, as it said.
    peer_is_aligned: bool,
    /// This side has told the peer that it is Weft, or is about to.
    announced: bool,
    /// The peer was asked what it is.
    asked: bool,
}

/// What follows from an announcement of the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heard {
    /// ULPDUs may be as long as this.
    pub(super) ulpdu: Option<usize>,
    /// The tagged offset that tells the peer the same of this side; it is told once.
    pub(super) answer: Option<u64>,
}

impl Detection {
    pub(super) fn new(policy: FpduPolicy, aligned: bool) -> Detection {
        Detection {
            policy,
            aligned,
            peer: Peer::Unknown,
            peer_is_aligned: false,
            announced: false,
            asked: false,
        }
    }

    #[inline]
    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// The peer said that it puts whole FPDUs into each segment.
    pub(super) fn peer_is_aligned(&self) -> bool {
        self.peer_is_aligned
    }

    /// The start-up has shown that the peer is Weft.
    pub(super) fn note_weft(&mut self) {
        self.peer = Peer::Weft;
    }

    /// This side puts whole FPDUs into each segment.
    #[inline]
    pub(super) fn is_aligned(&self) -> bool {
        self.aligned
    }

    /// The tagged offset that announces this side.
    pub(super) fn announcement(&self) -> u64 {
        announcement(self.policy, self.aligned)
    }

    /// A zero-length message of the peer's has `to`: what follows if that is an announcement.
    pub(super) fn hear(&mut self, to: u64) -> Option<Heard> {
        let announcement = announced(to)?;
        self.peer = Peer::Weft;
        self.peer_is_aligned = announcement.aligned;
        let answers = !core::mem::replace(&mut self.announced, true);
        Some(Heard {
            ulpdu: announcement
                .ulpdu
                // An FPDU longer than a segment is in none of them whole.
                .filter(|_| self.policy != FpduPolicy::Emss && !self.aligned),
            answer: answers.then(|| self.announcement()),
        })
    }

    /// A Read without size was answered. A Weft peer would have announced itself before.
    pub(super) fn note_answered(&mut self) {
        if self.peer == Peer::Unknown {
            self.peer = Peer::Foreign;
        }
    }

    /// Whether the peer may still be asked what it is.
    pub(super) fn may_ask(&self) -> bool {
        !self.asked
    }

    /// A ready-to-receive message, or one that asks the peer what it is, leaves with tagged offset `to`.
    pub(super) fn note_sent(&mut self, kind: Rtr, to: u64) {
        self.asked |= kind == Rtr::Read;
        self.announced |= announced(to).is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: usize = weft_iwarp::mpa::fpdu::MAX_ULPDU;

    #[test]
    fn only_an_announcement_is_one() {
        let large = announcement(FpduPolicy::Auto, false);
        let aligned = |ulpdu, aligned| Some(Announcement { ulpdu, aligned });
        let says = |ulpdu| aligned(ulpdu, false);
        assert_eq!(announced(large), says(Some(LONGEST)));
        assert_eq!(announced(announcement(FpduPolicy::Emss, false)), says(None));
        for other in [0, 1, u64::MAX, MAGIC | 2, MAGIC | 127, large ^ (1 << 40)] {
            assert_eq!(announced(other), None, "{other:#x}");
        }
        assert_eq!(announced(MAGIC | 0xFFFE), says(Some(LONGEST)), "clamped");
        assert_eq!(announced(large | 1), aligned(Some(LONGEST), true));
        assert_eq!(
            announced(announcement(FpduPolicy::Emss, true)),
            aligned(None, true)
        );
    }

    #[test]
    fn a_count_of_retries_is_told_and_heard() {
        for count in [0, 1, 6, 7, 255] {
            assert_eq!(retries_heard(retries_told(count)), Some(count));
            assert_eq!(announced(retries_told(count)), None);
        }
        for other in [
            0,
            u64::MAX,
            RETRIES | 256,
            announcement(FpduPolicy::Auto, false),
        ] {
            assert_eq!(retries_heard(other), None, "{other:#x}");
        }
    }

    #[test]
    fn a_meeting_number_is_told_and_heard() {
        for number in [0, 1, 0x1234_5678_9ABC, u64::MAX].map(MeetingNumber::new) {
            let to = meeting_told(number);
            assert_eq!(meeting_heard(to), Some(number));
            assert_eq!((announced(to), retries_heard(to)), (None, None));
        }
        for other in [
            0,
            1,
            u64::MAX,
            RETRIES,
            announcement(FpduPolicy::Auto, true),
        ] {
            assert_eq!(meeting_heard(other), None, "{other:#x}");
        }
    }

    #[test]
    fn a_weft_peer_is_told_the_same_once() {
        let mut detection = Detection::new(FpduPolicy::Auto, false);
        assert_eq!(detection.hear(0), None);
        assert_eq!(detection.peer(), Peer::Unknown);
        let heard = detection.hear(announcement(FpduPolicy::Large, false));
        let answer = Some(announcement(FpduPolicy::Auto, false));
        let ulpdu = Some(LONGEST);
        assert_eq!(heard, Some(Heard { ulpdu, answer }));
        assert_eq!(detection.peer(), Peer::Weft);
        let again = detection.hear(announcement(FpduPolicy::Emss, false));
        let (ulpdu, answer) = (None, None);
        assert_eq!(again, Some(Heard { ulpdu, answer }));
    }

    #[test]
    fn who_keeps_to_the_emss_does_so_whatever_the_peer_takes() {
        let mut detection = Detection::new(FpduPolicy::Emss, false);
        let heard = detection.hear(announcement(FpduPolicy::Auto, false));
        assert_eq!(heard.and_then(|heard| heard.ulpdu), None);
    }

    #[test]
    fn who_promises_whole_fpdus_in_each_segment_frames_them_so() {
        let mut detection = Detection::new(FpduPolicy::Auto, true);
        let heard = detection.hear(announcement(FpduPolicy::Auto, false));
        let (ulpdu, answer) = (None, Some(announcement(FpduPolicy::Auto, true)));
        assert_eq!(heard, Some(Heard { ulpdu, answer }));
        assert!(!detection.peer_is_aligned());
        let mut peer = Detection::new(FpduPolicy::Auto, false);
        let heard = peer.hear(answer.unwrap());
        assert_eq!(heard.and_then(|heard| heard.ulpdu), Some(LONGEST));
        assert!(peer.peer_is_aligned());
    }

    #[test]
    fn who_has_announced_itself_does_not_answer() {
        let mut detection = Detection::new(FpduPolicy::Auto, false);
        detection.note_sent(Rtr::Write, detection.announcement());
        let heard = detection.hear(announcement(FpduPolicy::Auto, false));
        assert_eq!(heard.and_then(|heard| heard.answer), None);
        assert!(detection.may_ask(), "a Write asks nothing");
        detection.note_sent(Rtr::Read, 0);
        assert!(!detection.may_ask());
    }

    #[test]
    fn an_answer_without_announcement_is_a_foreign_peers() {
        let mut detection = Detection::new(FpduPolicy::Auto, false);
        detection.note_answered();
        assert_eq!(detection.peer(), Peer::Foreign);
        let mut detection = Detection::new(FpduPolicy::Auto, false);
        detection.note_weft();
        detection.note_answered();
        assert_eq!(detection.peer(), Peer::Weft);
    }
}
