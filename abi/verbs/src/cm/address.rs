//! Socket addresses between C's form and Rust's.

use std::mem::zeroed;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::entry::{invalid, Outcome};

/// An address out of C.
///
/// # Errors
/// `EINVAL`: null, or neither IPv4 nor IPv6.
///
/// # Safety
/// `addr` is null, or as long as its family says.
pub unsafe fn read(addr: *const sockaddr) -> Outcome<SocketAddr> {
    if addr.is_null() {
        return invalid();
    }
    // SAFETY: the caller promises: `addr` is null, or as long as its family says. C programs need not align what they
    // hand in.
    unsafe {
        match c_int::from((&raw const (*addr).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let v4 = addr.cast::<sockaddr_in>().read_unaligned();
                let ip = IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Ok(SocketAddr::new(ip, u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = addr.cast::<sockaddr_in6>().read_unaligned();
                Ok(SocketAddr::V6(SocketAddrV6::new(
                    Ipv6Addr::from(v6.sin6_addr.s6_addr),
                    u16::from_be(v6.sin6_port),
                    v6.sin6_flowinfo,
                    v6.sin6_scope_id,
                )))
            }
            _ => invalid(),
        }
    }
}

/// An address for C.
pub fn storage(addr: SocketAddr) -> sockaddr_storage {
    // SAFETY: numbers, for which zero is a value.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let to = &raw mut storage;
    match addr {
        SocketAddr::V4(v4) => {
            let c = sockaddr_in {
                sin_family: libc::AF_INET as sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is large and aligned enough for every family.
            unsafe { to.cast::<sockaddr_in>().write(c) };
        }
        SocketAddr::V6(v6) => {
            let c = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { to.cast::<sockaddr_in6>().write(c) };
        }
    }
    storage
}

/// The port of an address in network byte order; 0 for other families.
///
/// # Safety
/// `addr` may be read.
pub unsafe fn port(addr: *const sockaddr_storage) -> u16 {
    // SAFETY: the caller promises: `addr` may be read.
    unsafe { read(addr.cast()) }.map_or(0, |addr| addr.port().to_be())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in [
            "127.0.0.1:7471",
            "[::1]:1",
            "[fe80::1%3]:65535",
            "0.0.0.0:0",
        ] {
            let addr: SocketAddr = text.parse().unwrap();
            let c = storage(addr);
            // SAFETY: a whole address.
            unsafe {
                assert_eq!(read((&raw const c).cast()), Ok(addr));
                assert_eq!(port(&c), addr.port().to_be());
            }
        }
    }

    #[test]
    fn other_families_are_invalid() {
        // SAFETY: a whole, if empty, address; and null.
        unsafe {
            let none: sockaddr_storage = zeroed();
            assert_eq!(read((&raw const none).cast()), invalid());
            assert_eq!(read(std::ptr::null()), invalid());
        }
    }
}
