//! Address handles, and what a datagram's completion tells of its sender.

use std::mem::zeroed;
use std::net::IpAddr;

use libc::{c_int, c_void};
use weft_engine::device::Device;
use weft_engine::settings::Face;
use weft_engine::ud::{grh_ends, GRH_LEN};
use weft_engine::AddressHandle;

use crate::attributes;
use crate::context;
use crate::entry::{code, invalid, pointer, unsupported, Outcome};
use crate::gids;
use crate::handle::{Handle, Object};
use crate::layout::numbers::*;
use crate::layout::{ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_pd, ibv_wc};
use crate::memory::Pd;
use crate::query::PORT;

/// An address handle.
pub struct Ah {
    /// The engine's side of it.
    pub engine: AddressHandle,
}

impl Object for Ah {
    type Public = ibv_ah;
    type Pointee = ibv_ah;
    const MAGIC: u32 = 0x6168_3030;
}

/// Makes an address handle.
///
/// # Errors
/// `EOPNOTSUPP` on a device with iWARP's face, which has no datagrams; `EINVAL`: not an address that
/// could be reached.
///
/// # Safety
/// `pd` is a domain of ours or null.
unsafe fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Outcome<*mut ibv_ah> {
    // SAFETY: the caller promises: `pd` is a domain of ours or null.
    let domain = unsafe { Handle::<Pd>::of(pd)? };
    if Face::of_process() == Face::Iwarp {
        return unsupported();
    }
    if attr.port_num != PORT {
        return invalid();
    }
    // SAFETY: a live domain's own field.
    let context = unsafe { (*domain.public()).context };
    // SAFETY: a live domain's context.
    let device = unsafe { context::device_of(context)? };
    let (local, peer) = attributes::ends(device, attr)?;
    let public = ibv_ah {
        context,
        pd,
        handle: 0,
    };
    let engine = AddressHandle::new(&domain.engine, local, peer);
    Ok(Handle::create(public, Ah { engine }))
}

/// The address of a datagram's sender, out of the receive's first 40 octets.
///
/// # Errors
/// `EINVAL`: the completion says that there are none, or they hold no IP header, or the datagram came
/// to an address that the machine no longer has.
///
/// # Safety
/// `wc` is the program's completion; `grh` has 40 octets, or is null.
unsafe fn sender(
    device: &Device,
    port: u8,
    wc: &ibv_wc,
    grh: *const c_void,
) -> Outcome<ibv_ah_attr> {
    if Face::of_process() == Face::Iwarp {
        return unsupported();
    }
    if port != PORT || i64::from(wc.wc_flags) & IBV_WC_GRH == 0 || grh.is_null() {
        return invalid();
    }
    // SAFETY: the caller promises: `wc` is the program's completion; `grh` has 40 octets, or is null.
    let area = unsafe { grh.cast::<[u8; GRH_LEN]>().read() };
    let Some((from, to)) = grh_ends(&area) else {
        return invalid();
    };
    let mut attr = path(device, to, from)?;
    attr.dlid = wc.slid;
    attr.sl = wc.sl;
    attr.src_path_bits = wc.dlid_path_bits;
    Ok(attr)
}

/// What an address handle of a device from one of this machine's addresses to another's is made with.
///
/// # Errors
/// `EINVAL`: the machine does not have the address.
pub fn path(device: &Device, local: IpAddr, peer: IpAddr) -> Outcome<ibv_ah_attr> {
    // SAFETY: numbers, for which zero is a value.
    let mut attr: ibv_ah_attr = unsafe { zeroed() };
    attr.grh.dgid = gid_of(peer);
    attr.grh.sgid_index = gids::index_of(device, local)?;
    attr.grh.hop_limit = 0xff;
    attr.is_global = 1;
    attr.port_num = PORT;
    Ok(attr)
}

fn gid_of(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    ibv_gid { raw }
}

export! {
    /// `ibv_create_ah(3)`.
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah, of object(pd) {
        pointer(|| {
            // SAFETY: the program's structure, or null.
            let Some(attr) = (unsafe { attr.as_ref() }) else {
                return invalid();
            };
            // SAFETY: a domain of ours, or null.
            unsafe { create(pd, attr) }
        })
    }

    /// `ibv_init_ah_from_wc(3)`.
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port: u8,
        wc: *mut ibv_wc,
        grh: *mut c_void,
        attr: *mut ibv_ah_attr,
    ) -> c_int, of context(context) {
        code(|| {
            // SAFETY: a context of ours or null; the program's structures.
            unsafe {
                let device = context::device_of(context)?;
                let (Some(wc), false) = (wc.as_ref(), attr.is_null()) else {
                    return invalid();
                };
                *attr = sender(device, port, wc, grh)?;
            }
            Ok(())
        })
    }

    /// `ibv_create_ah_from_wc(3)`.
    fn ibv_create_ah_from_wc(
        pd: *mut ibv_pd,
        wc: *mut ibv_wc,
        grh: *mut c_void,
        port: u8,
    ) -> *mut ibv_ah, of object(pd) {
        pointer(|| {
            // SAFETY: the program's completion, its receive's octets, and a domain of ours or null.
            unsafe {
                let domain = Handle::<Pd>::of(pd)?;
                let device = context::device_of((*domain.public()).context)?;
                match wc.as_ref() {
                    Some(wc) => create(pd, &sender(device, port, wc, grh)?),
                    None => invalid(),
                }
            }
        })
    }

    /// `ibv_destroy_ah(3)`.
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int, of object(ah) {
        code(|| {
            // SAFETY: a handle of ours or null; the program gives it up with this call.
            unsafe {
                Handle::<Ah>::of(ah)?;
                Handle::<Ah>::release(ah);
            }
            Ok(())
        })
    }
}
