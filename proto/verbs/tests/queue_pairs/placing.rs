//! Octets that arrive ahead of order: what is seen of them at once, and what becomes of them in their turn.

use crate::foreign_peer::{responder, Foreign, IRD};
use crate::pair::{queue_pair, sge, ALL};
use weft_verbs::host::{Host, Scope};
use weft_verbs::iwarp::ledger::LEDGER_FPDUS_MAX;
use weft_verbs::iwarp::mpa::crc::crc32c;
use weft_verbs::iwarp::{
    Established, Header, Msn, Opcode, PeerFault, QueueNumber, ReadRequest, Stag, Tagged, Untagged,
};
use weft_verbs::placing::{PlacePolicy, Reassembler, Waits};
use weft_verbs::simulated::{draws, PD};
use weft_verbs::types::{Access, Bind, Payload, QpNumber, SendOp, WcStatus, WindowKind};

/// A queue pair whose peer's segments come in any order.
struct Ahead {
    foreign: Foreign,
    reassembler: Reassembler,
    /// Octets that the peer has framed.
    end: u64,
    stag: Stag,
}

/// Octets of the stream and their offset.
type Piece = (u64, Vec<u8>);

impl Ahead {
    fn new(policy: PlacePolicy) -> Ahead {
        Ahead::with(policy, true)
    }

    fn with(policy: PlacePolicy, crc: bool) -> Ahead {
        let config = Established {
            crc,
            ..responder(IRD)
        };
        Ahead::on(policy, &config)
    }

    fn on(policy: PlacePolicy, config: &Established) -> Ahead {
        let mut foreign = Foreign::on(config, queue_pair(10, false));
        let stag = foreign.device.region(64 * 1024, 0, ALL, 0x100);
        Ahead {
            foreign,
            reassembler: Reassembler::new(policy),
            end: 0,
            stag,
        }
    }

    fn framed(&mut self, header: Header, payload: &[u8]) -> Piece {
        let mut fpdu = Vec::new();
        let peer = &mut self.foreign.peer;
        let start = peer.begin(&mut fpdu, &header, &[], payload.len());
        fpdu.extend_from_slice(payload);
        peer.seal(&mut fpdu, start);
        let at = self.end;
        self.end += fpdu.len() as u64;
        (at, fpdu)
    }

    fn write_to(&mut self, stag: Stag, to: u64, last: bool, payload: &[u8]) -> Piece {
        let opcode = Opcode::WRITE;
        let header = Tagged {
            last,
            opcode,
            stag,
            to,
        };
        self.framed(Header::Tagged(header), payload)
    }

    fn write(&mut self, to: u64, last: bool, payload: &[u8]) -> Piece {
        self.write_to(self.stag, to, last, payload)
    }

    fn send(&mut self, (msn, mo): (u32, u32), last: bool, payload: &[u8]) -> Piece {
        let header = Untagged {
            last,
            opcode: Opcode::SEND,
            invalidate: 0,
            qn: QueueNumber::SEND,
            msn: Msn(msn),
            mo,
        };
        self.framed(Header::Untagged(header), payload)
    }

    fn respond(&mut self, (stag, to): (Stag, u64), last: bool, payload: &[u8]) -> Piece {
        let opcode = Opcode::READ_RESPONSE;
        let header = Tagged {
            last,
            opcode,
            stag,
            to,
        };
        self.framed(Header::Tagged(header), payload)
    }

    fn invalidate(&mut self, stag: Stag) -> Piece {
        let header = Untagged {
            last: true,
            opcode: Opcode::SEND_INVALIDATE,
            invalidate: stag.0,
            qn: QueueNumber::SEND,
            msn: Msn(1),
            mo: 0,
        };
        self.framed(Header::Untagged(header), b"")
    }

    fn arrive(&mut self, (at, mut octets): Piece) {
        let Foreign { qp, device, .. } = &mut self.foreign;
        self.reassembler.arrive(at, &mut octets, qp, device);
        device.check_canaries();
    }

