//! The values verbs consumers and the device exchange: work requests, completions, attributes.
//!
//! Names follow the verbs specification (`ibv_*`); numbers that a C program sees are converted
//! at the C edge, not here.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bitflags::bitflags;
pub use weft_iwarp::Stag;

bitflags! {
    /// Rights that a memory region or a queue pair grants (`IBV_ACCESS_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u32 {
        /// The local program may have octets placed here (receives, read responses).
        const LOCAL_WRITE = 1;
        /// The peer may write here with RDMA Write.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may read from here with RDMA Read.
        const REMOTE_READ = 1 << 2;
        /// The peer may operate on this memory atomically.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
    }
}

impl Access {
    /// No right at all; gathering for a send needs none.
    pub const NONE: Access = Access::empty();
}

/// A protection domain's number; regions and queue pairs of different domains never meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct PdId(pub u32);

/// A completion queue's number, given by the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CqId(pub u32);

/// A queue pair's number (`qp_num`), 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct QpNumber(pub u32);

/// One element of a scatter/gather list: `length` octets at `addr` inside the region `lkey`. It is laid out as the C
/// interface lays out its `ibv_sge`, whose lists are read where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// Address in the region's own address space (its iova), usually the virtual address.
    pub addr: u64,
    /// Octets.
    pub length: u32,
    /// The region's local key; equal to its STag.
    pub lkey: u32,
}

impl Sge {
    /// A copy that reads each field by itself (`wqe` says why).
    #[inline]
    fn by_field(&self) -> Sge {
        Sge {
            addr: self.addr,
            length: self.length,
            lkey: self.lkey,
        }
    }
}

/// Most elements a scatter/gather list may have.
pub const MAX_SGE: usize = 16;
/// Most octets of inline data a work request may carry.
pub const MAX_INLINE: usize = 1024;
/// Most work requests a queue may hold.
pub const MAX_WR: u32 = 16384;
/// Most completions a completion queue may hold.
pub const MAX_CQE: u32 = 1 << 20;
/// Most inbound or outbound RDMA Reads outstanding on a queue pair.
pub const MAX_RD_ATOMIC: u16 = 128;

/// What a send work request asks for.
// With a tag of its own: asked for several times a message, it would cost a decoding of the niche each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SendOp {
    /// RDMAP Send.
    Send,
    /// RDMAP Send with Invalidate: the peer's region of that STag becomes invalid on delivery.
    SendWithInvalidate {
        /// The peer's STag.
        stag: Stag,
    },
    /// RDMA Write to the peer's `(rkey, remote_addr)`.
    Write {
        /// Tagged offset in the peer's region.
        remote_addr: u64,
        /// The peer's STag.
        rkey: Stag,
    },
    /// RDMA Read from the peer's `(rkey, remote_addr)` into the scatter list.
    Read {
        /// Tagged offset in the peer's region.
        remote_addr: u64,
        /// The peer's STag.
        rkey: Stag,
    },
    /// Invalidate a region of this device, in order with the send queue.
    LocalInvalidate {
        /// The local STag.
        stag: Stag,
    },
    /// A Send that hands a 32-bit value to the receive's completion (decision 0006).
    SendWithImm {
        /// The value; the wire has its octets in network byte order.
        imm: u32,
    },
    /// RDMA Write, and behind it Immediate Data, which consumes a receive (RFC 7306 section 6).
    WriteWithImm {
        /// Tagged offset in the peer's region.
        remote_addr: u64,
        /// The peer's STag.
        rkey: Stag,
        /// The value; the wire has its octets in network byte order.
        imm: u32,
    },
    /// Atomically adds to the peer's 64-bit value; what it was goes to the scatter list, which
    /// has eight octets (RFC 7306 section 5).
    FetchAdd {
        /// Tagged offset in the peer's region, of an aligned address.
        remote_addr: u64,
        /// The peer's STag.
        rkey: Stag,
        /// What to add.
        add: u64,
    },
    /// Atomically replaces the peer's 64-bit value if it is the expected one; what it was goes to
    /// the scatter list, which has eight octets.
    CompareSwap {
        /// Tagged offset in the peer's region, of an aligned address.
        remote_addr: u64,
        /// The peer's STag.
        rkey: Stag,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Bind a memory window of this device, in order with the send queue.
    BindWindow(Bind),
}

