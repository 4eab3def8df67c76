//! The receive pass: octets of the stream to placements and completions.

use weft_iwarp::{Fault, Header, Message, Parse, PeerFault, Segment, Stag};

use super::ending::Terminated;
use super::rnr_queue::RnrQueue;
use super::unreliable::Losses;
use super::untagged::{Filling, SendSegment};
use super::Qp;
use crate::host::{Host, RegionFault, Span};
use crate::scatter::pieces;
use crate::types::{Access, Sge};

/// What a receive pass did with the octets it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Octets that are done with, from the front.
    pub consumed: usize,
    /// Octets that must be in the buffer, counted from the first unconsumed one, before the
    /// next call can do more.
    pub need: usize,
}

/// State of the receiving half that outlives a pass.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    /// The Send that is being received.
    pub(super) filling: Option<Filling>,
    /// Receives that were taken and have not completed.
    pub(super) in_hand: u32,
    /// The segment whose payload has not arrived completely.
    open: Option<Open>,
    pub(super) last_wqe_reported: bool,
    /// Octets of the newest RDMA Write so far: what Immediate Data behind it reports.
    pub(super) write_octets: u32,
    /// That Write has segments to come.
    write_open: bool,
    /// An immediate value that the next Send of a Weft peer brings.
    pub(super) joined: Option<u32>,
    /// Messages that wait for a receive.
    pub(super) rnr_queue: RnrQueue,
    /// How often a message of the peer's may find no receive, where it told.
    pub(super) retries: Option<u8>,
    /// A message that was held had not arrived whole when the stream ended.
    pub(super) cut_off: bool,
    /// Messages that are lost.
    pub(super) losses: Losses,
}

impl Receiving {
    /// A receive takes a message. The one before has to be complete: replaced it would never complete.
    pub(super) fn begin(&mut self, filling: Filling) {
        debug_assert!(self.filling.is_none(), "a receive is lost in a message");
        self.filling = Some(filling);
    }

    /// Whether a message has arrived in part.
    pub(super) fn in_message(&self) -> bool {
        self.filling.is_some() || self.open.is_some() || self.cut_off
    }

    /// Whether a segment has begun of the Send that is held and has not come whole.
    pub(super) fn holds_open_segment(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| matches!(open.target, Target::Held))
    }

    /// A Send that was held has its receive: what is outstanding of its segment goes there.
    pub(super) fn receive_the_rest(&mut self) {
        if let Some(open) = self
            .open
            .as_mut()
            .filter(|o| matches!(o.target, Target::Held))
        {
            open.target = Target::Receive;
        }
    }

    /// A Send that was held is lost, and what is to come of it.
    pub(super) fn lose_the_rest(&mut self) {
        self.losses.send = true;
        if let Some(open) = &mut self.open {
            open.target = Target::Lost;
        }
    }
}

/// A segment of which payload is outstanding.
#[derive(Clone, Copy, Debug)]
struct Open {
    target: Target,
    last: bool,
    header: Header,
}

/// What a segment's payload goes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// `(STag, TO)` of the next octet.
    Write { stag: Stag, to: u64 },
    /// The outstanding Read's scatter list.
    Read,
    /// The receive buffer's scatter list.
    Receive,
    /// The Send that is held and has not come whole.
    Held,
    /// Nothing.
    Lost,
}

/// Where the outstanding payload of the open segment goes, for a direct read.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectTarget {
    spans: [Option<Span>; DirectTarget::MOST],
    /// Octets that the spans cover.
    pub octets: usize,
}

impl DirectTarget {
    /// Most spans a direct read scatters to; what does not fit takes another read.
    pub const MOST: usize = 4;

    /// The spans in order.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.spans.iter().copied().flatten()
    }
}

impl Receiving {
    fn count_write(&mut self, octets: u32, last: bool) {
        if !self.write_open {
            self.write_octets = 0;
            self.losses.write = false;
        }
        self.write_octets = self.write_octets.wrapping_add(octets);
        self.write_open = !last;
    }

    pub(super) fn clear(&mut self) {
        self.open = None;
        self.cut_off = false;
        self.joined = None;
        self.retries = None;
        self.losses.send = false;
        self.losses.write = false;
        self.rnr_queue.clear();
    }
}

