//! The receive queue, and the receive that a message of the peer's is filling.
//!
//! Whoever takes a receive completes it: it is counted from one to the other, so none is lost and none completes twice.

use weft_iwarp::{Fault, Header, PeerFault, Stag};

use super::attributes::{Attributes, QpConfig};
use super::counters::QpCounters;
use crate::host::{Host, RegionFault, Scope};
use crate::scatter::scatter;
use crate::types::{
    AsyncEventKind, Completion, PostError, QpCap, RecvRequest, Sge, WcOpcode, WcStatus,
};
use crate::wqe::{RecvQueue, RecvWqe};

/// Receives, posted and taken.
#[derive(Debug)]
pub(super) struct Receives {
    queue: RecvQueue,
    /// The Send that is being received.
    filling: Option<Filling>,
    /// Receives that were taken and have not completed.
    in_hand: u32,
    /// A receive was posted to the queue at some time.
    was_fed: bool,
    last_wqe_reported: bool,
}

/// A message that is being received.
#[derive(Debug)]
struct Filling {
    wqe: RecvWqe,
    received: u32,
    solicited: bool,
    invalidate: Option<Stag>,
    imm: Option<u32>,
}

/// One segment of a Send, as the header says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendSegment {
    /// It begins its message.
    pub(super) first: bool,
    pub(super) mo: u32,
    pub(super) len: usize,
    pub(super) solicited: bool,
    pub(super) invalidate: Option<Stag>,
    pub(super) header: Header,
}

impl SendSegment {
    pub(super) fn fault(&self, fault: PeerFault, field: &'static str) -> Fault {
        let ulpdu_len = (self.len + self.header.wire_len()) as u16;
        Fault::new(fault, field).in_segment(ulpdu_len, self.header)
    }
}

/// Immediate Data that consumes a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Immediate {
    pub(super) imm: u32,
    /// Octets of the Write before it.
    pub(super) octets: u32,
    pub(super) solicited: bool,
}

impl Receives {
    pub(super) fn new(cap: &QpCap) -> Receives {
        Receives {
            queue: RecvQueue::new(cap),
            filling: None,
            in_hand: 0,
            was_fed: false,
            last_wqe_reported: false,
        }
    }