    fn memory(&mut self, at: usize, len: usize) -> Vec<u8> {
        self.foreign.device.octets(self.stag)[at..at + len].to_vec()
    }

    fn placed(&self) -> u64 {
        self.reassembler.counters().placed_fpdus
    }

    fn waited(&self, why: Waits) -> u64 {
        self.reassembler.counters().waited(why)
    }

    fn received(&self) -> Vec<(u64, WcStatus)> {
        crate::pair::ends(&self.foreign.device.recvs)
    }
}

#[test]
fn a_write_behind_a_hole_is_there_at_once_and_told_of_in_order() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    ahead.foreign.recv(7, &[]);
    let first = ahead.write(0, false, b"abcd");
    let second = ahead.write(4, false, b"efgh");
    let third = ahead.write(8, true, b"ijkl");
    let send = ahead.send((1, 0), true, b"");
    ahead.arrive(send);
    ahead.arrive(third);
    ahead.arrive(second);
    assert_eq!(
        ahead.memory(0, 12),
        *b"\0\0\0\0efgh\0\0\0\0",
        "the last one waits"
    );
    assert_eq!((ahead.placed(), ahead.waited(Waits::LastSegment)), (1, 1));
    assert_eq!(ahead.waited(Waits::Control), 1, "an empty Send");
    assert!(ahead.received().is_empty() && ahead.reassembler.position() == 0);
    ahead.arrive(first);
    assert_eq!(ahead.memory(0, 12), *b"abcdefghijkl");
    assert_eq!(ahead.received(), [(7, WcStatus::Success)]);
    assert_eq!(ahead.reassembler.position(), ahead.end);
    assert_eq!(ahead.reassembler.waiting_octets(), 0);
    assert_eq!(ahead.foreign.qp.counters().octets_placed, 12);
    assert!(ahead.foreign.is_open());
}

#[test]
fn the_policy_says_whether_last_segments_and_whether_any_are_placed() {
    for (policy, seen, waits) in [
        (PlacePolicy::InOrder, *b"\0\0\0\0\0\0\0\0", [2, 0]),
        (PlacePolicy::Safe, *b"efgh\0\0\0\0", [0, 1]),
        (PlacePolicy::Eager, *b"efghijkl", [0, 0]),
    ] {
        let mut ahead = Ahead::new(policy);
        let first = ahead.write(0, false, b"abcd");
        let second = ahead.write(4, false, b"efgh");
        let third = ahead.write(8, true, b"ijkl");
        ahead.arrive(second);
        ahead.arrive(third);
        assert_eq!(ahead.memory(4, 8), seen, "{policy:?}");
        let why = [Waits::Policy, Waits::LastSegment].map(|why| ahead.waited(why));
        assert_eq!(why, waits, "{policy:?}");
        ahead.arrive(first);
        assert_eq!(ahead.memory(0, 12), *b"abcdefghijkl", "{policy:?}");
    }
}

#[test]
fn a_write_for_a_region_that_a_send_in_the_hole_invalidates_is_refused_in_its_turn() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    ahead.foreign.recv(1, &[]);
    let stag = ahead.stag;
    let send = ahead.invalidate(stag);
    let write = ahead.write(0, false, b"late");
    ahead.arrive(write);
    assert_eq!(ahead.memory(0, 4), *b"late", "it was allowed then");
    assert!(ahead.foreign.is_open());
    ahead.arrive(send);
    assert_eq!(
        ahead.received(),
        [(1, WcStatus::Success)],
        "that comes first"
    );
    assert_eq!(ahead.foreign.fault(), Some(PeerFault::TaggedStag));
}

