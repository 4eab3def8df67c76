//! A message that finds no receive: held for a while, where the peer is Weft.
//!
//! On InfiniBand the receiver asks for patience (RNR) and the sender tries again; programs written
//! for it post their receives late. iWARP ends the connection. Between two Weft peers the message
//! is kept, with whatever is behind it and must not overtake it: Sends, Immediate Data, Read and
//! Atomic Requests. Writes are placed (RFC 5041 section 5.3 leaves their order free), Read and
//! Atomic Responses and Terminates are acted on, so nothing that this side waits for stands
//! behind what it has not made room for. How long is in `rnr`. Once a good deal is held the driver
//! should leave the rest in its TCP ([`Qp::is_full`]), whose window then slows the peer down as RNR would; how much is
//! held at most is bounded here.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_iwarp::{AtomicRequest, Fault, Header, PeerFault, ReadRequest};

use super::responder::Request;
use super::untagged::{Filling, SendSegment};
use super::{Ending, Qp, QpEvent};
use crate::host::Host;
use crate::types::WcStatus;

/// Octets of payload that are enough to hold.
const FULL_OCTETS: usize = 1024 * 1024;
/// Octets of payload that are held at most, should the driver not stop at enough.
const HELD_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// What a message counts beside its payload, so that empty ones are bounded too.
const MESSAGE_OVERHEAD_OCTETS: usize = 256;

/// What is held, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct RnrQueue {
    messages: VecDeque<Message>,
    weight: usize,
    /// How many messages were let go so far: names the one at the front.
    passed: u64,
}

#[derive(Debug)]
enum Message {
    Send {
        segment: SendSegment,
        imm: Option<u32>,
        octets: Vec<u8>,
        complete: bool,
    },
    Immediate {
        imm: u32,
        octets: u32,
        solicited: bool,
        header: Header,
    },
    Request(Request, Header),
}

impl Message {
    fn weight(&self) -> usize {
        MESSAGE_OVERHEAD_OCTETS
            + match self {
                Message::Send { octets, .. } => octets.len(),
                Message::Immediate { .. } | Message::Request(..) => 0,
            }
    }

    fn header(&self) -> Header {
        match self {
            Message::Send { segment, .. } => segment.header,
            Message::Immediate { header, .. } | Message::Request(_, header) => *header,
        }
    }
}

impl RnrQueue {
    fn push(&mut self, message: Message) {
        self.weight += message.weight();
        self.messages.push_back(message);
    }

    fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.weight -= message.weight();
        self.passed += 1;
        Some(message)
    }

    /// Read and Atomic Requests among what is held: they count against the IRD.
    pub(super) fn requests(&self) -> usize {
        let requests = |m: &&Message| matches!(m, Message::Request(..));
        self.messages.iter().filter(requests).count()
    }

    /// No more octets come: what has not arrived whole never will, and nobody waits for the answers to requests with no
    /// message behind them. Whether a message was cut off.
    fn end_of_stream(&mut self) -> bool {
        let mut cut_off = false;
        while let Some(back) = self.messages.back() {
            let incomplete = matches!(
                back,
                Message::Send {
                    complete: false,
                    ..
                }
            );
            if !incomplete && !matches!(back, Message::Request(..)) {
                break;
            }
            cut_off |= incomplete;
            self.weight -= back.weight();
            self.messages.pop_back();
        }
        cut_off
    }

    /// Where the Send is that has not come whole, if one has not. It is the last Send; requests that the peer sent
    /// between its segments stand behind it.
    fn incomplete(&self) -> Option<usize> {
        let is_it = |m: &Message| {
            matches!(
                m,
                Message::Send {
                    complete: false,
                    ..
                }
            )
        };
        self.messages.iter().rposition(is_it)
    }

    /// The Send that has not come whole is not wanted any more.
    fn drop_incomplete(&mut self) {
        let Some(at) = self.incomplete() else {
            return;
        };
        self.weight -= self.messages.remove(at).map_or(0, |m| m.weight());
        // Another message is at the front.
        self.passed += u64::from(at == 0);
    }

    pub(super) fn clear(&mut self) {
        *self = RnrQueue {
            passed: self.passed + 1,
            ..RnrQueue::default()
        };
    }
}

