use super::super::attributes::tests::attributes;
use super::super::framing::tests::Wire;
use super::*;
use crate::simulated::Device;
use crate::types::{Payload, SendFlags, Sge};
use alloc::vec;
use alloc::vec::Vec;
use weft_iwarp::Rtr;

const SIGNALED: SendFlags = SendFlags {
    signaled: true,
    fence: false,
    solicited: false,
};

/// A send queue of two places with its stream and a region.
struct World {
    requester: Requester,
    reads: OutstandingReads,
    wire: Wire,
    device: Device,
    stag: Stag,
}

impl World {
    fn new() -> World {
        let mut device = Device::default();
        let stag = device.region(4096, 0, Access::LOCAL_WRITE, 0x100);
        World {
            requester: Requester::new(&attributes(false).config().cap),
            reads: OutstandingReads::default(),
            wire: Wire::new(),
            device,
            stag,
        }
    }

    fn try_post(&mut self, wr_id: u64, op: SendOp, length: u32) -> Result<(), PostError> {
        self.post_with(wr_id, op, length, SIGNALED)
    }

    fn post_with(
        &mut self,
        wr_id: u64,
        op: SendOp,
        length: u32,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let gather = [Sge {
            addr: 0,
            length,
            lkey: self.stag.0,
        }];
        let request = SendRequest {
            wr_id,
            op,
            flags,
            payload: Payload::Gather(&gather),
        };
        let polled = self.device.sends.iter().map(|c| u64::from(c.slots)).sum();
        self.requester.post(&request, || polled)
    }

    fn post(&mut self, wr_id: u64, op: SendOp, length: u32) {
        self.try_post(wr_id, op, length).expect("room");
    }

    fn frame(&mut self) -> Step {
        let mut framer = self.wire.framer();
        self.requester
            .frame(&mut framer, &mut self.reads, &mut self.device)
    }

    /// Frames what can be; the segments and requests that it was.
    fn frame_all(&mut self) -> (usize, Vec<Finished>) {
        let (mut segments, mut finished) = (0, Vec::new());
        loop {
            match self.frame() {
                Step::Segment => segments += 1,
                Step::Finished(one) => {
                    segments += 1;
                    finished.push(one);
                }
                _ => return (segments, finished),
            }
        }
    }

    /// The transport takes everything.
    fn send(&mut self) {
        let queued = self.wire.outgoing.queued();
        self.wire.outgoing.take(queued);
    }

    fn complete(&mut self, awaited: Option<&Acknowledgements>) {
        let released = self.wire.outgoing.released();
        let attributes = attributes(false);
        self.requester.complete(
            released,
            awaited,
            attributes.config(),
            &mut self.wire.counters,
            &mut self.device,
        );
    }

    fn flush(&mut self) {
        let attributes = attributes(false);
        let counters = &mut self.wire.counters;
        self.requester
            .flush(attributes.config(), counters, &mut self.device);
    }

    fn completed(&self) -> Vec<(u64, WcStatus)> {
        self.device
            .sends
            .iter()
            .map(|c| (c.wr_id, c.status))
            .collect()
    }
}

fn read() -> SendOp {
    SendOp::Read {
        remote_addr: 0,
        rkey: Stag(9),
    }
}

#[test]
fn a_request_completes_once_when_its_octets_are_released() {
    let mut world = World::new();
    world.post(1, SendOp::Send, 100);
    world.complete(None);
    assert_eq!(world.completed(), vec![], "nothing is framed");
    let (segments, finished) = world.frame_all();
    assert_eq!((segments, finished.len()), (1, 1));
    world.complete(None);
    assert_eq!(world.completed(), vec![], "nothing was taken");
    let queued = world.wire.outgoing.queued();
    world.wire.outgoing.take(queued);
    world.wire.outgoing.note_unreleased(1);
    world.complete(None);
    assert_eq!(world.completed(), vec![], "an octet is held");
    world.wire.outgoing.note_unreleased(0);
    world.complete(None);
    world.complete(None);
    world.flush();
    assert_eq!(world.completed(), vec![(1, WcStatus::Success)]);
}

#[test]
fn requests_complete_in_the_order_they_were_posted() {
    let mut world = World::new();
    world.post(1, read(), 8);
    world.post(2, SendOp::Send, 8);
    world.frame_all();
    world.send();
    world.complete(None);
    assert_eq!(world.completed(), vec![], "the Read has no response");
    assert_eq!(world.requester.note_answered(), Some(0));
    assert_eq!(world.requester.note_answered(), None);
    world.complete(None);
    let success = |wr_id| (wr_id, WcStatus::Success);
    assert_eq!(world.completed(), vec![success(1), success(2)]);
}

#[test]
fn a_place_is_free_once_its_completion_was_polled() {
    let mut world = World::new();
    world.post(1, SendOp::Send, 8);
    world.post(2, SendOp::Send, 8);
    let full = Err(PostError::QueueFull);
    assert_eq!(world.try_post(3, SendOp::Send, 8), full);
    world.frame_all();
    assert_eq!(world.try_post(3, SendOp::Send, 8), full);
    world.send();
    world.complete(None);
    assert_eq!(world.try_post(3, SendOp::Send, 8), Ok(()));
}

