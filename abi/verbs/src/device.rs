//! The device list, and opening and closing devices: what is above all other objects, as an open device carries their
//! functions.

use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicBool;

use libc::{c_char, c_int, size_t};
use weft_engine::device::{self, Device};

use crate::context::Context;
use crate::entry::{code, invalid, pointer, value, Errno, Outcome};
use crate::handle::{free_retired, Handle};
use crate::layout::{ibv_context, ibv_context_ops, ibv_device, verbs_context};
use crate::unsupported::in_words;
use crate::{
    completion, device_files, listed, off, one_engine, post, qp, query, srq, system_devices, window,
};

/// The device of ours at an entry of the list.
///
/// # Errors
/// `EINVAL` for null, `ENODEV` for another device.
fn of_entry(entry: *mut ibv_device) -> Outcome<&'static Device> {
    if entry.is_null() {
        return invalid();
    }
    listed::device_of(entry).ok_or(Errno(libc::ENODEV))
}

/// The device for a local address, or for a connection without one.
///
/// # Errors
/// `ENODEV`: there is none, as the settings name an interface that is not there.
pub fn for_address(address: Option<IpAddr>) -> Outcome<&'static Device> {
    let found = match address {
        Some(address) => device::with_address(address),
        None => device::all().first(),
    };
    found.ok_or(Errno(libc::ENODEV))
}

/// For whatever makes a program's first object: this copy of the library has to serve the process.
///
/// # Errors
/// `ENODEV` when Weft is off, and where the settings name an interface that is not there: there is no device of ours
/// then, and when off none of the machine's without an installed library. `EBUSY` when another copy serves the process.
pub fn claim() -> Outcome<()> {
    match off::is_off() || device::all().is_empty() {
        true => Err(Errno(libc::ENODEV)),
        false => one_engine::claim(),
    }
}

/// Opens a device once more.
///
/// # Errors
/// What the engine says, and those of [`claim`].
pub fn open(device: &'static Device) -> Outcome<*mut ibv_context> {
    claim()?;
    let engine = weft_engine::Context::open()?;
    // SAFETY: numbers, addresses and optional functions, for which zero is a value, and a mutex
    // whose initial value is zero.
    let mut public: verbs_context = unsafe { zeroed() };
    public.query_port = Some(query::query_port);
    public.query_device_ex = Some(query::query_device_ex);
    public.create_cq_ex = Some(completion::create_cq_ex);
    public.create_qp_ex = Some(qp::create_qp_ex);
    public.create_srq_ex = Some(srq::create_srq_ex);
    public.sz = size_of::<verbs_context>();
    public.context.device = listed::entry(device);
    public.context.ops = operations();
    public.context.cmd_fd = -1;
    public.context.async_fd = engine.async_fd();
    public.context.num_comp_vectors = completion::VECTORS;
    // What says that `verbs_context` stands around the context (`__VERBS_ABI_IS_EXTENDED`).
    public.context.abi_compat = usize::MAX;
    Ok(Handle::create(public, Context { engine, device }))
}

fn operations() -> ibv_context_ops {
    // SAFETY: optional functions, for which zero is "none".
    let mut operations: ibv_context_ops = unsafe { zeroed() };
    operations.poll_cq = Some(completion::poll_cq);
    operations.req_notify_cq = Some(completion::req_notify_cq);
    operations.post_send = Some(post::post_send);
    operations.post_recv = Some(post::post_recv);
    operations.post_srq_recv = Some(post::post_srq_recv);
    operations.alloc_mw = Some(window::alloc_mw);
    operations.bind_mw = Some(window::bind_mw);
    operations.dealloc_mw = Some(window::dealloc_mw);
    operations
}

