//! What a program asks about the device and its port.

use std::mem::{size_of, zeroed};
use std::ptr::copy_nonoverlapping;

use libc::{c_int, size_t, ssize_t};
use weft_engine::device::{self, Device};
use weft_engine::settings::Face;

use crate::context::{self, Context};
use crate::entry::{code, invalid, status, unsupported, Errno, Outcome};
use crate::gids::{gid, gid_entry, gids};
use crate::handle::Handle;
use crate::layout::numbers::*;
use crate::layout::*;
use crate::listed::put_text;

/// The only port.
pub use weft_engine::device::PORT;
/// The only partition key: the default partition, full member.
pub const PKEY: u16 = 0xffff;

/// Codes of `active_width` and `active_speed` (InfiniBand's): four lanes of 10 Gbit/s. No program is
/// known to rate its work by it; the link underneath is whatever TCP runs over.
const WIDTH_4X: u8 = 2;
const SPEED_FDR10: u8 = 8;
/// Memory is registered by the octet, so any page size from 4 KiB up will do.
const PAGE_SIZES: u64 = !0xfff;
/// `phys_state`: LinkUp.
const LINK_UP: u8 = 5;

/// Octets of `struct ibv_port_attr` that programs built before `port_cap_flags2` know.
const OLD_PORT_ATTR: usize = 48;
const _: () = assert!(OLD_PORT_ATTR == std::mem::offset_of!(ibv_port_attr, port_cap_flags2));

fn device_attributes(device: &Device) -> ibv_device_attr {
    let of = device::attributes();
    // SAFETY: numbers and characters, for which zero is a value.
    let mut attr: ibv_device_attr = unsafe { zeroed() };
    put_text(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = device.guid().to_be();
    attr.sys_image_guid = device.guid().to_be();
    attr.vendor_id = device::VENDOR;
    attr.vendor_part_id = device::VENDOR_PART;
    attr.max_mr_size = of.max_mr_size;
    attr.page_size_cap = PAGE_SIZES;
    attr.max_qp = number(of.max_qp);
    attr.max_qp_wr = number(of.max_qp_wr);
    attr.device_cap_flags = (IBV_DEVICE_MEM_MGT_EXTENSIONS
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B
        | IBV_DEVICE_SRQ_RESIZE) as u32;
    // The processor's own atomic instructions do it, so the program's count too, and IBV_ATOMIC_GLOB would be true.
    // Devices say HCA, and UCX takes atomics from a device that says HCA only.
    attr.atomic_cap = IBV_ATOMIC_HCA as c_int;
    attr.max_mw = number(of.max_mr);
    attr.max_sge = number(of.max_sge);
    attr.max_sge_rd = number(of.max_sge_rd);
    attr.max_cq = number(of.max_cq);
    attr.max_cqe = number(of.max_cqe);
    attr.max_mr = number(of.max_mr);
    attr.max_pd = number(of.max_pd);
    attr.max_qp_rd_atom = number(of.max_qp_rd_atom);
    attr.max_qp_init_rd_atom = number(of.max_qp_rd_atom);
    attr.max_res_rd_atom = number(of.max_qp).saturating_mul(number(of.max_qp_rd_atom));
    attr.max_srq = number(of.max_srq);
    attr.max_srq_wr = number(of.max_srq_wr);
    attr.max_srq_sge = number(of.max_srq_sge);
    if Face::of_process() == Face::Infiniband {
        attr.max_ah = number(of.max_ah);
    }
    attr.max_pkeys = 1;
    attr.phys_port_cnt = PORT;
    attr
}

/// A limit as the signed number of the header.
fn number(limit: impl TryInto<c_int>) -> c_int {
    limit.try_into().unwrap_or(c_int::MAX)
}

pub fn port_attributes(device: &Device) -> ibv_port_attr {
    // SAFETY: numbers, for which zero is a value.
    let mut attr: ibv_port_attr = unsafe { zeroed() };
    attr.state = IBV_PORT_ACTIVE as c_int;
    attr.max_mtu = IBV_MTU_4096 as c_int;
    attr.active_mtu = IBV_MTU_4096 as c_int;
    attr.gid_tbl_len = number(gids(device).len());
    attr.port_cap_flags = match Face::of_process() {
        Face::Infiniband => (IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS) as u32,
        Face::Iwarp => IBV_PORT_CM_SUP as u32,
    };
    attr.max_msg_sz = device::attributes().max_msg_size;
    attr.pkey_tbl_len = 1;
    attr.qkey_viol_cntr = device::qkey_violations();
    // One virtual lane, which is what a link without lanes has.
    attr.max_vl_num = 1;
    attr.active_width = WIDTH_4X;
    attr.active_speed = SPEED_FDR10;
    attr.phys_state = LINK_UP;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    attr
}

/// Copies as much of a structure as the program's own version of it holds, and zeroes the rest.
///
/// # Safety
/// `room` octets at `to` may be written.
unsafe fn give<T: Copy>(from: &T, to: *mut T, room: usize) -> Outcome<()> {
    if to.is_null() {
        return invalid();
    }
    let known = room.min(size_of::<T>());
    // SAFETY: the caller promises: `room` octets at `to` may be written; `from` has at least as many octets as are
    // copied.
    unsafe {
        copy_nonoverlapping(std::ptr::from_ref(from).cast::<u8>(), to.cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, room - known);
    }
    Ok(())
}

/// Behind the inline `ibv_query_port(3)`, which says how large its structure is.
pub unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: size_t,
) -> c_int {
    code(|| {
        // SAFETY: a context of ours, or null.
        let device = unsafe { context::device_of(context)? };
        if port != PORT {
            return invalid();
        }
        // SAFETY: the program gave the address and the size of its structure.
        unsafe { give(&port_attributes(device), attr, size) }
    })
}