impl Qp {
    /// Takes octets of the stream; the first is the first that no earlier call consumed.
    ///
    /// Placement goes through `host`. After a peer's fault everything is consumed and the
    /// Terminate waits in [`Qp::outgoing`].
    pub fn receive(&mut self, buf: &mut [u8], host: &mut impl Host) -> Received {
        self.note_heard();
        let received = self.receive_all(buf, host);
        self.follow_rnr(host);
        received
    }

    fn receive_all(&mut self, buf: &mut [u8], host: &mut impl Host) -> Received {
        let mut consumed = 0;
        loop {
            if !self.ending.is_live() {
                return Received {
                    consumed: buf.len(),
                    need: 1,
                };
            }
            let Some(stream) = &mut self.stream else {
                return Received { consumed, need: 1 };
            };
            match stream.inbound.parse(&mut buf[consumed..]) {
                Ok(Parse::Need { octets }) => {
                    return Received {
                        consumed,
                        need: octets,
                    }
                }
                Ok(Parse::Consumed { octets }) => consumed += octets,
                Ok(Parse::More(more)) => {
                    let payload = &buf[consumed..][more.payload];
                    consumed += more.consumed;
                    let placed = self.place(payload, host);
                    self.settle(placed, host);
                }
                Ok(Parse::Segment(segment)) => {
                    let payload = &buf[consumed..][segment.payload.clone()];
                    let taken = self.take_segment(&segment, payload, host);
                    consumed += segment.consumed;
                    self.settle(taken, host);
                }
                Err(fault) => self.end_at_fault(fault, host),
            }
        }
    }

    fn settle(&mut self, result: Result<(), Fault>, host: &mut impl Host) {
        if let Err(fault) = result {
            self.end_at_fault(fault, host);
        }
    }

