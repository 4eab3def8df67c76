//! The stream under a connected queue pair: both directions of iWARP, and what the two ends agreed on.

use weft_iwarp::{
    Envelope, Established, Fault, FpdusAhead, Inbound, Msn, Outbound, Parse, Role, Rtr, Segment,
    WholeWrite,
};

use super::peer::{Detection, FpduPolicy, MeetingNumber, Peer};

/// A stream whose MPA start-up is over.
#[derive(Debug)]
pub(super) struct Stream {
    inbound: Inbound,
    outbound: Outbound,
    /// RFC 5044 section 7.1.2: the responder sends nothing before the first FPDU arrived.
    may_send: bool,
    /// The responder still swallows a Send that is the ready-to-receive message.
    swallow_rtr_send: bool,
    /// FPDUs are made to fit the EMSS.
    follows_emss: bool,
    detection: Detection,
    /// The peer puts markers in.
    markers_rx: bool,
    /// What a Weft peer is told, once.
    meeting: Option<MeetingNumber>,
    /// Reads this side may have outstanding.
    ord: u16,
    /// Reads the peer may have outstanding here.
    ird: u16,
}

impl Stream {
    /// `emss` is TCP's effective maximum segment size, octets; `aligned` promises the peer that each segment holds
    /// whole FPDUs.
    pub(super) fn new(
        established: &Established,
        emss: usize,
        policy: FpduPolicy,
        aligned: bool,
    ) -> Stream {
        let mut outbound = Outbound::new(established, emss);
        if policy == FpduPolicy::Large {
            outbound.set_mulpdu(weft_iwarp::mpa::fpdu::MAX_ULPDU);
        }
        let is_responder = established.role == Role::Responder;
        Stream {
            inbound: Inbound::new(established),
            outbound,
            may_send: !is_responder,
            swallow_rtr_send: is_responder && established.rtr == Some(Rtr::Send),
            follows_emss: policy != FpduPolicy::Large,
            detection: Detection::new(policy, aligned),
            markers_rx: established.markers_rx,
            meeting: None,
            ord: established.ord,
            ird: established.ird,
        }
    }

    /// Outbound and inbound read limits: `(ORD, IRD)`.
    #[inline]
    pub(super) fn read_limits(&self) -> (u16, u16) {
        (self.ord, self.ird)
    }

    /// Whether another Read without size may be outstanding: one may where the peer allows none.
    #[inline]
    pub(super) fn has_room_to_ask(&self, outstanding: usize) -> bool {
        outstanding < usize::from(self.ord.max(1))
    }

