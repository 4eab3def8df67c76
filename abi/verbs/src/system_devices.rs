//! The machine's own RDMA devices, shown beside ours when `WEFT_REAL_DEVICES` asks for them.
//!
//! That works in preload mode: behind libweft.so the installed libibverbs is loaded too, its
//! devices are listed after ours, and every call that names one of them, or an object made from
//! one, goes on to it. In replacement mode there is no library behind ours, and the list stays
//! as it is. librdmacm's ids always belong to ours.
//!
//! Until a real device has been listed, telling foreign objects from ours costs one relaxed load.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use libc::{c_int, c_void};
use weft_engine::fork::PerProcess;
use weft_engine::settings::Settings;

use crate::event_references::lock;
use crate::layout::{ibv_async_event, ibv_context, ibv_device};
use crate::listed;

/// Whether a program was ever shown a real device, or is shown nothing else.
static LISTED: AtomicBool = AtomicBool::new(false);

/// The installed library's list behind each list that we gave.
static LISTS: PerProcess<Mutex<HashMap<usize, usize>>> = PerProcess::new();

type List = *mut *mut ibv_device;

/// What a call returns when the installed library is too old to have the function.
pub trait Absent {
    /// The value that says "failed".
    fn absent() -> Self;
}

impl Absent for c_int {
    fn absent() -> c_int {
        libc::ENOSYS
    }
}

impl Absent for u64 {
    fn absent() -> u64 {
        0
    }
}

impl Absent for isize {
    fn absent() -> isize {
        -(libc::ENOSYS as isize)
    }
}

impl Absent for () {
    fn absent() {}
}

impl<T> Absent for *mut T {
    fn absent() -> *mut T {
        std::ptr::null_mut()
    }
}

/// Whether calls about this device go to the installed library.
///
/// # Safety
/// None is needed; the signature is that of its siblings.
#[inline]
pub unsafe fn device(device: *const c_void) -> bool {
    LISTED.load(Ordering::Relaxed)
        && !device.is_null()
        && listed::device_of(device.cast()).is_none()
}

/// The same for a context.
///
/// # Safety
/// Null, or an open context.
#[inline]
pub unsafe fn context(context: *const c_void) -> bool {
    if !LISTED.load(Ordering::Relaxed) || context.is_null() {
        return false;
    }
    // SAFETY: a context begins with the address of its device.
    unsafe { device((*context.cast::<ibv_context>()).device.cast()) }
}

/// The same for any object of verbs.
///
/// # Safety
/// Null, or an object that begins with the address of its context, as all of them do.
#[inline]
pub unsafe fn object(object: *const c_void) -> bool {
    if !LISTED.load(Ordering::Relaxed) || object.is_null() {
        return false;
    }
    // SAFETY: the caller promises: null, or an object that begins with the address of its context, as all of them do.
    unsafe { context(*object.cast::<*const c_void>()) }
}

/// For functions that belong to no device: whether the installed library answers.
///
/// # Safety
/// None is needed; the signature is that of its siblings.
#[inline]
pub unsafe fn any(_: *const c_void) -> bool {
    LISTED.load(Ordering::Relaxed)
}

/// The same for an asynchronous event. Events of ports and devices name no object; ours has none
/// of those, so they are theirs.
///
/// # Safety
/// Null, or an event that was got.
#[inline]
pub unsafe fn event(event: *const c_void) -> bool {
    const OF_DEVICE_OR_PORT: [c_int; 8] = [8, 9, 10, 11, 12, 13, 17, 18];
    if !LISTED.load(Ordering::Relaxed) || event.is_null() {
        return false;
    }
    // SAFETY: the caller promises: null, or an event that was got.
    let event = unsafe { &*event.cast::<ibv_async_event>() };
    // SAFETY: the caller promises: null, or an event that was got: the element is an object, and alive.
    OF_DEVICE_OR_PORT.contains(&event.event_type)
        || unsafe { object(event.element as *const c_void) }
}

/// The installed library's function of this name.
///
/// # Safety
/// `F` is a function pointer type with the signature that the library documents for the name.
pub unsafe fn next<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() || is_our_shell(found) {
        return None;
    }
    // SAFETY: a function's address; the caller promises that `F` is its type.
    Some(unsafe { std::mem::transmute_copy(&found) })
}

/// Whether an address lies in one of the shells with the real libraries' names: they would only
/// forward back to us.
fn is_our_shell(address: *mut c_void) -> bool {
    let object = |address| {
        // SAFETY: `dladdr` takes any address and fills `info` when it returns non-zero.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(address, &mut info) != 0).then_some(info)
        }
    };
    let Some(found) = object(address) else {
        return false;
    };
    // Each of the two shells has the mark, so the object itself is asked for it. It is loaded: nothing is loaded or
    // unloaded here. The answer may be of an object that it needs, which is not the same.
    // SAFETY: the loader's own name of the object and a C string; a handle is closed once.
    let mark = unsafe {
        let handle = libc::dlopen(found.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return false;
        }
        let mark = libc::dlsym(handle, c"weft_shell".as_ptr());
        libc::dlclose(handle);
        mark
    };
    !mark.is_null() && object(mark).is_some_and(|of| of.dli_fbase == found.dli_fbase)
}

/// Weft is off: every object is the installed library's, whichever call is about it.
pub fn pass_all_on() {
    LISTED.store(true, Ordering::Relaxed);
}

fn wanted() -> bool {
    static WANTED: PerProcess<bool> = PerProcess::new();
    *WANTED.get_or_init(|| Settings::from_env().0.real_devices)
}

/// The installed library's devices, if they are wanted and there is such a library.
pub fn devices() -> (List, Vec<*mut ibv_device>) {
    let nothing = (std::ptr::null_mut(), Vec::new());
    if !wanted() {
        return nothing;
    }
    // SAFETY: the signature of ibv_get_device_list(3).
    let get = unsafe { next::<unsafe extern "C" fn(*mut c_int) -> List>(c"ibv_get_device_list") };
    let Some(get) = get else {
        return nothing;
    };
    let mut count = 0;
    // SAFETY: called as documented.
    let list = unsafe { get(&mut count) };
    if list.is_null() || count == 0 {
        return (list, Vec::new());
    }
    LISTED.store(true, Ordering::Relaxed);
    // SAFETY: the library says how many devices its list holds.
    let devices = unsafe { std::slice::from_raw_parts(list, count as usize) };
    (list, devices.to_vec())
}

/// Remembers the installed library's list until ours is freed: its devices live as long.
pub fn keep_list(ours: List, theirs: List) {
    if !theirs.is_null() {
        lock(LISTS.get_or_init(Mutex::default)).insert(ours as usize, theirs as usize);
    }
}

/// Frees the installed library's list behind ours.
pub fn free_list(ours: List) {
    if !wanted() {
        return;
    }
    let theirs = lock(LISTS.get_or_init(Mutex::default)).remove(&(ours as usize));
    // SAFETY: the signature of ibv_free_device_list(3).
    let free = unsafe { next::<unsafe extern "C" fn(List)>(c"ibv_free_device_list") };
    if let (Some(theirs), Some(free)) = (theirs, free) {
        // SAFETY: a list of theirs that nobody freed.
        unsafe { free(theirs as List) };
    }
}
