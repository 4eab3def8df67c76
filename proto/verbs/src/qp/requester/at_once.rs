//! Short messages that are framed as they are posted.
//!
//! A Send or Write that nothing stands before is framed from the program's own list. The send queue keeps of it what
//! its completion says and what a Terminate may name. To copy the list there first, and to frame it from there in the
//! next pass, takes half as many instructions again.

use weft_iwarp::ddp::{Header, Tagged, Untagged};
use weft_iwarp::{Opcode, QueueNumber};

use super::{Finished, Requester};
use crate::host::Host;
use crate::qp::framing::{Framer, BY_REFERENCE_OCTETS_MIN};
use crate::types::{PostError, SendOp, SendRequest, WcOpcode};

impl Requester {
    /// Posts a plain Send or Write while no request waits to be framed. It is framed at once if it is short; what it
    /// then came to.
    ///
    /// # Errors
    /// As for [`Requester::post`].
    #[inline]
    pub(in crate::qp) fn post_at_once(
        &mut self,
        request: &SendRequest<'_>,
        framer: &mut Framer<'_>,
        host: &mut impl Host,
    ) -> Result<Option<Finished>, PostError> {
        let len = self.queue.check(request, 0, || host.polled_slots())?;
        if !self.frame_whole(request, len as usize, framer, host) {
            self.queue.push_checked(request, len);
            return Ok(None);
        }
        let opcode = match request.op {
            SendOp::Write { .. } => WcOpcode::Write,
            _ => WcOpcode::Send,
        };
        let msn = self.msn.take();
        let sequence = self.queue.push_encoded(request, len, framer.end(), msn);
        Ok(Some(Finished {
            opcode,
            sequence,
            signaled: request.flags.signaled,
            is_local: false,
        }))
    }

    /// Frames a message as one segment. False where it does not fit one, or its octets cannot be had: the general way
    /// then finds that again, and what becomes of it.
    #[inline]
    fn frame_whole(
        &mut self,
        request: &SendRequest<'_>,
        octets: usize,
        framer: &mut Framer<'_>,
        host: &mut impl Host,
    ) -> bool {
        // What is longer goes by reference mostly. A Write without octets may name no memory.
        if octets == 0 || octets >= BY_REFERENCE_OCTETS_MIN || octets > framer.max_payload(false) {
            return false;
        }
        let header = match request.op {
            SendOp::Write { remote_addr, rkey } => Header::Tagged(Tagged {
                last: true,
                opcode: Opcode::WRITE,
                stag: rkey,
                to: remote_addr,
            }),
            _ => Header::Untagged(Untagged {
                last: true,
                opcode: Opcode::send(request.flags.solicited, false),
                invalidate: 0,
                qn: QueueNumber::SEND,
                msn: *self
                    .msn
                    .get_or_insert_with(|| framer.next_msn(QueueNumber::SEND)),
                mo: 0,
            }),
        };
        framer
            .whole_message(&header, request.payload, octets, host)
            .is_ok()
    }
}