    #[inline]
    pub(super) fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.queue.push(request)?;
        self.was_fed = true;
        Ok(())
    }

    /// Whether there may be a receive at some time: one that never had any is not waited for.
    pub(super) fn are_awaited(&self, config: &QpConfig) -> bool {
        self.was_fed || config.shared_receive
    }

    /// Whether a message has its receive and has not arrived whole.
    #[inline]
    pub(super) fn in_message(&self) -> bool {
        self.filling.is_some()
    }

    /// Takes the next receive.
    #[inline]
    pub(super) fn take(&mut self, config: &QpConfig, host: &mut impl Host) -> Option<RecvWqe> {
        let wqe = match config.shared_receive {
            true => host.take_shared_recv(),
            false => self.queue.pop(),
        };
        self.in_hand += u32::from(wqe.is_some());
        wqe
    }

    /// A receive that was taken is a Send's. The one before has to be complete: replaced it would never complete.
    #[inline]
    pub(super) fn begin(&mut self, wqe: RecvWqe, segment: &SendSegment, imm: Option<u32>) {
        debug_assert!(self.filling.is_none(), "a receive is lost in a message");
        debug_assert_eq!(self.in_hand, 1, "it was taken for this message alone");
        self.filling = Some(Filling {
            wqe,
            received: 0,
            solicited: segment.solicited,
            invalidate: segment.invalidate,
            imm,
        });
    }

    /// A Send segment fits into the receive that is being filled.
    #[inline]
    pub(super) fn check_room(
        &mut self,
        segment: &SendSegment,
        config: &QpConfig,
        counters: &mut QpCounters,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let Some(filling) = &self.filling else {
            return Err(segment.fault(PeerFault::MessageOffset, "Send: MO"));
        };
        let end = u64::from(segment.mo) + segment.len as u64;
        if end > filling.wqe.capacity {
            self.fail(WcStatus::LocalLength, config, counters, host);
            return Err(segment.fault(
                PeerFault::MessageTooLong,
                "Send: longer than the receive buffer",
            ));
        }
        Ok(())
    }

    /// The scatter list that is being filled, and how much of it is.
    #[inline]
    pub(super) fn sink(&self) -> Option<(&[Sge], u32)> {
        let filling = self.filling.as_ref()?;
        Some((filling.wqe.scatter.as_slice(), filling.received))
    }

    /// The scatter list that octets of the Send from `mo` on go to, and how much of it is before them: of a segment
    /// that arrives ahead of order, which fits.
    pub(super) fn sink_ahead(&self, mo: u32, len: u32) -> Option<(&[Sge], u32)> {
        let filling = self.filling.as_ref()?;
        let fits = u64::from(mo) + u64::from(len) <= filling.wqe.capacity;
        (fits && mo >= filling.received).then(|| (filling.wqe.scatter.as_slice(), mo))
    }

    /// Places octets of the Send behind those that are there; [`Receives::received`] counts them.
    #[inline]
    pub(super) fn place(
        &self,
        octets: &[u8],
        scope: Scope,
        host: &mut impl Host,
    ) -> Result<(), RegionFault> {
        let Some((sges, done)) = self.sink() else {
            return Err(RegionFault::InvalidStag);
        };
        scatter(sges, done, octets, scope, host)
    }

    /// Octets of the Send are placed.
    #[inline]
    pub(super) fn received(&mut self, octets: u32) {
        if let Some(filling) = &mut self.filling {
            filling.received += octets;
            debug_assert!(
                u64::from(filling.received) <= filling.wqe.capacity,
                "more than the receive has room for"
            );
        }
    }

    /// The last octet of a Send is placed: invalidate what it asks for, then complete.
    #[inline]
    pub(super) fn deliver_send(
        &mut self,
        header: Header,
        attributes: &Attributes,
        counters: &mut QpCounters,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let config = attributes.config();
        let invalidate = self.filling.as_ref().and_then(|f| f.invalidate);
        if let Some(stag) = invalidate {
            if let Err(fault) = host.invalidate_for_peer(stag, attributes.scope()) {
                self.fail(WcStatus::LocalQpOperation, config, counters, host);
                return Err(invalidate_fault(fault, header));
            }
        }
        let Some(filling) = self.filling.take() else {
            return Ok(());
        };
        counters.recvs_completed += 1;
        let completion = Completion {
            wr_id: filling.wqe.wr_id,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: filling.received,
            qp: config.number,
            slots: 0,
            invalidated: filling.invalidate,
            imm: filling.imm,
            solicited: filling.solicited,
            source: None,
        };
        self.complete(completion, host);
        Ok(())
    }

    /// Immediate Data has a receive of its own, which was taken for it.
    pub(super) fn deliver_immediate(
        &mut self,
        wqe: &RecvWqe,
        immediate: Immediate,
        config: &QpConfig,
        counters: &mut QpCounters,
        host: &mut impl Host,
    ) {
        counters.recvs_completed += 1;
        let completion = Completion {
            wr_id: wqe.wr_id,
            status: WcStatus::Success,
            opcode: WcOpcode::RecvWriteWithImm,
            byte_len: immediate.octets,
            qp: config.number,
            slots: 0,
            invalidated: None,
            imm: Some(immediate.imm),
            solicited: immediate.solicited,
            source: None,
        };
        self.complete(completion, host);
    }

    /// The receive that is being filled ends with `status`.
    pub(super) fn fail(
        &mut self,
        status: WcStatus,
        config: &QpConfig,
        counters: &mut QpCounters,
        host: &mut impl Host,
    ) {
        if let Some(filling) = self.filling.take() {
            self.report(filling.wqe.wr_id, status, config, counters, host);
        }
    }

    /// The message that is being received ends with its stream, and the queue pair goes on: the receive is the next
    /// one's.
    pub(super) fn take_back(&mut self) {
        if let Some(filling) = self.filling.take() {
            self.in_hand -= 1;
            self.queue.put_back(filling.wqe);
        }
    }

    /// Everything posted to the receive queue is flushed.
    pub(super) fn flush(
        &mut self,
        config: &QpConfig,
        counters: &mut QpCounters,
        host: &mut impl Host,
    ) {
        self.fail(WcStatus::Flushed, config, counters, host);
        while let Some(wqe) = self.queue.pop() {
            self.in_hand += 1;
            self.report(wqe.wr_id, WcStatus::Flushed, config, counters, host);
        }
        debug_assert_eq!(self.in_hand, 0, "a receive was taken and never completed");
        if config.shared_receive && !self.last_wqe_reported {
            self.last_wqe_reported = true;
            host.async_event(AsyncEventKind::QpLastWqeReached);
        }
    }

    fn report(
        &mut self,
        wr_id: u64,
        status: WcStatus,
        config: &QpConfig,
        counters: &mut QpCounters,
        host: &mut impl Host,
    ) {
        if status != WcStatus::Flushed {
            counters.errors += 1;
        }
        let completion = Completion {
            wr_id,
            status,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            qp: config.number,
            slots: 0,
            invalidated: None,
            imm: None,
            solicited: true,
            source: None,
        };
        self.complete(completion, host);
    }

    #[inline]
    fn complete(&mut self, completion: Completion, host: &mut impl Host) {
        debug_assert!(self.in_hand > 0, "a receive completes once");
        self.in_hand -= 1;
        host.complete_recv(completion);
    }
}

