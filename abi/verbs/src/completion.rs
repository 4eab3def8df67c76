//! Completion channels and completion queues; extended polling is in [`extended`].

mod extended;

use std::cell::UnsafeCell;
use std::mem::zeroed;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use libc::{c_int, c_void};
use weft_engine::types::{Completion, WcOpcode, WcStatus};
use weft_engine::{CompChannel, Cq};

use crate::context::Context;
use crate::entry::{code, invalid, pointer, status, value, Errno, Outcome};
use crate::event_references::{self, Acks};
use crate::exclusive_region::Region;
use crate::handle::{Handle, Object, Side};
use crate::layout::numbers::*;
use crate::layout::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};

pub use extended::create_cq_ex;

/// Completion vectors: every CQ is served alike, so there is one.
pub const VECTORS: c_int = 1;

/// A completion channel.
pub struct Channel {
    engine: Side<CompChannel>,
    /// Completion queues that use it.
    users: AtomicU32,
}

impl Object for Channel {
    type Public = ibv_comp_channel;
    type Pointee = ibv_comp_channel;
    const MAGIC: u32 = 0x6368_3030;
}

/// A completion queue.
pub struct Queue {
    /// The engine's side of it.
    pub engine: Arc<Cq>,
    number: u64,
    acks: Arc<Acks>,
    /// Between `ibv_start_poll` and `ibv_end_poll`.
    polling: Region,
    /// The completion that is read there. Only the thread in the region touches it.
    current: UnsafeCell<ibv_wc>,
}

impl Object for Queue {
    type Public = ibv_cq_ex;
    type Pointee = ibv_cq;
    const MAGIC: u32 = 0x6371_3030;
}

impl Queue {
    /// Acknowledges events of the queue.
    pub fn acknowledge(&self, events: u64) {
        self.acks.acknowledge(events);
    }
}

/// Makes a completion channel.
///
/// # Safety
/// `context` is a context of ours or null.
pub unsafe fn create_channel(context: *mut ibv_context) -> Outcome<*mut ibv_comp_channel> {
    // SAFETY: the caller promises: `context` is a context of ours or null.
    let device = unsafe { Handle::<Context>::of(context)? };
    let engine = device.engine.create_comp_channel()?;
    let public = ibv_comp_channel {
        context,
        fd: engine.fd(),
        refcnt: 0,
    };
    let private = Channel {
        engine: Side::new(engine),
        users: AtomicU32::new(0),
    };
    Ok(Handle::create(public, private))
}

/// Ends a completion channel.
///
/// # Safety
/// `channel` is a channel of ours or null, and given up unless this fails.
pub unsafe fn destroy_channel(channel: *mut ibv_comp_channel) -> Outcome<()> {
    // SAFETY: the caller promises: `channel` is a channel of ours or null, and given up unless this fails.
    unsafe {
        let ending = Handle::<Channel>::of(channel)?;
        if ending.users.load(Ordering::Acquire) > 0 {
            return Err(Errno(libc::EBUSY));
        }
        ending.engine.let_go();
        Handle::<Channel>::retire(channel);
    }
    Ok(())
}

