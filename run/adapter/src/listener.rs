//! Listeners of a driver.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use weft_engine::carrier::{Carrier, Interest, Listener, Readiness, Source};

use crate::connection::Connection;
use crate::hold::Hold;

/// A listener of one driver.
#[derive(Debug)]
pub(crate) struct DriverListener {
    hold: Hold,
}

impl DriverListener {
    /// Of an address at which the driver listens.
    pub(crate) fn new(hold: Hold) -> DriverListener {
        DriverListener { hold }
    }
}

impl Source for DriverListener {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        if let Some(mut state) = self.hold.driver.lock() {
            state.wait_for_connections(self.hold.holder, interest, readiness);
        }
    }
}

impl Listener for DriverListener {
    fn accept(&self) -> io::Result<Option<(Box<dyn Carrier>, SocketAddr)>> {
        let driver = &self.hold.driver;
        let Some(mut state) = driver.lock() else {
            return Ok(None);
        };
        let Some((key, ends)) = state.accept(self.hold.holder) else {
            return Ok(None);
        };
        drop(state);
        let connection = Connection::accepted(driver, key, ends);
        Ok(Some((Box::new(connection), ends.remote)))
    }

    fn has_waiting(&self) -> bool {
        let state = self.hold.driver.lock();
        state.is_some_and(|state| state.has_waiting(self.hold.holder))
    }
}
