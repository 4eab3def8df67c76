//! A connection of a driver as a carrier.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use weft_engine::carrier::{
    Arrived, Carrier, Done, Gather, Interest, Pieces, Readiness, Scatter, SocketOptions, Source,
    Transfer,
};
use weft_engine::settings::transport::Policy;
use weft_engine::stats::PathRow;
use weft_inet::tcp::Tuple;

use crate::driver::{Driver, Key, State};
use crate::hold::Hold;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    driver: Arc<Driver>,
    key: Key,
    ends: Tuple,
    abort: AtomicBool,
    /// The address that it was bound to is free when it ends.
    _hold: Option<Hold>,
}

/// What a process hears that was forked from the connection's own.
fn forked() -> io::Error {
    io::Error::from_raw_os_error(libc::EACCES)
}

impl Connection {
    /// Begins to connect.
    pub(crate) fn open(
        driver: &Arc<Driver>,
        local: SocketAddr,
        peer: SocketAddr,
        options: &SocketOptions,
        hold: Option<Hold>,
    ) -> io::Result<Connection> {
        let mut state = driver.lock().ok_or_else(forked)?;
        let (key, ends) = state.connect(local, peer, options)?;
        drop(state);
        Ok(Connection::new(driver, key, ends, hold))
    }

    /// One that came in.
    pub(crate) fn accepted(driver: &Arc<Driver>, key: Key, ends: Tuple) -> Connection {
        Connection::new(driver, key, ends, None)
    }

    fn new(driver: &Arc<Driver>, key: Key, ends: Tuple, hold: Option<Hold>) -> Connection {
        Connection {
            driver: driver.clone(),
            key,
            ends,
            abort: AtomicBool::new(false),
            _hold: hold,
        }
    }

    /// Does something in the driver; nothing in a forked process.
    #[inline]
    fn with<R>(&self, act: impl FnOnce(&mut State, Key) -> R) -> Option<R> {
        self.driver
            .lock()
            .map(|mut state| act(&mut state, self.key))
    }

    #[inline]
    fn transfer(&self, act: impl FnOnce(&mut State, Key) -> Transfer) -> Transfer {
        self.with(act).unwrap_or_else(|| Transfer::Failed(forked()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let abort = self.abort.load(Ordering::Relaxed);
        self.with(|state, key| state.disown(key, abort));
    }
}

impl Source for Connection {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        self.with(|state, key| state.wait_for(key, interest, readiness));
    }

    fn run_by(&self) -> Option<BorrowedFd<'_>> {
        self.driver.descriptor()
    }
}

impl Carrier for Connection {
    fn is_connected(&self) -> bool {
        self.with(|state, key| state.is_connected(key))
            .unwrap_or(false)
    }

    fn connect_result(&self) -> io::Result<()> {
        let error = self.with(|state, key| state.error(key));
        match error.unwrap_or_else(|| Some(forked())) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    #[inline]
    fn send(&self, octets: &[u8]) -> Transfer {
        self.transfer(|state, key| state.send(key, octets))
    }

    #[inline]
    fn send_gather(&self, list: &Gather<'_>) -> Transfer {
        self.transfer(|state, key| state.send_list(key, list))
    }

    fn unreleased(&self) -> usize {
        self.with(|state, key| state.unreleased(key)).unwrap_or(0)
    }

    fn unsent(&self) -> usize {
        self.with(|state, key| state.unsent(key)).unwrap_or(0)
    }

    fn keep_copies(&self) {
        self.with(|state, key| state.copy(key, None));
    }

    #[inline]
    fn recv(&self, buffer: &mut [u8]) -> Transfer {
        self.transfer(|state, key| state.recv(key, buffer))
    }

    #[inline]
    fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer {
        self.transfer(|state, key| state.recv_list(key, list))
    }

    fn is_readable(&self) -> bool {
        self.with(|state, key| state.is_readable(key))
            .unwrap_or(true)
    }

    fn round_trip(&self) -> Option<Duration> {
        self.with(|state, key| state.round_trip(key)).flatten()
    }

    fn finish(&self) {
        self.with(|state, key| state.finish(key));
    }

    fn is_broken(&self) -> bool {
        self.with(|state, key| state.is_broken(key)).unwrap_or(true)
    }

    fn abort_on_close(&self) {
        self.abort.store(true, Ordering::Relaxed);
    }

    fn keep_after_close(&self, time: Duration) {
        self.with(|state, key| state.keep(key, time));
    }

    fn emss(&self) -> io::Result<usize> {
        let asked = self.with(|state, key| match state.error(key) {
            Some(error) => Err(error),
            None => Ok(state.emss(key)),
        });
        asked.unwrap_or_else(|| Err(forked()))
    }

    fn take_new_emss(&self) -> Option<usize> {
        self.with(|state, key| state.take_new_emss(key)).flatten()
    }

    fn kept_octets(&self) -> u64 {
        self.with(|state, key| state.kept_octets(key)).unwrap_or(0)
    }

    fn pieces(&self) -> Option<&dyn Pieces> {
        Some(self)
    }

    fn attached(&self) {
        self.with(|state, key| state.attach(key));
    }

    fn peer_forgives(&self) {
        self.with(|state, key| state.peer_forgives(key));
    }

    fn show(&self, row: Option<PathRow>) {
        self.with(|state, key| state.show_path(key, row));
    }

    fn set_policy(&self, policy: &Policy) -> io::Result<()> {
        let set = self.with(|state, key| state.set_policy(key, policy));
        set.unwrap_or_else(|| Err(forked()))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.ends.local)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.ends.remote)
    }
}

impl Pieces for Connection {
    fn begin(&self) -> io::Result<u64> {
        let begun = self.with(|state, key| state.begin_pieces(key));
        begun.unwrap_or_else(|| Err(forked()))
    }

    #[inline]
    fn take(&self, done: Done, arrived: &mut Arrived) -> Transfer {
        self.transfer(|state, key| state.take_pieces(key, done, arrived))
    }

    fn forgive(&self, offset: u64) {
        self.with(|state, key| state.forgive(key, offset));
    }
}