#[test]
fn a_region_that_goes_while_segments_wait_is_an_error_in_their_turn() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let hole = ahead.write(0, false, b"abcd");
    let write = ahead.write(4, false, b"efgh");
    ahead.arrive(write);
    ahead.foreign.device.regions.remove(ahead.stag);
    assert_eq!(ahead.placed(), 1);
    ahead.arrive(hole);
    assert_eq!(ahead.foreign.fault(), Some(PeerFault::TaggedStag));
    // Whatever comes is dropped.
    let more = ahead.write(8, false, b"ijkl");
    ahead.arrive(more);
    assert_eq!(ahead.reassembler.waiting_octets(), 0);
}

/// In order nothing would come behind a fault: nor does it ahead of order, however early it arrives.
#[test]
fn nothing_is_placed_behind_a_fault() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let faulty = ahead.write_to(Stag(0x0999), 0, true, b"abcd");
    let hole = ahead.write(0, false, b"efgh");
    let write = ahead.write(4, false, b"ijkl");
    let last = ahead.write(8, true, b"mnop");
    ahead.arrive(last);
    assert!(ahead.reassembler.waiting_octets() > 0);
    ahead.arrive(faulty);
    assert_eq!(ahead.foreign.fault(), Some(PeerFault::TaggedStag));
    assert_eq!(
        ahead.reassembler.waiting_octets(),
        0,
        "nothing will have its turn"
    );
    ahead.arrive(write);
    ahead.arrive(hole);
    assert_eq!((ahead.placed(), ahead.memory(0, 12)), (0, vec![0; 12]));
    assert_eq!(ahead.reassembler.waiting_octets(), 0);
}

#[test]
fn what_may_not_be_written_to_waits_and_is_refused_in_order() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let unmapped = ahead.foreign.device.region(64, 0, ALL, 0x200);
    ahead.foreign.device.unmapped.push(unmapped);
    let hole = ahead.write(0, true, b"abcd");
    for (stag, to) in [(unmapped, 0), (ahead.stag, 64 * 1024), (Stag(0x0999), 0)] {
        let write = ahead.write_to(stag, to, false, b"efgh");
        ahead.arrive(write);
    }
    assert_eq!((ahead.placed(), ahead.waited(Waits::Refused)), (0, 3));
    assert!(ahead.foreign.is_open(), "order decides");
    ahead.arrive(hole);
    assert_eq!(ahead.memory(0, 4), *b"abcd");
    assert_eq!(ahead.foreign.fault(), Some(PeerFault::TaggedStag));
}

/// What is placed in order around octets that are there already finds its memory gone like any other.
#[test]
fn a_write_in_order_to_memory_that_is_gone_is_refused_while_others_are_placed_ahead() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let unmapped = ahead.foreign.device.region(64, 0, ALL, 0x200);
    ahead.foreign.device.unmapped.push(unmapped);
    let hole = ahead.write_to(unmapped, 0, true, b"abcd");
    let write = ahead.write(0, false, b"efgh");
    ahead.arrive(write);
    assert_eq!(ahead.placed(), 1);
    ahead.arrive(hole);
    assert_eq!(ahead.foreign.fault(), Some(PeerFault::TaggedStag));
}

/// Only the queue pair's own Read says where a response goes, not what the peer might write to.
#[test]
fn a_response_that_nobody_asked_for_is_not_placed_ahead() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    ahead.write(0, true, b"abcd");
    let response = ahead.respond((ahead.stag, 4), false, b"efgh");
    ahead.arrive(response);
    assert_eq!(ahead.memory(4, 4), *b"\0\0\0\0");
    assert_eq!((ahead.placed(), ahead.waited(Waits::NoTarget)), (0, 1));
}

