//! The functions of rsocket(7): their list, and the table by which the library that does their work hands them to the
//! library that has their names (decision 0036).

#![no_std]

use core::ffi::{c_int, c_void};

use libc::{
    fd_set, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
};

/// Gives the list of all functions to a macro, as `fn name(argument: type, ...) -> type;` for each. Whoever makes
/// something of the types has them in scope, under the names that `libc` and `core::ffi` give them.
#[macro_export]
macro_rules! rsocket_functions {
    ($to:ident) => {
        $to! {
            fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
            fn rbind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
            fn rlisten(fd: c_int, backlog: c_int) -> c_int;
            fn raccept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
            fn rconnect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
            fn rshutdown(fd: c_int, how: c_int) -> c_int;
            fn rclose(fd: c_int) -> c_int;
            fn rrecv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
            fn rrecvfrom(
                fd: c_int,
                data: *mut c_void,
                len: size_t,
                flags: c_int,
                from: *mut sockaddr,
                from_len: *mut socklen_t,
            ) -> ssize_t;
            fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
            fn rsend(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t;
            fn rsendto(
                fd: c_int,
                data: *const c_void,
                len: size_t,
                flags: c_int,
                to: *const sockaddr,
                to_len: socklen_t,
            ) -> ssize_t;
            fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
            fn rread(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t;
            fn rreadv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
            fn rwrite(fd: c_int, data: *const c_void, len: size_t) -> ssize_t;
            fn rwritev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
            fn rpoll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int;
            fn rselect(
                count: c_int,
                read: *mut fd_set,
                write: *mut fd_set,
                except: *mut fd_set,
                timeout: *mut timeval,
            ) -> c_int;
            fn rgetpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
            fn rgetsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
            fn rsetsockopt(
                fd: c_int,
                level: c_int,
                option: c_int,
                value: *const c_void,
                len: socklen_t,
            ) -> c_int;
            fn rgetsockopt(
                fd: c_int,
                level: c_int,
                option: c_int,
                value: *mut c_void,
                len: *mut socklen_t,
            ) -> c_int;
            fn rfcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
            fn riomap(
                fd: c_int,
                data: *mut c_void,
                len: size_t,
                protection: c_int,
                flags: c_int,
                offset: off_t,
            ) -> off_t;
            fn riounmap(fd: c_int, data: *mut c_void, len: size_t) -> c_int;
            fn riowrite(
                fd: c_int,
                data: *const c_void,
                len: size_t,
                offset: off_t,
                flags: c_int,
            ) -> size_t;
        }
    };
}

/// Writes the table with a member for each function.
macro_rules! table {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions, each as rsocket(7) has it: -1 with errno set where it fails.
        #[derive(Debug)]
        #[repr(C)]
        pub struct Functions {
            /// [`VERSION`]; a table that has another one is not read on.
            pub version: u32,
            $(#[allow(missing_docs)] pub $name: unsafe extern "C-unwind" fn($($type),*) -> $result,)*
        }
    };
}

rsocket_functions!(table);

/// The version of this table: another number for another list.
pub const VERSION: u32 = 1;

/// The name of the table in `libweft_preload.so`.
pub const TABLE: &core::ffi::CStr = c"weft_rsockets";
