//! The C edge: what every exported function does before and after its work.
//!
//! * A panic never crosses into C: it becomes `EIO` (or NULL, or -1, as the function reports errors).
//! * Errors become errno values here and nowhere else.
//! * **Null policy.** A null object or a null pointer to a required argument is answered with
//!   `EINVAL`; where rdma-core documents null as meaningful, the function says so. Functions that
//!   return nothing ignore it. Other bad addresses are the program's fault, as with any library.

use std::panic::{catch_unwind, AssertUnwindSafe};

use libc::c_int;
use weft_engine::Error;

/// An errno value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

/// The result of an entry's work.
pub type Outcome<T> = Result<T, Errno>;

/// Every error of the engine as errno. The one place where the two meet.
impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(match error {
            Error::Invalid(_) | Error::State(_) => libc::EINVAL,
            Error::NoMemory(_) => libc::ENOMEM,
            Error::Busy(_) => libc::EBUSY,
            Error::Unsupported(_) => libc::EOPNOTSUPP,
            Error::WouldBlock => libc::EAGAIN,
            Error::Interrupted => libc::EINTR,
            // What the kernel answers when a child uses its parent's verbs.
            Error::Forked => libc::EACCES,
            Error::Os(errno) => errno,
        })
    }
}

/// `EINVAL` as a result.
pub const fn invalid<T>() -> Outcome<T> {
    Err(Errno(libc::EINVAL))
}

/// `EOPNOTSUPP` as a result.
pub const fn unsupported<T>() -> Outcome<T> {
    Err(Errno(libc::EOPNOTSUPP))
}

/// Sets the calling thread's errno.
pub fn set_errno(errno: Errno) {
    // SAFETY: the C library gives each thread its own errno at this address.
    unsafe { *libc::__errno_location() = errno.0 }
}

/// Runs an entry's work; a panic becomes `EIO`.
#[inline]
fn caught<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    // Nothing that a panic could leave half-done is reachable through the closure but our own
    // objects, whose locks are poison-free and whose invariants the engine keeps.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Errno(libc::EIO)))
}

/// For functions that return 0 or the errno value.
#[inline]
pub fn code(work: impl FnOnce() -> Outcome<()>) -> c_int {
    match caught(work) {
        Ok(()) => 0,
        Err(errno) => errno.0,
    }
}