impl SendOp {
    /// Whether a response of the peer ends it: it counts against the ORD.
    #[inline]
    pub const fn awaits_response(&self) -> bool {
        matches!(
            self,
            SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. }
        )
    }

    /// Whether it concerns this device only and has no payload.
    #[inline]
    pub const fn is_local(&self) -> bool {
        matches!(self, SendOp::LocalInvalidate { .. } | SendOp::BindWindow(_))
    }
}

/// What a memory window is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The window, by any of the STags it had.
    pub window: Stag,
    /// Its STag from now on; only the key differs.
    pub rkey: Stag,
    /// The region.
    pub region: Stag,
    /// First octet, in the region's address space.
    pub addr: u64,
    /// Octets. 0 unbinds a window of type 1.
    pub len: u64,
    /// What the peer may do through the window.
    pub access: Access,
    /// The window's own address space begins at 0 instead of `addr`.
    pub zero_based: bool,
}

/// Kinds of memory windows (`ibv_mw_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowKind {
    /// Type 1: bound by a verb, for every queue pair of the domain.
    One,
    /// Type 2B: bound by a work request, for the queue pair it was posted to; invalidated before
    /// it is bound again.
    Two,
}

/// Flags of a send work request (`IBV_SEND_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendFlags {
    /// Wait for all earlier RDMA Reads before starting.
    pub fence: bool,
    /// Produce a completion also on success.
    pub signaled: bool,
    /// Raise a solicited event at the peer.
    pub solicited: bool,
}

/// Where a send work request's octets come from.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Registered memory, gathered in order.
    Gather(&'a [Sge]),
    /// Copied when posted; needs no registration.
    Inline(&'a [u8]),
}

impl Payload<'_> {
    /// Octets in all.
    #[inline(always)]
    pub fn octets(&self) -> u64 {
        match self {
            Payload::Gather(sges) => octets_of(sges),
            Payload::Inline(octets) => octets.len() as u64,
        }
    }
}

/// Octets of a list in all.
#[inline(always)]
pub(crate) fn octets_of(sges: &[Sge]) -> u64 {
    match sges {
        // Most lists are this one; the loop is made for long ones, and would cost more than all else of a post.
        [only] => u64::from(only.length),
        many => sum(many),
    }
}

#[inline(never)]
fn sum(sges: &[Sge]) -> u64 {
    sges.iter().map(|s| u64::from(s.length)).sum()
}

/// A work request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The program's identifier, returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// With what. For a Read this is the scatter list the response goes to.
    pub payload: Payload<'a>,
}

/// A work request for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// The program's identifier, returned in the completion.
    pub wr_id: u64,
    /// Where the octets of one message go, in order.
    pub scatter: &'a [Sge],
}

/// Why a work request could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The queue is full (`ENOMEM`).
    QueueFull,
    /// The queue pair's state does not take this request (`EINVAL`).
    InvalidState,
    /// More elements, inline octets or total octets than the queue was made for (`EINVAL`).
    TooLarge,
    /// The operation is not served, or not with this peer (`EOPNOTSUPP`).
    Unsupported,
    /// The octets are not as many as the operation takes (`EINVAL`).
    InvalidLength,
}

/// How a work request ended (`ibv_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WcStatus {
    /// Done.
    Success,
    /// The message did not fit the receive buffer, or is longer than a message may be.
    LocalLength,
    /// The queue pair could not carry out the operation.
    LocalQpOperation,
    /// A local key, bound or right did not allow the access.
    LocalProtection,
    /// The queue pair left RTS before this request was done.
    Flushed,
    /// The peer's key, bound or right did not allow the access.
    RemoteAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer could not carry out the operation.
    RemoteOperation,
    /// The peer refused to invalidate the STag.
    RemoteInvalidate,
    /// The peer did not answer, for as long as the queue pair tries.
    RetryExceeded,
    /// The peer had no receive for the message, for as long as it waits.
    RnrRetryExceeded,
    /// The memory window could not be bound so.
    MwBind,
    /// The completion queue or the device failed.
    Fatal,
}

/// What a completion reports on (`ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WcOpcode {
    /// A Send, with or without Invalidate.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A local invalidation.
    LocalInvalidate,
    /// A fetch-and-add.
    FetchAdd,
    /// A compare-and-swap.
    CompareSwap,
    /// The binding of a memory window.
    BindWindow,
    /// A receive.
    Recv,
    /// A receive that Immediate Data behind an RDMA Write consumed.
    RecvWriteWithImm,
}

