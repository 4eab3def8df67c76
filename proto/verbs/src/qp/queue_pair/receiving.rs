//! The receive pass: octets of the stream to placements and completions.

use weft_iwarp::{Fault, Message, Parse, Segment};

use super::Qp;
use crate::host::Host;
use crate::qp::arriving::{Open, Target};
use crate::qp::direct::{DirectTarget, Received};
use crate::qp::ending::QpEvent;
use crate::qp::receives::SendSegment;
use crate::qp::responder::Request;
use crate::qp::stream::Stream;
use crate::qp::terminated::Terminated;
use crate::qp::timers::Timer;
use crate::qp::writes;
use crate::scatter::scatter;
use crate::types::{Access, WcStatus};

impl Qp {
    /// Takes octets of the stream; the first is the first that no earlier call consumed.
    ///
    /// Placement goes through `host`. After a peer's fault everything is consumed and the
    /// Terminate waits in [`Qp::outgoing`].
    pub fn receive(&mut self, buf: &mut [u8], host: &mut impl Host) -> Received {
        self.probes.note_heard(&mut self.timers);
        let received = self.receive_all(buf, host);
        self.follow_rnr(host);
        received
    }

    fn receive_all(&mut self, buf: &mut [u8], host: &mut impl Host) -> Received {
        let mut consumed = self.receive_whole_writes(buf, host);
        loop {
            if !self.lifecycle.is_live() {
                return Received {
                    consumed: buf.len(),
                    need: 1,
                };
            }
            let Some(stream) = &mut self.stream else {
                return Received { consumed, need: 1 };
            };
            match stream.parse(&mut buf[consumed..]) {
                Ok(Parse::Need { octets }) => {
                    return Received {
                        consumed,
                        need: octets,
                    }
                }
                Ok(Parse::Consumed { octets }) => {
                    consumed += octets;
                    consumed += self.receive_whole_writes(&buf[consumed..], host);
                }
                Ok(Parse::More(more)) => {
                    let payload = &buf[consumed..][more.payload];
                    consumed += more.consumed;
                    let placed = self.place(payload, host);
                    self.settle(placed, host);
                    consumed += self.receive_whole_writes(&buf[consumed..], host);
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

    /// Places the RDMA Writes at the front of `buf` that are one segment each and there whole: most of what comes where
    /// messages are short. It ends before the first thing that is none or may not be placed, at which the general way
    /// looks anew. Gives the octets consumed.
    #[inline]
    fn receive_whole_writes(&mut self, buf: &[u8], host: &mut impl Host) -> usize {
        let (scope, access) = (self.attributes.scope(), self.attributes.access());
        let is_ready = self.lifecycle.is_live() && access.contains(Access::REMOTE_WRITE);
        let Some(stream) = self.stream.as_ref().filter(|_| is_ready) else {
            return 0;
        };
        let mut consumed = 0;
        while let Some(write) = stream.whole_write(&buf[consumed..]) {
            debug_assert!(self.arriving.open().is_none(), "another segment is open");
            let payload = &buf[consumed..][write.payload];
            let target = (write.stag, write.to);
            if writes::place_whole(target, payload, scope, host).is_err() {
                break;
            }
            consumed += write.consumed;
            self.writes.count(payload.len() as u32, true);
            self.counters.segments_in += 1;
            self.counters.octets_placed += payload.len() as u64;
        }
        if consumed > 0 {
            self.note_whole_writes();
        }
        consumed
    }

    #[inline]
    fn note_whole_writes(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.note_whole_writes();
        }
        self.note_first_segment();
    }

    pub(super) fn settle(&mut self, result: Result<(), Fault>, host: &mut impl Host) {
        if let Err(fault) = result {
            self.end_at_fault(fault, host);
        }
    }

    /// Payload octets of the open segment that have not arrived: a driver may read them straight
    /// to [`Qp::direct_target`].
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.stream.as_ref().map_or(0, Stream::outstanding)
    }

    /// Octets to read behind a direct read, so that the next header arrives with it.
    pub fn trailer_and_header(&self) -> usize {
        self.stream.as_ref().map_or(0, Stream::trailer_and_header)
    }

    /// Where the outstanding payload goes, checked now; `None` when there is none, or when the
    /// check fails (the octets then come through [`Qp::receive`], which ends the stream).
    pub fn direct_target(&self, host: &impl Host) -> Option<DirectTarget> {
        let len = u32::try_from(self.outstanding()).ok()?;
        self.target_of_open(len, host)
    }

    /// Where the next `len` octets of the open segment go.
    pub(super) fn target_of_open(&self, len: u32, host: &impl Host) -> Option<DirectTarget> {
        let open = self.arriving.open()?;
        let scope = self.attributes.scope();
        let list = match open.target {
            Target::Held | Target::Lost => return None,
            Target::Write { stag, to } => {
                let span = writes::span(stag, to, len, scope, host).ok()?;
                return Some(DirectTarget::of_span(span));
            }
            Target::Read => self.reads.sink()?,
            Target::Receive => self.receives.sink()?,
        };
        DirectTarget::of_list(list, len, scope, host).ok()
    }

    /// The driver read `octets` of the outstanding payload straight to their target.
    pub fn placed(&mut self, octets: usize, host: &mut impl Host) {
        if let Some(stream) = &mut self.stream {
            stream.placed(octets);
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
        match self.begin_segment(segment, host)? {
            true => self.place(payload, host),
            false => Ok(()),
        }
    }

    /// A segment's turn has come: finds what its payload goes to. False when it has none that is to be placed.
    #[inline(always)]
    pub(super) fn begin_segment(
        &mut self,
        segment: &Segment,
        host: &mut impl Host,
    ) -> Result<bool, Fault> {
        self.counters.segments_in += 1;
        self.note_first_segment();
        let len = segment.payload_len;
        let header = segment.header;
        let (target, last) = match &segment.message {
            Message::Write { stag, to, last } => {
                self.writes.count(len as u32, *last);
                if len == 0 {
                    self.hear(*stag, *to);
                    return Ok(false);
                }
                let (stag, to) = (*stag, *to);
                let (attributes, counters) = (&self.attributes, &mut self.counters);
                let is_placed =
                    self.writes
                        .admit((stag, to), segment, attributes, counters, host)?;
                let target = match is_placed {
                    true => Target::Write { stag, to },
                    false => Target::Lost,
                };
                (target, *last)
            }
            Message::ReadResponse { stag, to, last } => {
                self.reads
                    .check_read_response(*stag, *to, len, *last, header)?;
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
                if self
                    .stream
                    .as_mut()
                    .is_some_and(|s| s.swallow_rtr(len, *last))
                {
                    return Ok(false);
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
                self.hear_read(request);
                self.take_request(Request::Read(*request), header, host)?;
                return Ok(false);
            }
            Message::Terminate(terminate) => {
                self.end_terminated(&Terminated::new(*terminate), host);
                return Ok(false);
            }
            Message::ImmediateData {
                data, solicited, ..
            } => {
                self.take_immediate(*data, *solicited, header, host)?;
                return Ok(false);
            }
            Message::AtomicRequest { request, .. } => {
                self.take_request(Request::Atomic(*request), header, host)?;
                return Ok(false);
            }
            Message::AtomicResponse { response, .. } => {
                self.take_atomic_response(*response, header, host)?;
                return Ok(false);
            }
        };
        self.arriving.begin(target, last, header);
        Ok(true)
    }

    /// Places octets of the open segment, in order.
    pub(super) fn place(&mut self, octets: &[u8], host: &mut impl Host) -> Result<(), Fault> {
        let Some(open) = self.arriving.open() else {
            return Ok(());
        };
        let scope = self.attributes.scope();
        match open.target {
            Target::Receive => {
                if self.receives.place(octets, scope, host).is_err() {
                    self.fail_receive_locally(host);
                    return Ok(());
                }
            }
            Target::Write { stag, to } => {
                writes::place((stag, to), octets, open.header, scope, host)?;
            }
            target => {
                if !self.place_rarer(target, octets, host)? {
                    return Ok(());
                }
            }
        }
        self.advance(octets.len() as u32);
        self.close_segment_if_complete(host)
    }

    /// Places octets that are neither a Send's nor a Write's, or holds them; false where that failed on this side.
    /// Apart, so that those two are told from each other by a comparison that is foreseen, and not by a table.
    #[inline(never)]
    fn place_rarer(
        &mut self,
        target: Target,
        octets: &[u8],
        host: &mut impl Host,
    ) -> Result<bool, Fault> {
        match target {
            Target::Receive | Target::Write { .. } | Target::Lost => {}
            Target::Held => self.hold_octets(octets, host)?,
            Target::Read => {
                let scope = self.attributes.scope();
                let sink = self.reads.sink();
                let placed = sink.map(|(list, done)| scatter(list, done, octets, scope, host));
                if !matches!(placed, Some(Ok(()))) {
                    self.fail_read_locally(host);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The memory of the oldest Read is not there.
    #[cold]
    pub(super) fn fail_read_locally(&mut self, host: &mut impl Host) {
        self.requester
            .fail_oldest_awaiting(WcStatus::LocalProtection);
        self.end_locally(host);
    }

    /// The memory of the receive that is being filled is not there.
    #[cold]
    pub(super) fn fail_receive_locally(&mut self, host: &mut impl Host) {
        self.fail_receive(WcStatus::LocalProtection, host);
        self.end_locally(host);
    }

    /// Octets of the open segment are placed, or held, or lost.
    #[inline]
    pub(super) fn advance(&mut self, octets: u32) {
        match self.arriving.advance(octets) {
            None | Some(Target::Held | Target::Lost) => return,
            Some(Target::Write { .. }) => {}
            Some(Target::Read) => self.reads.received(octets),
            Some(Target::Receive) => self.receives.received(octets),
        }
        self.counters.octets_placed += u64::from(octets);
    }

    /// When the open segment's payload is placed completely and it was its message's last, the
    /// message is delivered.
    pub(super) fn close_segment_if_complete(&mut self, host: &mut impl Host) -> Result<(), Fault> {
        if self.outstanding() > 0 {
            return Ok(());
        }
        let Some(Open {
            target,
            last: true,
            header,
        }) = self.arriving.close()
        else {
            return Ok(());
        };
        match target {
            Target::Write { .. } | Target::Lost => {}
            Target::Read => self.finish_read(host),
            Target::Receive => return self.deliver_send(header, host),
            Target::Held => {
                self.rnr_queue.complete();
                self.let_go(host);
            }
        }
        Ok(())
    }

    /// Lets a responder send although the peer's first FPDU has not arrived, which RFC 5044 section 7.1.2 forbids: for
    /// a program whose server speaks first and an initiator that promises no ready-to-receive message.
    pub fn speak_first(&mut self) {
        self.note_first_segment();
    }

    #[inline]
    fn note_first_segment(&mut self) {
        if self.stream.as_mut().is_some_and(Stream::note_first_segment) {
            self.timers.cancel(Timer::FirstFpdu);
            self.events.push_back(QpEvent::FirstFpdu);
        }
    }
}
