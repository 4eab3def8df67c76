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

/// What a Weft peer says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Announcement {
    /// The longest ULPDU it takes, where that is more than the EMSS allows.
    ulpdu: Option<usize>,
}

/// The tagged offset that says: this side is Weft, and takes ULPDUs up to the MPA maximum unless
/// they are to stay at the EMSS.
const fn announcement(policy: FpduPolicy) -> u64 {
    MAGIC
        | match policy {
            FpduPolicy::Emss => 0,
            FpduPolicy::Auto | FpduPolicy::Large => weft_iwarp::mpa::fpdu::MAX_ULPDU as u64,
        }
}

/// What the peer says of itself, if `to` is an announcement.
fn announced(to: u64) -> Option<Announcement> {
    let ulpdu = (to & 0xFFFF) as usize;
    let ulpdu = match ulpdu {
        0 => None,
        1..128 => return None,
        128.. => Some(ulpdu.min(weft_iwarp::mpa::fpdu::MAX_ULPDU)),
    };
    (to & !0xFFFF == MAGIC).then_some(Announcement { ulpdu })
}

/// How far two ends have found out about each other.
#[derive(Debug)]
pub(super) struct Detection {
    policy: FpduPolicy,
    peer: Peer,
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
    pub(super) fn new(policy: FpduPolicy) -> Detection {
        Detection {
            policy,
            peer: Peer::Unknown,
            announced: false,
            asked: false,
        }
    }

    #[inline]
    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// The start-up has shown that the peer is Weft.
    pub(super) fn note_weft(&mut self) {
        self.peer = Peer::Weft;
    }

    /// The tagged offset that announces this side.
    pub(super) fn announcement(&self) -> u64 {
        announcement(self.policy)
    }

    /// A zero-length message of the peer's has `to`: what follows if that is an announcement.
    pub(super) fn hear(&mut self, to: u64) -> Option<Heard> {
        let announcement = announced(to)?;
        self.peer = Peer::Weft;
        let answers = !core::mem::replace(&mut self.announced, true);
        Some(Heard {
            ulpdu: announcement
                .ulpdu
                .filter(|_| self.policy != FpduPolicy::Emss),
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

    #[test]
    fn a_weft_peer_is_told_the_same_once() {
        let mut detection = Detection::new(FpduPolicy::Auto);
        assert_eq!(detection.hear(0), None);
        assert_eq!(detection.peer(), Peer::Unknown);
        let heard = detection.hear(announcement(FpduPolicy::Large));
        let answer = Some(announcement(FpduPolicy::Auto));
        let ulpdu = Some(LONGEST);
        assert_eq!(heard, Some(Heard { ulpdu, answer }));
        assert_eq!(detection.peer(), Peer::Weft);
        let again = detection.hear(announcement(FpduPolicy::Emss));
        let (ulpdu, answer) = (None, None);
        assert_eq!(again, Some(Heard { ulpdu, answer }));
    }

    #[test]
    fn who_keeps_to_the_emss_does_so_whatever_the_peer_takes() {
        let mut detection = Detection::new(FpduPolicy::Emss);
        let heard = detection.hear(announcement(FpduPolicy::Auto));
        assert_eq!(heard.and_then(|heard| heard.ulpdu), None);
    }

    #[test]
    fn who_has_announced_itself_does_not_answer() {
        let mut detection = Detection::new(FpduPolicy::Auto);
        detection.note_sent(Rtr::Write, detection.announcement());
        let heard = detection.hear(announcement(FpduPolicy::Auto));
        assert_eq!(heard.and_then(|heard| heard.answer), None);
        assert!(detection.may_ask(), "a Write asks nothing");
        detection.note_sent(Rtr::Read, 0);
        assert!(!detection.may_ask());
    }

    #[test]
    fn an_answer_without_announcement_is_a_foreign_peers() {
        let mut detection = Detection::new(FpduPolicy::Auto);
        detection.note_answered();
        assert_eq!(detection.peer(), Peer::Foreign);
        let mut detection = Detection::new(FpduPolicy::Auto);
        detection.note_weft();
        detection.note_answered();
        assert_eq!(detection.peer(), Peer::Weft);
    }
}