    /// Payload octets of the open segment that have not arrived: a driver may read them straight
    /// to [`Qp::direct_target`].
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.stream.as_ref().map_or(0, |s| s.inbound.outstanding())
    }

    /// Octets to read behind a direct read, so that the next header arrives with it.
    pub fn trailer_and_header(&self) -> usize {
        self.stream
            .as_ref()
            .map_or(0, |s| s.inbound.trailer_and_header())
    }

    /// Where the outstanding payload goes, checked now; `None` when there is none, or when the
    /// check fails (the octets then come through [`Qp::receive`], which ends the stream).
    pub fn direct_target(&self, host: &impl Host) -> Option<DirectTarget> {
        let open = self.receiving.open?;
        let len = u32::try_from(self.outstanding()).ok()?;
        let mut target = DirectTarget::default();
        let mut slots = target.spans.iter_mut();
        let mut add = |span: Span| match slots.next() {
            Some(slot) => {
                *slot = Some(span);
                target.octets += span.len as usize;
                true
            }
            None => false,
        };
        match open.target {
            Target::Write { stag, to } => {
                let right = Access::REMOTE_WRITE;
                add(host.check(stag, to, len, right, self.scope()).ok()?);
            }
            Target::Held | Target::Lost => return None,
            Target::Read | Target::Receive => {
                let (sges, done) = self.scatter_of(open.target)?;
                for piece in pieces(sges, done, len) {
                    let right = Access::LOCAL_WRITE;
                    let span = host
                        .check(
                            Stag(piece.lkey),
                            piece.addr,
                            piece.length,
                            right,
                            self.scope(),
                        )
                        .ok()?;
                    if !add(span) {
                        break;
                    }
                }
            }
        }
        Some(target)
    }

    /// The driver read `octets` of the outstanding payload straight to their target.
    pub fn placed(&mut self, octets: usize, host: &mut impl Host) {
        if let Some(stream) = &mut self.stream {
            stream.inbound.placed(octets);
        }
        self.advance(octets as u32);
        let done = self.close_segment_if_complete(host);
        self.settle(done, host);
        self.follow_rnr(host);
    }

    fn take_segment(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        self.counters.segments_in += 1;
        self.note_first_segment();
        let len = segment.payload_len;
        let header = segment.header;
        let (target, last) = match &segment.message {
            Message::Write { stag, to, last } => {
                self.receiving.count_write(len as u32, *last);
                if len == 0 {
                    self.note_zero_length_write(*stag, *to);
                    return Ok(());
                }
                let target = match self.check_write(*stag, *to, segment, host) {
                    // Its rest goes where its beginning went.
                    _ if self.receiving.losses.write => Target::Lost,
                    Ok(()) => Target::Write {
                        stag: *stag,
                        to: *to,
                    },
                    Err(_) if self.loses_write() => Target::Lost,
                    Err(fault) => return Err(fault),
                };
                (target, *last)
            }
            Message::ReadResponse { stag, to, last } => {
                self.check_read_response(*stag, *to, len, *last, header)?;
                (Target::Read, *last)
            }
            Message::Send {
                first,
                mo,
                last,
                solicited,
                invalidate,
                ..
            } => {
                if self.swallow_rtr(len, *last) {
                    return Ok(());
                }
                let send = SendSegment {
                    first: *first,
                    mo: *mo,
                    len,
                    solicited: *solicited,
                    invalidate: *invalidate,
                    header,
                };
                (self.begin_send_segment(send, host)?, *last)
            }
            Message::ReadRequest { request, .. } => {
                self.note_read_request(request);
                return self.take_read_request(*request, header, host);
            }
            Message::Terminate(terminate) => {
                self.end_terminated(Terminated::new(*terminate), host);
                return Ok(());
            }
            Message::ImmediateData {
                data, solicited, ..
            } => return self.take_immediate(*data, *solicited, header, host),
            Message::AtomicRequest { request, .. } => {
                return self.take_atomic_request(*request, header, host);
            }
            Message::AtomicResponse { response, .. } => {
                return self.take_atomic_response(*response, header, host);
            }
        };
        self.receiving.open = Some(Open {
            target,
            last,
            header,
        });
        self.place(payload, host)
    }

    /// Checks an RDMA Write segment (RFC 5041 section 7.1).
    fn check_write(
        &self,
        stag: Stag,
        to: u64,
        segment: &Segment,
        host: &impl Host,
    ) -> Result<(), Fault> {
        let checked = if self.access.contains(Access::REMOTE_WRITE) {
            let right = Access::REMOTE_WRITE;
            let len = segment.payload_len as u32;
            host.check(stag, to, len, right, self.scope()).map(|_| ())
        } else {
            Err(RegionFault::Access)
        };
        checked.map_err(|fault| write_fault(fault, segment.ulpdu_len, segment.header))
    }

    /// Places octets of the open segment, in order.
    fn place(&mut self, octets: &[u8], host: &mut impl Host) -> Result<(), Fault> {
        let Some(open) = self.receiving.open else {
            return Ok(());
        };
        match open.target {
            Target::Write { stag, to } => {
                let len = octets.len() as u32;
                let right = Access::REMOTE_WRITE;
                let written = host
                    .check(stag, to, len, right, self.scope())
                    .and_then(|span| {
                        host.write(span, octets)
                            .map_err(|_| RegionFault::InvalidStag)
                    });
                written.map_err(|fault| {
                    write_fault(fault, segment_len(&open.header, len), open.header)
                })?;
            }
            Target::Held => self.hold_octets(octets, host)?,
            Target::Lost => {}
            Target::Read | Target::Receive => {
                if self.scatter_octets(open.target, octets, host).is_err() {
                    return self.local_protection_fault(open, host);
                }
            }
        }
        self.advance(octets.len() as u32);
        self.close_segment_if_complete(host)
    }

    /// Places octets of the receive that is being filled.
    pub(super) fn scatter_received(
        &mut self,
        octets: &[u8],
        host: &mut impl Host,
    ) -> Result<(), RegionFault> {
        self.scatter_octets(Target::Receive, octets, host)?;
        if let Some(filling) = &mut self.receiving.filling {
            filling.received += octets.len() as u32;
        }
        self.counters.octets_placed += octets.len() as u64;
        Ok(())
    }

    fn scatter_octets(
        &self,
        target: Target,
        octets: &[u8],
        host: &mut impl Host,
    ) -> Result<(), RegionFault> {
        let Some((sges, done)) = self.scatter_of(target) else {
            return Err(RegionFault::InvalidStag);
        };
        let mut rest = octets;
        for piece in pieces(sges, done, octets.len() as u32) {
            let (now, later) = rest.split_at(piece.length as usize);
            let right = Access::LOCAL_WRITE;
            let span = host.check(
                Stag(piece.lkey),
                piece.addr,
                piece.length,
                right,
                self.scope(),
            )?;
            host.write(span, now)
                .map_err(|_| RegionFault::InvalidStag)?;
            rest = later;
        }
        Ok(())
    }

    fn scatter_of(&self, target: Target) -> Option<(&[Sge], u32)> {
        match target {
            Target::Write { .. } | Target::Held | Target::Lost => None,
            Target::Read => self
                .reads
                .sink()
                .map(|(list, done)| (list.as_slice(), done)),
            Target::Receive => self
                .receiving
                .filling
                .as_ref()
                .map(|f| (f.wqe.scatter.as_slice(), f.received)),
        }
    }

    fn advance(&mut self, octets: u32) {
        let Some(open) = &mut self.receiving.open else {
            return;
        };
        if !matches!(open.target, Target::Held | Target::Lost) {
            self.counters.octets_placed += u64::from(octets);
        }
        match &mut open.target {
            Target::Held | Target::Lost => {}
            Target::Write { to, .. } => *to = to.wrapping_add(u64::from(octets)),
            Target::Read => self.reads.received(octets),
            Target::Receive => {
                if let Some(filling) = &mut self.receiving.filling {
                    filling.received += octets;
                }
            }
        }
    }

    /// When the open segment's payload is placed completely and it was its message's last, the
    /// message is delivered.
    fn close_segment_if_complete(&mut self, host: &mut impl Host) -> Result<(), Fault> {
        if self.outstanding() > 0 {
            return Ok(());
        }
        let Some(open) = self.receiving.open.take() else {
            return Ok(());
        };
        if !open.last {
            return Ok(());
        }
        match open.target {
            Target::Write { .. } => Ok(()),
            Target::Read => {
                self.finish_read(host);
                Ok(())
            }
            Target::Receive => self.deliver_send(open.header, host),
            Target::Held => {
                self.receiving.losses.send = false;
                self.finish_held(host);
                Ok(())
            }
            Target::Lost => {
                self.receiving.losses.send &= matches!(open.header, Header::Tagged(_));
                Ok(())
            }
        }
    }

    /// A Send that is the ready-to-receive message consumes no receive buffer. It is the first message, empty and
    /// whole.
    fn swallow_rtr(&mut self, len: usize, last: bool) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        core::mem::take(&mut stream.swallow_rtr_send) && len == 0 && last
    }

    /// The first FPDU lets the responder send (RFC 5044 section 7.1.2, rule 4).
    pub(super) fn note_first_segment(&mut self) {
        if let Some(stream) = &mut self.stream {
            if !stream.may_send {
                stream.may_send = true;
                self.timers.cancel(super::timers::Timer::FirstFpdu);
                self.events.push_back(super::QpEvent::FirstFpdu);
            }
        }
    }
}

