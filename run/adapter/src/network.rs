//! The network of an inline adapter: which address is whose.
//!
//! An address of a driver, and what its networks and gateways lead to, is that driver's; everything else is the
//! kernel's. Who listens at all addresses does so at those of the drivers and at the kernel's, on one port.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weft_engine::carrier::tcp::KernelTcp;
use weft_engine::carrier::{
    udp, Bound, Carrier, DatagramSocket, Drive, Interest, Listener, Network, Readiness, Registered,
    SocketOptions, Source,
};
use weft_os::claim::Claim;

use crate::bound;
use crate::connection::Connection;
use crate::datagrams::{Datagrams, Port};
use crate::driver::Driver;
use crate::drivers::Drivers;
use crate::hold::{canonical, unspecified, Hold};
use crate::listener::DriverListener;

/// Ports that are tried where the kernel gives one that somebody holds at a driver.
const PORT_TRIES: usize = 16;

/// Drivers inside the program, and the kernel's TCP and UDP for all they do not lead to.
#[derive(Clone, Debug)]
pub struct Inline {
    drivers: Drivers,
    /// The addresses are this process's.
    _claims: Arc<[Claim]>,
}

impl Inline {
    /// Of these drivers; the claims to their addresses are given up with it.
    pub fn new(drivers: Vec<Arc<Driver>>, claims: Vec<Claim>) -> Inline {
        Inline {
            drivers: Drivers::new(drivers),
            _claims: claims.into(),
        }
    }

    /// Its drivers.
    pub fn drivers(&self) -> &[Arc<Driver>] {
        self.drivers.all()
    }

    /// All addresses, those of the drivers and the kernel's.
    fn bind_all(&self, addr: SocketAddr, options: &SocketOptions) -> io::Result<AllAddresses> {
        on_one_port(addr.port(), || {
            let kernel = KernelTcp.bind(addr, options)?;
            let local = kernel.local_addr();
            let holds = self.drivers.all().iter();
            let holds = holds.map(|driver| Hold::new(driver, local, options));
            Ok(AllAddresses {
                kernel,
                holds: holds.collect::<io::Result<Vec<Hold>>>()?,
                network: self.clone(),
            })
        })
    }
}

/// Binds at the kernel and at drivers. Where any port will do, the one that the kernel gives may be taken at a driver:
/// then another is tried.
fn on_one_port<T>(port: u16, bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let tries = if port == 0 { PORT_TRIES } else { 1 };
    let mut outcomes = (0..tries).map(|_| bind());
    let is_over = |outcome: &io::Result<T>| match outcome {
        Ok(_) => true,
        Err(error) => error.raw_os_error() != Some(libc::EADDRINUSE),
    };
    let found = outcomes.find(is_over);
    found.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EADDRINUSE)))
}

