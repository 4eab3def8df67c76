//! The calls behind ours.

use std::ffi::{c_long, c_void, CStr};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of whatever is loaded behind this library: the C library, or another one that stands in front of it.
#[repr(C)]
pub struct Real<F> {
    /// First, for the assembler of `process`.
    at: AtomicPtr<c_void>,
    name: &'static CStr,
    _signature: PhantomData<F>,
}

// SAFETY: a name and an atomic address; the signature is only a type.
unsafe impl<F> Sync for Real<F> {}

impl<F: Copy> Real<F> {
    /// A function that has not been looked for.
    pub const fn new(name: &'static CStr) -> Real<F> {
        assert!(std::mem::size_of::<F>() == std::mem::size_of::<*mut c_void>());
        Real {
            at: AtomicPtr::new(std::ptr::null_mut()),
            name,
            _signature: PhantomData,
        }
    }

    /// The function; one that answers ENOSYS if there is none.
    #[inline(always)]
    pub fn get(&self) -> F {
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            at = find(&self.at, self.name);
        }
        // SAFETY: `F` is a function pointer type (see the macros, the only makers) and `at` the address of a
        // function of that name.
        unsafe { std::mem::transmute_copy(&at) }
    }
}

#[cold]
fn find(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in NUL. RTLD_NEXT is what comes behind the object that asks, which is this one.
    let mut at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if at.is_null() {
        at = missing as *const () as *mut c_void;
    }
    place.store(at, Ordering::Relaxed);
    at
}

/// Stands in for a call that this C library does not have. Its arguments, whatever they are, are the caller's
/// to clean up.
extern "C-unwind" fn missing() -> c_long {
    crate::edge::fail(libc::ENOSYS) as c_long
}

/// One entry of the list of all: the place and the name.
#[repr(C)]
pub struct Listed(pub &'static Real<*const c_void>);

// SAFETY: `Real` is.
unsafe impl Sync for Listed {}

extern "C" {
    /// Made by the linker: where the section begins and ends. Only their addresses mean something.
    #[link_name = "__start_weft_reals"]
    static LIST: [usize; 0];
    #[link_name = "__stop_weft_reals"]
    static LIST_END: [usize; 0];
}

/// Finds all of them, so that no hook has to do it in a signal handler.
pub fn find_all() {
    let first = (&raw const LIST).cast::<Listed>();
    let end = (&raw const LIST_END).cast::<Listed>();
    // SAFETY: the linker puts all entries of the section between the two symbols, one after the other.
    let list = unsafe { std::slice::from_raw_parts(first, end.offset_from(first) as usize) };
    for Listed(real) in list {
        real.get();
    }
}

/// Puts a `Real` on the list of all.
macro_rules! listed {
    ($real:ident) => {
        const _: () = {
            #[used]
            #[link_section = "weft_reals"]
            // SAFETY: the signature is no part of the layout, and nobody calls through the list.
            static LISTED: $crate::real::Listed = $crate::real::Listed(unsafe {
                &*(&raw const $real).cast::<$crate::real::Real<*const std::ffi::c_void>>()
            });
        };
    };
}

/// `hook!(fn name(arguments) -> type, real => body)`: exports `name`; in the body `real()` makes the same call of
/// the C library.
macro_rules! hook {
    ($(#[$attribute:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty, $real:ident => $body:expr) => {
        $(#[$attribute])*
        #[no_mangle]
        #[allow(clippy::missing_safety_doc)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            static REAL: $crate::real::Real<unsafe extern "C-unwind" fn($($type),*) -> $ret> =
                $crate::real::Real::new(match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                });
            listed!(REAL);
            // The arguments by value: by reference they would have to lie in memory from the hook's first instruction.
            // SAFETY: the program's own call, with its own arguments.
            let $real = move || unsafe { REAL.get()($($arg),*) };
            $body
        }
    };
}