impl Qp {
    /// Names the message that waits for a receive, if one does: another number, another message.
    #[inline]
    pub fn holding(&self) -> Option<u64> {
        let held = &self.receiving.rnr_queue;
        (!held.messages.is_empty()).then_some(held.passed)
    }

    /// How often the peer lets a message of its own find no receive before it is to be refused, where it told
    /// ([`Qp::set_rnr_retries`]).
    #[inline]
    pub fn rnr_retries_of_peer(&self) -> Option<u8> {
        self.receiving.retries
    }

    /// Whether so much is held that no more should be received until some of it goes on. What is received all the same
    /// is held too, up to a bound.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.receiving.rnr_queue.weight >= FULL_OCTETS
    }

    /// Whether what just came has to wait.
    pub(super) fn must_hold(&self) -> bool {
        !self.receiving.rnr_queue.messages.is_empty()
    }

    pub(super) fn may_hold(&self) -> bool {
        self.rnr.waits() && self.peer_is_weft() && self.receiving.rnr_queue.weight < HELD_OCTETS_MAX
    }

    /// Holds the first segment of a Send.
    pub(super) fn hold_send(&mut self, segment: SendSegment) -> Result<(), Fault> {
        if !self.may_hold() {
            let field = "Send: MSN finds no posted receive";
            return Err(segment.fault(PeerFault::NoBuffer, field));
        }
        let imm = self.receiving.joined.take();
        self.receiving.rnr_queue.push(Message::Send {
            segment,
            imm,
            octets: Vec::new(),
            complete: false,
        });
        Ok(())
    }

    pub(super) fn hold_immediate(
        &mut self,
        imm: u32,
        octets: u32,
        solicited: bool,
        header: Header,
    ) -> Result<(), Fault> {
        if !self.may_hold() {
            let ulpdu_len = (header.wire_len() + weft_iwarp::rdmap::IMMEDIATE_LEN) as u16;
            let field = "Immediate Data: MSN finds no posted receive";
            return Err(Fault::new(PeerFault::NoBuffer, field).in_segment(ulpdu_len, header));
        }
        self.receiving.rnr_queue.push(Message::Immediate {
            imm,
            octets,
            solicited,
            header,
        });
        Ok(())
    }

    pub(super) fn hold_read(&mut self, request: ReadRequest, header: Header) {
        let message = Message::Request(Request::Read(request), header);
        self.receiving.rnr_queue.push(message);
    }

    pub(super) fn hold_atomic(&mut self, request: AtomicRequest, header: Header) {
        let message = Message::Request(Request::Atomic(request), header);
        self.receiving.rnr_queue.push(message);
    }

    /// Octets of the Send that is held and has not come whole. With UC it is lost when it is too long.
    pub(super) fn hold_octets(&mut self, more: &[u8], host: &mut impl Host) -> Result<(), Fault> {
        let held = &mut self.receiving.rnr_queue;
        let Some(Message::Send {
            octets, segment, ..
        }) = held.incomplete().and_then(|at| held.messages.get_mut(at))
        else {
            return Ok(());
        };
        if held.weight > HELD_OCTETS_MAX {
            if !self.unreliable {
                let field = "Send: no posted receive, and more than is held";
                return Err(segment.fault(PeerFault::NoBuffer, field));
            }
            held.drop_incomplete();
            self.receiving.lose_the_rest();
            self.let_go(host);
            return Ok(());
        }
        octets.extend_from_slice(more);
        held.weight += more.len();
        Ok(())
    }

    /// The Send that is held is there.
    pub(super) fn finish_held(&mut self, host: &mut impl Host) {
        let held = &mut self.receiving.rnr_queue;
        let message = held.incomplete().and_then(|at| held.messages.get_mut(at));
        if let Some(Message::Send { complete, .. }) = message {
            *complete = true;
        }
        self.let_go(host);
    }

    /// Receives were posted to the shared receive queue: what no longer has to wait goes on.
    pub fn on_receives(&mut self, host: &mut impl Host) {
        self.let_go(host);
        self.follow_rnr(host);
    }

    /// Lets go of what no longer has to wait.
    pub(super) fn let_go(&mut self, host: &mut impl Host) {
        while self.ending.is_live() {
            let Some(front) = self.receiving.rnr_queue.messages.front() else {
                return;
            };
            let passed = match front {
                Message::Send { .. } | Message::Immediate { .. } => self.deliver_held(host),
                Message::Request(request, header) => {
                    let (request, header) = (*request, *header);
                    self.receiving.rnr_queue.pop();
                    self.responder.push(request, header);
                    Ok(true)
                }
            };
            match passed {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => return self.end_at_fault(fault, host),
            }
        }
    }

    /// Delivers the message at the front if there is a receive for it now. Of a Send that has arrived in part, the rest
    /// goes to the receive when it comes.
    fn deliver_held(&mut self, host: &mut impl Host) -> Result<bool, Fault> {
        let Some(wqe) = self.next_receive(host) else {
            return Ok(false);
        };
        // The rest of a segment that has begun goes to the receive without another look at its length.
        let to_come = match self.receiving.holds_open_segment() {
            true => self.outstanding(),
            false => 0,
        };
        match self.receiving.rnr_queue.pop() {
            Some(Message::Send {
                segment,
                imm,
                octets,
                complete,
            }) => {
                self.receiving.begin(Filling {
                    wqe,
                    received: 0,
                    solicited: segment.solicited,
                    invalidate: segment.invalidate,
                    imm,
                });
                let to_come = if complete { 0 } else { to_come };
                let whole = SendSegment {
                    len: octets.len() + to_come,
                    ..segment
                };
                self.check_room(whole, host)?;
                if self.scatter_received(&octets, host).is_err() {
                    self.fail_receive(WcStatus::LocalProtection, host);
                    self.end_locally(host);
                    return Ok(false);
                }
                match complete {
                    true => self.deliver_send(segment.header, host)?,
                    false => self.receiving.receive_the_rest(),
                }
            }
            Some(Message::Immediate {
                imm,
                octets,
                solicited,
                ..
            }) => self.deliver_immediate(wqe, imm, octets, solicited, host),
            Some(Message::Request(..)) | None => {}
        }
        Ok(true)
    }

    /// The stream is over: whether messages of it wait for receives.
    pub(super) fn goes_on_receiving(&mut self, host: &mut impl Host) -> bool {
        if !self.ending.is_live() || self.stream.is_none() {
            return false;
        }
        self.receiving.cut_off |= self.receiving.rnr_queue.end_of_stream();
        // A shared receive queue may have receives that nobody told of.
        self.let_go(host);
        self.must_hold() && self.ending.is_live()
    }

    /// The wait was long enough: the peer hears that there is no receive for its message. With UC, and of a peer that
    /// has gone, all that waits is lost.
    pub(super) fn give_up_holding(&mut self, host: &mut impl Host) {
        let Some(front) = self.receiving.rnr_queue.messages.front() else {
            return;
        };
        if self.may_lose() {
            self.receiving.losses.send = self.receiving.rnr_queue.incomplete().is_some();
            self.receiving.rnr_queue.clear();
            return;
        }
        if self.ending == Ending::HalfClosed {
            let lost = self.receiving.rnr_queue.messages.len();
            self.events.push_back(QpEvent::Unreceived(lost));
            self.receiving.rnr_queue.clear();
            return;
        }
        let header = front.header();
        let fault = Fault::new(PeerFault::NoBuffer, "Send: no receive was posted in time")
            .in_segment(header.wire_len() as u16, header);
        self.end_at_fault(fault, host);
    }
}
