//! The peer's Terminate, and the request that it is about.

use crate::foreign_peer::{Foreign, IRD};
use crate::pair::{ends, sge, ALL};
use weft_verbs::iwarp::{Header, Msn, Opcode, QueueNumber, Stag, Tagged, Untagged};
use weft_verbs::types::{Payload, SendOp, WcStatus};

const RKEY: Stag = Stag(0x7700);

/// Two Writes, two Sends, a Read and an atomic, none of which is complete.
fn busy() -> Foreign {
    let mut foreign = Foreign::new(IRD);
    let sink = foreign.device.region(8, 0, ALL, 1);
    let into = [sge(sink, 0, 8)];
    let (remote_addr, rkey) = (0x1000, RKEY);
    for (wr_id, remote_addr) in [(0, 0x1000), (1, 0x2000)] {
        let write = SendOp::Write { remote_addr, rkey };
        foreign.post(wr_id, write, Payload::Inline(b"8 octets"));
    }
    foreign.post(2, SendOp::Send, Payload::Inline(b"one"));
    foreign.post(3, SendOp::Send, Payload::Inline(b"two"));
    let read = SendOp::Read { remote_addr, rkey };
    foreign.post(4, read, Payload::Gather(&into));
    let add = SendOp::FetchAdd {
        remote_addr,
        rkey,
        add: 1,
    };
    foreign.post(5, add, Payload::Gather(&into));
    foreign.qp.fill(1 << 20, &mut foreign.device);
    foreign
}

fn tagged(opcode: Opcode, stag: Stag, to: u64) -> Option<Header> {
    Some(Header::Tagged(Tagged {
        last: true,
        opcode,
        stag,
        to,
    }))
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

/// The request whose segment it names has the status; without one of that name the first of its kind; where no request
/// of this side's was refused, none.
#[test]
fn a_terminate_fails_the_request_that_it_is_about_and_no_other() {
    use WcStatus::{RemoteAccess, RemoteInvalidRequest, RemoteOperation, RnrRetryExceeded};
    let (access, no_buffer, unspecified) = ((0, 1, 0x02), (1, 2, 0x02), (0, 2, 0xFF));
    let (sends, requests) = (QueueNumber::SEND, QueueNumber::READ_REQUEST);
    let write = |stag, to| tagged(Opcode::WRITE, stag, to);
    let send = |msn| untagged(Opcode::SEND, sends, msn);
    let read = |msn| untagged(Opcode::READ_REQUEST, requests, msn);
    let add = |msn| untagged(Opcode::ATOMIC_REQUEST, requests, msn);
    let response = tagged(Opcode::READ_RESPONSE, RKEY, 0x2000);
    let original = untagged(Opcode::ATOMIC_RESPONSE, QueueNumber::ATOMIC_RESPONSE, 2);
    for (code, header, wanted) in [
        (access, write(RKEY, 0x2007), Some((1, RemoteAccess))),
        (access, write(RKEY, 0x2008), Some((0, RemoteAccess))),
        (access, write(Stag(0x9900), 0), Some((0, RemoteAccess))),
        (no_buffer, send(2), Some((3, RnrRetryExceeded))),
        (no_buffer, send(9), Some((2, RnrRetryExceeded))),
        (no_buffer, read(2), Some((4, RemoteInvalidRequest))),
        (access, read(1), Some((4, RemoteAccess))),
        (access, add(1), Some((5, RemoteAccess))),
        (unspecified, add(2), Some((5, RemoteOperation))),
        (access, response, None),
        (unspecified, original, None),
        (unspecified, None, None),
    ] {
        let mut foreign = busy();
        foreign.terminate(code, header);
        let status = |wr_id| match wanted {
            Some((at, status)) if at == wr_id => status,
            _ => WcStatus::Flushed,
        };
        let wanted: Vec<_> = (0..6).map(|wr_id| (wr_id, status(wr_id))).collect();
        assert_eq!(ends(&foreign.device.sends), wanted, "{code:?} {header:?}");
    }
}