#[test]
fn a_long_message_is_cut_and_nothing_comes_between() {
    let mut world = World::new();
    world.post(1, SendOp::Send, 4000);
    world.post(2, SendOp::Send, 8);
    assert!(matches!(world.frame(), Step::Segment));
    assert!(world.requester.in_message() && world.requester.is_under_way());
    let (segments, finished) = world.frame_all();
    assert_eq!(segments, 3, "two more, and the second message");
    let sequences: Vec<u64> = finished.iter().map(|f| f.sequence).collect();
    assert_eq!(sequences, [0, 1]);
    assert!(!world.requester.in_message() && !world.requester.is_due());
    assert_eq!(world.wire.counters.octets_framed, 4008);
}

#[test]
fn reads_beyond_the_ord_and_fenced_requests_wait() {
    let mut world = World::new();
    world.reads.expect_rtr_response(0);
    world.post(1, read(), 8);
    world.post(2, read(), 8);
    assert_eq!(world.frame_all().1.len(), 1, "two may be outstanding");
    assert!(matches!(world.frame(), Step::Blocked));
    world.reads.clear();
    assert!(matches!(world.frame(), Step::Finished(_)));
    let mut world = World::new();
    world.reads.expect_rtr_response(0);
    let fenced = SendFlags {
        fence: true,
        ..SIGNALED
    };
    world.post_with(1, SendOp::Send, 8, fenced).expect("room");
    assert!(matches!(world.frame(), Step::Blocked));
    world.reads.clear();
    assert!(matches!(world.frame(), Step::Finished(_)));
}

#[test]
fn what_is_local_waits_until_the_transport_has_everything() {
    let mut world = World::new();
    let stag = world.stag;
    world.post(1, SendOp::Send, 8);
    world.post(2, SendOp::LocalInvalidate { stag }, 0);
    assert_eq!(world.frame_all().1.len(), 1);
    world.send();
    let Step::Finished(finished) = world.frame() else {
        panic!("the transport is idle");
    };
    assert!(finished.is_local);
    world.complete(None);
    let success = |wr_id| (wr_id, WcStatus::Success);
    assert_eq!(world.completed(), vec![success(1), success(2)]);
}

#[test]
fn a_request_that_fails_has_its_status_and_the_others_are_flushed() {
    let mut world = World::new();
    world.post(1, SendOp::Send, 8);
    world.post(2, SendOp::Send, 5000);
    world.frame_all();
    assert!(world.requester.in_message(), "5000 octets of 4096");
    let Step::Failed(status) = world.frame() else {
        panic!("the region is too short");
    };
    world.requester.fail_current(status);
    world.flush();
    let statuses = [WcStatus::Flushed, WcStatus::LocalProtection];
    assert_eq!(world.completed(), vec![(1, statuses[0]), (2, statuses[1])]);
    assert_eq!(world.wire.counters.errors, 1);
    assert!(!world.requester.is_under_way());
}

#[test]
fn whoever_is_not_answered_is_the_oldest() {
    let mut world = World::new();
    world.post(1, SendOp::Send, 8);
    world.post(2, SendOp::Send, 8);
    world.requester.fail_unanswered();
    world.flush();
    let statuses = [WcStatus::RetryExceeded, WcStatus::Flushed];
    assert_eq!(world.completed(), vec![(1, statuses[0]), (2, statuses[1])]);
    let mut world = World::new();
    world.post(1, SendOp::Send, 8);
    world.post(2, read(), 8);
    world.frame_all();
    let status = WcStatus::LocalProtection;
    world.requester.fail_oldest_awaiting(status);
    world.flush();
    assert_eq!(world.completed()[1], (2, status), "the Read");
}

#[test]
fn a_write_that_is_to_be_acknowledged_waits_for_the_answer() {
    let mut world = World::new();
    let write = SendOp::Write {
        remote_addr: 0,
        rkey: Stag(9),
    };
    world.post(1, write, 8);
    world.post(2, SendOp::Send, 8);
    world.frame_all();
    world.send();
    let mut awaited = Acknowledgements::default();
    world.complete(Some(&awaited));
    assert_eq!(world.completed(), vec![]);
    awaited.note_acknowledged(1);
    world.complete(Some(&awaited));
    assert_eq!(world.completed().len(), 2, "the Send needs none");
}

#[test]
fn a_send_with_immediate_goes_to_a_weft_peer_alone() {
    let with_imm = SendOp::SendWithImm { imm: 7 };
    let mut world = World::new();
    world.post(1, with_imm, 2000);
    assert!(matches!(world.frame(), Step::PeerUnknown));
    world.wire.stream.as_mut().expect("a stream").note_weft();
    let (segments, finished) = world.frame_all();
    assert_eq!((segments, finished.len()), (2, 1));
    assert_eq!(world.wire.counters.segments_out, 3, "the value goes first");
    let mut world = World::new();
    world.post(1, with_imm, 8);
    let stream = world.wire.stream.as_mut().expect("a stream");
    stream.note_sent(Rtr::Read, 0);
    stream.note_answered();
    let status = WcStatus::LocalQpOperation;
    assert!(matches!(world.frame(), Step::Failed(s) if s == status));
}

#[test]
fn a_message_that_went_with_its_stream_begins_anew() {
    let mut world = World::new();
    world.post(1, SendOp::Send, 4000);
    assert!(matches!(world.frame(), Step::Segment));
    world.requester.forget_message();
    assert!(!world.requester.in_message());
    assert_eq!(world.frame_all().0, 3, "all of it");
}