/// Makes a completion queue.
///
/// # Safety
/// `context` and `channel` are objects of ours or null.
pub unsafe fn create(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> Outcome<*mut ibv_cq> {
    // SAFETY: the caller promises: `context` and `channel` are objects of ours or null.
    let device = unsafe { Handle::<Context>::of(context)? };
    if cqe < 1 || !(0..VECTORS).contains(&comp_vector) {
        return invalid();
    }
    let channel_object = if channel.is_null() {
        None
    } else {
        // SAFETY: the caller promises: `context` and `channel` are objects of ours or null.
        Some(unsafe { Handle::<Channel>::of(channel)? })
    };
    let channel_engine = channel_object
        .map(|channel| channel.engine.get())
        .transpose()?;
    let number = event_references::new_number();
    let engine = device
        .engine
        .create_cq(cqe as u32, channel_engine.as_ref(), number)?;
    if let Some(channel) = channel_object {
        channel.add_user(1);
    }
    // SAFETY: numbers, addresses, and a mutex and a condition whose initial value is zero.
    let mut public: ibv_cq_ex = unsafe { zeroed() };
    public.context = context;
    public.channel = channel;
    public.cq_context = cq_context;
    public.cqe = engine.capacity() as c_int;
    let acks = Arc::default();
    let private = Queue {
        engine,
        number,
        acks: Arc::clone(&acks),
        polling: Region::default(),
        // SAFETY: numbers, for which zero is a value.
        current: unsafe { zeroed() },
    };
    let cq = Handle::create(public, private);
    event_references::enter(number, cq as usize, &acks);
    Ok(cq)
}

impl Handle<Channel> {
    fn add_user(&self, change: i32) {
        let before = self.users.fetch_add(change as u32, Ordering::AcqRel);
        // SAFETY: a live channel; the field is ours to write, for programs to look at.
        unsafe { (*self.public()).refcnt = before as c_int + change };
    }
}

/// Ends a completion queue, after its events were acknowledged.
///
/// # Safety
/// `cq` is a queue of ours or null, and given up unless this fails.
pub unsafe fn destroy(cq: *mut ibv_cq) -> Outcome<()> {
    // SAFETY: the caller promises: `cq` is a queue of ours or null, and given up unless this fails.
    unsafe {
        let queue = Handle::<Queue>::of(cq)?;
        queue.engine.destroy()?;
        event_references::leave(queue.number);
        let channel = (*queue.public()).channel;
        if !channel.is_null() {
            Handle::<Channel>::of(channel)?.add_user(-1);
        }
        Handle::<Queue>::retire(cq);
    }
    Ok(())
}

/// The next completion event of a channel: its queue, found alive.
fn next_event(channel: &CompChannel) -> Outcome<*mut ibv_cq> {
    loop {
        // An event whose queue was destroyed meanwhile belongs to nobody.
        if let Some(entry) = event_references::hand_out(channel.get_event()?) {
            return Ok(entry.address as *mut ibv_cq);
        }
    }
}

export! {
    /// `ibv_create_comp_channel(3)`.
    fn ibv_create_comp_channel(
        context: *mut ibv_context,
    ) -> *mut ibv_comp_channel, of context(context) {
        // SAFETY: a context of ours, or null.
        pointer(|| unsafe { create_channel(context) })
    }

    /// `ibv_destroy_comp_channel(3)`: `EBUSY` while completion queues use it.
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int, of object(channel) {
        // SAFETY: a channel of ours or null; the program gives it up unless this fails.
        code(|| unsafe { destroy_channel(channel) })
    }

    /// `ibv_create_cq(3)`. A null `channel` means no events.
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq, of context(context) {
        // SAFETY: objects of ours, or null.
        pointer(|| unsafe { create(context, cqe, cq_context, channel, comp_vector) })
    }

    /// `ibv_resize_cq(3)`.
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int, of object(cq) {
        code(|| {
            // SAFETY: a queue of ours, or null.
            let queue = unsafe { Handle::<Queue>::of(cq)? };
            queue.engine.resize(u32::try_from(cqe).or(invalid())?)?;
            // SAFETY: a live queue; the field is ours to write.
            unsafe { (*queue.public()).cqe = queue.engine.capacity() as c_int };
            Ok(())
        })
    }

    /// `ibv_destroy_cq(3)`: `EBUSY` while queue pairs use it; waits for unacknowledged events.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int, of object(cq) {
        // SAFETY: a queue of ours or null; the program gives it up unless this fails.
        code(|| unsafe { destroy(cq) })
    }

    /// `ibv_get_cq_event(3)`: blocks unless the channel's descriptor is non-blocking.
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int, of object(channel) {
        status(|| {
            if cq.is_null() || cq_context.is_null() {
                return invalid();
            }
            // SAFETY: a channel of ours or null; the queue stays alive until the event is
            // acknowledged; the program gave the addresses for the answer.
            unsafe {
                // Held while this thread waits, should another one end the channel meanwhile.
                let engine = Handle::<Channel>::of(channel)?.engine.get()?;
                let queue = next_event(&engine)?;
                *cq = queue;
                *cq_context = (*queue).cq_context;
            }
            Ok(())
        })
    }

    /// `ibv_ack_cq_events(3)`.
    fn ibv_ack_cq_events(cq: *mut ibv_cq, events: u32), of object(cq) {
        value((), || {
            // SAFETY: a queue of ours, or null.
            unsafe { Handle::<Queue>::of(cq)? }.acknowledge(events.into());
            Ok(())
        })
    }
}

