//! Posting work requests: the fast path. Conversions only, and no allocation.

use std::mem::{offset_of, MaybeUninit};
use std::ptr::copy_nonoverlapping;
use std::slice::from_raw_parts;
use std::sync::Arc;

use libc::c_int;
use weft_engine::types::{
    Payload, PostError, QpNumber, RecvRequest, SendFlags, SendOp, SendRequest, Sge, Stag,
    MAX_INLINE, MAX_SGE,
};
use weft_engine::{UdQp, UdTarget};

use crate::ah::Ah;
use crate::entry::{code, invalid, unsupported, Errno, Outcome};
use crate::handle::Handle;
use crate::layout::numbers::*;
use crate::layout::{ibv_ah, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq};
use crate::queue_pair::{Engine, Pair};
use crate::srq::Srq;
use crate::window;

impl From<PostError> for Errno {
    #[inline]
    fn from(error: PostError) -> Errno {
        Errno(match error {
            PostError::QueueFull => libc::ENOMEM,
            PostError::InvalidState | PostError::TooLarge | PostError::InvalidLength => {
                libc::EINVAL
            }
            PostError::Unsupported => libc::EOPNOTSUPP,
        })
    }
}

const _: () = assert!(
    size_of::<Sge>() == size_of::<ibv_sge>()
        && align_of::<Sge>() == align_of::<ibv_sge>()
        && offset_of!(Sge, addr) == offset_of!(ibv_sge, addr)
        && offset_of!(Sge, length) == offset_of!(ibv_sge, length)
        && offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey),
    "an element is the same to the engine"
);

/// A program's scatter/gather list, where the program has it.
///
/// # Errors
/// `EINVAL`: longer than any queue takes, or null.
///
/// # Safety
/// `list` has `count` elements, or is null; they are not changed while the list is used.
#[inline]
unsafe fn elements<'a>(list: *const ibv_sge, count: c_int) -> Outcome<&'a [Sge]> {
    let count = usize::try_from(count).or(invalid())?;
    if count > MAX_SGE || list.is_null() && count > 0 {
        return invalid();
    }
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller promises: `list` has `count` elements, which nobody changes meanwhile; that they are laid out
    // as the engine's are is asserted above.
    Ok(unsafe { from_raw_parts(list.cast(), count) })
}

/// Room for octets that are copied when they are posted.
struct Inline([MaybeUninit<u8>; MAX_INLINE]);

impl Inline {
    #[inline]
    const fn new() -> Inline {
        Inline([MaybeUninit::uninit(); MAX_INLINE])
    }

    /// Copies what a list names; keys mean nothing here.
    ///
    /// # Errors
    /// `EINVAL`: more than any queue takes.
    ///
    /// # Safety
    /// Every element of the list names memory that can be read.
    #[inline]
    unsafe fn gather(&mut self, list: &[Sge]) -> Outcome<&[u8]> {
        let mut used = 0;
        for element in list {
            let length = element.length as usize;
            let Some(target) = self.0.get_mut(used..used + length) else {
                return invalid();
            };
            // SAFETY: the caller promises: every element of the list names memory that can be read; the target has
            // room for `length` octets.
            unsafe {
                copy_nonoverlapping(
                    element.addr as *const u8,
                    target.as_mut_ptr().cast(),
                    length,
                );
            }
            used += length;
        }
        // SAFETY: the first `used` octets were just written.
        Ok(unsafe { from_raw_parts(self.0.as_ptr().cast(), used) })
    }
}

/// What a work request asks for.
///
/// # Errors
/// `EOPNOTSUPP`: known and not served, since it is for another type of queue pair; `EINVAL`:
/// unknown, or what it names does not fit.
///
/// # Safety
/// `wr` is a work request of the program's, with all that it points to.
#[inline]
unsafe fn operation(wr: &ibv_send_wr) -> Outcome<SendOp> {
    let (remote_addr, rkey) = (wr.remote_addr, Stag(wr.rkey));
    match i64::from(wr.opcode) {
        IBV_WR_SEND => Ok(SendOp::Send),
        IBV_WR_RDMA_WRITE => Ok(SendOp::Write { remote_addr, rkey }),
        IBV_WR_RDMA_READ => Ok(SendOp::Read { remote_addr, rkey }),
        _ => {
            // SAFETY: the caller promises: `wr` is a work request of the program's, with all that it points to.
            let op = unsafe { rarer_operation(wr)? };
            Ok(op)
        }
    }
}

