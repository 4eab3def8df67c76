//! The devices' files, for programs that look for them by path.
//!
//! UCX asks `stat` for `/dev/infiniband/weft0` before it takes a device from the list, and newer
//! versions ask `access`; nearly every program that chooses a GID reads its type from
//! `/sys/class/infiniband/weft0`. Neither is there, and making the first needs privilege. So for
//! these names the calls that look at a file, or open one to read, answer for what stands in: the
//! file in `/dev` for `/dev/null`, a character device that everybody may read and write; one in
//! sysfs for a file in memory with its text ([`super::sysfs`]); a folder of sysfs, which can be
//! looked at and listed ([`super::listing`]) and not opened, for `/`. Every other name goes to the C library untouched.
//!
//! Hooked is each name that a program may have been built to call: C libraries before 2.33 had no
//! `stat` to link, but `__xstat` with a version in front, and fortified programs call `__open_2`.

// The lint (Rust 1.99) wants `open` declared as the standard library declares it, with three dots. Older compilers do
// not know it.
#![allow(unknown_lints, invalid_runtime_symbol_definitions)]

use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::mem::transmute;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{mode_t, stat as Stat, stat64 as Stat64, statx as Statx, FILE};
use weft_engine::device;

use crate::off;
use crate::sysfs::{self, Node};

const FOLDER: &[u8] = b"/dev/infiniband/";
const CLASS: &[u8] = b"/sys/class/infiniband";
const DEVICE: &CStr = c"/dev/null";
const DIRECTORY: &CStr = c"/";

/// What a call wants with a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Look,
    Open,
}

/// What stands in for a path while a call is under way.
enum StandIn {
    /// A file of the machine.
    Known(&'static CStr),
    /// A file in memory, under the name by which the kernel finds it again.
    Memory { name: CString, _file: OwnedFd },
}

impl StandIn {
    /// What stands in for `path`, if it is one of ours.
    fn of(path: *const c_char, wanted: Use) -> Option<StandIn> {
        if path.is_null() {
            return None;
        }
        // SAFETY: the caller of stat(2) and its like gives a string that ends in NUL.
        let asked = unsafe { CStr::from_ptr(path) }.to_bytes();
        if let Some(name) = asked.strip_prefix(FOLDER) {
            // Most names there are other libraries', and the devices are looked for only where one may be ours.
            let may_be = name.starts_with(device::NAME.as_bytes()) && !off::is_off();
            let ours = may_be && device::all().iter().any(|one| one.name.as_bytes() == name);
            return ours.then_some(StandIn::Known(DEVICE));
        }
        match (sysfs::at(&below_class(asked)?)?, wanted) {
            (Node::File(text), _) => StandIn::with_text(&text),
            (Node::Folder(_), Use::Look) => Some(StandIn::Known(DIRECTORY)),
            (Node::Folder(_), Use::Open) => None,
        }
    }

    /// A file in memory, nobody's to write. Without one (too many files, none allowed, no /proc) there is none.
    fn with_text(text: &str) -> Option<StandIn> {
        const READABLE: mode_t = 0o444;
        if !weft_engine::is_file_allowed(text.len()) {
            return None;
        }
        // SAFETY: the name ends in NUL; what the call returns is checked and then ours.
        let file = unsafe {
            let fd = libc::memfd_create(c"weft-sysfs".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return None;
            }
            OwnedFd::from_raw_fd(fd)
        };
        let fd = file.as_raw_fd();
        // SAFETY: the text is as long as it says.
        let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
        // SAFETY: a descriptor of ours.
        let closed = unsafe { libc::fchmod(fd, READABLE) } == 0;
        let name = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
        (closed && usize::try_from(written) == Ok(text.len()))
            .then_some(StandIn::Memory { name, _file: file })
    }

