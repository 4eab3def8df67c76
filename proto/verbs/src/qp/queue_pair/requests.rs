//! What requests of one side become at the other: the peer's Read and Atomic Requests, and the answers to this side's.

use weft_iwarp::{AtomicResponse, Fault, Header};

use super::Qp;
use crate::host::Host;
use crate::qp::atomics;
use crate::qp::reads::Answered;
use crate::qp::responder::Request;
use crate::scatter::scatter;
use crate::types::WcStatus;

impl Qp {
    /// A request of the peer's. It sees what earlier messages placed, so it waits behind those that wait (RFC 5040
    /// section 5.5, rule 12).
    pub(super) fn take_request(
        &mut self,
        request: Request,
        header: Header,
        host: &impl Host,
    ) -> Result<(), Fault> {
        let ird = self.stream.as_ref().map_or(0, |s| s.read_limits().1);
        let held = self.rnr_queue.requests();
        self.responder
            .check(&request, header, (held, ird), &self.attributes, host)?;
        if self.rnr_queue.is_empty() {
            self.responder.push(request, header);
        } else {
            self.rnr_queue.push_request(request, header);
        }
        Ok(())
    }

    pub(super) fn take_atomic_response(
        &mut self,
        response: AtomicResponse,
        header: Header,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let Some(list) = self.reads.take_atomic(response.identifier) else {
            return Err(atomics::unexpected_response(header));
        };
        // The value goes to the program in the machine's own byte order.
        let octets = response.original.to_ne_bytes();
        let scope = self.attributes.scope();
        if scatter(list.as_slice(), 0, &octets, scope, host).is_err() {
            self.requester
                .fail_oldest_awaiting(WcStatus::LocalProtection);
            self.end_locally(host);
            return Ok(());
        }
        self.counters.octets_placed += octets.len() as u64;
        self.finish_oldest_awaiting(host);
        Ok(())
    }

    /// The last octet of a Read Response is placed: the Read is done.
    pub(super) fn finish_read(&mut self, host: &mut impl Host) {
        match self.reads.finish() {
            Some(Answered::Request) => self.finish_oldest_awaiting(host),
            Some(Answered::Acknowledgement(sequence)) => {
                self.acknowledgements.note_answer(sequence);
                self.complete_sends(host);
            }
            Some(Answered::Internal) => {
                if let Some(stream) = &mut self.stream {
                    stream.note_answered();
                }
            }
            None => {}
        }
    }

    /// The oldest request that awaits a response has it; what was posted before it is placed.
    fn finish_oldest_awaiting(&mut self, host: &mut impl Host) {
        if let Some(sequence) = self.requester.note_answered() {
            self.acknowledgements.note_acknowledged(sequence);
        }
        self.complete_sends(host);
    }
}
