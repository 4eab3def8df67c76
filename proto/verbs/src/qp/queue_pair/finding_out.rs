//! What two peers tell each other in the tagged offsets of messages without octets (`peer`).

use weft_iwarp::{ReadRequest, Rtr, Stag};

use super::Qp;
use crate::qp::ending::QpEvent;
use crate::qp::peer::{self, MeetingNumber};
use crate::qp::stream::Stream;

impl Qp {
    /// Whether the peer is known to be Weft.
    pub fn peer_is_weft(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_weft)
    }

    /// The driver knows from the start-up that the peer is Weft.
    pub fn set_peer_is_weft(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.note_weft();
        }
    }

    /// A peer that announces itself is told this number behind this side's own announcement: it may be on the same
    /// machine.
    pub fn set_meeting(&mut self, number: MeetingNumber) {
        if let Some(stream) = &mut self.stream {
            stream.set_meeting(number);
        }
    }

    /// Octets come and go through memory that both ends share from here on: nobody computes or checks a CRC of them.
    /// The peer knows, and does the same.
    pub fn stop_crc(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.stop_crc();
        }
    }

    /// The initiator's ready-to-receive message, where one was agreed on, announces it.
    pub(super) fn say_ready_to_receive(&mut self, kind: Option<Rtr>) {
        if let (Some(stream), Some(kind)) = (&self.stream, kind) {
            self.control.queue_rtr(kind, stream.announcement());
            // Framed now: it goes out even if the program disconnects at once.
            self.frame_control();
        }
    }

    /// A Read Request came, which may be an announcement, or say how often a Send of the peer's may find no receive.
    pub(super) fn hear_read(&mut self, request: &ReadRequest) {
        if request.size == 0 && request.sink_stag == Stag::RTR {
            self.hear(request.sink_stag, request.sink_to);
            if let Some(count) = peer::retries_heard(request.sink_to) {
                self.rnr.note_retries_of_peer(count);
            }
        }
    }

    /// A message without octets came. A Weft peer that says what it is is told the same, once.
    pub(super) fn hear(&mut self, stag: Stag, to: u64) {
        let Some(stream) = self.stream.as_mut().filter(|_| stag == Stag::RTR) else {
            return;
        };
        if let Some(answer) = stream.hear(to) {
            self.control.queue_announcement(answer);
            if let Some(number) = stream.take_meeting() {
                self.control.queue_meeting(peer::meeting_told(number));
            }
        }
        if let Some(number) = peer::meeting_heard(to) {
            self.events.push_back(QpEvent::Meeting(number));
        }
    }

    /// Asks the peer what it is, once. It answers such a Read even where it allows no Reads.
    pub(super) fn ask_peer(&mut self) {
        let outstanding = self.reads.len();
        if let Some(stream) = self.stream.as_ref().filter(|s| s.may_ask_peer(outstanding)) {
            self.control.queue_rtr(Rtr::Read, stream.announcement());
            self.frame_control();
        }
    }
}
