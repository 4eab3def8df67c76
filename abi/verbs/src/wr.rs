//! `ibv_wr_*(3)`: requests built by a row of calls between `ibv_wr_start` and `ibv_wr_complete`,
//! and then posted all or none.

use std::slice::from_raw_parts;

use libc::{c_int, c_void, size_t};
use weft_engine::types::{SendFlags, SendOp, Sge, Stag, MAX_SGE};

use crate::entry::{code, invalid, value, Outcome};
use crate::handle::Handle;
use crate::layout::numbers::*;
use crate::layout::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};
use crate::post::ud_target;
use crate::queue_pair::{Engine, Pair};
use crate::request_builder::{Builder, Built, Requests};
use crate::window;

/// Operations that `send_ops_flags` may ask for: all from a plain Write to Send with Invalidate.
pub const SERVED: u64 = ((IBV_QP_EX_WITH_SEND_WITH_INV as u64) << 1) - 1;

/// The same for queue pairs that send datagrams.
pub const SERVED_BY_DATAGRAMS: u64 = (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM) as u64;

/// The builder of a queue pair.
///
/// # Safety
/// `qp` is a queue pair of ours, or null.
unsafe fn builder<'a>(qp: *mut ibv_qp_ex) -> Outcome<(&'a Handle<Pair>, &'a Builder)> {
    // SAFETY: the caller promises: `qp` is a queue pair of ours, or null.
    let pair = unsafe { Handle::<Pair>::of(qp.cast())? };
    match &pair.building {
        Some(builder) => Ok((pair, builder)),
        None => invalid(),
    }
}

/// Works on the requests between start and end; what is wrong is kept for the end.
///
/// # Safety
/// `qp` is a queue pair of ours or null, between `ibv_wr_start` and its end, in this thread.
unsafe fn build(qp: *mut ibv_qp_ex, work: impl FnOnce(&mut Requests) -> Outcome<()>) {
    value((), || {
        // SAFETY: the caller promises: `qp` is a queue pair of ours or null, between `ibv_wr_start` and its end, in
        // this thread; the region makes this thread the only one here.
        let requests = unsafe { &mut *builder(qp)?.1.requests.get() };
        if let Err(errno) = work(requests) {
            requests.wrong.get_or_insert(errno);
        }
        Ok(())
    });
}

/// Begins a request with the identifier and the flags that stand in the queue pair.
///
/// # Safety
/// As for [`build`].
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: the caller promises: what `build` asks for; a live queue pair's own fields.
    unsafe {
        build(qp, |requests| {
            let set = |flag: i64| i64::from((*qp).wr_flags) & flag != 0;
            requests.built.push(Built {
                wr_id: (*qp).wr_id,
                op,
                flags: SendFlags {
                    fence: set(IBV_SEND_FENCE),
                    signaled: set(IBV_SEND_SIGNALED),
                    solicited: set(IBV_SEND_SOLICITED),
                },
                sges: 0..0,
                inline: None,
                to: None,
            });
            Ok(())
        });
    }
}

/// Puts the functions into a new queue pair.
pub fn fill(qp: &mut ibv_qp_ex) {
    qp.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(atomic_fetch_add);
    qp.wr_bind_mw = Some(bind_mw);
    qp.wr_local_inv = Some(local_inv);
    qp.wr_rdma_read = Some(rdma_read);
    qp.wr_rdma_write = Some(rdma_write);
    qp.wr_rdma_write_imm = Some(rdma_write_imm);
    qp.wr_send = Some(send);
    qp.wr_send_imm = Some(send_imm);
    qp.wr_send_inv = Some(send_inv);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    value((), || {
        // SAFETY: a queue pair of ours, or null.
        unsafe { builder(qp)? }.1.region.enter();
        Ok(())
    });
}

/// Ends the building and posts everything, or nothing and says why.
unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    code(|| {
        // SAFETY: a queue pair of ours or null, between start and end, in this thread.
        let (pair, builder) = unsafe { builder(qp)? };
        // SAFETY: the region makes this thread the only one here.
        let requests = unsafe { &mut *builder.requests.get() };
        let posted = post_all(pair, requests);
        requests.clear();
        builder.region.leave();
        posted
    })
}

