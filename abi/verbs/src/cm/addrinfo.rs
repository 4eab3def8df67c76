//! `rdma_getaddrinfo`: names and services as addresses to connect to or to listen on.
//!
//! Lists have one entry: the resolver's first answer, as in librdmacm.

use std::mem::zeroed;
use std::ptr::null_mut;

use libc::{addrinfo, c_char, c_int, sockaddr, socklen_t};

use crate::entry::{set_errno, value, Errno, Outcome};
use crate::layout::numbers::*;
use crate::layout::rdma_addrinfo;

/// What the call may answer besides success.
enum Failure {
    /// The resolver's code, returned as it is.
    Resolver(c_int),
    /// -1, with errno.
    Errno(Errno),
}

/// Hints for the system's resolver.
fn resolver_hints(hints: &rdma_addrinfo) -> addrinfo {
    // SAFETY: numbers and addresses, for which zero is a value.
    let mut ai: addrinfo = unsafe { zeroed() };
    if i64::from(hints.ai_flags) & RAI_PASSIVE != 0 {
        ai.ai_flags |= libc::AI_PASSIVE;
    }
    if i64::from(hints.ai_flags) & RAI_NUMERICHOST != 0 {
        ai.ai_flags |= libc::AI_NUMERICHOST;
    }
    ai.ai_family = hints.ai_family;
    // Types and protocols of the socket that would do the same; RC is the default.
    ai.ai_socktype = match i64::from(hints.ai_qp_type) {
        IBV_QPT_UD => libc::SOCK_DGRAM,
        0 if datagrams(hints.ai_port_space) => libc::SOCK_DGRAM,
        _ => libc::SOCK_STREAM,
    };
    ai.ai_protocol = match i64::from(hints.ai_port_space) {
        RDMA_PS_TCP => libc::IPPROTO_TCP,
        RDMA_PS_UDP | RDMA_PS_IPOIB => libc::IPPROTO_UDP,
        _ => 0,
    };
    ai
}

fn datagrams(port_space: c_int) -> bool {
    matches!(i64::from(port_space), RDMA_PS_UDP | RDMA_PS_IPOIB)
}

/// A copy of an address that `rdma_freeaddrinfo` frees.
///
/// # Safety
/// `addr` has `length` octets.
unsafe fn copy_addr(addr: *const sockaddr, length: socklen_t) -> Outcome<*mut sockaddr> {
    // SAFETY: the caller promises: `addr` has `length` octets; the copy is checked before it is written.
    unsafe {
        let copy = libc::malloc(length as usize);
        if copy.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        libc::memcpy(copy, addr.cast(), length as usize);
        Ok(copy.cast())
    }
}

/// Fills in what the resolver says of a name or service.
///
/// # Safety
/// `node` and `service` are null or C strings.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
    found: &mut rdma_addrinfo,
) -> Result<(), Failure> {
    let passive = i64::from(hints.ai_flags) & RAI_PASSIVE != 0;
    let resolver_hints = resolver_hints(hints);
    let mut list: *mut addrinfo = null_mut();
    // SAFETY: the caller promises: `node` and `service` are null or C strings; the list is freed below.
    let failed = unsafe { libc::getaddrinfo(node, service, &resolver_hints, &mut list) };
    if failed != 0 {
        return Err(Failure::Resolver(failed));
    }
    // SAFETY: the resolver succeeded, so there is at least one entry, with an address.
    let copied = unsafe {
        let first = &*list;
        found.ai_family = first.ai_family;
        let copied = copy_addr(first.ai_addr, first.ai_addrlen).map(|copy| {
            if passive {
                (found.ai_src_addr, found.ai_src_len) = (copy, first.ai_addrlen);
            } else {
                (found.ai_dst_addr, found.ai_dst_len) = (copy, first.ai_addrlen);
            }
        });
        libc::freeaddrinfo(list);
        copied
    };
    found.ai_flags = if passive { RAI_PASSIVE as c_int } else { 0 };
    found.ai_qp_type = match (hints.ai_qp_type, resolver_hints.ai_socktype) {
        (0, libc::SOCK_DGRAM) => IBV_QPT_UD as c_int,
        (0, _) => IBV_QPT_RC as c_int,
        (given, _) => given,
    };
    found.ai_port_space = match (hints.ai_port_space, resolver_hints.ai_socktype) {
        (0, libc::SOCK_DGRAM) => RDMA_PS_UDP as c_int,
        (0, _) => RDMA_PS_TCP as c_int,
        (given, _) => given,
    };
    copied.map_err(Failure::Errno)
}

