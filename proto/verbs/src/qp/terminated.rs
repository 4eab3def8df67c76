//! The peer's Terminate: which request it is about, and what becomes of that one.

use weft_iwarp::{Header, Opcode, QueueNumber, Terminate};

use crate::types::{SendOp, WcStatus};
use crate::wqe::{Progress, SendWqe};

/// A Terminate that arrived, and whom it blames.
pub(super) struct Terminated {
    terminate: Terminate,
}

impl Terminated {
    pub(super) fn new(terminate: Terminate) -> Terminated {
        Terminated { terminate }
    }

    pub(super) fn terminate(&self) -> Terminate {
        self.terminate
    }

    /// The status of the request that the Terminate is about.
    pub(super) fn status(&self) -> WcStatus {
        let code = self.terminate.code;
        match (code.layer, code.etype, code.code) {
            (0, 1 | 2, 0x09) => WcStatus::RemoteInvalidate,
            (0 | 1, 1, _) => WcStatus::RemoteAccess,
            // The last: an atomic at an address that is not aligned (RFC 7306 section 8).
            (1, 2, 0x05) | (0, 2, 0x07) => WcStatus::RemoteInvalidRequest,
            (1, 2, 0x02) if self.is_of_send() => WcStatus::RnrRetryExceeded,
            (1, 2, 0x02) => WcStatus::RemoteInvalidRequest,
            _ => WcStatus::RemoteOperation,
        }
    }

    /// Whether a message that takes a receive is at fault.
    fn is_of_send(&self) -> bool {
        let header = self.terminate.ddp.map(|(_, header)| header);
        matches!(header, Some(Header::Untagged(u)) if u.qn == QueueNumber::SEND)
    }

    /// Whether the segment that the peer refused is certainly of this request.
    pub(super) fn names(&self, wqe: &SendWqe) -> bool {
        match (self.terminate.ddp.map(|(_, header)| header), wqe.op) {
            (
                Some(Header::Tagged(t)),
                SendOp::Write { remote_addr, rkey }
                | SendOp::WriteWithImm {
                    remote_addr, rkey, ..
                },
            ) if t.opcode == Opcode::WRITE => {
                t.stag == rkey && t.to.wrapping_sub(remote_addr) < u64::from(wqe.len)
            }
            (Some(Header::Untagged(u)), _) if u.qn == QueueNumber::SEND => wqe.msn == Some(u.msn),
            _ => false,
        }
    }

