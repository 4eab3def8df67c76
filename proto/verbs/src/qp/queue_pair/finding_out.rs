//! What two peers tell each other in the tagged offsets of messages without octets (`peer`).

use weft_iwarp::{ReadRequest, Rtr, Stag};

use super::Qp;
use crate::qp::peer;
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
        let stream = self.stream.as_mut().filter(|_| stag == Stag::RTR);
        if let Some(answer) = stream.and_then(|stream| stream.hear(to)) {
            self.control.queue_announcement(answer);
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
