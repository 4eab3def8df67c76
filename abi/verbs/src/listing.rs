//! The device's folders in sysfs, for programs that list them: `opendir` and what follows it, and
//! `scandir`.
//!
//! Shells, Python and libibumad find devices by the names in `/sys/class/infiniband`. What the C
//! library would read from the kernel is made here ([`super::sysfs`]): the stream that a program gets
//! is one of `/`, so that everything else can be done with it, and reading it gives our names.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_long, c_void, CStr};
use std::mem::{size_of, transmute, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::Mutex;

use libc::{dirent64, DIR};

use crate::device_files::{behind, folder_at};
use crate::entry::{set_errno, Errno};
use crate::event_references::lock;
use crate::sysfs::{self, Node};

// With and without 64 in their names the calls give the same structure.
const _: () = assert!(size_of::<dirent64>() == size_of::<libc::dirent>());

/// What is read from a stream of ours, and how far it was.
struct Listing {
    entries: Vec<dirent64>,
    next: usize,
}

/// The streams that are ours, by address.
static LISTINGS: Mutex<BTreeMap<usize, Listing>> = Mutex::new(BTreeMap::new());
/// How many there are: as long as there is none, reading other folders costs one relaxed load.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The C library's function of a name and type.
macro_rules! real {
    ($name:ident: $type:ty) => {{
        static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
        // SAFETY: the C library's function of this name has this type.
        behind(&REAL, c_name!($name)).map(|at| unsafe { transmute::<*mut c_void, $type>(at) })
    }};
}

type OpenDir = unsafe extern "C" fn(*const c_char) -> *mut DIR;
type ReadDir = unsafe extern "C" fn(*mut DIR) -> *mut dirent64;
type CloseDir = unsafe extern "C" fn(*mut DIR) -> c_int;

fn real_opendir(path: &CStr) -> *mut DIR {
    // SAFETY: called as documented.
    real!(opendir: OpenDir).map_or(null_mut(), |real| unsafe { real(path.as_ptr()) })
}

/// The entries of a folder below `/sys/class/infiniband`, by its words.
fn entries(path: &[&str]) -> Option<Vec<dirent64>> {
    let Node::Folder(names) = sysfs::at(path)? else {
        return None;
    };
    let mut found = vec![
        (".".to_owned(), libc::DT_DIR),
        ("..".to_owned(), libc::DT_DIR),
    ];
    if path.is_empty() {
        found.extend(real_devices(&names));
    }
    for name in names {
        let below = [path, &[name.as_str()]].concat();
        let kind = match sysfs::at(&below) {
            Some(Node::Folder(_)) => libc::DT_DIR,
            _ => libc::DT_REG,
        };
        found.push((name, kind));
    }
    Some(
        (1..)
            .zip(found)
            .map(|(at, (name, kind))| entry(at, &name, kind))
            .collect(),
    )
}

/// What the kernel lists there: the machine's own devices.
fn real_devices(ours: &[String]) -> Vec<(String, u8)> {
    let mut found = Vec::new();
    let stream = real_opendir(c"/sys/class/infiniband");
    let (Some(read), Some(close)) = (real!(readdir64: ReadDir), real!(closedir: CloseDir)) else {
        return found;
    };
    if stream.is_null() {
        return found;
    }
    // SAFETY: a stream that was just opened; an entry is used before the next is read, and its name
    // ends in NUL.
    unsafe {
        while let Some(entry) = read(stream).as_ref() {
            let name = CStr::from_ptr(entry.d_name.as_ptr())
                .to_string_lossy()
                .into_owned();
            if name != "." && name != ".." && !ours.contains(&name) {
                found.push((name, entry.d_type));
            }
        }
        close(stream);
    }
    found
}

fn entry(at: usize, name: &str, kind: u8) -> dirent64 {
    // SAFETY: numbers and characters, for which zero is a value.
    let mut entry: dirent64 = unsafe { zeroed() };
    entry.d_ino = at as u64;
    entry.d_off = at as i64;
    entry.d_reclen = size_of::<dirent64>() as u16;
    entry.d_type = kind;
    crate::listed::put_text(&mut entry.d_name, name);
    entry
}

/// What `work` makes of a stream's listing, if it is one of ours.
fn of_ours<T>(stream: *mut DIR, work: impl FnOnce(&mut Listing) -> T) -> Option<T> {
    if OPEN.load(Ordering::Relaxed) == 0 {
        return None;
    }
    lock(&LISTINGS).get_mut(&(stream as usize)).map(work)
}

/// The next entry of a stream of ours, null behind the last.
fn next_of_ours(stream: *mut DIR) -> Option<*mut dirent64> {
    of_ours(stream, |listing| {
        let entry = listing.entries.get_mut(listing.next);
        listing.next += usize::from(entry.is_some());
        entry.map_or(null_mut(), std::ptr::from_mut)
    })
}

/// Opens a folder of ours.
fn open_ours(entries: Vec<dirent64>) -> *mut DIR {
    let stream = real_opendir(c"/");
    if !stream.is_null() {
        lock(&LISTINGS).insert(stream as usize, Listing { entries, next: 0 });
        OPEN.fetch_add(1, Ordering::Relaxed);
    }
    stream
}

/// The C library's, but for the device's folders.
///
/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: the program's string, or null.
    match unsafe { folder_at(path) }.and_then(|words| entries(&words)) {
        Some(entries) => open_ours(entries),
        // SAFETY: called as the program does.
        None => real!(opendir: OpenDir).map_or_else(missing, |real| unsafe { real(path) }),
    }
}