fn post_all(pair: &Pair, requests: &Requests) -> Outcome<()> {
    if let Some(errno) = requests.wrong {
        return Err(errno);
    }
    match &pair.engine {
        Engine::Connected(engine) => {
            let mut batch = engine.send_batch();
            for (earlier, built) in requests.built.iter().enumerate() {
                batch.check(&requests.request(built), earlier as u32)?;
            }
            for built in &requests.built {
                batch.post(&requests.request(built))?;
            }
        }
        Engine::Datagrams(engine) => {
            let mut batch = engine.send_batch();
            for (earlier, built) in requests.built.iter().enumerate() {
                if built.to.is_none() {
                    return invalid();
                }
                batch.check(&requests.request(built), earlier as u32)?;
            }
            for built in &requests.built {
                if let Some(to) = built.to {
                    batch.post(&requests.request(built), to)?;
                }
            }
        }
    }
    Ok(())
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    value((), || {
        // SAFETY: a queue pair of ours or null, between start and end, in this thread.
        let builder = unsafe { builder(qp)? }.1;
        // SAFETY: the region makes this thread the only one here.
        unsafe { &mut *builder.requests.get() }.clear();
        builder.region.leave();
        Ok(())
    });
}

/// Functions that begin a request with no more than numbers in it.
macro_rules! operations {
    ($( $name:ident($($argument:ident: $type:ty),*) = $op:expr; )*) => {
        $(
            unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $type)*) {
                // SAFETY: between start and end, as documented.
                unsafe { begin(qp, $op) }
            }
        )*
    };
}

operations! {
    send() = SendOp::Send;
    send_imm(imm: u32) = SendOp::SendWithImm { imm: u32::from_be(imm) };
    send_inv(rkey: u32) = SendOp::SendWithInvalidate { stag: Stag(rkey) };
    local_inv(rkey: u32) = SendOp::LocalInvalidate { stag: Stag(rkey) };
    rdma_read(rkey: u32, remote_addr: u64) = SendOp::Read { remote_addr, rkey: Stag(rkey) };
    rdma_write(rkey: u32, remote_addr: u64) = SendOp::Write { remote_addr, rkey: Stag(rkey) };
    rdma_write_imm(rkey: u32, remote_addr: u64, imm: u32) = SendOp::WriteWithImm {
        remote_addr,
        rkey: Stag(rkey),
        imm: u32::from_be(imm),
    };
    atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64) = SendOp::FetchAdd {
        remote_addr,
        rkey: Stag(rkey),
        add,
    };
    atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64) = SendOp::CompareSwap {
        remote_addr,
        rkey: Stag(rkey),
        compare,
        swap,
    };
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: between start and end, as documented; what is named is of ours or null.
    unsafe {
        let op = match info.as_ref() {
            Some(info) => window::type_2(mw, Stag(rkey), info),
            None => invalid(),
        };
        match op {
            Ok(op) => begin(qp, op),
            Err(errno) => build(qp, |_| Err(errno)),
        }
    }
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { addr, length, lkey };
    // SAFETY: between start and end, as documented.
    unsafe { build(qp, |requests| requests.set_list(1, [sge].into_iter())) }
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: size_t, list: *const ibv_sge) {
    // SAFETY: between start and end, as documented; the list has `count` elements.
    unsafe {
        build(qp, |requests| {
            if count > MAX_SGE || (list.is_null() && count > 0) {
                return invalid();
            }
            let at = |n| {
                let from: ibv_sge = *list.add(n);
                Sge {
                    addr: from.addr,
                    length: from.length,
                    lkey: from.lkey,
                }
            };
            requests.set_list(count, (0..count).map(at))
        });
    }
}

/// Where the datagram that was begun last goes.
unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, number: u32, qkey: u32) {
    // SAFETY: between start and end, as documented; the handle is of ours, or null.
    unsafe {
        build(qp, |requests| {
            let to = ud_target(ah, number, qkey)?;
            let Some(last) = requests.built.last_mut() else {
                return invalid();
            };
            last.to = Some(to);
            Ok(())
        });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: size_t) {
    // SAFETY: between start and end, as documented; the program's octets.
    unsafe {
        build(qp, |requests| {
            requests.set_inline(&[ibv_data_buf { addr, length }])
        });
    }
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: size_t,
    list: *const ibv_data_buf,
) {
    // SAFETY: between start and end, as documented; the list has `count` elements.
    unsafe {
        build(qp, |requests| match (count, list.is_null()) {
            (0, _) => requests.set_inline(&[]),
            (_, true) => invalid(),
            _ => requests.set_inline(from_raw_parts(list, count)),
        });
    }
}
