//! Streams of the C library (`FILE`) on connections over DDP. The C library reads and writes descriptors by calls of
//! its own, which no hook sees; so such a stream is one whose reads and writes are functions of ours (`fopencookie`).

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use libc::{size_t, ssize_t, FILE};
use weft_os::process;

use crate::edge::fail;
use crate::mine::{known, mine};
use crate::real::Real;
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

/// Prints to a descriptor as `vdprintf` does, where that is a connection over DDP; else gives -2.
pub(crate) unsafe extern "C-unwind" fn print(
    fd: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    type Signature =
        unsafe extern "C-unwind" fn(*mut *mut c_char, *const c_char, *mut c_void) -> c_int;
    static REAL: Real<Signature> = Real::new(c"vasprintf");
    listed!(REAL);
    if crate::mine::mine_or_file(fd).is_none_or(|mine| !mine.is_framed()) {
        return -2;
    }
    let mut text = std::ptr::null_mut();
    // SAFETY: the program's own format and arguments.
    let len = unsafe { REAL.get()(&mut text, format, arguments) };
    if len < 0 {
        return -1;
    }
    let (mut written, len) = (0, len as usize);
    while written < len {
        // SAFETY: the text is `len` octets long.
        match unsafe { crate::send::write(fd, text.wrapping_add(written).cast(), len - written) } {
            now if now > 0 => written += now as usize,
            _ => break,
        }
    }
    // SAFETY: `vasprintf` made it, and it is not used any more.
    unsafe { libc::free(text.cast()) };
    match written == len {
        true => len as c_int,
        false => -1,
    }
}

/// Keeps the registers of arguments on the stack.
#[cfg(target_arch = "x86_64")]
macro_rules! keep {
    () => {
        "mov [rsp], rdi
        mov [rsp + 8], rsi
        mov [rsp + 16], rdx
        mov [rsp + 24], rcx
        mov [rsp + 32], r8
        mov [rsp + 40], r9
        movaps [rsp + 48], xmm0
        movaps [rsp + 64], xmm1
        movaps [rsp + 80], xmm2
        movaps [rsp + 96], xmm3
        movaps [rsp + 112], xmm4
        movaps [rsp + 128], xmm5
        movaps [rsp + 144], xmm6
        movaps [rsp + 160], xmm7"
    };
}

/// Gives them back.
#[cfg(target_arch = "x86_64")]
macro_rules! give_back {
    () => {
        "mov rdi, [rsp]
        mov rsi, [rsp + 8]
        mov rdx, [rsp + 16]
        mov rcx, [rsp + 24]
        mov r8, [rsp + 32]
        mov r9, [rsp + 40]
        movaps xmm0, [rsp + 48]
        movaps xmm1, [rsp + 64]
        movaps xmm2, [rsp + 80]
        movaps xmm3, [rsp + 96]
        movaps xmm4, [rsp + 112]
        movaps xmm5, [rsp + 128]
        movaps xmm6, [rsp + 144]
        movaps xmm7, [rsp + 160]"
    };
}

/// `prints!(name: fd, format in these registers)`: functions that print to a descriptor. They gather their arguments as
/// a `va_list` has them (System V ABI, AMD64, 3.5.7), ask [`print`], and are the C library's where that has not
/// printed.
#[cfg(target_arch = "x86_64")]
macro_rules! prints {
    ($($name:ident, $format:literal, $gp:literal;)*) => {
        $(
            /// # Safety
            /// As for the C library's function.
            #[unsafe(naked)]
            #[no_mangle]
            pub unsafe extern "C" fn $name() {
                static REAL: Real<unsafe extern "C" fn()> =
                    Real::new(match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!(),
                    });
                listed!(REAL);
                std::arch::naked_asm!(
                    "endbr64",
                    "push rbp",
                    "mov rbp, rsp",
                    // 176 octets of registers, 24 of the va_list, al, and room to align.
                    "sub rsp, 224",
                    keep!(),
                    "mov [rsp + 208], rax",
                    "mov dword ptr [rsp + 176], {gp}",
                    "mov dword ptr [rsp + 180], 48",
                    "lea rax, [rbp + 16]",
                    "mov [rsp + 184], rax",
                    "mov [rsp + 192], rsp",
                    "mov rsi, [rsp + {format}]",
                    "lea rdx, [rsp + 176]",
                    "call {before}",
                    "mov edi, [rsp]",
                    "mov rsi, [rsp + {format}]",
                    "lea rdx, [rsp + 176]",
                    "call {print}",
                    "cmp eax, -2",
                    "jne 2f",
                    "lea rdi, [rip + {real}]",
                    "call {found}",
                    "mov r11, rax",
                    give_back!(),
                    "mov rax, [rsp + 208]",
                    "leave",
                    "jmp r11",
                    "2:",
                    "leave",
                    "ret",
                    gp = const $gp,
                    format = const $format,
                    real = sym REAL,
                    found = sym crate::process::found,
                    before = sym crate::process::before_printing,
                    print = sym print,
                )
            }
        )*
    };
}

// The format is the second argument, or behind a flag the third; what follows it are the arguments.
#[cfg(target_arch = "x86_64")]
prints! {
    dprintf, 8, 16;
    __dprintf_chk, 16, 24;
}

hook!(fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int, real => {
    crate::process::before_printing(fd);
    // SAFETY: the program's own call.
    match unsafe { print(fd, format, arguments) } {
        -2 => real(),
        printed => printed,
    }
});

hook!(fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int, real => {
    crate::process::before_printing(fd);
    // SAFETY: the program's own call.
    match unsafe { print(fd, format, arguments) } {
        -2 => real(),
        printed => printed,
    }
});