#[test]
fn a_response_is_placed_ahead_in_memory_that_the_peer_may_not_write_to() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let first = ahead.write(0, true, b"");
    ahead.arrive(first);
    let foreign = &mut ahead.foreign;
    let sink = foreign.device.region(64, 0, Access::LOCAL_WRITE, 0x200);
    let read = SendOp::Read {
        remote_addr: 0,
        rkey: Stag(1),
    };
    foreign.post(5, read, Payload::Gather(&[sge(sink, 0, 8)]));
    let sent = foreign.segments();
    let (_, body) = sent.last().expect("the request");
    let request = ReadRequest::decode(body).expect("a Read Request");
    let to = |done| (request.sink_stag, request.sink_to + done);
    let hole = ahead.write(0, true, b"hole");
    let begin = ahead.respond(to(0), false, b"abcd");
    let end = ahead.respond(to(4), true, b"efgh");
    ahead.arrive(begin);
    assert_eq!(ahead.foreign.device.octets(sink)[..8], *b"abcd\0\0\0\0");
    ahead.arrive(hole);
    ahead.arrive(end);
    assert_eq!(ahead.foreign.device.octets(sink)[..8], *b"abcdefgh");
    let completed = crate::pair::ends(&ahead.foreign.device.sends);
    assert_eq!(completed, [(5, WcStatus::Success)]);
}

#[test]
fn a_queue_pair_that_may_not_be_written_to_is_not_ahead_of_order_either() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    ahead.foreign.qp.set_access(ALL - Access::REMOTE_WRITE);
    ahead.foreign.recv(1, &[]);
    let hole = ahead.send((1, 0), true, b"");
    let write = ahead.write(4, false, b"efgh");
    ahead.arrive(write);
    assert_eq!((ahead.placed(), ahead.waited(Waits::Refused)), (0, 1));
    assert_eq!(ahead.memory(4, 4), [0; 4]);
    assert!(ahead.foreign.is_open(), "order decides");
    ahead.arrive(hole);
    assert_eq!(ahead.foreign.fault(), Some(PeerFault::WriteAccess));
    assert_eq!(ahead.memory(4, 4), [0; 4]);
}

/// The second element of its receive is in a region that goes while its octets are there and have not had their turn.
#[test]
fn memory_of_a_send_is_checked_again_in_its_turn() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let other = ahead.foreign.device.region(64, 0, ALL, 0x200);
    let list = [sge(ahead.stag, 0, 4), sge(other, 0, 50)];
    ahead.foreign.recv(3, &list);
    let begin = ahead.send((1, 0), false, b"ab");
    let hole = ahead.send((1, 2), false, b"cd");
    let inside = ahead.send((1, 4), false, b"ef");
    ahead.arrive(begin);
    ahead.arrive(inside);
    assert_eq!(ahead.placed(), 1);
    ahead.foreign.device.regions.remove(other);
    ahead.arrive(hole);
    assert_eq!(ahead.memory(0, 4), *b"abcd");
    assert_eq!(ahead.received(), [(3, WcStatus::LocalProtection)]);
    assert!(!ahead.foreign.is_open());
}

/// Bound again under the same key, a window names other memory: the octets are to be there, and nowhere else.
#[test]
fn what_goes_to_a_window_waits() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let scope = Scope {
        pd: PD,
        qp: QpNumber(10),
    };
    let device = &mut ahead.foreign.device;
    let window = device
        .regions
        .insert_window(WindowKind::Two, PD, draws(0x300))
        .expect("a window");
    let bind = Bind {
        window,
        rkey: window,
        region: ahead.stag,
        addr: 100,
        len: 50,
        access: ALL,
        zero_based: true,
    };
    device.bind(&bind, scope).expect("bound");
    let hole = ahead.write(0, true, b"abcd");
    let write = ahead.write_to(window, 0, false, b"efgh");
    ahead.arrive(write);
    assert_eq!((ahead.placed(), ahead.waited(Waits::Window)), (0, 1));
    let device = &mut ahead.foreign.device;
    device.invalidate(window, scope).expect("a window");
    let elsewhere = Bind { addr: 200, ..bind };
    device.bind(&elsewhere, scope).expect("bound");
    ahead.arrive(hole);
    assert_eq!(ahead.memory(100, 4), *b"\0\0\0\0");
    assert_eq!(ahead.memory(200, 4), *b"efgh");
    assert!(ahead.foreign.is_open());
}