/// Behind the inline `ibv_poll_cq(3)`: the number of completions, or a negative errno.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    let mut taken = 0;
    let failed = code(|| {
        // SAFETY: a queue of ours, or null.
        let queue = unsafe { Handle::<Queue>::of(cq)? };
        let entries = usize::try_from(entries).or(invalid())?;
        if wc.is_null() && entries > 0 {
            return invalid();
        }
        let mut next = wc;
        taken = queue.engine.poll(entries, |completion| {
            // SAFETY: the program's array has `entries` elements, and no more are given.
            unsafe {
                next.write(convert(&completion));
                next = next.add(1);
            }
        })?;
        Ok(())
    });
    if failed == 0 {
        taken as c_int
    } else {
        -failed
    }
}

/// Takes the next completion; when none waits and `serve` says so, connections are served first.
fn take_one(queue: &Queue, serve: bool) -> Outcome<Option<ibv_wc>> {
    let mut taken = None;
    let each = |completion: Completion| taken = Some(convert(&completion));
    if serve {
        queue.engine.poll(1, each)?;
    } else {
        queue.engine.poll_ready(1, each)?;
    }
    Ok(taken)
}

/// Behind the inline `ibv_req_notify_cq(3)`.
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    code(|| {
        // SAFETY: a queue of ours, or null.
        let queue = unsafe { Handle::<Queue>::of(cq)? };
        queue.engine.request_notify(solicited_only != 0);
        Ok(())
    })
}

#[inline]
fn convert(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: status_number(completion.status),
        opcode: opcode_number(completion.opcode),
        vendor_err: 0,
        byte_len: completion.byte_len,
        invalidated_rkey: imm_or_rkey(completion),
        qp_num: completion.qp.0,
        src_qp: completion.source.map_or(0, |source| source.0),
        wc_flags: flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// The union of `imm_data`, in network byte order, and `invalidated_rkey`.
#[inline]
fn imm_or_rkey(completion: &Completion) -> u32 {
    match (completion.imm, completion.invalidated) {
        (Some(imm), _) => imm.to_be(),
        (None, Some(stag)) => stag.0,
        (None, None) => 0,
    }
}

#[inline]
fn flags(completion: &Completion) -> u32 {
    let mut flags = 0;
    if completion.source.is_some() {
        flags |= IBV_WC_GRH;
    }
    if completion.imm.is_some() {
        flags |= IBV_WC_WITH_IMM;
    }
    if completion.invalidated.is_some() {
        flags |= IBV_WC_WITH_INV;
    }
    flags as u32
}

#[inline]
fn status_number(status: WcStatus) -> c_int {
    (match status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::LocalLength => IBV_WC_LOC_LEN_ERR,
        WcStatus::LocalQpOperation => IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocalProtection => IBV_WC_LOC_PROT_ERR,
        WcStatus::Flushed => IBV_WC_WR_FLUSH_ERR,
        WcStatus::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        // The peer's refusal to invalidate is its answer to an invalid request (siw reports so too).
        WcStatus::RemoteInvalidRequest | WcStatus::RemoteInvalidate => IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemoteOperation => IBV_WC_REM_OP_ERR,
        WcStatus::RetryExceeded => IBV_WC_RETRY_EXC_ERR,
        WcStatus::RnrRetryExceeded => IBV_WC_RNR_RETRY_EXC_ERR,
        WcStatus::MwBind => IBV_WC_MW_BIND_ERR,
        WcStatus::Fatal => IBV_WC_FATAL_ERR,
    }) as c_int
}

#[inline]
fn opcode_number(opcode: WcOpcode) -> c_int {
    (match opcode {
        WcOpcode::Send => IBV_WC_SEND,
        WcOpcode::Write => IBV_WC_RDMA_WRITE,
        WcOpcode::Read => IBV_WC_RDMA_READ,
        WcOpcode::LocalInvalidate => IBV_WC_LOCAL_INV,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::CompareSwap => IBV_WC_COMP_SWAP,
        WcOpcode::BindWindow => IBV_WC_BIND_MW,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvWriteWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }) as c_int
}

/// The engine's queue behind an address that may be null.
///
/// # Safety
/// A queue of ours, or null.
pub unsafe fn engine_of(cq: *mut ibv_cq) -> Outcome<Arc<Cq>> {
    // SAFETY: the caller promises: a queue of ours, or null.
    Ok(Arc::clone(&unsafe { Handle::<Queue>::of(cq)? }.engine))
}
