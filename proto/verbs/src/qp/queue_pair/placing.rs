//! FPDUs that arrive ahead of order: where their payload goes, and their turn.

use weft_iwarp::{Envelope, Fault, FpdusAhead, Header, Opcode, PeerFault};

use super::Qp;
use crate::host::{Host, Span};
use crate::qp::arriving::{Open, Target};
use crate::qp::direct::DirectTarget;
use crate::qp::stream::Stream;
use crate::qp::waits::Waits;
use crate::qp::writes;
use crate::types::Access;

impl Qp {
    /// The FPDUs in octets that arrived ahead of order, at this offset of the stream; `None` where nothing tells them.
    pub(crate) fn fpdus_ahead<'a>(&self, at: u64, octets: &'a [u8]) -> Option<FpdusAhead<'a>> {
        self.stream.as_ref()?.fpdus_ahead(at, octets)
    }

    /// The octets that were received end with an FPDU.
    pub(crate) fn is_between_fpdus(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_between_fpdus)
    }

    /// The peer puts markers into what it sends.
    pub(crate) fn has_markers(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::has_markers)
    }

    /// The one run of memory that the payload of an FPDU ahead of order goes to, as far as that is known now. All of it
    /// is looked at again when order comes to the FPDU.
    pub(crate) fn target_ahead(
        &self,
        header: &Header,
        len: u32,
        host: &impl Host,
    ) -> Result<Span, Waits> {
        // A Write that was refused is lost, all of it, and which one that was is known in order only.
        if self.attributes.is_unreliable() {
            return Err(Waits::Unreliable);
        }
        let scope = self.attributes.scope();
        let list = match *header {
            Header::Tagged(write) if write.opcode == Opcode::WRITE => {
                if !self.attributes.access().contains(Access::REMOTE_WRITE) {
                    return Err(Waits::Refused);
                }
                let span = writes::span(write.stag, write.to, len, scope, host)
                    .map_err(|_| Waits::Refused)?;
                return match host.is_region(write.stag) {
                    true => Ok(span),
                    false => Err(Waits::Window),
                };
            }
            Header::Tagged(response) => self.reads.sink_ahead(response.stag, response.to, len),
            // Which receive a Send gets is known once its message has begun.
            Header::Untagged(send) => self
                .stream
                .as_ref()
                .filter(|stream| stream.send_is_open(send.msn))
                .and_then(|_| self.receives.sink_ahead(send.mo, len)),
        };
        let list = list.ok_or(Waits::NoTarget)?;
        DirectTarget::of_list(list, len, scope, host)
            .map_err(|_| Waits::Refused)?
            .single(len)
            .ok_or(Waits::Scattered)
    }

    /// Order has come to an FPDU whose payload is at `placed`.
    pub(crate) fn deliver_ahead(
        &mut self,
        envelope: &Envelope,
        placed: Span,
        host: &mut impl Host,
    ) {
        self.probes.note_heard(&mut self.timers);
        let delivered = self.deliver_placed(envelope, placed, host);
        self.settle(delivered, host);
        self.follow_rnr(host);
    }

    fn deliver_placed(
        &mut self,
        envelope: &Envelope,
        placed: Span,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let segment = stream.deliver(envelope)?;
        if !self.begin_segment(&segment, host)? {
            return Ok(());
        }
        let target = self.target_of_open(placed.len, host);
        if target.and_then(|target| target.single(placed.len)) == Some(placed) {
            self.advance(placed.len);
            return self.close_segment_if_complete(host);
        }
        self.fail_open(host)
    }

    /// The memory that the open segment was placed to may no longer be written to.
    #[cold]
    fn fail_open(&mut self, host: &mut impl Host) -> Result<(), Fault> {
        match self.arriving.open() {
            Some(Open {
                target: Target::Write { .. },
                header,
                ..
            }) => Err(Fault::new(PeerFault::TaggedStag, "RDMA Write: STag")
                .in_segment(header.wire_len() as u16, *header)),
            Some(Open {
                target: Target::Read,
                ..
            }) => {
                self.fail_read_locally(host);
                Ok(())
            }
            _ => {
                self.fail_receive_locally(host);
                Ok(())
            }
        }
    }

    /// Octets of the stream that were placed can no longer be had back, and order needs them.
    #[cold]
    pub(crate) fn lose_placed(&mut self, host: &mut impl Host) {
        self.end_locally(host);
    }
}
