//! The devices as ids of the connection manager share them.

use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::Mutex;

use libc::c_int;
use weft_engine::device::{all, Device};
use weft_engine::fork::PerProcess;

use crate::device;
use crate::entry::{pointer, Outcome};
use crate::event_references::lock;
use crate::layout::{ibv_context, ibv_pd};
use crate::memory;

/// A device as ids share it: opened once, with the domain for queue pairs made without one. It
/// stays open for the life of the process, as in librdmacm.
pub fn shared(device: &'static Device) -> Outcome<(*mut ibv_context, *mut ibv_pd)> {
    static SHARED: PerProcess<Mutex<BTreeMap<usize, (usize, usize)>>> = PerProcess::new();
    let mut shared = lock(SHARED.get_or_init(Mutex::default));
    let (context, pd) = match shared.get(&device.number) {
        Some(&opened) => opened,
        None => {
            let context = device::open(device)?;
            // SAFETY: just opened.
            let pd = unsafe { memory::alloc_pd(context)? };
            let opened = (context as usize, pd as usize);
            shared.insert(device.number, opened);
            opened
        }
    };
    Ok((context as *mut ibv_context, pd as *mut ibv_pd))
}

export! {
    /// `rdma_get_devices(3)`: the contexts that ids share. A null `num_devices` is allowed.
    fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
        pointer(|| {
            device::claim()?;
            let opened = all().iter().map(shared).collect::<Outcome<Vec<_>>>()?;
            if !num_devices.is_null() {
                // SAFETY: the program gave the address for the number.
                unsafe { *num_devices = opened.len() as c_int };
            }
            let contexts = opened.into_iter().map(|(context, _)| context);
            let list: Box<[*mut ibv_context]> = contexts.chain([null_mut()]).collect();
            Ok(Box::leak(list).as_mut_ptr())
        })
    }

    /// `rdma_free_devices(3)`; the devices stay open.
    fn rdma_free_devices(list: *mut *mut ibv_context) {
        if !list.is_null() {
            let entries = all().len() + 1;
            // SAFETY: what `rdma_get_devices` gave, an entry for each device and the null behind them.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, entries)) });
        }
    }
}