/// For functions that return 0, or -1 with errno set.
pub fn status(work: impl FnOnce() -> Outcome<()>) -> c_int {
    match caught(work) {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// For functions that return a pointer, or NULL with errno set.
pub fn pointer<T>(work: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    caught(work).unwrap_or_else(|errno| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// For functions that return a value and have no way to report an error.
#[inline]
pub fn value<T>(otherwise: T, work: impl FnOnce() -> Outcome<T>) -> T {
    caught(work).unwrap_or(otherwise)
}

/// Exports functions, each under two names: its own, for programs; and with `weft_` in front, to
/// which the shells with the real libraries' names forward (`build.sh`). A forwarded call thus
/// never comes back to the shell, whoever interposes what.
///
/// `, of device(x)`, `of context(x)` or `of object(x)` behind the signature names the argument that
/// tells whose device is meant: calls for the machine's own devices go on to the installed library
/// (see [`crate::system_devices`]). When Weft is off all calls do ([`crate::off`]).
macro_rules! export {
    ($(
        $(#[$meta:meta])*
        fn $name:ident $arguments:tt $(-> $result:ty)? $(, of $owner:ident($owned:ident))?
        $body:block
    )*) => {
        $( export_one! { [$(#[$meta])*] $name $arguments [$($result)?] [$($owner $owned)?] $body } )*
    };
}

/// One function of [`export!`]: what is not ours goes on to the installed library before the body sees it.
macro_rules! export_one {
    // Belongs to a device: foreign ones are passed on before the body sees them.
    (
        $meta:tt $name:ident ($($argument:ident : $type:ty),* $(,)?) [$($result:ty)?]
        [$owner:ident $owned:ident] $body:block
    ) => {
        export_one! {
            $meta $name ($($argument: $type),*) [$($result)?] []
            {
                // SAFETY: what a program passes is null or an object of the kind it says.
                if unsafe { $crate::system_devices::$owner($owned.cast()) } {
                    type Next = unsafe extern "C" fn($($type),*) $(-> $result)?;
                    // SAFETY: the installed library documents the same signature.
                    return match unsafe { $crate::system_devices::next::<Next>(c_name!($name)) } {
                        // SAFETY: the caller's promises are passed on unchanged.
                        Some(next) => unsafe { next($($argument),*) },
                        None => $crate::system_devices::Absent::absent(),
                    };
                }
                $body
            }
        }
    };
    // Nothing is ours when Weft is off. Without an installed library the body has to know that.
    (
        $meta:tt $name:ident ($($argument:ident : $type:ty),* $(,)?) [$($result:ty)?]
        [] $body:block
    ) => {
        export_named! {
            $meta $name ($($argument: $type),*) [$($result)?]
            {
                if $crate::off::is_off() {
                    type Next = unsafe extern "C" fn($($type),*) $(-> $result)?;
                    // SAFETY: the installed library documents the same signature.
                    if let Some(next) = unsafe { $crate::system_devices::next::<Next>(c_name!($name)) } {
                        // SAFETY: the caller's promises are passed on unchanged.
                        return unsafe { next($($argument),*) };
                    }
                }
                $body
            }
        }
    };
}

/// A function under its two names.
macro_rules! export_named {
    (
        [$($meta:tt)*] $name:ident ($($argument:ident : $type:ty),*) [$($result:ty)?] $body:block
    ) => {
        $($meta)*
        #[no_mangle]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? $body

        const _: () = {
            #[export_name = concat!("weft_", stringify!($name))]
            unsafe extern "C" fn forwarded($($argument: $type),*) $(-> $result)? {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { $name($($argument),*) }
            }
        };
    };
}

/// An identifier as a C string.
macro_rules! c_name {
    ($name:ident) => {
        // The literal is made here, with its NUL and no other.
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panicking<T>() -> Outcome<T> {
        panic!("a panic of the test's, on purpose")
    }

    fn errno() -> c_int {
        // SAFETY: as in `set_errno`.
        unsafe { *libc::__errno_location() }
    }

    #[test]
    fn a_panic_is_an_error_of_the_function() {
        assert_eq!(code(panicking), libc::EIO);
        set_errno(Errno(0));
        assert_eq!((status(panicking), errno()), (-1, libc::EIO));
        set_errno(Errno(0));
        assert!(pointer::<u8>(panicking).is_null());
        assert_eq!(errno(), libc::EIO);
        assert_eq!(value(7, panicking), 7);
    }

    #[test]
    fn success_leaves_errno_alone() {
        set_errno(Errno(libc::EXDEV));
        assert_eq!(code(|| Ok(())), 0);
        assert_eq!(status(|| Ok(())), 0);
        assert_eq!(errno(), libc::EXDEV);
    }

    #[test]
    fn every_error_has_an_errno() {
        for (error, wanted) in [
            (Error::Invalid("x"), libc::EINVAL),
            (Error::State("x"), libc::EINVAL),
            (Error::NoMemory("x"), libc::ENOMEM),
            (Error::Busy("x"), libc::EBUSY),
            (Error::Unsupported("x"), libc::EOPNOTSUPP),
            (Error::WouldBlock, libc::EAGAIN),
            (Error::Interrupted, libc::EINTR),
            (Error::Forked, libc::EACCES),
            (Error::Os(libc::EADDRINUSE), libc::EADDRINUSE),
        ] {
            assert_eq!(Errno::from(error), Errno(wanted), "{error:?}");
        }
    }
}