    /// Whether it may be of this request, as far as its kind and its progress go.
    pub(super) fn blames(&self, wqe: &SendWqe) -> bool {
        let sending = matches!(wqe.progress, Progress::SentAt(_) | Progress::Queued);
        match self.terminate.ddp.map(|(_, header)| header) {
            Some(Header::Tagged(t)) if t.opcode == Opcode::WRITE => {
                sending && matches!(wqe.op, SendOp::Write { .. } | SendOp::WriteWithImm { .. })
            }
            Some(Header::Untagged(u)) if u.opcode == Opcode::ATOMIC_REQUEST => {
                wqe.progress == Progress::AwaitingResponse && !matches!(wqe.op, SendOp::Read { .. })
            }
            Some(Header::Untagged(u)) if u.qn == QueueNumber::READ_REQUEST => {
                wqe.progress == Progress::AwaitingResponse
            }
            Some(Header::Untagged(u)) if u.qn == QueueNumber::SEND => {
                sending
                    && matches!(
                        wqe.op,
                        SendOp::Send
                            | SendOp::SendWithInvalidate { .. }
                            | SendOp::SendWithImm { .. }
                            | SendOp::WriteWithImm { .. }
                    )
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{SendFlags, SgList, Stag};
    use weft_iwarp::ddp::{Tagged, Untagged};
    use weft_iwarp::{Msn, TerminateCode, Versions};

    fn terminated(code: (u8, u8, u8), header: Option<Header>) -> Terminated {
        Terminated::new(Terminate {
            code: TerminateCode::new(code.0, code.1, code.2),
            ddp: header.map(|header| (40, header)),
            versions: Versions::default(),
            read_request: None,
        })
    }

    fn request(op: SendOp, progress: Progress, msn: Option<Msn>) -> SendWqe {
        SendWqe {
            wr_id: 1,
            op,
            flags: SendFlags::default(),
            gather: SgList::default(),
            inline_len: 0,
            sequence: 0,
            len: 100,
            progress,
            msn,
            status: WcStatus::Success,
        }
    }

    fn write_at(remote_addr: u64) -> SendWqe {
        let rkey = Stag(5);
        request(
            SendOp::Write { remote_addr, rkey },
            Progress::SentAt(9),
            None,
        )
    }

    fn untagged(opcode: Opcode, qn: QueueNumber, msn: u32) -> Option<Header> {
        Some(Header::Untagged(Untagged {
            last: true,
            opcode,
            invalidate: 0,
            qn,
            msn: Msn(msn),
            mo: 0,
        }))
    }

    #[test]
    fn each_code_has_its_status() {
        let send = untagged(Opcode::SEND, QueueNumber::SEND, 1);
        let read = untagged(Opcode::READ_REQUEST, QueueNumber::READ_REQUEST, 1);
        for (code, header, status) in [
            ((0, 1, 0x09), None, WcStatus::RemoteInvalidate),
            ((0, 1, 0x01), None, WcStatus::RemoteAccess),
            ((1, 1, 0x00), None, WcStatus::RemoteAccess),
            ((1, 2, 0x05), None, WcStatus::RemoteInvalidRequest),
            ((0, 2, 0x07), None, WcStatus::RemoteInvalidRequest),
            ((1, 2, 0x02), send, WcStatus::RnrRetryExceeded),
            ((1, 2, 0x02), read, WcStatus::RemoteInvalidRequest),
            ((2, 0, 0x02), None, WcStatus::RemoteOperation),
        ] {
            assert_eq!(terminated(code, header).status(), status, "{code:?}");
        }
    }

    #[test]
    fn a_write_is_named_by_where_its_segment_goes() {
        let header = Header::Tagged(Tagged {
            last: true,
            opcode: Opcode::WRITE,
            stag: Stag(5),
            to: 1040,
        });
        let terminated = terminated((1, 1, 1), Some(header));
        assert!(terminated.names(&write_at(1000)) && terminated.names(&write_at(941)));
        assert!(!terminated.names(&write_at(940)) && !terminated.names(&write_at(1041)));
        assert!(terminated.blames(&write_at(0)), "some Write it was");
        let send = request(SendOp::Send, Progress::SentAt(9), Some(Msn(1)));
        assert!(!terminated.names(&send) && !terminated.blames(&send));
    }

    #[test]
    fn a_send_is_named_by_its_number() {
        let header = untagged(Opcode::SEND, QueueNumber::SEND, 3);
        let terminated = terminated((1, 2, 2), header);
        let send = |msn| request(SendOp::Send, Progress::SentAt(9), Some(Msn(msn)));
        assert!(terminated.names(&send(3)) && !terminated.names(&send(4)));
        assert!(terminated.blames(&send(4)) && !terminated.blames(&write_at(0)));
    }

    #[test]
    fn what_awaits_a_response_is_blamed_by_its_kind() {
        let read = SendOp::Read {
            remote_addr: 0,
            rkey: Stag(5),
        };
        let add = SendOp::FetchAdd {
            remote_addr: 0,
            rkey: Stag(5),
            add: 1,
        };
        let awaiting = |op| request(op, Progress::AwaitingResponse, None);
        let of = |opcode| terminated((0, 1, 1), untagged(opcode, QueueNumber::READ_REQUEST, 1));
        let of_read = of(Opcode::READ_REQUEST);
        assert!(of_read.blames(&awaiting(read)) && of_read.blames(&awaiting(add)));
        assert!(
            !of_read.blames(&request(read, Progress::Done, None)),
            "it has been answered"
        );
        let of_atomic = of(Opcode::ATOMIC_REQUEST);
        assert!(of_atomic.blames(&awaiting(add)) && !of_atomic.blames(&awaiting(read)));
    }
}
