//! Programs started from here: which of them have the connections of this one.
//!
//! The state of connections over DDP lies in a file, and whoever has the file reads and writes their octets. So a
//! program has it only if it is under Weft too, and the same user's. One that is another user's, or is not under
//! Weft, could not go on with a connection anyway.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use weft_os::handing_on::HandedOn;

use crate::edge::{caught, get, get_octets};

/// The file, if this process has one.
static FILE: OnceLock<HandedOn> = OnceLock::new();
/// What this library's file is called, if the environment is what loaded it.
static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();
/// Programs that are being started and are to have the file.
static STARTING: AtomicU32 = AtomicU32::new(0);

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Octets of its value that are looked at.
const VALUE_MAX: usize = 4096;

/// The environment of a program, as exec is given it.
pub type Environment = *const *const c_char;

extern "C" {
    static environ: Environment;
}

/// The environment that a program has which is given no other.
pub fn own_environment() -> Environment {
    // SAFETY: the C library's variable; it is read once, as the C library's own calls do.
    unsafe { environ }
}

/// The library is loaded, and the state of its connections is in `file`.
pub fn begin(file: Option<c_int>) {
    let Some(file) = file.and_then(HandedOn::new) else {
        return;
    };
    let name = library_name().filter(|name| names(own_environment(), name));
    if let Some(name) = name {
        let _ = LIBRARY.set(name);
    }
    let _ = FILE.set(file);
}

/// This process is about to become a program with this environment.
pub fn becoming(environment: Environment) {
    if let Some(file) = FILE.get() {
        caught((), || file.set(is_under_weft(environment)));
    }
}

/// Starts another program, which is given this environment, by one call that makes the process too.
///
/// The child closes the file by what is set here when it is made. So where the program is not to have it, that is said
/// anew: an exec that failed has left the file open. Only while another thread starts one that is to have the file
/// does it stay open, and this child has it too.
pub fn starting<T>(environment: Environment, start: impl FnOnce() -> T) -> T {
    let Some(file) = FILE.get() else {
        return start();
    };
    if !caught(false, || is_under_weft(environment)) {
        if STARTING.load(Ordering::Acquire) == 0 {
            file.set(false);
        }
        return start();
    }
    STARTING.fetch_add(1, Ordering::AcqRel);
    file.set(true);
    let result = start();
    // A thread that is cancelled in `system` leaves it as it is: the next exec looks anew.
    if STARTING.fetch_sub(1, Ordering::AcqRel) == 1 {
        file.set(false);
    }
    result
}

/// Whether this library is loaded into a program with this environment.
fn is_under_weft(environment: Environment) -> bool {
    // What loaded it here without the environment's word does so there.
    LIBRARY.get().is_none_or(|name| names(environment, name))
}

/// What the file is called that this code is in.
fn library_name() -> Option<Vec<u8>> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; the call fills `info`, which lives.
    let found = unsafe { libc::dladdr(begin as *const c_void, info.as_mut_ptr()) };
    // SAFETY: zeros make one, and the call filled it.
    let path = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || path.is_null() {
        return None;
    }
    // SAFETY: the loader's string, which stays as long as this library.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    path.rsplit(|octet| *octet == b'/')
        .next()
        .map(<[u8]>::to_vec)
}

/// Whether the environment has a library of this file name loaded. One that cannot be read has not: exec refuses it.
fn names(environment: Environment, library: &[u8]) -> bool {
    let entries = (0..).map_while(|number| {
        let at = get(environment.wrapping_add(number).cast::<usize>())?;
        (at != 0).then_some(at as *const u8)
    });
    let mut values = entries.filter_map(|entry| value(entry, PRELOAD));
    values.any(|value| lists(value, library))
}

/// Where the value begins, if the entry is of this name.
fn value(entry: *const u8, name: &[u8]) -> Option<*const u8> {
    let is_it = name
        .iter()
        .enumerate()
        .all(|(at, octet)| octet_at(entry, at) == *octet);
    is_it.then(|| entry.wrapping_add(name.len()))
}

/// Whether the list of libraries at this address has one of this file name.
fn lists(value: *const u8, library: &[u8]) -> bool {
    let mut list = [0; VALUE_MAX];
    let octets = (0..VALUE_MAX).map(|at| octet_at(value, at));
    let len = octets
        .take_while(|octet| *octet != 0)
        .zip(&mut list)
        .map(|(octet, place)| *place = octet)
        .count();
    list[..len]
        .split(|octet| b" :".contains(octet))
        .any(|path| path.rsplit(|octet| *octet == b'/').next() == Some(library))
}

/// One octet of the program's; 0 where there is none. One by one, as memory may end behind the last.
fn octet_at(addr: *const u8, at: usize) -> u8 {
    let mut octet = [0];
    match get_octets(addr.wrapping_add(at).cast(), &mut octet) {
        true => octet[0],
        false => 0,
    }
}
