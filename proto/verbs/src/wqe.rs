//! Work queue elements: posted work requests as the device keeps them.
//!
//! An element is filled in where it stands in its queue. One that is made elsewhere and then moved is read again in
//! wider pieces than it was written in a moment before, and a processor waits with such a read until the writes have
//! left its store buffer.

mod recv;
mod slots;

pub(crate) use recv::RecvQueue;
pub use recv::RecvWqe;

use alloc::vec::Vec;

use slots::Slots;
use weft_iwarp::Msn;

use crate::types::{
    Payload, PostError, QpCap, SendFlags, SendOp, SendRequest, SgList, WcOpcode, WcStatus, MAX_SGE,
};

/// Octets an atomic operation works on.
const ATOMIC_LEN: u64 = 8;

/// How far a send work request has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Not looked at yet, or partly encoded.
    Queued,
    /// Done once this many octets of the stream were taken by the transport.
    SentAt(u64),
    /// A Read or atomic whose response is awaited.
    AwaitingResponse,
    /// Done; waits for its predecessors.
    Done,
}

/// A posted send work request.
#[derive(Clone, Debug)]
pub(crate) struct SendWqe {
    pub wr_id: u64,
    pub op: SendOp,
    pub flags: SendFlags,
    pub gather: SgList,
    /// Octets of inline data in the queue's inline area; 0 when gathered.
    pub inline_len: u16,
    /// Number of the request since the queue was made: names its inline slot.
    pub sequence: u64,
    /// Whole length of the message, octets.
    pub len: u32,
    pub progress: Progress,
    /// Sequence number of its message, of a Send that is framed.
    pub msn: Option<Msn>,
    /// Set when the peer or a check found it at fault.
    pub status: WcStatus,
}

impl SendWqe {
    /// What is put into the queue and filled.
    const VACANT: SendWqe = SendWqe {
        wr_id: 0,
        op: SendOp::Send,
        flags: SendFlags {
            fence: false,
            signaled: false,
            solicited: false,
        },
        gather: SgList::EMPTY,
        inline_len: 0,
        sequence: 0,
        len: 0,
        progress: Progress::Queued,
        msn: None,
        status: WcStatus::Success,
    };

    #[inline]
    fn copy_op(&mut self, op: &SendOp) {
        match *op {
            SendOp::Send => self.op = SendOp::Send,
            SendOp::Write { remote_addr, rkey } => self.op = SendOp::Write { remote_addr, rkey },
            SendOp::Read { remote_addr, rkey } => self.op = SendOp::Read { remote_addr, rkey },
            _ => self.copy_rarer_op(op),
        }
    }

    /// Apart: among the others it would make a compiler copy all of them as a whole.
    #[inline(never)]
    fn copy_rarer_op(&mut self, op: &SendOp) {
        self.op = *op;
    }

    pub(crate) fn opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Send | SendOp::SendWithInvalidate { .. } | SendOp::SendWithImm { .. } => {
                WcOpcode::Send
            }
            SendOp::Write { .. } | SendOp::WriteWithImm { .. } => WcOpcode::Write,
            SendOp::Read { .. } => WcOpcode::Read,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::CompareSwap { .. } => WcOpcode::CompareSwap,
            SendOp::BindWindow(_) => WcOpcode::BindWindow,
            SendOp::LocalInvalidate { .. } => WcOpcode::LocalInvalidate,
        }
    }
}

/// The send queue: work requests in posting order and the area their inline data lies in.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: Slots<SendWqe>,
    /// How many from the front are encoded completely.
    encoded: usize,
    depth: u32,
    max_sge: u32,
    max_inline: u32,
    /// Requests posted since the queue was made.
    sequence: u64,
    /// Of those, how many were known to be polled when last looked.
    polled: u64,
    /// Requests that ended since the last completion was made.
    unreported: u32,
    inline_area: Vec<u8>,
}

impl SendQueue {
    pub(crate) fn new(cap: &QpCap) -> SendQueue {
        SendQueue {
            wqes: Slots::new(),
            encoded: 0,
            depth: cap.max_send_wr,
            max_sge: cap.max_send_sge,
            max_inline: cap.max_inline_data,
            sequence: 0,
            polled: 0,
            unreported: 0,
            inline_area: Vec::new(),
        }
    }

