//! Sockets for datagrams, at addresses of drivers and at the kernel's.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use weft_engine::carrier::{
    DatagramSocket, Gather, Interest, Readiness, Received, SocketOptions, Source,
};

use crate::driver::{Driver, Holder};
use crate::drivers::Drivers;
use crate::hold::canonical;

fn failed(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// A port for datagrams of one driver, until this is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    driver: Arc<Driver>,
    holder: Holder,
    local: SocketAddr,
}

impl Port {
    /// Holds a port; port 0 takes a free one.
    pub(crate) fn new(
        driver: &Arc<Driver>,
        addr: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Port> {
        let mut state = driver.lock().ok_or(failed(libc::EACCES))?;
        let (holder, local) = state.bind_datagrams(addr, options.v6_only == Some(true))?;
        drop(state);
        Ok(Port {
            driver: driver.clone(),
            holder,
            local,
        })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(mut state) = self.driver.lock() {
            state.release_datagrams(self.holder);
        }
    }
}

/// A port for datagrams: at addresses of drivers, and perhaps at the kernel's.
#[derive(Debug)]
pub(crate) struct Datagrams {
    drivers: Drivers,
    kernel: Option<Box<dyn DatagramSocket>>,
    ports: Vec<Port>,
    local: SocketAddr,
    /// Where its datagrams come from, once it is connected.
    connected: OnceLock<SocketAddr>,
    /// What is sent: a list in one piece. Kept for its memory.
    outbox: Mutex<Vec<u8>>,
}

impl Datagrams {
    /// Of these ports, which are one, at this address or at all.
    pub(crate) fn new(
        drivers: &Drivers,
        kernel: Option<Box<dyn DatagramSocket>>,
        ports: Vec<Port>,
        address: IpAddr,
    ) -> io::Result<Datagrams> {
        let port = ports.first().map(|port| port.local.port());
        let port = port.ok_or(failed(libc::EADDRNOTAVAIL))?;
        Ok(Datagrams {
            drivers: drivers.clone(),
            kernel,
            ports,
            local: SocketAddr::new(address, port),
            connected: OnceLock::new(),
            outbox: Mutex::default(),
        })
    }

    /// The port at a driver's address; none where the kernel has the address.
    fn port_at(&self, address: IpAddr) -> Option<&Port> {
        let mut ports = self.ports.iter();
        ports.find(|port| port.driver.owns(address))
    }

    fn kernel(&self) -> io::Result<&dyn DatagramSocket> {
        self.kernel.as_deref().ok_or(failed(libc::EADDRNOTAVAIL))
    }
}

impl Source for Datagrams {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.kernel.as_ref().and_then(|kernel| kernel.descriptor())
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        for port in &self.ports {
            if let Some(mut state) = port.driver.lock() {
                state.wait_for_datagrams(port.holder, interest, readiness);
            }
        }
    }
}

impl DatagramSocket for Datagrams {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(*self.connected.get().unwrap_or(&self.local))
    }

    fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        let to = canonical(peer);
        let local = match self.drivers.towards(to.ip()) {
            Some(driver) => {
                let mut ports = self.ports.iter();
                let port = ports.find(|port| Arc::ptr_eq(&port.driver, driver));
                let port = port.ok_or(failed(libc::ENETUNREACH))?;
                let source = match self.local.ip().is_unspecified() {
                    true => driver.source_for(to.ip()),
                    false => Some(self.local.ip()),
                };
                let mut state = driver.lock().ok_or(failed(libc::EACCES))?;
                state.connect_datagrams(port.holder, to);
                SocketAddr::new(source.ok_or(failed(libc::ENETUNREACH))?, port.local.port())
            }
            None => {
                let kernel = self.kernel()?;
                kernel.connect(peer)?;
                kernel.local_addr()?
            }
        };
        self.connected.set(local).map_err(|_| failed(libc::EISCONN))
    }

    fn send(
        &self,
        list: &Gather<'_>,
        from: IpAddr,
        to: SocketAddr,
        segment: Option<u16>,
    ) -> io::Result<()> {
        let Some(port) = self.port_at(from.to_canonical()) else {
            return self.kernel()?.send(list, from, to, segment);
        };
        let mut outbox = self.outbox.lock();
        outbox.clear();
        let octets = list.append_to(list.octets(), &mut outbox);
        octets.map_err(|_| failed(libc::EFAULT))?;
        let segment = segment.map_or(outbox.len(), usize::from);
        let from = SocketAddr::new(from.to_canonical(), port.local.port());
        let mut state = port.driver.lock().ok_or(failed(libc::EACCES))?;
        state.send_datagrams(from, canonical(to), &outbox, segment)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        for port in &self.ports {
            // In a child that was forked nothing comes.
            let Some(mut state) = port.driver.lock() else {
                continue;
            };
            match state.receive_datagrams(port.holder, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        }
        match &self.kernel {
            Some(kernel) => kernel.receive(buffer),
            None => Err(failed(libc::EAGAIN)),
        }
    }

    fn room(&self, at: IpAddr) -> u32 {
        match self.port_at(at.to_canonical()) {
            Some(port) => port.driver.lock().map_or(0, |state| state.datagram_room()),
            None => self.kernel.as_ref().map_or(0, |kernel| kernel.room(at)),
        }
    }
}