fn segment_len(header: &Header, payload: u32) -> u16 {
    (header.wire_len() + payload as usize) as u16
}

fn write_fault(fault: RegionFault, ulpdu_len: u16, header: Header) -> Fault {
    let (fault, field) = match fault {
        RegionFault::InvalidStag => (PeerFault::TaggedStag, "RDMA Write: STag"),
        RegionFault::WrongPd => (PeerFault::TaggedStream, "RDMA Write: STag"),
        RegionFault::Bounds => (PeerFault::TaggedBounds, "RDMA Write: TO and length"),
        RegionFault::Wrap => (PeerFault::TaggedToWrap, "RDMA Write: TO"),
        RegionFault::Access => (PeerFault::WriteAccess, "RDMA Write: STag"),
    };
    Fault::new(fault, field).in_segment(ulpdu_len, header)
}

impl Qp {
    /// The program's own buffer failed while the peer did nothing wrong.
    fn local_protection_fault(&mut self, open: Open, host: &mut impl Host) -> Result<(), Fault> {
        use crate::types::WcStatus;
        match open.target {
            Target::Receive => self.fail_receive(WcStatus::LocalProtection, host),
            Target::Read | Target::Write { .. } | Target::Held | Target::Lost => {
                self.blame_oldest_read(WcStatus::LocalProtection);
            }
        }
        self.end_locally(host);
        Ok(())
    }
}
