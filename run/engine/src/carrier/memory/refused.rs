//! A connect that came to nobody.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::error;
use crate::carrier::{Carrier, Gather, Interest, Readiness, Scatter, Source, Transfer};

const ECONNREFUSED: i32 = 111;
const ENOTCONN: i32 = 107;

/// A connect that came to nobody.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl Source for Refused {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_for(&self, _interest: Interest, readiness: &Readiness) {
        readiness.set(true);
    }
}

impl Carrier for Refused {
    fn is_connected(&self) -> bool {
        false
    }

    fn connect_result(&self) -> io::Result<()> {
        Err(error(ECONNREFUSED))
    }

    fn send(&self, _octets: &[u8]) -> Transfer {
        Transfer::Failed(error(ENOTCONN))
    }

    fn send_gather(&self, _list: &Gather<'_>) -> Transfer {
        Transfer::Failed(error(ENOTCONN))
    }

    fn recv(&self, _buffer: &mut [u8]) -> Transfer {
        Transfer::Failed(error(ENOTCONN))
    }

    fn recv_scatter(&self, _list: &Scatter<'_>) -> Transfer {
        Transfer::Failed(error(ENOTCONN))
    }

    fn finish(&self) {}

    fn is_broken(&self) -> bool {
        true
    }

    fn abort_on_close(&self) {}

    fn keep_after_close(&self, _time: Duration) {}

    fn emss(&self) -> io::Result<usize> {
        Err(error(ENOTCONN))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}
