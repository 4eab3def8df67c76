//! One process, one engine: a second copy of this library that is loaded stays out of service (decision 0027).
//!
//! The dynamic linker loads one file once, whatever names lead to it. Another file with another build of Weft it loads
//! beside the first: a program under `weft run` that opens the library of a virtual environment, for example. Two
//! engines would serve the device's name, and an object of one is garbage to the other. So the copy that served first
//! goes on, and every other one fails where it would start, in words.

use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicU32, Ordering};

use weft_engine::error;

use crate::entry::{Errno, Outcome};

/// The process that this copy serves, by pid; 0 before it has served one. A forked child finds its parent's number
/// here, so it may choose another copy than its parent.
#[allow(non_upper_case_globals)]
#[no_mangle]
static weft_serves: AtomicU32 = AtomicU32::new(0);

/// Makes this copy the one that serves the process.
///
/// # Errors
/// `EBUSY`: another copy does already; the log says which.
pub fn claim() -> Outcome<()> {
    let process = std::process::id();
    if weft_serves.load(Ordering::Relaxed) == process {
        return Ok(());
    }
    let before = weft_serves.swap(process, Ordering::SeqCst);
    let Some(other) = other_copy_that_serves(process) else {
        // Said once; a forked child's engine chooses as its parent's did.
        weft_engine::choose_network(weft_adapter::setup::network);
        return Ok(());
    };
    weft_serves.store(before, Ordering::SeqCst);
    error!(
        "this process is served by another copy of Weft already, {other}: give it one of them (LD_PRELOAD, \
         LD_LIBRARY_PATH and what the program opens by path have to name the same one)"
    );
    Err(Errno(libc::EBUSY))
}

/// The path of a loaded object that serves the process and is not this one.
fn other_copy_that_serves(process: u32) -> Option<String> {
    let mut search = Search {
        process,
        found: None,
    };
    // SAFETY: `visit` is called before this returns, with the address given here as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct Search {
    process: u32,
    found: Option<String>,
}

/// Looks at one loaded object. Gives 1, which ends the walk, when it is what is searched for.
///
/// # Safety
/// As `dl_iterate_phdr(3)` calls it, with a [`Search`].
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises: `info` and its name are the linker's for the time of the call, and `search` is the
    // value that `other_copy_that_serves` lent.
    let (path, search) = unsafe {
        (
            CStr::from_ptr((*info).dlpi_name),
            &mut *search.cast::<Search>(),
        )
    };
    // The program itself has no name; no other object is opened, as whatever has another name is no copy of this one.
    if !path.to_bytes().ends_with(b"/libweft.so") {
        return 0;
    }
    // SAFETY: the path is a C string; an object that is loaded is only counted once more, and for this call.
    let object = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if object.is_null() {
        return 0;
    }
    // SAFETY: a handle that was just given, and a C string.
    let serves = unsafe { libc::dlsym(object, c"weft_serves".as_ptr()) }.cast::<AtomicU32>();
    let is_other = !serves.is_null() && !std::ptr::eq(serves, &weft_serves);
    // SAFETY: every build of Weft that has this name has a number of 32 bits there; the object is loaded.
    if is_other && unsafe { &*serves }.load(Ordering::SeqCst) == search.process {
        search.found = Some(path.to_string_lossy().into_owned());
    }
    // SAFETY: the handle is not used any more.
    unsafe { libc::dlclose(object) };
    c_int::from(search.found.is_some())
}
