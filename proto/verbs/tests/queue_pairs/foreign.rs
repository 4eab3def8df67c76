//! Each check that keeps a peer in its bounds, at the bound itself.

use crate::foreign_peer::{Foreign, IRD};
use crate::pair::{ends, sge, ALL};
use weft_verbs::host::Scope;
use weft_verbs::iwarp::{Header, Opcode, PeerFault, QueueNumber, ReadRequest, Stag};
use weft_verbs::simulated::{draws, PD};
use weft_verbs::types::{Access, Bind, Payload, QpNumber, SendOp, WcStatus, WindowKind};

/// Octets that a peer may have held, and what each message counts beside its own.
const HELD: usize = 16 << 20;
const EACH: usize = 256;

/// The peer reaches for memory.
type Reach = fn(&mut Foreign, (Stag, u64));

/// What a peer may ask of memory, one of each kind.
fn requests() -> [Reach; 2] {
    [
        |foreign, source| foreign.ask(source, 8),
        |foreign, target| foreign.add(target),
    ]
}

#[test]
fn as_many_requests_as_the_ird_wait_and_one_more_ends_the_connection() {
    for request in requests() {
        let mut foreign = Foreign::new(IRD);
        let cell = foreign.device.region(64, 0x1000, ALL, 1);
        for _ in 0..IRD {
            request(&mut foreign, (cell, 0x1000));
        }
        assert_eq!((foreign.fault(), foreign.is_open()), (None, true));
        // Answers make room for as many more.
        foreign.sent();
        for _ in 0..IRD {
            request(&mut foreign, (cell, 0x1000));
        }
        assert_eq!((foreign.fault(), foreign.is_open()), (None, true));
        request(&mut foreign, (cell, 0x1000));
        assert_eq!(foreign.fault(), Some(PeerFault::IrdExceeded));
        assert!(!foreign.is_open());
    }
}

#[test]
fn requests_that_wait_behind_a_held_send_count_against_the_ird() {
    for request in requests() {
        let mut foreign = Foreign::weft();
        let cell = foreign.device.region(64, 0x1000, ALL, 1);
        // One that waits for its answer, the others behind a Send that waits for its receive.
        request(&mut foreign, (cell, 0x1000));
        foreign.send();
        assert!(foreign.qp.holding().is_some());
        for _ in 1..IRD {
            request(&mut foreign, (cell, 0x1000));
        }
        assert_eq!((foreign.fault(), foreign.is_open()), (None, true));
        request(&mut foreign, (cell, 0x1000));
        assert_eq!(foreign.fault(), Some(PeerFault::IrdExceeded));
    }
}

#[test]
fn without_an_ird_only_a_read_of_nothing_is_answered_and_one_at_a_time() {
    let mut foreign = Foreign::new(0);
    foreign.ask((Stag(0), 0), 0);
    assert_eq!(foreign.fault(), None);
    foreign.ask((Stag(0), 0), 0);
    assert_eq!(foreign.fault(), Some(PeerFault::IrdExceeded));
    for request in requests() {
        let mut foreign = Foreign::new(0);
        let cell = foreign.device.region(64, 0x1000, ALL, 1);
        request(&mut foreign, (cell, 0x1000));
        assert_eq!(foreign.fault(), Some(PeerFault::IrdExceeded));
    }
}

#[test]
fn the_queue_pair_has_rights_of_its_own() {
    let all = ALL;
    let without = |right: Access| all - right;
    let write: Reach = |foreign, target| foreign.write(target, b"octets");
    let [read, add] = requests();
    for (right, request, wanted) in [
        (Access::REMOTE_WRITE, write, PeerFault::WriteAccess),
        (Access::REMOTE_READ, read, PeerFault::RemoteAccess),
        (Access::REMOTE_ATOMIC, add, PeerFault::RemoteAccess),
    ] {
        for (access, wanted) in [(all, None), (without(right), Some(wanted))] {
            let mut foreign = Foreign::new(IRD);
            let region = foreign.device.region(64, 0x1000, ALL, 1);
            foreign.qp.set_access(access);
            request(&mut foreign, (region, 0x1000));
            foreign.sent();
            assert_eq!(foreign.fault(), wanted, "{right:?}");
            let changed = foreign.device.octets(region).iter().any(|o| *o != 0);
            let changes = right != Access::REMOTE_READ && wanted.is_none();
            assert_eq!(changed, changes, "{right:?}");
        }
    }
}

