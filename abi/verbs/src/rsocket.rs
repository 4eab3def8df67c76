//! rsocket(7): the names. What the functions do is in the library with the socket hooks, which lies beside this one
//! and is opened at the first call of any of them (decisions 0027 and 0036).

use std::ffi::{c_int, c_void, CStr, CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::OnceLock;

use libc::{
    fd_set, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
};
use weft_abi_rsockets::{rsocket_functions, Functions, TABLE, VERSION};
use weft_engine::fork::once;

use crate::entry::{set_errno, value, Errno};
use crate::off::is_off;
use crate::system_devices::next;

const LIBRARY: &str = "libweft_preload.so";

/// The functions; nothing where there is no library, which is said once.
fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<&'static Functions>> = OnceLock::new();
    value(None, || {
        Ok(*once(&FUNCTIONS, || {
            let opened = open();
            if let Err(why) = &opened {
                weft_engine::warn!("rsockets cannot be served: {why}");
            }
            opened.ok()
        }))
    })
}

/// Opens the library that lies beside this one. It is the one that the program has preloaded, if it has: a file is
/// loaded once. Its names stay its own: who opens it for rsockets gets no hooks.
fn open() -> Result<&'static Functions, String> {
    let own = own_path().ok_or("the path of this library is not known")?;
    let path = own.with_file_name(LIBRARY);
    let shown = path.display();
    let name = CString::new(path.clone().into_os_string().into_vec())
        .map_err(|_| "a path has a NUL in it")?;
    // SAFETY: a C string; what the library does when it is loaded it does in every program that has it preloaded.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(format!("{shown} cannot be opened: {}", linker_error()));
    }
    // SAFETY: a handle that was just given, and a C string.
    let table = unsafe { libc::dlsym(library, TABLE.as_ptr()) }.cast::<Functions>();
    // SAFETY: every build of Weft that has this name has a table there, which begins with its version, and whose other
    // members are looked at only where the version is ours. The library is never unloaded.
    let table = unsafe { table.as_ref() }.filter(|table| table.version == VERSION);
    table.ok_or_else(|| format!("{shown} is of another version of Weft"))
}

/// The path of the file that this code is in.
fn own_path() -> Option<std::path::PathBuf> {
    // SAFETY: `dladdr` takes any address and fills `info` when it returns non-zero.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(own_path as *const c_void, &mut info) != 0).then_some(info)?
    };
    // SAFETY: the linker's own name of a loaded object.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    // The program may have named it by a link.
    std::fs::canonicalize(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()
}

fn linker_error() -> String {
    // SAFETY: the text is the linker's, and there until this thread's next call of it.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => String::new(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}

/// Exports the functions, each under its own name and under the shells' (see `export!`). They are `C-unwind`: a thread
/// that is cancelled while it waits in one unwinds through it.
macro_rules! exports {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => { $(
        #[no_mangle]
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            // Off, it is the installed library's, where there is one.
            let found = match value(false, || Ok(is_off())) {
                // SAFETY: the installed library documents the same signature.
                true => unsafe { next::<Function>(c_name!($name)) },
                false => functions().map(|functions| functions.$name),
            };
            match found {
                // SAFETY: the caller's promises are passed on unchanged.
                Some(function) => unsafe { function($($argument),*) },
                None => {
                    set_errno(Errno(libc::ENODEV));
                    -1_isize as $result
                }
            }
        }

        const _: () = {
            #[export_name = concat!("weft_", stringify!($name))]
            unsafe extern "C-unwind" fn forwarded($($argument: $type),*) -> $result {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { $name($($argument),*) }
            }
        };
    )* };
}

rsocket_functions!(exports);