#[test]
fn the_later_of_two_writes_to_one_place_stays() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let first = ahead.write(0, false, b"aaaaaaaa");
    let second = ahead.write(8, true, b"bbbb");
    let third = ahead.write(4, false, b"cccccc");
    let fourth = ahead.write(10, false, b"dd");
    let fifth = ahead.write(9, false, b"eee");
    ahead.arrive(third);
    ahead.arrive(fifth);
    assert_eq!(ahead.waited(Waits::Overlap), 1);
    ahead.arrive(fourth);
    ahead.arrive(second);
    assert_eq!(ahead.memory(0, 12), *b"\0\0\0\0ccccccdd");
    ahead.arrive(first);
    assert!(ahead.foreign.fault().is_some(), "TO within a message");
    assert_eq!(ahead.memory(0, 12), *b"aaaaccccccdd");
}

/// A peer, or whoever writes what it sends, hides an FPDU in a payload at the front of a segment.
#[test]
fn a_false_start_is_had_back_and_costs_the_connection_nothing() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let (_, hidden) = ahead.write(500, false, b"hidden octets");
    ahead.end = 0;
    let payload = [b"before", &hidden[..], b"behind"].concat();
    let (_, outer) = ahead.write(0, true, &payload);
    let front = 2 + 14 + 6;
    let end = front + hidden.len();
    ahead.arrive((front as u64, outer[front..end].to_vec()));
    assert_eq!(ahead.placed(), 1);
    ahead.arrive((0, outer[..front].to_vec()));
    ahead.arrive((end as u64, outer[end..].to_vec()));
    assert_eq!(ahead.memory(0, payload.len()), payload);
    assert_eq!(ahead.reassembler.counters().recalled_fpdus, 1);
    assert!(ahead.foreign.is_open());
    assert_eq!(ahead.reassembler.position(), outer.len() as u64);
}

#[test]
fn a_false_start_that_cannot_be_had_back_ends_the_connection() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let other = ahead.foreign.device.region(64, 0, ALL, 0x200);
    let (_, hidden) = ahead.write_to(other, 0, false, b"hidden octets");
    ahead.end = 0;
    let (_, outer) = ahead.write(0, true, &hidden);
    let front = 2 + 14;
    ahead.arrive((front as u64, outer[front..front + hidden.len()].to_vec()));
    ahead.foreign.device.regions.remove(other);
    ahead.arrive((0, outer[..front].to_vec()));
    assert!(!ahead.foreign.is_open());
}

/// The markers in it are had back too: they point to the front that it seemed to be, which is no front in order.
#[test]
fn a_false_start_with_markers_is_the_fault_that_it_is_in_order() {
    let config = Established {
        crc: true,
        markers_tx: true,
        markers_rx: true,
        ..responder(IRD)
    };
    let mut other = Ahead::on(PlacePolicy::Safe, &config);
    let (_, before) = other.write(0, true, &[0; 76]);
    let front = before.len();
    let (_, hidden) = other.write(0, false, &[1; 450]);
    let end = front + hidden.len();
    assert!(front < 512 && end > 516, "a marker stands in it");
    let mut ahead = Ahead::on(PlacePolicy::Safe, &config);
    let (_, mut outer) = ahead.write(0, true, &[2; 600]);
    outer[front..end].copy_from_slice(&hidden);
    let (covered, crc) = outer.split_last_chunk_mut::<4>().expect("a CRC field");
    *crc = crc32c(covered).to_le_bytes();
    ahead.arrive((front as u64, hidden));
    assert_eq!(ahead.placed(), 1);
    ahead.arrive((end as u64, outer[end..].to_vec()));
    ahead.arrive((0, outer[..front].to_vec()));
    assert_eq!(ahead.foreign.fault(), Some(PeerFault::Marker));
}