/// A queue pair that has asked for 16 octets, and the request as the peer has it.
pub fn asking() -> (Foreign, ReadRequest, Stag) {
    let mut foreign = Foreign::new(IRD);
    let sink = foreign.device.region(64, 0x2000, Access::LOCAL_WRITE, 1);
    let read = SendOp::Read {
        remote_addr: 0x9000,
        rkey: Stag(0x7700),
    };
    foreign.post(1, read, Payload::Gather(&[sge(sink, 0x2000, 16)]));
    let octets = foreign.sent();
    let (header, _) = Header::decode(&octets[2..]).expect("a header");
    let request = ReadRequest::decode(&octets[2 + header.wire_len()..]).expect("a request");
    (foreign, request, sink)
}

#[test]
fn a_read_response_has_the_stag_the_to_and_the_length_that_were_asked_for() {
    const OPCODE: Opcode = Opcode::READ_RESPONSE;
    let (mut foreign, asked, sink) = asking();
    foreign.tagged(OPCODE, (asked.sink_stag, asked.sink_to), false, &[7; 6]);
    foreign.tagged(OPCODE, (asked.sink_stag, asked.sink_to + 6), true, &[8; 10]);
    assert_eq!(foreign.fault(), None);
    assert_eq!(foreign.device.sends[0].status, WcStatus::Success);
    assert_eq!(
        foreign.device.octets(sink)[..16],
        [[7; 6].as_slice(), &[8; 10]].concat()
    );

    let bounds = PeerFault::TaggedBounds;
    let wrong: [(u32, u64, bool, usize, PeerFault); 8] = [
        (1, 6, true, 10, PeerFault::TaggedStag),
        (0, 5, true, 10, bounds),
        (0, 7, true, 10, bounds),
        (0, 0, true, 10, bounds),
        (0, 6, true, 9, bounds),
        (0, 6, true, 11, bounds),
        (0, 6, false, 11, bounds),
        (0, 6, true, 0, bounds),
    ];
    for (stag, offset, last, len, wanted) in wrong {
        let (mut foreign, asked, sink) = asking();
        foreign.tagged(OPCODE, (asked.sink_stag, asked.sink_to), false, &[7; 6]);
        let at = (Stag(asked.sink_stag.0 ^ stag), asked.sink_to + offset);
        foreign.tagged(OPCODE, at, last, &vec![8; len]);
        let what = format!("{len} octets, STag ^ {stag}, TO + {offset}");
        assert_eq!(foreign.fault(), Some(wanted), "{what}");
        assert_ne!(foreign.device.sends[0].status, WcStatus::Success, "{what}");
        let octets = foreign.device.octets(sink);
        assert!(octets[6..].iter().all(|o| *o == 0), "{what}: placed");
    }
}

/// Within a message the wire's sequence holds STag and TO together; at its beginning only the request says them.
#[test]
fn the_first_segment_of_a_read_response_has_the_stag_and_the_to_too() {
    for (stag, offset, wanted) in [
        (1, 0, PeerFault::TaggedStag),
        (0, 1, PeerFault::TaggedBounds),
        (0, u64::MAX, PeerFault::TaggedBounds),
    ] {
        let (mut foreign, asked, sink) = asking();
        let to = asked.sink_to.wrapping_add(offset);
        let at = (Stag(asked.sink_stag.0 ^ stag), to);
        foreign.tagged(Opcode::READ_RESPONSE, at, true, &[8; 16]);
        assert_eq!(
            foreign.fault(),
            Some(wanted),
            "STag ^ {stag}, TO + {offset}"
        );
        assert!(
            foreign.device.octets(sink).iter().all(|o| *o == 0),
            "placed"
        );
    }
    // Without octets neither means anything (RFC 5041 section 5.2); the response is then one that is not the last.
    let (mut foreign, asked, _) = asking();
    foreign.tagged(Opcode::READ_RESPONSE, (Stag(9), 9), false, &[]);
    assert_eq!(foreign.fault(), None, "{asked:?}");
}

/// A window of type 2 over 4000 octets that the peer may read, as it was bound.
fn opened(foreign: &mut Foreign) -> Bind {
    let region = foreign.device.region(4000, 0x1000, ALL, 1);
    foreign.device.octets(region).fill(0x5E);
    let regions = &mut foreign.device.regions;
    let window = regions.insert_window(WindowKind::Two, PD, draws(77 << 8));
    let window = window.expect("room");
    let bind = Bind {
        window,
        rkey: window,
        region,
        addr: 0x1000,
        len: 4000,
        access: Access::REMOTE_READ,
        zero_based: false,
    };
    foreign.post(1, SendOp::BindWindow(bind), Payload::Gather(&[]));
    foreign.sent();
    bind
}

