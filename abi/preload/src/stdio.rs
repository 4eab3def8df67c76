//! Streams of the C library (`FILE`) on connections over DDP. The C library reads and writes descriptors by calls of
//! its own, which no hook sees; so such a stream is one whose reads and writes are functions of ours (`fopencookie`).

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use libc::{size_t, ssize_t, FILE};
use weft_os::process;

use crate::edge::fail;
use crate::mine::{known, mine};
use crate::socket::Socket;
use crate::stack::stack;

/// Streams of ours that there can be at a time.
const FILES_MAX: usize = 1024;

/// A stream of ours and its descriptor.
struct File {
    /// The stream's address; 0 for none.
    at: AtomicUsize,
    fd: AtomicI32,
}

static FILES: [File; FILES_MAX] = [const {
    File {
        at: AtomicUsize::new(0),
        fd: AtomicI32::new(-1),
    }
}; FILES_MAX];
/// No stream is at places from here on.
static END: AtomicUsize = AtomicUsize::new(0);

/// A place that is taken for a stream that is not there yet.
const COMING: usize = 1;

#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

extern "C-unwind" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpending(file: *mut FILE) -> size_t;
    fn fflush(file: *mut FILE) -> c_int;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// The place and the descriptor of a stream of ours.
fn place_of(file: *mut FILE) -> Option<(&'static File, c_int)> {
    let end = END.load(Ordering::Acquire).min(FILES_MAX);
    let found = FILES[..end]
        .iter()
        .find(|place| place.at.load(Ordering::Acquire) == file as usize);
    found.map(|place| (place, place.fd.load(Ordering::Relaxed)))
}

/// The descriptor of a stream, if it is one of ours.
pub fn descriptor_of(file: *mut FILE) -> Option<c_int> {
    if file.is_null() || END.load(Ordering::Relaxed) == 0 {
        return None;
    }
    place_of(file).map(|(_, fd)| fd)
}

/// Whether the descriptor's octets are framed, or are going to be.
fn is_framed(fd: c_int) -> bool {
    mine(fd).is_some_and(|mine| mine.is_framed())
}

/// A stream on a connection over DDP; nothing where `fd` is none. Null, with errno set, where it cannot be made.
pub fn open(fd: c_int, mode: *const c_char) -> Option<*mut FILE> {
    if !is_framed(fd) {
        return None;
    }
    let free = |place: &&File| {
        place
            .at
            .compare_exchange(0, COMING, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    let Some(at) = FILES.iter().position(|place| free(&place)) else {
        fail(libc::EMFILE);
        return Some(std::ptr::null_mut());
    };
    END.fetch_max(at + 1, Ordering::AcqRel);
    let functions = Functions {
        read: read_cookie,
        write: write_cookie,
        seek: seek_cookie,
        close: close_cookie,
    };
    // SAFETY: the functions have the types that the C library wants, and take the place's number for a cookie.
    let file = unsafe { fopencookie(std::ptr::without_provenance_mut(at), mode, functions) };
    FILES[at].fd.store(fd, Ordering::Relaxed);
    FILES[at].at.store(file as usize, Ordering::Release);
    Some(file)
}

fn fd_of(cookie: *mut c_void) -> c_int {
    FILES[cookie as usize].fd.load(Ordering::Relaxed)
}

unsafe extern "C-unwind" fn read_cookie(
    cookie: *mut c_void,
    room: *mut c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: the C library's own room for so many octets.
    unsafe { crate::receive::read(fd_of(cookie), room.cast(), len) }
}

/// As the C library writes a descriptor: all of it, or up to an error.
unsafe extern "C-unwind" fn write_cookie(
    cookie: *mut c_void,
    octets: *const c_char,
    len: size_t,
) -> ssize_t {
    let mut written = 0;
    while written < len {
        let at = octets.wrapping_add(written).cast();
        // SAFETY: the rest of the C library's own octets.
        match unsafe { crate::send::write(fd_of(cookie), at, len - written) } {
            now if now > 0 => written += now as usize,
            _ => break,
        }
    }
    written as ssize_t
}

unsafe extern "C-unwind" fn seek_cookie(_: *mut c_void, _: *mut i64, _: c_int) -> c_int {
    fail(libc::ESPIPE) as c_int
}

unsafe extern "C-unwind" fn close_cookie(cookie: *mut c_void) -> c_int {
    let place = &FILES[cookie as usize];
    let fd = place.fd.load(Ordering::Relaxed);
    place.at.store(0, Ordering::Release);
    // SAFETY: the program closes its stream, and with it the descriptor.
    unsafe { libc::close(fd) }
}

hook!(fn fileno(file: *mut FILE) -> c_int, real => descriptor_of(file).unwrap_or_else(real));
hook!(fn fileno_unlocked(file: *mut FILE) -> c_int, real => {
    descriptor_of(file).unwrap_or_else(real)
});

/// A standard stream: its descriptor's number, how it is opened, and where the program finds it.
fn standard(fd: c_int) -> Option<(&'static std::ffi::CStr, *mut *mut FILE)> {
    match fd {
        0 => Some((c"r", &raw mut stdin)),
        1 => Some((c"w", &raw mut stdout)),
        2 => Some((c"w", &raw mut stderr)),
        _ => None,
    }
}

/// What the C library made the standard streams, where they are ours meanwhile.
static BEFORE: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// Whether the variables of the C library are this process's own. Confined programs are not asked: the system call
/// that asks could be their end.
fn is_own_memory() -> bool {
    stack().is_none_or(|stack| stack.is_confined()) || !process::is_borrowed()
}

/// `fd` is about to stand for something else: what a standard stream on it has gathered leaves for where it was meant.
pub fn before_moving(fd: c_int) {
    let Some((_, place)) = standard(fd).filter(|_| is_own_memory()) else {
        return;
    };
    // SAFETY: the C library's variable; programs that assign it do so before they have threads.
    unsafe {
        let file = *place;
        if !file.is_null() && __fpending(file) > 0 {
            fflush(file);
        }
    }
}

/// `fd` stands for something else now: where that is a connection over DDP and a standard stream has the number, that
/// is one of ours from now on, and where it is not, the C library's again.
pub fn moved(fd: c_int) {
    let Some((mode, place)) = standard(fd).filter(|_| is_own_memory()) else {
        return;
    };
    let before = &BEFORE[fd as usize];
    if known(fd).is_some_and(|mine| mine.is_framed()) {
        if before.load(Ordering::Relaxed) != 0 {
            return;
        }
        if let Some(file) = open(fd, mode.as_ptr()).filter(|file| !file.is_null()) {
            // SAFETY: as above. What is kept is put back below.
            unsafe {
                before.store(*place as usize, Ordering::Relaxed);
                if fd == 2 {
                    libc::setvbuf(file, std::ptr::null_mut(), libc::_IONBF, 0);
                }
                *place = file;
            }
        }
        return;
    }
    let own = before.swap(0, Ordering::Relaxed);
    if own != 0 {
        // SAFETY: as above. The stream of ours is left alone: somebody may hold it.
        unsafe {
            if let Some((of_ours, _)) = place_of(*place) {
                of_ours.at.store(0, Ordering::Release);
            }
            *place = own as *mut FILE;
        }
    }
}

/// The streams leave what they have gathered, before the hooks do.
pub fn flush_all() {
    if END.load(Ordering::Relaxed) > 0 {
        // SAFETY: flushes every stream, as the end of the process does.
        unsafe { fflush(std::ptr::null_mut()) };
    }
}