export! {
    /// `ibv_get_device_list(3)`. A null `num_devices` is allowed. Our devices come first, behind them
    /// the machine's own if they are asked for.
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
        pointer(|| {
            let (real_list, real_devices) = system_devices::devices();
            let mut devices = Vec::new();
            if !off::is_off() {
                devices.extend(listed::all());
            }
            devices.extend(real_devices);
            devices.push(null_mut());
            if !num_devices.is_null() {
                // SAFETY: the program gave the address for the number.
                unsafe { *num_devices = (devices.len() - 1) as c_int };
            }
            let array = Box::leak(devices.into_boxed_slice()).as_mut_ptr();
            system_devices::keep_list(array, real_list);
            Ok(array)
        })
    }

    /// `ibv_free_device_list(3)`.
    fn ibv_free_device_list(list: *mut *mut ibv_device) {
        if list.is_null() {
            return;
        }
        system_devices::free_list(list);
        let mut devices = 0;
        // SAFETY: what `ibv_get_device_list` leaked: a boxed slice that ends with the only null.
        unsafe {
            while !(*list.add(devices)).is_null() {
                devices += 1;
            }
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, devices + 1)));
        }
    }

    /// `ibv_get_device_name(3)`; null for null.
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
        if device.is_null() {
            return null();
        }
        // SAFETY: a device out of the list, ours or a real one: the layout is the same.
        unsafe { (&raw const (*device).name).cast() }
    }

    /// `ibv_get_device_guid(3)`: in network byte order; 0 for null.
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64, of device(device) {
        value(0, || {
            Ok(of_entry(device)?.guid().to_be())
        })
    }

    /// `ibv_get_device_index(3)`: -1, since the kernel does not know the device.
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int, of device(device) {
        -1
    }

    /// `ibv_open_device(3)`.
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context, of device(device) {
        pointer(|| {
            open(of_entry(device)?)
        })
    }

    /// `ibv_close_device(3)`.
    fn ibv_close_device(context: *mut ibv_context) -> c_int, of context(context) {
        code(|| {
            // SAFETY: a context of ours or null; the program gives it up with this call.
            unsafe {
                Handle::<Context>::of(context)?;
                Handle::<Context>::release(context);
            }
            free_retired();
            Ok(())
        })
    }

    /// `ibv_import_device(3)`: what another process opened is not shared.
    fn ibv_import_device(_cmd_fd: c_int) -> *mut ibv_context {
        static SAID: AtomicBool = AtomicBool::new(false);
        pointer(|| {
            in_words(
                &SAID,
                "ibv_import_device: a device that another process has opened cannot be shared, and its cmd_fd is -1: open \
                 it in each process (ibv_open_device)",
            )
        })
    }

    /// Where sysfs is mounted; as in libibverbs, the environment may move it.
    fn ibv_get_sysfs_path() -> *const c_char {
        // SAFETY: the name is a C string; what is found lives as long as the environment does.
        let moved = unsafe { libc::getenv(c"SYSFS_PATH".as_ptr()) };
        if moved.is_null() { c"/sys".as_ptr() } else { moved }
    }

    /// Reads an attribute from a device's directory in sysfs, without the end of its line: how much of it the
    /// buffer took, or -1 where there is none.
    fn ibv_read_sysfs_file(
        directory: *const c_char,
        file: *const c_char,
        buffer: *mut c_char,
        size: size_t,
    ) -> c_int, of any(directory) {
        value(-1, || {
            if directory.is_null() || file.is_null() || buffer.is_null() {
                return Ok(-1);
            }
            // SAFETY: the program's strings.
            let (directory, file) = unsafe { (CStr::from_ptr(directory), CStr::from_ptr(file)) };
            let path = format!("{}/{}", directory.to_string_lossy(), file.to_string_lossy());
            let Some(text) = device_files::text(&path) else {
                return Ok(-1);
            };
            let line = text.trim_end_matches('\n');
            let taken = line.len().min(size);
            // SAFETY: the program's buffer has `size` octets.
            unsafe {
                buffer.copy_from_nonoverlapping(line.as_ptr().cast(), taken);
                if taken < size {
                    *buffer.add(taken) = 0;
                }
            }
            Ok(taken as c_int)
        })
    }
}