/// Said to a peer that asks, so that it may place what arrives ahead of order without a CRC.
#[test]
fn a_queue_pair_promises_whole_fpdus_where_its_transport_sends_them() {
    for aligned in [false, true] {
        let mut qp = queue_pair(10, false);
        qp.set_aligned(aligned);
        let mut foreign = Foreign::on(&responder(IRD), qp);
        foreign.announce();
        let said = foreign.segments().into_iter().find_map(|(header, _)| {
            let Header::Tagged(Tagged { to, .. }) = header else {
                return None;
            };
            (to >> 32 == 0x5745_4654).then_some(to & 1)
        });
        assert_eq!(said, Some(u64::from(aligned)));
    }
}

#[test]
fn without_a_crc_only_a_peer_that_promises_whole_fpdus_is_believed() {
    for promise in [false, true] {
        let mut ahead = Ahead::with(PlacePolicy::Safe, false);
        // An announcement of a Weft peer (decision 0004), with the promise or without.
        let to = 0x5745_4654_0001_0000 | u64::from(promise);
        let announcement = ahead.write_to(Stag::RTR, to, true, b"");
        ahead.arrive(announcement);
        let hole = ahead.write(0, false, b"abcd");
        let write = ahead.write(4, false, b"efgh");
        ahead.arrive(write);
        assert_eq!(ahead.placed(), u64::from(promise));
        assert_eq!(ahead.waited(Waits::Unproven), u64::from(!promise));
        ahead.arrive(hole);
        assert_eq!(ahead.memory(0, 8), *b"abcdefgh");
    }
}

#[test]
fn a_send_is_placed_ahead_once_its_receive_is_known() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let stag = ahead.stag;
    for n in 0..2 {
        let list = [sge(stag, n * 100, 6), sge(stag, n * 100 + 50, 50)];
        ahead.foreign.recv(n, &list);
    }
    let begin = ahead.send((1, 0), false, b"ab");
    let hole = ahead.send((1, 2), false, b"cd");
    let inside = ahead.send((1, 6), false, b"gh");
    let across = ahead.send((1, 4), false, b"ef");
    let end = ahead.send((1, 8), true, b"ij");
    let next = ahead.send((2, 0), false, b"next");
    // Not in the order that they were framed in: their offsets in the stream follow.
    ahead.arrive(next.clone());
    assert_eq!(ahead.waited(Waits::NoTarget), 1);
    ahead.arrive(begin);
    ahead.arrive(inside);
    assert_eq!(ahead.memory(50, 2), *b"gh");
    assert_eq!(ahead.placed(), 1);
    drop((hole, across, end));
}

#[test]
fn a_receive_whose_memory_goes_under_octets_placed_ahead_fails() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let other = ahead.foreign.device.region(64, 0, ALL, 0x200);
    let list = [sge(ahead.stag, 0, 4), sge(other, 0, 4)];
    ahead.foreign.recv(3, &list);
    let begin = ahead.send((1, 0), false, b"ab");
    let hole = ahead.send((1, 2), false, b"cd");
    let inside = ahead.send((1, 4), false, b"ef");
    let end = ahead.send((1, 6), true, b"");
    ahead.arrive(begin);
    ahead.arrive(inside);
    assert_eq!(ahead.placed(), 1);
    ahead.foreign.device.regions.remove(other);
    ahead.arrive(hole);
    ahead.arrive(end);
    assert_eq!(ahead.received(), [(3, WcStatus::LocalProtection)]);
}

#[test]
fn a_send_that_falls_on_two_elements_waits() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let stag = ahead.stag;
    ahead.foreign.recv(0, &[sge(stag, 0, 5), sge(stag, 50, 50)]);
    let begin = ahead.send((1, 0), false, b"ab");
    let hole = ahead.send((1, 2), false, b"cd");
    let across = ahead.send((1, 4), false, b"ef");
    let end = ahead.send((1, 6), true, b"g");
    ahead.arrive(begin);
    ahead.arrive(across);
    assert_eq!((ahead.placed(), ahead.waited(Waits::Scattered)), (0, 1));
    ahead.arrive(end);
    ahead.arrive(hole);
    assert_eq!(ahead.memory(0, 5), *b"abcde");
    assert_eq!(ahead.memory(50, 2), *b"fg");
    assert_eq!(ahead.received(), [(0, WcStatus::Success)]);
}

