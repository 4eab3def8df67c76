//! Messages of the peer that take a receive: Sends and Immediate Data.

use weft_iwarp::{Fault, Header, PeerFault};

use super::Qp;
use crate::host::Host;
use crate::qp::arriving::{Target, Value};
use crate::qp::receives::{Immediate, SendSegment};
use crate::types::WcStatus;
use crate::wqe::RecvWqe;

impl Qp {
    /// Finds the receive buffer for a Send segment and checks that it fits. Without one the message
    /// is held until there is, or lost.
    #[inline]
    pub(super) fn begin_send_segment(
        &mut self,
        segment: SendSegment,
        host: &mut impl Host,
    ) -> Result<Target, Fault> {
        if segment.first {
            let Some(wqe) = self.next_receive(host) else {
                if self.loses_without_receive() {
                    self.arriving.lose_send();
                    return Ok(Target::Lost);
                }
                if !self.may_hold() {
                    let field = "Send: MSN finds no posted receive";
                    return Err(segment.fault(PeerFault::NoBuffer, field));
                }
                let imm = self.arriving.take_joined();
                self.rnr_queue.push_send(segment, imm);
                return Ok(Target::Held);
            };
            let imm = self.arriving.take_joined();
            self.receives.begin(wqe, &segment, imm);
        } else if self.arriving.is_losing_send() {
            return Ok(Target::Lost);
        } else if !self.receives.in_message() && !self.rnr_queue.is_empty() {
            return Ok(Target::Held);
        }
        let config = self.attributes.config();
        self.receives
            .check_room(&segment, config, &mut self.counters, host)?;
        Ok(Target::Receive)
    }

    /// Takes Immediate Data: the value of the next Send, or of a receive of its own.
    pub(super) fn take_immediate(
        &mut self,
        octets: u64,
        solicited: bool,
        header: Header,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let ulpdu_len = (header.wire_len() + weft_iwarp::rdmap::IMMEDIATE_LEN) as u16;
        let fault = |fault, field| Fault::new(fault, field).in_segment(ulpdu_len, header);
        let from_weft = self.peer_is_weft();
        let imm = match self.arriving.take_immediate(octets, from_weft) {
            Value::Own(imm) => imm,
            Value::Joined => return Ok(()),
            Value::Misplaced => {
                return Err(fault(
                    PeerFault::UnexpectedOpcode,
                    "RDMAP opcode between an immediate value and its Send",
                ));
            }
        };
        let Some(octets) = self.writes.take() else {
            return Ok(());
        };
        let immediate = Immediate {
            imm,
            octets,
            solicited,
        };
        match self.next_receive(host) {
            Some(wqe) => {
                let config = self.attributes.config();
                self.receives
                    .deliver_immediate(&wqe, immediate, config, &mut self.counters, host);
            }
            None if self.loses_without_receive() => {}
            None if !self.may_hold() => {
                return Err(fault(
                    PeerFault::NoBuffer,
                    "Immediate Data: MSN finds no posted receive",
                ));
            }
            None => self.rnr_queue.push_immediate(immediate, header),
        }
        Ok(())
    }

    /// Takes the next receive, unless earlier messages wait for it.
    #[inline]
    fn next_receive(&mut self, host: &mut impl Host) -> Option<RecvWqe> {
        if !self.rnr_queue.is_empty() {
            return None;
        }
        self.receives.take(self.attributes.config(), host)
    }

    /// A Send has arrived whole.
    #[inline]
    pub(super) fn deliver_send(
        &mut self,
        header: Header,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        self.receives
            .deliver_send(header, &self.attributes, &mut self.counters, host)
    }

    /// The receive that is being filled ends with `status`.
    pub(super) fn fail_receive(&mut self, status: WcStatus, host: &mut impl Host) {
        let config = self.attributes.config();
        self.receives.fail(status, config, &mut self.counters, host);
    }
}