fn invalidate_fault(fault: RegionFault, header: Header) -> Fault {
    let fault = match fault {
        RegionFault::WrongPd => PeerFault::InvalidateStream,
        _ => PeerFault::InvalidateStag,
    };
    let ulpdu_len = header.wire_len() as u16;
    Fault::new(fault, "Send with Invalidate: Invalidate STag").in_segment(ulpdu_len, header)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::attributes::tests::attributes;
    use super::*;
    use crate::simulated::Device;
    use crate::srq::SharedReceiveQueue;
    use crate::types::Access;
    use alloc::vec;
    use alloc::vec::Vec;
    use weft_iwarp::ddp::Untagged;
    use weft_iwarp::{Msn, Opcode, QueueNumber};

    /// The first segment of a Send with so many octets.
    pub(in super::super) fn segment(len: usize) -> SendSegment {
        SendSegment {
            first: true,
            mo: 0,
            len,
            solicited: false,
            invalidate: None,
            header: Header::Untagged(Untagged {
                last: false,
                opcode: Opcode::SEND,
                invalidate: 0,
                qn: QueueNumber::SEND,
                msn: Msn(1),
                mo: 0,
            }),
        }
    }

    struct World {
        receives: Receives,
        attributes: Attributes,
        counters: QpCounters,
        device: Device,
        stag: Stag,
    }

    impl World {
        /// With two receives of eight octets each.
        fn new() -> World {
            let attributes = attributes(false);
            let mut device = Device::default();
            let stag = device.region(16, 0, Access::LOCAL_WRITE, 0x100);
            let mut receives = Receives::new(&attributes.config().cap);
            assert!(!receives.are_awaited(attributes.config()));
            for wr_id in [1, 2] {
                let scatter = [Sge {
                    addr: 8 * (wr_id - 1),
                    length: 8,
                    lkey: stag.0,
                }];
                let scatter = &scatter;
                receives
                    .post(&RecvRequest { wr_id, scatter })
                    .expect("room");
            }
            World {
                receives,
                attributes,
                counters: QpCounters::default(),
                device,
                stag,
            }
        }

        fn begin(&mut self, segment: &SendSegment) -> Result<(), Fault> {
            let config = self.attributes.config();
            let wqe = self.receives.take(config, &mut self.device);
            self.receives.begin(wqe.expect("a receive"), segment, None);
            self.receives
                .check_room(segment, config, &mut self.counters, &mut self.device)
        }

        fn place(&mut self, octets: &[u8]) -> Result<(), RegionFault> {
            let scope = self.attributes.scope();
            self.receives.place(octets, scope, &mut self.device)?;
            self.receives.received(octets.len() as u32);
            Ok(())
        }

        fn deliver(&mut self, segment: &SendSegment) -> Result<(), Fault> {
            self.receives.deliver_send(
                segment.header,
                &self.attributes,
                &mut self.counters,
                &mut self.device,
            )
        }

        fn flush(&mut self) {
            let config = self.attributes.config();
            self.receives
                .flush(config, &mut self.counters, &mut self.device);
        }

        fn completed(&self) -> Vec<(u64, WcStatus, u32)> {
            let of = |c: &Completion| (c.wr_id, c.status, c.byte_len);
            self.device.recvs.iter().map(of).collect()
        }
    }

    #[test]
    fn messages_take_receives_in_order_and_each_completes_once() {
        let mut world = World::new();
        for octets in [b"abc", b"xyz"] {
            world.begin(&segment(3)).expect("room");
            world.place(&octets[..2]).expect("memory");
            world.place(&octets[2..]).expect("memory");
            assert!(world.receives.in_message());
            world.deliver(&segment(3)).expect("nothing to invalidate");
        }
        assert!(!world.receives.in_message());
        assert_eq!(world.device.octets(world.stag)[..3], *b"abc");
        assert_eq!(world.device.octets(world.stag)[8..11], *b"xyz");
        world.flush();
        let success = |wr_id| (wr_id, WcStatus::Success, 3);
        assert_eq!(world.completed(), vec![success(1), success(2)]);
    }

    #[test]
    fn ahead_of_order_octets_fit_their_receive_and_leave_alone_what_has_come() {
        let mut world = World::new();
        let done =
            |world: &World, mo, len| world.receives.sink_ahead(mo, len).map(|(_, done)| done);
        assert_eq!(done(&world, 0, 1), None, "no message has begun");
        world.begin(&segment(3)).expect("room");
        world.place(b"abc").expect("memory");
        assert_eq!(done(&world, 5, 3), Some(5));
        assert_eq!(done(&world, 5, 4), None, "longer than the receive");
        assert_eq!(done(&world, u32::MAX, 1), None);
        assert_eq!(done(&world, 2, 1), None, "it has come");
        assert_eq!(done(&world, 3, 1), Some(3));
    }

    #[test]
    fn a_message_that_is_too_long_fails_its_receive() {
        let mut world = World::new();
        let fault = world.begin(&segment(9)).expect_err("nine octets in eight");
        assert_eq!(fault.fault, PeerFault::MessageTooLong);
        assert_eq!(world.completed(), vec![(1, WcStatus::LocalLength, 0)]);
        let mut world = World::new();
        assert_eq!(world.begin(&segment(8)), Ok(()));
    }

    #[test]
    fn ahead_of_order_a_send_goes_to_no_more_than_its_receive() {
        let mut world = World::new();
        assert!(world.receives.sink_ahead(4, 4).is_none(), "none has begun");
        world.begin(&segment(3)).expect("room");
        let done = |mo, len| world.receives.sink_ahead(mo, len).map(|(_, done)| done);
        assert_eq!(done(4, 4), Some(4));
        assert_eq!(done(4, 5), None, "nine octets in eight");
    }

    #[test]
    fn a_receive_in_hand_is_flushed_before_those_that_wait() {
        let mut world = World::new();
        world.begin(&segment(3)).expect("room");
        world.flush();
        let flushed = |wr_id| (wr_id, WcStatus::Flushed, 0);
        assert_eq!(world.completed(), vec![flushed(1), flushed(2)]);
        assert_eq!(world.counters.errors, 0);
    }

    #[test]
    fn a_receive_that_is_taken_back_is_the_next_ones() {
        let mut world = World::new();
        world.begin(&segment(3)).expect("room");
        world.receives.take_back();
        world.begin(&segment(0)).expect("room");
        world.deliver(&segment(0)).expect("nothing to invalidate");
        assert_eq!(world.completed(), vec![(1, WcStatus::Success, 0)]);
    }

    #[test]
    fn an_invalidation_that_fails_fails_the_receive() {
        let mut world = World::new();
        let invalidates = SendSegment {
            invalidate: Some(Stag(0x999)),
            ..segment(0)
        };
        world.begin(&invalidates).expect("room");
        let fault = world.deliver(&invalidates).expect_err("no such STag");
        assert_eq!(fault.fault, PeerFault::InvalidateStag);
        assert_eq!(world.completed(), vec![(1, WcStatus::LocalQpOperation, 0)]);
    }

    #[test]
    fn immediate_data_tells_of_its_write() {
        let mut world = World::new();
        let config = world.attributes.config();
        let wqe = world.receives.take(config, &mut world.device);
        let immediate = Immediate {
            imm: 5,
            octets: 700,
            solicited: true,
        };
        world.receives.deliver_immediate(
            &wqe.expect("a receive"),
            immediate,
            config,
            &mut world.counters,
            &mut world.device,
        );
        let told = world.device.recvs[0];
        assert_eq!((told.imm, told.byte_len), (Some(5), 700));
        assert!(told.solicited && told.opcode == WcOpcode::RecvWriteWithImm);
    }

    #[test]
    fn the_end_of_a_shared_queues_use_is_told_once() {
        let mut world = World::new();
        world.attributes = attributes(true);
        world.receives = Receives::new(&world.attributes.config().cap);
        assert!(world.receives.are_awaited(world.attributes.config()));
        world.flush();
        world.flush();
        let events = [AsyncEventKind::QpLastWqeReached];
        assert_eq!(world.device.async_events, events);
    }

    #[test]
    fn receives_of_a_shared_queue_are_counted_too() {
        let mut world = World::new();
        world.attributes = attributes(true);
        world.receives = Receives::new(&world.attributes.config().cap);
        let mut shared = SharedReceiveQueue::new(1, 1);
        let scatter = &[];
        shared
            .push(&RecvRequest { wr_id: 9, scatter })
            .expect("room");
        world.device.srq = Some(shared);
        world.begin(&segment(0)).expect("room");
        let (config, device) = (world.attributes.config(), &mut world.device);
        assert!(world.receives.take(config, device).is_none());
        world.flush();
        assert_eq!(world.completed(), vec![(9, WcStatus::Flushed, 0)]);
    }
}