/// The answer of a C library that lacks a function.
fn missing<T>() -> *mut T {
    set_errno(Errno(libc::ENOSYS));
    null_mut()
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn readdir(stream: *mut DIR) -> *mut dirent64 {
    next_of_ours(stream).unwrap_or_else(|| {
        // SAFETY: called as the program does.
        real!(readdir: ReadDir).map_or_else(missing, |real| unsafe { real(stream) })
    })
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn readdir64(stream: *mut DIR) -> *mut dirent64 {
    next_of_ours(stream).unwrap_or_else(|| {
        // SAFETY: called as the program does.
        real!(readdir64: ReadDir).map_or_else(missing, |real| unsafe { real(stream) })
    })
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn rewinddir(stream: *mut DIR) {
    if of_ours(stream, |listing| listing.next = 0).is_some() {
        return;
    }
    if let Some(real) = real!(rewinddir: unsafe extern "C" fn(*mut DIR)) {
        // SAFETY: called as the program does.
        unsafe { real(stream) };
    }
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn telldir(stream: *mut DIR) -> c_long {
    of_ours(stream, |listing| listing.next as c_long).unwrap_or_else(|| {
        // SAFETY: called as the program does.
        real!(telldir: unsafe extern "C" fn(*mut DIR) -> c_long)
            .map_or(-1, |real| unsafe { real(stream) })
    })
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn seekdir(stream: *mut DIR, to: c_long) {
    if of_ours(stream, |listing| {
        listing.next = usize::try_from(to).unwrap_or(0)
    })
    .is_some()
    {
        return;
    }
    if let Some(real) = real!(seekdir: unsafe extern "C" fn(*mut DIR, c_long)) {
        // SAFETY: called as the program does.
        unsafe { real(stream, to) };
    }
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn closedir(stream: *mut DIR) -> c_int {
    // Before the C library gives its address to another.
    if OPEN.load(Ordering::Relaxed) > 0 && lock(&LISTINGS).remove(&(stream as usize)).is_some() {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
    // SAFETY: called as the program does.
    real!(closedir: CloseDir).map_or(-1, |real| unsafe { real(stream) })
}

type Filter = unsafe extern "C" fn(*const dirent64) -> c_int;
type Compare = unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int;
type List = *mut *mut *mut dirent64;
type Scan = unsafe extern "C" fn(*const c_char, List, Option<Filter>, Option<Compare>) -> c_int;

/// `scandir(3)` of a folder of ours.
///
/// # Safety
/// As the C library's.
unsafe fn scan(
    entries: &[dirent64],
    list: List,
    filter: Option<Filter>,
    compare: Option<Compare>,
) -> c_int {
    // SAFETY: the program's functions are called as documented; what is allocated is checked, written
    // before it is read, and the program's to free.
    unsafe {
        let wanted = |entry: &&dirent64| filter.is_none_or(|filter| filter(*entry) != 0);
        let kept: Vec<&dirent64> = entries.iter().filter(wanted).collect();
        let array: *mut *mut dirent64 =
            libc::calloc(kept.len().max(1), size_of::<*mut dirent64>()).cast();
        if array.is_null() {
            return -1;
        }
        for (at, entry) in kept.iter().enumerate() {
            let copy: *mut dirent64 = libc::malloc(size_of::<dirent64>()).cast();
            if copy.is_null() {
                (0..at).for_each(|at| libc::free((*array.add(at)).cast()));
                libc::free(array.cast());
                return -1;
            }
            copy.write(**entry);
            *array.add(at) = copy;
        }
        if let Some(compare) = compare {
            type Any = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
            let compare = transmute::<Compare, Any>(compare);
            libc::qsort(
                array.cast(),
                kept.len(),
                size_of::<*mut dirent64>(),
                Some(compare),
            );
        }
        *list = array;
        kept.len() as c_int
    }
}

macro_rules! scanning {
    ($($name:ident)*) => {$(
        /// # Safety
        /// As the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            path: *const c_char,
            list: List,
            filter: Option<Filter>,
            compare: Option<Compare>,
        ) -> c_int {
            // SAFETY: the program's string, or null.
            match unsafe { folder_at(path) }.and_then(|words| entries(&words)) {
                // SAFETY: called as the program does.
                Some(entries) => unsafe { scan(&entries, list, filter, compare) },
                None => real!($name: Scan).map_or(-1, |real| {
                    // SAFETY: called as the program does.
                    unsafe { real(path, list, filter, compare) }
                }),
            }
        }
    )*};
}

scanning! { scandir scandir64 }

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn folders_are_listed_and_others_are_what_they_are() {
        let names = |path: &str| {
            let read = fs::read_dir(path).unwrap().map(Result::unwrap);
            let mut names: Vec<String> = read
                .map(|entry| entry.file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert!(names("/sys/class/infiniband").contains(&"weft0".to_owned()));
        assert_eq!(names("/sys/class/infiniband/weft0/ports"), ["1"]);
        assert_eq!(
            names("/sys/class/infiniband/weft0/ports/1/gid_attrs"),
            ["ndevs", "types"]
        );
        assert!(names("/proc/self").contains(&"maps".to_owned()));
        assert!(fs::read_dir("/sys/class/infiniband/weft0/fw_ver").is_err());
        assert_eq!(super::OPEN.load(super::Ordering::Relaxed), 0);
    }

    #[test]
    fn types_are_told() {
        for entry in fs::read_dir("/sys/class/infiniband/weft0")
            .unwrap()
            .map(Result::unwrap)
        {
            assert_eq!(
                entry.file_type().unwrap().is_dir(),
                entry.file_name() == "ports"
            );
        }
    }
}