/// What the other work requests ask for. Apart, so that those that most programs post stay in registers.
///
/// # Errors
/// As for [`operation`].
///
/// # Safety
/// As for [`operation`].
#[inline(never)]
unsafe fn rarer_operation(wr: &ibv_send_wr) -> Outcome<SendOp> {
    let (remote_addr, rkey) = (wr.remote_addr, Stag(wr.rkey));
    let stag = Stag(wr.invalidate_rkey);
    // In network byte order in memory; the engine has it as a number.
    let imm = u32::from_be(wr.invalidate_rkey);
    match i64::from(wr.opcode) {
        IBV_WR_SEND_WITH_INV => Ok(SendOp::SendWithInvalidate { stag }),
        IBV_WR_LOCAL_INV => Ok(SendOp::LocalInvalidate { stag }),
        IBV_WR_RDMA_WRITE_WITH_IMM => Ok(SendOp::WriteWithImm {
            remote_addr,
            rkey,
            imm,
        }),
        IBV_WR_SEND_WITH_IMM => Ok(SendOp::SendWithImm { imm }),
        IBV_WR_ATOMIC_FETCH_AND_ADD => Ok(SendOp::FetchAdd {
            remote_addr,
            rkey: Stag(wr.atomic_rkey),
            add: wr.compare_add(),
        }),
        IBV_WR_ATOMIC_CMP_AND_SWP => Ok(SendOp::CompareSwap {
            remote_addr,
            rkey: Stag(wr.atomic_rkey),
            compare: wr.compare_add(),
            swap: wr.swap,
        }),
        // SAFETY: the caller promises: `wr` is a work request of the program's, with all that it points to.
        IBV_WR_BIND_MW => unsafe { window::type_2(wr.mw, Stag(wr.mw_rkey), &wr.bind_info) },
        IBV_WR_TSO => unsupported(),
        _ => invalid(),
    }
}

/// Posts one request through `post`.
///
/// # Safety
/// `wr` is a work request of the program's, with all that it points to.
#[inline]
unsafe fn send_one(
    wr: &ibv_send_wr,
    mut post: impl FnMut(&SendRequest<'_>) -> Result<(), PostError>,
) -> Outcome<()> {
    // SAFETY: the caller promises: `wr` is a work request of the program's, with all that it points to.
    let op = unsafe { operation(wr)? };
    let set = |flag: i64| i64::from(wr.send_flags) & flag != 0;
    // Such have no payload, and programs leave the list uninitialised.
    let count = if op.is_local() { 0 } else { wr.num_sge };
    // SAFETY: the caller promises: `wr` is a work request of the program's, with all that it points to.
    let list = unsafe { elements(wr.sg_list, count)? };
    let mut request = SendRequest {
        wr_id: wr.wr_id,
        op,
        flags: SendFlags {
            fence: set(IBV_SEND_FENCE),
            signaled: set(IBV_SEND_SIGNALED),
            solicited: set(IBV_SEND_SOLICITED),
        },
        payload: Payload::Gather(list),
    };
    if !set(IBV_SEND_INLINE) || count == 0 {
        return Ok(post(&request)?);
    }
    if op.awaits_response() {
        return invalid();
    }
    let mut room = Inline::new();
    // SAFETY: the caller promises: `wr` is a work request of the program's, with all that it points to.
    request.payload = Payload::Inline(unsafe { room.gather(list)? });
    Ok(post(&request)?)
}

/// Behind the inline `ibv_post_send(3)`. A list of several leaves in one go; of single posts the
/// engine decides what it gathers.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut at = wr;
    let failed = code(|| {
        // SAFETY: a queue pair of ours, or null.
        let pair = unsafe { Handle::<Pair>::of(qp)? };
        // SAFETY: the list is the program's, ends with null and is not changed meanwhile.
        let Some(first) = (unsafe { at.as_ref() }) else {
            return Ok(());
        };
        let engine = match &pair.engine {
            Engine::Connected(engine) => engine,
            // SAFETY: as above.
            Engine::Datagrams(engine) => return unsafe { send_datagrams(engine, &mut at) },
        };
        if first.next.is_null() {
            // SAFETY: as above.
            return unsafe { send_one(first, |request| engine.post_send(request)) };
        }
        let mut batch = engine.send_batch();
        // SAFETY: as above.
        while let Some(request) = unsafe { at.as_ref() } {
            // SAFETY: as above.
            unsafe { send_one(request, |request| batch.post(request))? };
            at = request.next;
        }
        Ok(())
    });
    report(failed, at, bad_wr)
}