/// Behind the inline `ibv_query_device_ex(3)`.
pub unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: size_t,
) -> c_int {
    code(|| {
        // SAFETY: a context of ours, or null.
        let device = unsafe { context::device_of(context)? };
        // SAFETY: null, or the program's question.
        if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
            return invalid();
        }
        if size < size_of::<ibv_device_attr>() {
            return invalid();
        }
        // SAFETY: numbers, for which zero is a value.
        let mut extended: ibv_device_attr_ex = unsafe { zeroed() };
        extended.orig_attr = device_attributes(device);
        extended.device_cap_flags_ex = u64::from(extended.orig_attr.device_cap_flags);
        extended.phys_port_cnt_ex = u32::from(PORT);
        // SAFETY: the program gave the address and the size of its structure.
        unsafe { give(&extended, attr, size) }
    })
}

export! {
    /// `ibv_query_device(3)`.
    fn ibv_query_device(
        context: *mut ibv_context,
        attr: *mut ibv_device_attr,
    ) -> c_int, of context(context) {
        code(|| {
            // SAFETY: a context of ours, or null.
            let device = unsafe { context::device_of(context)? };
            // SAFETY: the program's structure has the header's size.
            unsafe { give(&device_attributes(device), attr, size_of::<ibv_device_attr>()) }
        })
    }

    /// `ibv_query_port(3)` as programs built long ago call it: for the structure without its last
    /// field.
    fn ibv_query_port(
        context: *mut ibv_context,
        port: u8,
        attr: *mut ibv_port_attr,
    ) -> c_int, of context(context) {
        // SAFETY: passed on, with the size that such programs know.
        unsafe { query_port(context, port, attr, OLD_PORT_ATTR) }
    }

    /// `ibv_query_gid(3)`.
    fn ibv_query_gid(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        to: *mut ibv_gid,
    ) -> c_int, of context(context) {
        status(|| {
            // SAFETY: a context of ours, or null.
            let device = unsafe { context::device_of(context)? };
            let index = u32::try_from(index).or(invalid())?;
            let found = gid(device, port.into(), index)?;
            // SAFETY: the program gave the address for the GID.
            unsafe { give(&found, to, size_of::<ibv_gid>()) }
        })
    }

    /// The type of a GID as sysfs gives it (an internal function that `ibv_devinfo` uses).
    fn ibv_query_gid_type(
        context: *mut ibv_context,
        port: u8,
        index: u32,
        to: *mut c_int,
    ) -> c_int, of context(context) {
        status(|| {
            // SAFETY: a context of ours, or null.
            let device = unsafe { context::device_of(context)? };
            // Numbered as in sysfs, which the header does not have: IB and RoCE v1 are 0, RoCE v2 is 1.
            const IBV_GID_TYPE_SYSFS_ROCE_V2: i64 = 1;
            let found = match i64::from(gid_entry(device, port.into(), index)?.gid_type) {
                IBV_GID_TYPE_ROCE_V2 => IBV_GID_TYPE_SYSFS_ROCE_V2,
                _ => IBV_GID_TYPE_IB,
            };
            // SAFETY: the program gave the address for the type.
            unsafe { give(&(found as c_int), to, size_of::<c_int>()) }
        })
    }

    /// `ibv_query_gid_ex(3)`, behind its inline function.
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        size: size_t,
    ) -> c_int, of context(context) {
        code(|| {
            // SAFETY: a context of ours, or null.
            let device = unsafe { context::device_of(context)? };
            if flags != 0 {
                return unsupported();
            }
            // SAFETY: the program gave the address and the size of its structure.
            unsafe { give(&gid_entry(device, port, index)?, entry, size) }
        })
    }

    /// `ibv_query_gid_table(3)`, behind its inline function: the number of entries, or a negative
    /// errno.
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: size_t,
        flags: u32,
        size: size_t,
    ) -> ssize_t, of context(context) {
        let mut table = Vec::new();
        let written = code(|| {
            // SAFETY: a context of ours, or null.
            let device = unsafe { context::device_of(context)? };
            table = gids(device);
            if flags != 0 {
                return unsupported();
            }
            if max_entries < table.len() || entries.is_null() {
                return invalid();
            }
            for (at, entry) in table.iter().enumerate() {
                // SAFETY: the program gave room for so many structures of the size it said.
                unsafe { give(entry, entries.byte_add(at * size), size)? };
            }
            Ok(())
        });
        if written == 0 { table.len() as ssize_t } else { -(written as ssize_t) }
    }

    /// `ibv_query_pkey(3)`: one partition, in network byte order.
    fn ibv_query_pkey(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        to: *mut u16,
    ) -> c_int, of context(context) {
        status(|| {
            // SAFETY: a context of ours, or null.
            unsafe { Handle::<Context>::of(context)? };
            if port != PORT || index != 0 {
                return invalid();
            }
            // SAFETY: the program gave the address for the key.
            unsafe { give(&PKEY.to_be(), to, size_of::<u16>()) }
        })
    }

    /// `ibv_get_pkey_index(3)`: the index, or -1.
    fn ibv_get_pkey_index(
        context: *mut ibv_context,
        port: u8,
        pkey: u16,
    ) -> c_int, of context(context) {
        status(|| {
            // SAFETY: a context of ours, or null.
            unsafe { Handle::<Context>::of(context)? };
            if port == PORT && pkey == PKEY.to_be() {
                Ok(())
            } else {
                Err(Errno(libc::ENOENT))
            }
        })
    }
}
