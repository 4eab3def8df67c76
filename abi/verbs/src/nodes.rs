//! The device's file in `/dev/infiniband`, for programs that look whether they may open it.
//!
//! UCX asks `stat` for it before it takes a device from the list, and newer versions ask `access`. Weft has no such
//! file, and making one needs privilege; so for this one name the two calls answer as for `/dev/null`, a character device that
//! everybody may read and write. Every other name goes to the C library untouched.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use weft_engine::device;

const FOLDER: &[u8] = b"/dev/infiniband/";
const STANDS_IN: &CStr = c"/dev/null";

/// `path`, or what stands in for it.
fn existing(path: *const c_char) -> *const c_char {
    if path.is_null() {
        return path;
    }
    // SAFETY: the caller of stat(2) or access(2) gives a string that ends in NUL.
    let asked = unsafe { CStr::from_ptr(path) }.to_bytes();
    match asked.strip_prefix(FOLDER) {
        Some(name) if name == device::NAME.as_bytes() => STANDS_IN.as_ptr(),
        _ => path,
    }
}

/// The function of this name behind this library.
fn behind(place: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let mut at = place.load(Ordering::Relaxed);
    if at.is_null() {
        // SAFETY: the name ends in NUL; RTLD_NEXT is what comes behind this object.
        at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        place.store(at, Ordering::Relaxed);
    }
    (!at.is_null()).then_some(at)
}

/// The -1 and errno of a C library that lacks a function.
fn missing() -> c_int {
    // SAFETY: the C library gives each thread its own errno at this address.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

macro_rules! about_a_path {
    ($(fn $name:ident(path, $argument:ident: $type:ty);)*) => {$(
        /// The C library's, but for the device's file.
        ///
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(path: *const c_char, $argument: $type) -> c_int {
            static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            match behind(&REAL, NAME) {
                // SAFETY: the C library's function of this name has this signature; the arguments are the caller's.
                Some(real) => unsafe {
                    let real: unsafe extern "C" fn(*const c_char, $type) -> c_int = transmute(real);
                    real(existing(path), $argument)
                },
                None => missing(),
            }
        }
    )*};
}

about_a_path! {
    fn stat(path, to: *mut libc::stat);
    fn stat64(path, to: *mut libc::stat64);
    fn access(path, mode: c_int);
}