impl WcOpcode {
    /// Whether it is of a message that the peer sent.
    #[inline]
    pub fn is_receive(self) -> bool {
        matches!(self, WcOpcode::Recv | WcOpcode::RecvWriteWithImm)
    }
}

/// A completion (`ibv_wc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The work request's identifier.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Octets received (receives; those of the Write for one with immediate) or read (reads).
    pub byte_len: u32,
    /// The queue pair it belongs to.
    pub qp: QpNumber,
    /// Places in the send queue that are free once it is polled: its own, and those of requests
    /// that ended without a completion before it. 0 for receives.
    pub slots: u32,
    /// The local STag that a Send with Invalidate made invalid.
    pub invalidated: Option<Stag>,
    /// The immediate value that came with the message.
    pub imm: Option<u32>,
    /// The peer's message asked for a solicited event, or the completion is an error.
    pub solicited: bool,
    /// The queue pair that sent the datagram.
    pub source: Option<QpNumber>,
}

/// States of a queue pair (`ibv_qp_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpState {
    /// Just created or reset; nothing may be posted.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send; the stream is up.
    Rts,
    /// Closing gracefully.
    Sqd,
    /// A Terminate is on its way.
    Sqe,
    /// Everything posted is flushed.
    Error,
}

/// Sizes of a queue pair's queues (`ibv_qp_cap`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCap {
    /// Send work requests outstanding.
    pub max_send_wr: u32,
    /// Receive work requests outstanding (0 with a shared receive queue).
    pub max_recv_wr: u32,
    /// Elements of a send's gather list.
    pub max_send_sge: u32,
    /// Elements of a receive's scatter list.
    pub max_recv_sge: u32,
    /// Octets of inline data.
    pub max_inline_data: u32,
}

/// What happened to an object outside the flow of completions (`ibv_event_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEventKind {
    /// A completion queue overflowed.
    CqError,
    /// A queue pair failed.
    QpFatal,
    /// The peer sent something invalid.
    QpRequestError,
    /// The peer tried an access it had no right to.
    QpAccessError,
    /// The responder saw the first FPDU before the program saw the connection established.
    CommEstablished,
    /// The send queue is drained.
    SqDrained,
    /// A shared receive queue fell below its limit.
    SrqLimitReached,
    /// The last receive of a shared receive queue's queue pair was consumed in the error state.
    QpLastWqeReached,
}

/// A list of elements, kept without allocation when short.
#[derive(Clone, Debug, Default)]
pub struct SgList {
    short: [Sge; 2],
    len: u8,
    long: Option<Box<[Sge]>>,
}

impl SgList {
    /// Without elements.
    pub(crate) const EMPTY: SgList = SgList {
        short: [Sge {
            addr: 0,
            length: 0,
            lkey: 0,
        }; 2],
        len: 0,
        long: None,
    };

    /// Copies `sges`.
    pub fn new(sges: &[Sge]) -> SgList {
        let mut list = SgList::EMPTY;
        list.fill(sges);
        list
    }

    /// Copies `sges` to a list that has none.
    #[inline]
    pub(crate) fn fill(&mut self, sges: &[Sge]) {
        debug_assert!(self.as_slice().is_empty(), "a list is filled once");
        self.len = sges.len() as u8;
        match sges {
            [] => {}
            [one] => self.short[0] = one.by_field(),
            [one, two] => self.short = [one.by_field(), two.by_field()],
            many => self.long = Some(Vec::from(many).into_boxed_slice()),
        }
    }

    /// The list has no elements any more.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        if self.long.is_some() {
            self.long = None;
        }
    }

    /// The elements.
    #[inline]
    pub fn as_slice(&self) -> &[Sge] {
        match &self.long {
            Some(long) => long,
            None => &self.short[..usize::from(self.len)],
        }
    }

    /// Sum of the lengths, in octets.
    #[inline]
    pub fn total(&self) -> u64 {
        self.as_slice().iter().map(|s| u64::from(s.length)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_what_the_peer_sent() {
        assert!(WcOpcode::Recv.is_receive());
        assert!(WcOpcode::RecvWriteWithImm.is_receive());
        assert!(!WcOpcode::Send.is_receive());
        assert!(!WcOpcode::Write.is_receive());
    }
}