    fn path(&self) -> *const c_char {
        match self {
            StandIn::Known(name) => name.as_ptr(),
            StandIn::Memory { name, .. } => name.as_ptr(),
        }
    }
}

/// The words of a path below `/sys/class/infiniband`.
fn below_class(path: &[u8]) -> Option<Vec<&str>> {
    let rest = path.strip_prefix(CLASS)?;
    if !matches!(rest.first(), None | Some(b'/')) {
        return None;
    }
    let words = std::str::from_utf8(rest).ok()?.split('/');
    Some(words.filter(|word| !word.is_empty()).collect())
}

/// The text of one of the device's files in sysfs.
pub fn text(path: &str) -> Option<String> {
    match sysfs::at(&below_class(path.as_bytes())?)? {
        Node::File(text) => Some(text),
        Node::Folder(_) => None,
    }
}

/// The words of a path that may be one of our folders.
///
/// # Safety
/// `path` is null or a string that ends in NUL, and stays for `'a`.
pub unsafe fn folder_at<'a>(path: *const c_char) -> Option<Vec<&'a str>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller promises: `path` is null or a string that ends in NUL, and stays for `'a`.
    below_class(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// The function of this name behind this library.
pub fn behind(place: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let mut at = place.load(Ordering::Relaxed);
    if at.is_null() {
        // SAFETY: the name ends in NUL; RTLD_NEXT is what comes behind this object.
        at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        place.store(at, Ordering::Relaxed);
    }
    (!at.is_null()).then_some(at)
}

/// What says "failed"; errno says why.
trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for *mut FILE {
    const FAILED: *mut FILE = null_mut();
}

/// The answer of a C library that lacks a function.
fn missing<T: Failed>() -> T {
    // SAFETY: the C library gives each thread its own errno at this address.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    T::FAILED
}

/// Calls of the C library: what each wants with the path, and its arguments before and behind it.
///
/// The name of a file in memory is a link, so where something stands in links are followed:
/// `as stat` names the call that does, `without flags X` the flag that forbids it.
macro_rules! about_a_path {
    ($(
        $wanted:ident fn $name:ident($($before:ident: $b:ty),*; path; $($behind:ident: $t:ty),*) -> $result:ty
        $(, as $follows:ident)? $(, without $flags:ident $no_follow:ident)?;
    )*) => {$(
        /// The C library's, but for the device's files.
        ///
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name($($before: $b,)* path: *const c_char, $($behind: $t),*) -> $result {
            type Real = unsafe extern "C" fn($($b,)* *const c_char, $($t),*) -> $result;
            static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            let stand_in = StandIn::of(path, Use::$wanted);
            let real = match &stand_in {
                $(Some(_) => {
                    static FOLLOWS: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
                    behind(&FOLLOWS, c_name!($follows))
                })?
                _ => behind(&REAL, c_name!($name)),
            };
            $(let $flags = if stand_in.is_some() { $flags & !libc::$no_follow } else { $flags };)?
            let path = stand_in.as_ref().map_or(path, StandIn::path);
            match real {
                // SAFETY: the C library's function of this name has this signature; the arguments are the
                // caller's.
                Some(real) => unsafe { transmute::<*mut c_void, Real>(real)($($before,)* path, $($behind),*) },
                None => missing(),
            }
        }
    )*};
}

// Those with three dots in C take a mode only with O_CREAT; it is passed on in any case, in the
// register where a caller that gave none has something else.
about_a_path! {
    Look fn stat(; path; to: *mut Stat) -> c_int;
    Look fn stat64(; path; to: *mut Stat64) -> c_int;
    Look fn lstat(; path; to: *mut Stat) -> c_int, as stat;
    Look fn lstat64(; path; to: *mut Stat64) -> c_int, as stat64;
    Look fn fstatat(at: c_int; path; to: *mut Stat, flags: c_int) -> c_int, without flags AT_SYMLINK_NOFOLLOW;
    Look fn fstatat64(at: c_int; path; to: *mut Stat64, flags: c_int) -> c_int, without flags AT_SYMLINK_NOFOLLOW;
    Look fn statx(at: c_int; path; flags: c_int, mask: c_uint, to: *mut Statx) -> c_int,
        without flags AT_SYMLINK_NOFOLLOW;

    Look fn __xstat(version: c_int; path; to: *mut Stat) -> c_int;
    Look fn __xstat64(version: c_int; path; to: *mut Stat64) -> c_int;
    Look fn __lxstat(version: c_int; path; to: *mut Stat) -> c_int, as __xstat;
    Look fn __lxstat64(version: c_int; path; to: *mut Stat64) -> c_int, as __xstat64;
    Look fn __fxstatat(version: c_int, at: c_int; path; to: *mut Stat, flags: c_int) -> c_int,
        without flags AT_SYMLINK_NOFOLLOW;
    Look fn __fxstatat64(version: c_int, at: c_int; path; to: *mut Stat64, flags: c_int) -> c_int,
        without flags AT_SYMLINK_NOFOLLOW;

    Look fn access(; path; mode: c_int) -> c_int;
    Look fn eaccess(; path; mode: c_int) -> c_int;
    Look fn euidaccess(; path; mode: c_int) -> c_int;
    Look fn faccessat(at: c_int; path; mode: c_int, flags: c_int) -> c_int, without flags AT_SYMLINK_NOFOLLOW;

    Open fn open(; path; flags: c_int, mode: mode_t) -> c_int, without flags O_NOFOLLOW;
    Open fn open64(; path; flags: c_int, mode: mode_t) -> c_int, without flags O_NOFOLLOW;
    Open fn __open(; path; flags: c_int, mode: mode_t) -> c_int, without flags O_NOFOLLOW;
    Open fn __open64(; path; flags: c_int, mode: mode_t) -> c_int, without flags O_NOFOLLOW;
    Open fn __open_2(; path; flags: c_int) -> c_int, without flags O_NOFOLLOW;
    Open fn __open64_2(; path; flags: c_int) -> c_int, without flags O_NOFOLLOW;
    Open fn openat(at: c_int; path; flags: c_int, mode: mode_t) -> c_int, without flags O_NOFOLLOW;
    Open fn openat64(at: c_int; path; flags: c_int, mode: mode_t) -> c_int, without flags O_NOFOLLOW;
    Open fn __openat_2(at: c_int; path; flags: c_int) -> c_int, without flags O_NOFOLLOW;
    Open fn __openat64_2(at: c_int; path; flags: c_int) -> c_int, without flags O_NOFOLLOW;
    Open fn fopen(; path; mode: *const c_char) -> *mut FILE;
    Open fn fopen64(; path; mode: *const c_char) -> *mut FILE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_ours_by_whole_words() {
        let words = |path: &'static str| below_class(path.as_bytes());
        assert_eq!(words("/sys/class/infiniband"), Some(vec![]));
        assert_eq!(
            words("/sys/class/infiniband//weft0/ports/"),
            Some(vec!["weft0", "ports"])
        );
        assert_eq!(words("/sys/class/infiniband_verbs/weft0"), None);
        assert_eq!(words("/sys/class/net"), None);
    }

    #[test]
    fn every_way_to_read_gives_the_text() {
        let path = "/sys/class/infiniband/weft0/ports/1/link_layer";
        assert_eq!(std::fs::read_to_string(path).unwrap(), "Ethernet\n");
        let name = CString::new(path).unwrap();
        let mut room = [0_u8; 16];
        // SAFETY: strings that end in NUL; the room is as long as said.
        let read = unsafe {
            let fd = __open_2(name.as_ptr(), libc::O_RDONLY | libc::O_NOFOLLOW);
            assert!(fd >= 0);
            let read = libc::read(fd, room.as_mut_ptr().cast(), room.len());
            libc::close(fd);
            read
        };
        assert_eq!(&room[..read as usize], b"Ethernet\n");
    }

    #[test]
    fn nothing_stays_open() {
        let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = count();
        for _ in 0..100 {
            assert!(
                std::fs::metadata("/sys/class/infiniband/weft0/ports/1/state")
                    .unwrap()
                    .is_file()
            );
        }
        // Other tests run beside this one and open some of their own.
        assert!(count() < before + 50);
    }
}