#[test]
fn a_read_needs_its_right_until_it_is_answered() {
    let mut foreign = Foreign::new(IRD);
    let bind = opened(&mut foreign);
    foreign.ask((bind.rkey, 0x1000), 4000);
    let shown = foreign.sent().iter().filter(|o| **o == 0x5E).count();
    assert_eq!((foreign.fault(), shown >= 4000), (None, true));

    // Between the request and its answer the window is invalidated, and bound again for something else under its old
    // key.
    for access in [None, Some(Access::REMOTE_WRITE), Some(Access::NONE)] {
        let mut foreign = Foreign::new(IRD);
        let bind = opened(&mut foreign);
        foreign.ask((bind.rkey, 0x1000), 4000);
        assert!(foreign.is_open());
        let scope = Scope {
            pd: PD,
            qp: QpNumber(10),
        };
        let regions = &mut foreign.device.regions;
        regions.invalidate(bind.rkey, scope).expect("bound");
        if let Some(access) = access {
            let again = Bind { access, ..bind };
            regions.bind(&again, scope).expect("bound again");
        }
        let shown = foreign.sent().iter().filter(|o| **o == 0x5E).count();
        let wanted = match access {
            None => PeerFault::RemoteStag,
            Some(_) => PeerFault::RemoteAccess,
        };
        assert_eq!((foreign.fault(), shown), (Some(wanted), 0), "{access:?}");
    }
}

/// Sends a message in segments that are not the last, of `each` octets; how many octets of it were taken.
pub fn endless_send(foreign: &mut Foreign, each: usize, most: usize) -> usize {
    let msn = foreign.peer.next_msn(QueueNumber::SEND);
    let payload = vec![1; each];
    for mo in (0..most).step_by(each) {
        foreign.send_segment(msn, mo, false, &payload);
        if !foreign.is_open() {
            return mo;
        }
    }
    most
}

#[test]
fn one_long_message_is_held_up_to_a_bound() {
    let each = 60_000;
    let mut foreign = Foreign::weft();
    let taken = endless_send(&mut foreign, each, 2 * HELD);
    assert_eq!(foreign.fault(), Some(PeerFault::NoBuffer));
    assert!((HELD - each..=HELD + each).contains(&taken), "{taken}");
}

#[test]
fn a_megabyte_is_enough_to_hold() {
    const ENOUGH: usize = 1 << 20;
    let each = (ENOUGH - EACH) / 32;
    for (segments, is_full) in [(31, false), (32, true)] {
        let mut foreign = Foreign::weft();
        endless_send(&mut foreign, each, segments * each);
        assert_eq!(foreign.qp.is_full(), is_full);
    }
}

#[test]
fn of_uc_a_message_longer_than_is_held_is_lost_to_its_end() {
    let each = 60_000;
    let mut foreign = Foreign::weft();
    foreign.qp.set_unreliable(true);
    foreign.recv(1, &[]);
    foreign.send();
    let msn = foreign.peer.next_msn(QueueNumber::SEND);
    let payload = vec![1; each];
    let most = HELD / each + 2;
    for at in 0..most {
        foreign.send_segment(msn, at * each, false, &payload);
    }
    assert_eq!(foreign.qp.holding(), None, "nothing of it is kept");
    foreign.recv(2, &[]);
    foreign.send_segment(msn, most * each, true, b"its end");
    foreign.send();
    let seen = [(1, WcStatus::Success), (2, WcStatus::Success)];
    assert_eq!(ends(&foreign.device.recvs), seen);
    assert_eq!((foreign.fault(), foreign.is_open()), (None, true));
}

#[test]
fn empty_messages_are_held_up_to_a_bound() {
    let mut foreign = Foreign::weft();
    let most = HELD / EACH;
    for _ in 0..most {
        foreign.send();
    }
    assert!(foreign.is_open(), "{:?}", foreign.fault());
    foreign.send();
    assert_eq!(foreign.fault(), Some(PeerFault::NoBuffer));
}

#[test]
fn immediate_values_are_held_up_to_a_bound() {
    let mut foreign = Foreign::weft();
    let mut immediate = || {
        let header = foreign.untagged(Opcode::IMMEDIATE, QueueNumber::SEND);
        foreign.arrive(header, &[0; 8], &[]);
        foreign.is_open()
    };
    let most = HELD / EACH;
    assert!((0..most).all(|_| immediate()), "so many are held");
    assert!(!immediate(), "and not one more");
    assert_eq!(foreign.fault(), Some(PeerFault::NoBuffer));
}

#[test]
fn nothing_of_a_strange_peer_is_held() {
    let mut foreign = Foreign::new(IRD);
    foreign.send();
    assert_eq!(foreign.fault(), Some(PeerFault::NoBuffer));
    let mut foreign = Foreign::new(IRD);
    foreign.recv(1, &[]);
    foreign.send();
    assert_eq!(foreign.fault(), None);
}