    /// Whether a request could be posted behind `earlier` others; gives its length in octets.
    #[inline]
    pub(crate) fn check(
        &mut self,
        request: &SendRequest<'_>,
        earlier: u32,
        polled: impl FnOnce() -> u64,
    ) -> Result<u32, PostError> {
        let depth = u64::from(self.depth);
        let after = self.sequence + u64::from(earlier);
        if after - self.polled >= depth {
            // A request takes its place until it, or a later one, was polled.
            self.polled = polled();
            if after - self.polled >= depth {
                return Err(PostError::QueueFull);
            }
        }
        match request.payload {
            Payload::Gather(sges) => {
                if sges.len() > self.max_sge as usize || sges.len() > MAX_SGE {
                    return Err(PostError::TooLarge);
                }
            }
            Payload::Inline(octets) => {
                if octets.len() > self.max_inline as usize {
                    return Err(PostError::TooLarge);
                }
                if request.op.awaits_response() || request.op.is_local() {
                    return Err(PostError::Unsupported);
                }
            }
        }
        let octets = request.payload.octets();
        let atomic = matches!(
            request.op,
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. }
        );
        if atomic && octets != ATOMIC_LEN {
            return Err(PostError::InvalidLength);
        }
        u32::try_from(octets).map_err(|_| PostError::TooLarge)
    }

    #[inline]
    pub(crate) fn push(
        &mut self,
        request: &SendRequest<'_>,
        polled: impl FnOnce() -> u64,
    ) -> Result<(), PostError> {
        let len = self.check(request, 0, polled)?;
        self.push_checked(request, len);
        Ok(())
    }

    /// Takes a request for which [`SendQueue::check`] gave `len`.
    #[inline]
    pub(crate) fn push_checked(&mut self, request: &SendRequest<'_>, len: u32) {
        let inline_len = match request.payload {
            Payload::Gather(_) => 0,
            Payload::Inline(octets) => self.keep_inline(octets),
        };
        let wqe = self.push_head(request, len);
        wqe.inline_len = inline_len;
        if let Payload::Gather(sges) = request.payload {
            wqe.gather.fill(sges);
        }
    }

    /// Takes a request for which [`SendQueue::check`] gave `len`, and that is encoded: of its payload nothing is
    /// kept. It is done once the transport has taken `end` octets of the stream. Gives its number.
    #[inline]
    pub(crate) fn push_encoded(
        &mut self,
        request: &SendRequest<'_>,
        len: u32,
        end: u64,
        msn: Option<Msn>,
    ) -> u64 {
        debug_assert_eq!(self.unencoded(), 0, "requests are encoded in order");
        let wqe = self.push_head(request, len);
        wqe.progress = Progress::SentAt(end);
        wqe.msn = msn;
        self.encoded += 1;
        self.sequence - 1
    }

    /// Appends a request without its payload.
    #[inline]
    fn push_head(&mut self, request: &SendRequest<'_>, len: u32) -> &mut SendWqe {
        let sequence = self.sequence;
        self.sequence += 1;
        let wqe = self.wqes.push(|| SendWqe::VACANT);
        wqe.wr_id = request.wr_id;
        wqe.copy_op(&request.op);
        wqe.flags = request.flags;
        wqe.inline_len = 0;
        wqe.sequence = sequence;
        wqe.len = len;
        wqe.progress = Progress::Queued;
        wqe.msn = None;
        wqe.status = WcStatus::Success;
        debug_assert!(wqe.gather.as_slice().is_empty(), "who left took its list");
        wqe
    }

    /// Copies inline octets to the next request's place.
    fn keep_inline(&mut self, octets: &[u8]) -> u16 {
        if self.inline_area.is_empty() {
            let area = self.inline_places() as usize * self.max_inline as usize;
            self.inline_area.resize(area, 0);
        }
        let start = self.inline_start(self.sequence);
        self.inline_area[start..start + octets.len()].copy_from_slice(octets);
        octets.len() as u16
    }

    /// Places of the inline area: a power of two, so that a request's is found without a division.
    #[inline]
    fn inline_places(&self) -> u64 {
        u64::from(self.depth).next_power_of_two()
    }

    #[inline]
    fn inline_start(&self, sequence: u64) -> usize {
        (sequence & (self.inline_places() - 1)) as usize * self.max_inline as usize
    }

    /// What a request of this queue sends.
    #[inline]
    pub(crate) fn payload<'a>(&'a self, wqe: &'a SendWqe) -> Payload<'a> {
        match usize::from(wqe.inline_len) {
            0 => Payload::Gather(wqe.gather.as_slice()),
            len => {
                let start = self.inline_start(wqe.sequence);
                Payload::Inline(&self.inline_area[start..start + len])
            }
        }
    }

    /// What the first request sends that is not encoded completely.
    #[inline]
    pub(crate) fn payload_to_encode(&self) -> Payload<'_> {
        let wqe = self.wqes.get(self.encoded);
        wqe.map_or(Payload::Gather(&[]), |wqe| self.payload(wqe))
    }

    /// The first request that is not encoded completely.
    #[inline]
    pub(crate) fn next_to_encode(&mut self) -> Option<&mut SendWqe> {
        self.wqes.get_mut(self.encoded)
    }

    /// The first request that is not encoded completely is now.
    #[inline]
    pub(crate) fn advance(&mut self) {
        debug_assert!(self.encoded < self.wqes.len(), "none is left to encode");
        self.encoded += 1;
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&SendWqe> {
        self.wqes.get(0)
    }

    /// The request behind `ahead` others.
    pub(crate) fn get(&self, ahead: usize) -> Option<&SendWqe> {
        self.wqes.get(ahead)
    }

    pub(crate) fn pop_front(&mut self) -> Option<SendWqe> {
        let wqe = core::mem::replace(self.wqes.get_mut(0)?, SendWqe::VACANT);
        self.note_popped(wqe.sequence);
        Some(wqe)
    }

    /// Ends the request at the front, of which all is known.
    #[inline]
    pub(crate) fn drop_front(&mut self) {
        if let Some(wqe) = self.wqes.get_mut(0) {
            wqe.gather.clear();
            let sequence = wqe.sequence;
            self.note_popped(sequence);
        }
    }

    #[inline]
    fn note_popped(&mut self, sequence: u64) {
        self.wqes.drop_front();
        debug_assert_eq!(
            sequence + 1 + self.wqes.len() as u64,
            self.sequence,
            "each request ends once, in order"
        );
        self.encoded = self.encoded.saturating_sub(1);
        self.unreported += 1;
    }

    /// How many requests ended with the one a completion is made for: see
    /// [`crate::types::Completion::slots`].
    #[inline]
    pub(crate) fn take_slots(&mut self) -> u32 {
        core::mem::take(&mut self.unreported)
    }

    /// Marks the oldest request that awaits its response as done; gives its number.
    pub(crate) fn finish_oldest_awaiting(&mut self) -> Option<u64> {
        let awaits = |w: &&mut SendWqe| w.progress == Progress::AwaitingResponse;
        let wqe = self.wqes.iter_mut().find(awaits)?;
        wqe.progress = Progress::Done;
        Some(wqe.sequence)
    }

    /// Gives the first unfinished request of the kind that `matches` accepts a status; its number.
    pub(crate) fn blame(
        &mut self,
        status: WcStatus,
        matches: impl Fn(&SendWqe) -> bool,
    ) -> Option<u64> {
        let wqe = self.wqes.iter_mut().find(|w| matches(w))?;
        wqe.status = status;
        Some(wqe.sequence)
    }

    /// Whether a request is encoded and not complete.
    pub(crate) fn under_way(&self) -> bool {
        self.encoded > 0
    }

    /// Requests that are not done.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.wqes.len()
    }

    /// Requests not encoded completely.
    #[inline]
    pub(crate) fn unencoded(&self) -> usize {
        self.wqes.len() - self.encoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Sge, Stag};

    const CAP: QpCap = QpCap {
        max_send_wr: 2,
        max_recv_wr: 2,
        max_send_sge: 3,
        max_recv_sge: 3,
        max_inline_data: 4,
    };
    const ELEMENT: Sge = Sge {
        addr: 0,
        length: 1,
        lkey: 0,
    };

    fn check(cap: QpCap, op: SendOp, payload: Payload<'_>) -> Result<u32, PostError> {
        let request = SendRequest {
            wr_id: 1,
            op,
            flags: SendFlags::default(),
            payload,
        };
        SendQueue::new(&cap).check(&request, 0, || 0)
    }

    #[test]
    fn a_gather_list_is_as_long_as_the_queue_was_made_for_and_a_list_may_be() {
        let list = [ELEMENT; MAX_SGE + 1];
        let gathered = |cap, n| check(cap, SendOp::Send, Payload::Gather(&list[..n]));
        assert_eq!(gathered(CAP, 3), Ok(3));
        assert_eq!(gathered(CAP, 4), Err(PostError::TooLarge));
        let wide = QpCap {
            max_send_sge: 100,
            ..CAP
        };
        assert_eq!(gathered(wide, MAX_SGE), Ok(16));
        assert_eq!(gathered(wide, MAX_SGE + 1), Err(PostError::TooLarge));
    }

    #[test]
    fn only_what_carries_octets_to_the_peer_may_carry_them_inline() {
        let inline = |op, octets| check(CAP, op, Payload::Inline(octets));
        assert_eq!(inline(SendOp::Send, b"1234"), Ok(4));
        assert_eq!(inline(SendOp::Send, b"12345"), Err(PostError::TooLarge));
        let read = SendOp::Read {
            remote_addr: 0,
            rkey: Stag(0),
        };
        assert_eq!(inline(read, b"1234"), Err(PostError::Unsupported));
        let invalidate = SendOp::LocalInvalidate { stag: Stag(0) };
        assert_eq!(inline(invalidate, b""), Err(PostError::Unsupported));
    }
}
