//! Extended completion queues: `ibv_create_cq_ex(3)`, `ibv_start_poll` and what reads a completion.

use libc::c_int;

use super::{create, take_one, Queue};
use crate::entry::{code, invalid, pointer, unsupported, value, Errno};
use crate::handle::Handle;
use crate::layout::numbers::*;
use crate::layout::{ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc, Read};

/// What of a completion can be asked for: all that every completion has. There is no clock that
/// stamps completions, so times are refused.
const READABLE: u64 = IBV_WC_STANDARD_FLAGS as u64;

/// Behind the inline `ibv_create_cq_ex(3)`.
pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer(|| {
        if attr.is_null() {
            return invalid();
        }
        // SAFETY: the program's structure.
        let attr = unsafe { *attr };
        let mask = i64::from(attr.comp_mask);
        let flags = match mask & IBV_CQ_INIT_ATTR_MASK_FLAGS {
            0 => 0,
            _ => i64::from(attr.flags),
        };
        if mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 {
            return invalid();
        }
        if mask & IBV_CQ_INIT_ATTR_MASK_PD != 0
            || attr.wc_flags & !READABLE != 0
            || flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0
        {
            return unsupported();
        }
        let cqe = c_int::try_from(attr.cqe).or(invalid())?;
        let vector = c_int::try_from(attr.comp_vector).or(invalid())?;
        // SAFETY: objects of ours, or null.
        let cq = unsafe { create(context, cqe, attr.cq_context, attr.channel, vector)? };
        let extended: *mut ibv_cq_ex = cq.cast();
        // SAFETY: just made, and nobody else knows it: every queue has the extended layout.
        fill(unsafe { &mut *extended }, attr.wc_flags);
        Ok(extended)
    })
}

/// Puts the functions in. What was not asked for has none.
fn fill(cq: &mut ibv_cq_ex, wc_flags: u64) {
    fn when<T>(wanted: bool, function: unsafe extern "C" fn(*mut ibv_cq_ex) -> T) -> Read<T> {
        wanted.then_some(function)
    }
    let wants = |flag: i64| wc_flags & flag as u64 != 0;
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_byte_len = when(wants(IBV_WC_EX_WITH_BYTE_LEN), read_byte_len);
    cq.read_imm_data = when(wants(IBV_WC_EX_WITH_IMM), read_imm_data);
    cq.read_qp_num = when(wants(IBV_WC_EX_WITH_QP_NUM), read_qp_num);
    cq.read_src_qp = when(wants(IBV_WC_EX_WITH_SRC_QP), read_src_qp);
    cq.read_slid = when(wants(IBV_WC_EX_WITH_SLID), read_slid);
    cq.read_sl = when(wants(IBV_WC_EX_WITH_SL), read_sl);
    cq.read_dlid_path_bits = when(wants(IBV_WC_EX_WITH_DLID_PATH_BITS), read_dlid_path_bits);
}

/// Takes the next completion; `ENOENT` when there is none.
///
/// # Safety
/// `cq` is a queue of ours, and this thread is in its polling region.
unsafe fn advance(cq: *mut ibv_cq_ex, serve: bool) -> Result<(), Errno> {
    // SAFETY: the caller promises: `cq` is a queue of ours, and this thread is in its polling region.
    let queue = unsafe { Handle::<Queue>::of(cq.cast())? };
    let wc = take_one(queue, serve)?.ok_or(Errno(libc::ENOENT))?;
    // SAFETY: the region makes this thread the only one at these.
    unsafe {
        (*cq).status = wc.status;
        (*cq).wr_id = wc.wr_id;
        *queue.current.get() = wc;
    }
    Ok(())
}

/// Behind the inline `ibv_start_poll`: 0, `ENOENT`, or an errno. After anything but 0 there is no
/// `ibv_end_poll`.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    code(|| {
        // SAFETY: a queue of ours or null; the program's structure.
        let queue = unsafe { Handle::<Queue>::of(cq.cast())? };
        // SAFETY: as above.
        if attr.is_null() || unsafe { (*attr).comp_mask } != 0 {
            return invalid();
        }
        queue.polling.enter();
        // SAFETY: as above.
        let taken = unsafe { advance(cq, true) };
        if taken.is_err() {
            queue.polling.leave();
        }
        taken
    })
}

/// Behind the inline `ibv_next_poll`.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: between start and end of polling, as documented.
    code(|| unsafe { advance(cq, false) })
}

/// Behind the inline `ibv_end_poll`.
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    value((), || {
        // SAFETY: a queue of ours, or null.
        unsafe { Handle::<Queue>::of(cq.cast())? }.polling.leave();
        Ok(())
    });
}

/// A number of the current completion.
///
/// # Safety
/// `cq` is a queue of ours, between start and end of polling.
unsafe fn read<T: Default>(cq: *mut ibv_cq_ex, of: impl FnOnce(&ibv_wc) -> T) -> T {
    value(T::default(), || {
        // SAFETY: the caller promises: `cq` is a queue of ours, between start and end of polling; the polling region
        // makes this thread the only one.
        unsafe { Ok(of(&*Handle::<Queue>::of(cq.cast())?.current.get())) }
    })
}

/// Functions that read one field of the current completion.
macro_rules! readers {
    ($( $name:ident = $field:ident: $type:ty; )*) => {
        $(
            unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
                // SAFETY: between start and end of polling, as documented.
                unsafe { read(cq, |wc| wc.$field.into()) }
            }
        )*
    };
}

readers! {
    read_opcode = opcode: c_int;
    read_vendor_err = vendor_err: u32;
    read_byte_len = byte_len: u32;
    read_imm_data = invalidated_rkey: u32;
    read_qp_num = qp_num: u32;
    read_src_qp = src_qp: u32;
    read_wc_flags = wc_flags: u32;
    read_slid = slid: u32;
    read_sl = sl: u8;
    read_dlid_path_bits = dlid_path_bits: u8;
}