/// Posts a list of datagrams; `at` is left at the one that failed.
///
/// # Safety
/// The list is the program's, ends with null and is not changed meanwhile.
unsafe fn send_datagrams(engine: &Arc<UdQp>, at: &mut *mut ibv_send_wr) -> Outcome<()> {
    let mut batch = engine.send_batch();
    // SAFETY: the caller promises: the list is the program's, ends with null and is not changed meanwhile.
    while let Some(request) = unsafe { at.as_ref() } {
        // SAFETY: as above; the address handle is of ours, or null.
        let to = unsafe { ud_target(request.ud_ah(), request.rkey, request.remote_qkey)? };
        // SAFETY: as above.
        unsafe { send_one(request, |request| batch.post(request, to))? };
        *at = request.next;
    }
    Ok(())
}

/// Where a datagram goes.
///
/// # Errors
/// `EINVAL`: no address handle.
///
/// # Safety
/// `ah` is of ours, or null.
pub unsafe fn ud_target(ah: *mut ibv_ah, qp: u32, qkey: u32) -> Outcome<UdTarget> {
    // SAFETY: the caller promises: `ah` is of ours, or null.
    let handle = unsafe { Handle::<Ah>::of(ah)? };
    Ok(UdTarget {
        local: handle.engine.local,
        peer: handle.engine.peer,
        qp: QpNumber(qp),
        qkey,
    })
}

/// Tells the program which request failed.
#[inline]
fn report<T>(failed: c_int, at: *mut T, bad_wr: *mut *mut T) -> c_int {
    if failed != 0 && !bad_wr.is_null() {
        // SAFETY: the program gave the address for the answer.
        unsafe { *bad_wr = at };
    }
    failed
}

/// Posts a list of receives, each through `post`; `at` is left at the one that failed.
///
/// # Safety
/// The list is the program's, ends with null and is not changed meanwhile.
#[inline]
unsafe fn receive_list(
    at: &mut *mut ibv_recv_wr,
    post: impl Fn(&RecvRequest<'_>) -> Result<(), PostError>,
) -> Outcome<()> {
    // SAFETY: the caller promises: the list is the program's, ends with null and is not changed meanwhile.
    while let Some(request) = unsafe { at.as_ref() } {
        // SAFETY: the caller promises: the list is the program's, ends with null and is not changed meanwhile.
        let scatter = unsafe { elements(request.sg_list, request.num_sge)? };
        post(&RecvRequest {
            wr_id: request.wr_id,
            scatter,
        })?;
        *at = request.next;
    }
    Ok(())
}

/// Behind the inline `ibv_post_recv(3)`.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut at = wr;
    let failed = code(|| {
        // SAFETY: a queue pair of ours, or null.
        let pair = unsafe { Handle::<Pair>::of(qp)? };
        if pair.shared_receives {
            return invalid();
        }
        // SAFETY: the program's list.
        unsafe {
            match &pair.engine {
                Engine::Connected(engine) => {
                    receive_list(&mut at, |request| engine.post_recv(request))
                }
                Engine::Datagrams(engine) => {
                    receive_list(&mut at, |request| engine.post_recv(request))
                }
            }
        }
    });
    report(failed, at, bad_wr)
}

/// Behind the inline `ibv_post_srq_recv(3)`.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut at = wr;
    let failed = code(|| {
        // SAFETY: a queue of ours, or null.
        let queue = unsafe { Handle::<Srq>::of(srq)? };
        // SAFETY: the program's list.
        unsafe { receive_list(&mut at, |request| queue.engine.post_recv(request)) }
    });
    report(failed, at, bad_wr)
}
