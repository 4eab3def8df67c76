//! Addresses of a driver that are held.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use weft_engine::carrier::SocketOptions;

use crate::driver::{Driver, Holder};

/// An address of one driver, until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) driver: Arc<Driver>,
    pub(crate) holder: Holder,
    pub(crate) local: SocketAddr,
    pub(crate) options: SocketOptions,
}

impl Hold {
    /// Holds an address; port 0 takes a free one.
    pub(crate) fn new(
        driver: &Arc<Driver>,
        addr: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Hold> {
        let mut state = driver
            .lock()
            .ok_or(io::Error::from_raw_os_error(libc::EACCES))?;
        let (holder, local) = state.bind(addr, options.v6_only == Some(true))?;
        drop(state);
        Ok(Hold {
            driver: driver.clone(),
            holder,
            local,
            options: *options,
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(mut state) = self.driver.lock() {
            state.release(self.holder);
        }
    }
}

/// The unspecified address of another one's version.
pub(crate) fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// An address of IPv4 that is mapped into IPv6 is one of IPv4.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