    /// Whether this side may send.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.may_send
    }

    /// The first FPDU lets the responder send (RFC 5044 section 7.1.2, rule 4). Whether this is news.
    #[inline]
    pub(super) fn note_first_segment(&mut self) -> bool {
        !core::mem::replace(&mut self.may_send, true)
    }

    /// A Send that is the ready-to-receive message consumes no receive buffer. It is the first message, empty and
    /// whole.
    #[inline]
    pub(super) fn swallow_rtr(&mut self, len: usize, last: bool) -> bool {
        core::mem::take(&mut self.swallow_rtr_send) && len == 0 && last
    }

    /// Largest ULPDU this side frames at the moment, octets.
    pub(super) fn mulpdu(&self) -> usize {
        self.outbound.mulpdu()
    }

    /// The EMSS changed. FPDUs fit it, unless they are larger anyway.
    pub(super) fn set_emss(&mut self, emss: usize) {
        if self.follows_emss {
            self.outbound.set_emss(emss);
        }
    }

    #[inline]
    pub(super) fn peer(&self) -> Peer {
        self.detection.peer()
    }

    pub(super) fn is_weft(&self) -> bool {
        self.peer() == Peer::Weft
    }

    /// The start-up has shown that the peer is Weft.
    pub(super) fn note_weft(&mut self) {
        self.detection.note_weft();
    }

    /// The tagged offset that announces this side.
    pub(super) fn announcement(&self) -> u64 {
        self.detection.announcement()
    }

    /// A zero-length message of the peer's has `to`. An announcement lets FPDUs grow; gives what the peer is to be told
    /// for it.
    pub(super) fn hear(&mut self, to: u64) -> Option<u64> {
        let heard = self.detection.hear(to)?;
        if let Some(ulpdu) = heard.ulpdu {
            self.outbound.set_mulpdu(ulpdu);
            self.follows_emss = false;
        }
        heard.answer
    }

    /// What a Weft peer is told of where the ends meet.
    pub(super) fn set_meeting(&mut self, number: MeetingNumber) {
        self.meeting = Some(number);
    }

    pub(super) fn take_meeting(&mut self) -> Option<MeetingNumber> {
        self.meeting.take()
    }

    /// Nobody computes or checks a CRC from here on.
    pub(super) fn stop_crc(&mut self) {
        self.inbound.stop_crc();
        self.outbound.stop_crc();
    }

    /// A Read without size was answered.
    pub(super) fn note_answered(&mut self) {
        self.detection.note_answered();
    }

    /// Whether the peer may be asked what it is, with so many Reads outstanding.
    pub(super) fn may_ask_peer(&self, outstanding: usize) -> bool {
        self.detection.may_ask() && self.has_room_to_ask(outstanding)
    }

    /// A ready-to-receive message, or one that asks the peer what it is, leaves, with tagged offset `to`.
    pub(super) fn note_sent(&mut self, kind: Rtr, to: u64) {
        self.detection.note_sent(kind, to);
    }

    /// What the octets at the front of `buf` are.
    #[inline]
    pub(super) fn parse(&mut self, buf: &mut [u8]) -> Result<Parse, Fault> {
        self.inbound.parse(buf)
    }

    /// The RDMA Write at the front of `buf`, if it is one segment and there whole: only its place is to be checked.
    #[inline]
    pub(super) fn whole_write(&self, buf: &[u8]) -> Option<WholeWrite> {
        self.inbound.whole_write(buf)
    }

    /// Such Writes were placed.
    #[inline]
    pub(super) fn note_whole_writes(&mut self) {
        self.inbound.note_whole_writes();
    }

    /// The peer was promised whole FPDUs in each segment.
    #[inline]
    pub(super) fn is_aligned(&self) -> bool {
        self.detection.is_aligned()
    }

    /// The FPDUs in octets that arrived ahead of order, at this offset of the stream; `None` where nothing tells them.
    pub(super) fn fpdus_ahead<'a>(&self, at: u64, octets: &'a [u8]) -> Option<FpdusAhead<'a>> {
        self.inbound
            .fpdus_ahead(at, octets, self.detection.peer_is_aligned())
    }

    /// Order has come to an FPDU whose payload was placed.
    pub(super) fn deliver(&mut self, placed: &Envelope) -> Result<Segment, Fault> {
        self.inbound.deliver(placed)
    }

    /// The octets that were parsed end with an FPDU.
    pub(super) fn is_between_fpdus(&self) -> bool {
        self.inbound.is_between_fpdus()
    }

    /// The Send with this number has begun, and its last segment is still to come.
    pub(super) fn send_is_open(&self, msn: Msn) -> bool {
        self.inbound.send_is_open(msn)
    }

    /// The peer puts markers into what it sends.
    pub(super) fn has_markers(&self) -> bool {
        self.markers_rx
    }

    /// The driver read so many octets of the open segment itself.
    #[inline]
    pub(super) fn placed(&mut self, octets: usize) {
        self.inbound.placed(octets);
    }

    /// Payload octets of the open segment that have not arrived.
    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        self.inbound.outstanding()
    }

    /// Octets between the open segment's payload and the end of the next header.
    pub(super) fn trailer_and_header(&self) -> usize {
        self.inbound.trailer_and_header()
    }

    /// Whether large payloads are sent from where the program has them.
    #[inline]
    pub(super) fn by_reference(&self) -> bool {
        self.outbound.by_reference()
    }

    /// The direction that messages are framed for.
    #[inline]
    pub(super) fn outbound(&mut self) -> &mut Outbound {
        &mut self.outbound
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use weft_iwarp::mpa::fpdu::MAX_ULPDU;

    /// A stream without CRC and markers, on which both sides may have two Reads outstanding.
    pub(in super::super) fn established(role: Role, rtr: Option<Rtr>) -> Established {
        Established {
            role,
            crc: false,
            markers_tx: false,
            markers_rx: false,
            revision: 2,
            peer_to_peer: rtr.is_some(),
            rtr,
            ird: 2,
            ord: 2,
            peer_ird: 2,
            peer_ord: 2,
            private_data: alloc::vec::Vec::new(),
        }
    }

    fn stream(role: Role, rtr: Option<Rtr>, policy: FpduPolicy) -> Stream {
        Stream::new(&established(role, rtr), 1448, policy, false)
    }

    #[test]
    fn a_responder_sends_once_it_has_heard_the_initiator() {
        let mut responder = stream(Role::Responder, None, FpduPolicy::Auto);
        assert!(!responder.may_send());
        assert!(responder.note_first_segment() && responder.may_send());
        assert!(!responder.note_first_segment(), "no news");
        let mut initiator = stream(Role::Initiator, None, FpduPolicy::Auto);
        assert!(initiator.may_send() && !initiator.note_first_segment());
    }

    #[test]
    fn the_first_send_is_swallowed_where_it_is_the_ready_to_receive_message() {
        let of = |role, rtr| stream(role, Some(rtr), FpduPolicy::Auto);
        let mut responder = of(Role::Responder, Rtr::Send);
        assert!(responder.swallow_rtr(0, true));
        assert!(!responder.swallow_rtr(0, true), "the second is a message");
        assert!(!of(Role::Responder, Rtr::Send).swallow_rtr(1, true));
        assert!(!of(Role::Responder, Rtr::Send).swallow_rtr(0, false));
        assert!(!of(Role::Responder, Rtr::Read).swallow_rtr(0, true));
        assert!(!of(Role::Initiator, Rtr::Send).swallow_rtr(0, true));
    }

    #[test]
    fn fpdus_follow_the_emss_until_the_peer_takes_longer_ones() {
        let announcement = stream(Role::Initiator, None, FpduPolicy::Auto).announcement();
        let mut auto = stream(Role::Initiator, None, FpduPolicy::Auto);
        let short = auto.mulpdu();
        auto.set_emss(8948);
        assert!(short < 1448 && auto.mulpdu() > 8000);
        assert_eq!(auto.hear(announcement), Some(announcement));
        auto.set_emss(1448);
        assert_eq!((auto.mulpdu(), auto.peer()), (MAX_ULPDU, Peer::Weft));
        let mut emss = stream(Role::Initiator, None, FpduPolicy::Emss);
        emss.hear(announcement);
        assert_eq!(emss.mulpdu(), short);
        let mut large = stream(Role::Initiator, None, FpduPolicy::Large);
        large.set_emss(1448);
        assert_eq!(large.mulpdu(), MAX_ULPDU);
    }

    #[test]
    fn the_peer_is_asked_once_even_where_no_read_does() {
        let mut none = established(Role::Initiator, None);
        none.ord = 0;
        let mut stream = Stream::new(&none, 1448, FpduPolicy::Auto, false);
        assert!(stream.may_ask_peer(0) && !stream.may_ask_peer(1));
        stream.note_sent(Rtr::Read, 0);
        assert!(!stream.may_ask_peer(0) && stream.has_room_to_ask(0));
    }
}