#[test]
fn a_queue_pair_that_may_lose_messages_places_none_ahead() {
    let mut ahead = Ahead::new(PlacePolicy::Eager);
    ahead.foreign.qp.set_unreliable(true);
    let hole = ahead.write(0, true, b"abcd");
    let write = ahead.write(4, true, b"efgh");
    ahead.arrive(write);
    assert_eq!(ahead.waited(Waits::Unreliable), 1);
    ahead.arrive(hole);
    assert_eq!(ahead.memory(0, 8), *b"abcdefgh");
}

#[test]
fn what_a_flood_of_small_fpdus_costs_is_bounded() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let hole = ahead.write(0, true, b"a");
    for n in 1..=LEDGER_FPDUS_MAX + 10 {
        let write = ahead.write(n as u64, n == LEDGER_FPDUS_MAX + 10, b"b");
        ahead.arrive(write);
    }
    assert_eq!(ahead.placed(), LEDGER_FPDUS_MAX as u64);
    assert_eq!(ahead.waited(Waits::LedgerFull), 9, "and the last one");
    ahead.arrive(hole);
    assert_eq!(ahead.reassembler.position(), ahead.end);
    assert_eq!(ahead.memory(LEDGER_FPDUS_MAX + 10, 1), *b"b");
    assert!(ahead.foreign.is_open());
}

#[test]
fn what_is_placed_is_told_until_its_turn_comes() {
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    let hole = ahead.write(0, false, b"abcd");
    let (second, third) = (
        ahead.write(4, false, b"efgh"),
        ahead.write(8, true, b"ijkl"),
    );
    let placed = second.1.len() as u64;
    ahead.arrive(third);
    assert_eq!(ahead.reassembler.placed_octets(), 0, "the last one waits");
    ahead.arrive(second);
    assert_eq!(ahead.reassembler.placed_octets(), placed);
    assert_eq!(ahead.reassembler.frontier(), 0);
    ahead.arrive(hole);
    assert_eq!(ahead.reassembler.placed_octets(), 0);
    assert_eq!(ahead.reassembler.frontier(), ahead.end);
}

#[test]
fn behind_a_hole_no_more_is_delivered_than_a_queue_pair_takes() {
    const EACH: usize = 60_000;
    let mut ahead = Ahead::new(PlacePolicy::Safe);
    ahead.foreign.qp.set_peer_is_weft();
    // A Send for which no receive is posted, longer than is held before the rest is left to the transport.
    let pieces: Vec<Piece> = (0..40)
        .map(|n| ahead.send((1, n * EACH as u32), n == 39, &[1; EACH]))
        .collect();
    for piece in pieces.iter().skip(1) {
        ahead.arrive(piece.clone());
    }
    ahead.arrive(pieces[0].clone());
    assert!(ahead.foreign.qp.is_full());
    let left = ahead.end - ahead.reassembler.frontier();
    assert!(left > 20 * EACH as u64, "{left}");
    assert!(ahead.reassembler.waiting_octets() >= left);
    let stag = ahead.foreign.device.region(40 * EACH, 0, ALL, 0x300);
    ahead.foreign.recv(5, &[sge(stag, 0, 40 * EACH as u32)]);
    assert!(!ahead.foreign.qp.is_full() && ahead.received().is_empty());
    let Foreign { qp, device, .. } = &mut ahead.foreign;
    ahead.reassembler.resume(qp, device);
    assert_eq!(ahead.received(), [(5, WcStatus::Success)]);
    assert_eq!(ahead.reassembler.frontier(), ahead.end);
    assert!(ahead.foreign.is_open());
}