impl Network for Inline {
    fn bind(&self, addr: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Bound>> {
        if addr.ip().is_unspecified() {
            return Ok(Box::new(self.bind_all(addr, options)?));
        }
        match self.drivers.of(addr.ip().to_canonical()) {
            Some(driver) => Ok(Box::new(Hold::new(driver, canonical(addr), options)?)),
            None => KernelTcp.bind(addr, options),
        }
    }

    fn connect(&self, peer: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Carrier>> {
        let to = canonical(peer);
        match self.drivers.towards(to.ip()) {
            Some(driver) => {
                let local = SocketAddr::new(unspecified(to.ip()), 0);
                let connection = Connection::open(driver, local, to, options, None)?;
                Ok(Box::new(connection))
            }
            None => KernelTcp.connect(peer, options),
        }
    }

    fn datagrams(
        &self,
        addr: SocketAddr,
        options: &SocketOptions,
        many: Option<usize>,
    ) -> io::Result<Box<dyn DatagramSocket>> {
        let addr = canonical(addr);
        if !addr.ip().is_unspecified() {
            return match self.drivers.of(addr.ip()) {
                Some(driver) => {
                    let port = Port::new(driver, addr, options)?;
                    Ok(Box::new(Datagrams::new(
                        &self.drivers,
                        None,
                        vec![port],
                        addr.ip(),
                    )?))
                }
                None => udp::bind(addr, options, many),
            };
        }
        on_one_port(addr.port(), || {
            let kernel = udp::bind(addr, options, many)?;
            let local = kernel.local_addr()?;
            let ports = self.drivers.all().iter();
            let ports = ports.map(|driver| Port::new(driver, local, options));
            let ports = ports.collect::<io::Result<Vec<Port>>>()?;
            Ok(Box::new(Datagrams::new(
                &self.drivers,
                Some(kernel),
                ports,
                local.ip(),
            )?) as Box<_>)
        })
    }

    fn source_towards(&self, peer: SocketAddr) -> io::Result<SocketAddr> {
        let to = peer.ip().to_canonical();
        match self.drivers.towards(to) {
            Some(driver) => {
                let source = driver.source_for(to);
                let source = source.ok_or(io::Error::from_raw_os_error(libc::ENETUNREACH))?;
                Ok(SocketAddr::new(source, 0))
            }
            None => KernelTcp.source_towards(peer),
        }
    }

    fn addresses(&self) -> Vec<(IpAddr, String)> {
        let interfaces = self.drivers.all().iter().map(|driver| driver.interface());
        let addresses = interfaces.flat_map(|interface| {
            let own = interface.addresses.iter();
            own.map(|own| (own.address, interface.name.clone()))
        });
        addresses.collect()
    }

    fn drives(&self) -> Vec<Arc<dyn Drive>> {
        let drivers = self.drivers.all().iter();
        drivers
            .map(|driver| driver.clone() as Arc<dyn Drive>)
            .collect()
    }

    fn takes_policies(&self) -> bool {
        true
    }

    fn leave(&self) {
        self.drivers.all().iter().for_each(|driver| driver.leave());
    }

    fn deregistered(&self, memory: &Registered) {
        for driver in self.drivers.all() {
            if let Some(mut state) = driver.lock() {
                state.copy_all(memory);
            }
        }
    }
}

/// A port that is held at all addresses.
#[derive(Debug)]
struct AllAddresses {
    kernel: Box<dyn Bound>,
    holds: Vec<Hold>,
    network: Inline,
}

impl Bound for AllAddresses {
    fn local_addr(&self) -> SocketAddr {
        self.kernel.local_addr()
    }

    fn listen(self: Box<Self>, backlog: i32) -> io::Result<Box<dyn Listener>> {
        let AllAddresses { kernel, holds, .. } = *self;
        let kernel = kernel.listen(backlog)?;
        let drivers = holds
            .into_iter()
            .map(|hold| bound::listen(hold, backlog))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Box::new(AllListeners { kernel, drivers }))
    }

    fn connect(self: Box<Self>, peer: SocketAddr) -> io::Result<Box<dyn Carrier>> {
        let AllAddresses {
            kernel,
            holds,
            network,
        } = *self;
        let to = canonical(peer);
        let Some(driver) = network.drivers.towards(to.ip()) else {
            return kernel.connect(peer);
        };
        let hold = holds
            .into_iter()
            .find(|hold| Arc::ptr_eq(&hold.driver, driver))
            .ok_or(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))?;
        Ok(Box::new(bound::connect(hold, to)?))
    }
}

/// A listener at all addresses.
#[derive(Debug)]
struct AllListeners {
    kernel: Box<dyn Listener>,
    drivers: Vec<DriverListener>,
}

impl Source for AllListeners {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.kernel.descriptor()
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        for listener in &self.drivers {
            listener.wait_for(interest, readiness);
        }
    }
}

impl Listener for AllListeners {
    fn accept(&self) -> io::Result<Option<(Box<dyn Carrier>, SocketAddr)>> {
        for listener in &self.drivers {
            if let Some(accepted) = listener.accept()? {
                return Ok(Some(accepted));
            }
        }
        self.kernel.accept()
    }

    fn has_waiting(&self) -> bool {
        self.kernel.has_waiting() || self.drivers.iter().any(|one| one.has_waiting())
    }
}