/// What the hints alone say.
///
/// # Safety
/// The hints' addresses have the lengths they say.
unsafe fn take_hints(hints: &rdma_addrinfo, found: &mut rdma_addrinfo) -> Outcome<()> {
    found.ai_flags = hints.ai_flags;
    found.ai_family = hints.ai_family;
    found.ai_qp_type = hints.ai_qp_type;
    found.ai_port_space = hints.ai_port_space;
    if hints.ai_dst_len > 0 {
        // SAFETY: the caller promises: the hints' addresses have the lengths they say.
        found.ai_dst_addr = unsafe { copy_addr(hints.ai_dst_addr, hints.ai_dst_len)? };
        found.ai_dst_len = hints.ai_dst_len;
    }
    Ok(())
}

/// # Safety
/// As for `rdma_getaddrinfo(3)`; `hints` is valid.
unsafe fn fill(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
    found: &mut rdma_addrinfo,
) -> Result<(), Failure> {
    // SAFETY: the caller promises: what `rdma_getaddrinfo(3)` asks for; `hints` is valid.
    unsafe {
        if node.is_null() && service.is_null() {
            take_hints(hints, found).map_err(Failure::Errno)?;
        } else {
            resolve(node, service, hints, found)?;
        }
        if found.ai_src_len == 0 && hints.ai_src_len > 0 {
            let copy = copy_addr(hints.ai_src_addr, hints.ai_src_len);
            found.ai_src_addr = copy.map_err(Failure::Errno)?;
            found.ai_src_len = hints.ai_src_len;
        }
    }
    Ok(())
}

/// Frees an entry and what it points to.
///
/// # Safety
/// It came from `rdma_getaddrinfo` and is given up.
unsafe fn free(entry: *mut rdma_addrinfo) {
    // SAFETY: the caller promises: the entry came from `rdma_getaddrinfo` and is given up; each pointer is null or
    // from the C library's allocator.
    unsafe {
        let entry = Box::from_raw(entry);
        libc::free(entry.ai_connect);
        libc::free(entry.ai_route);
        libc::free(entry.ai_src_canonname.cast());
        libc::free(entry.ai_dst_canonname.cast());
        libc::free(entry.ai_src_addr.cast());
        libc::free(entry.ai_dst_addr.cast());
    }
}

export! {
    /// `rdma_getaddrinfo(3)`: 0, an `EAI_*` code, or -1 with errno.
    fn rdma_getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
        result: *mut *mut rdma_addrinfo,
    ) -> c_int {
        let failure = value(Failure::Errno(Errno(libc::EIO)), || {
            let nothing_given = node.is_null() && service.is_null() && hints.is_null();
            if nothing_given || result.is_null() {
                return Ok(Failure::Errno(Errno(libc::EINVAL)));
            }
            // SAFETY: numbers and addresses, for which zero is a value; the program's own
            // arguments; it gave the address for the answer.
            unsafe {
                let no_hints: rdma_addrinfo = zeroed();
                let hints = hints.as_ref().unwrap_or(&no_hints);
                let found = Box::into_raw(Box::new(zeroed::<rdma_addrinfo>()));
                match fill(node, service, hints, &mut *found) {
                    Ok(()) => {
                        *result = found;
                        Ok(Failure::Resolver(0))
                    }
                    Err(failure) => {
                        free(found);
                        Ok(failure)
                    }
                }
            }
        });
        match failure {
            Failure::Resolver(code) => code,
            Failure::Errno(errno) => {
                set_errno(errno);
                -1
            }
        }
    }

    /// `rdma_freeaddrinfo(3)`.
    fn rdma_freeaddrinfo(list: *mut rdma_addrinfo) {
        let mut entry = list;
        while !entry.is_null() {
            // SAFETY: entries of a list that the program gives up.
            unsafe {
                let next = (*entry).ai_next;
                free(entry);
                entry = next;
            }
        }
    }
}
