// Two hosts on a cable, as one network of a process: whoever listens is at one end, whoever connects at the other.
// Included, and so without a document of its own.
//
// The engine's tests name addresses of this machine. Here each stands for the listening host; what the engine is told
// of a connection's ends is what the tests expect of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use weft_adapter::faulty::{Faults, Faulty};
use weft_adapter::{cable, Driver, Inline, Interface, Link};
use weft_engine::carrier::{
    Bound, Carrier, DatagramSocket, Drive, Gather, Interest, Listener, Network, Pieces, Readiness,
    Received, Registered, Scatter, SocketOptions, Source, Transfer,
};
use weft_engine::settings::TransportRules;
use weft_engine::stats::PathRow;

/// What a cable does where the variable `CABLE_SEED` says how.
const FAULTS: Faults = Faults {
    lost: 30,
    doubled: 20,
    late: 50,
};

/// Ends of connections that queue pairs have had.
pub static ATTACHED: AtomicUsize = AtomicUsize::new(0);

/// Whether this test program runs over it.
pub fn is_made() -> bool {
    true
}

/// A network.
pub fn network() -> Arc<dyn Network> {
    network_of(
        &TransportRules::default(),
        |last, link| match std::env::var("CABLE_SEED") {
            Ok(seed) => {
                let seed: u64 = seed.parse().unwrap();
                Box::new(Faulty::new(link, FAULTS, seed ^ u64::from(last)))
            }
            Err(_) => Box::new(link),
        },
    )
}

/// A network whose links are what is made of both ends of a cable: the connecting host's is 1, the listening one's 2.
/// Connections send as the rules say.
pub fn network_of(
    rules: &TransportRules,
    made_of: impl Fn(u8, cable::End) -> Box<dyn Link>,
) -> Arc<dyn Network> {
    let (one, other) = cable::pair().unwrap();
    let host = |last: u8, link: cable::End| {
        let interface = Interface {
            name: format!("cable{last}"),
            mac: [2, 0, 0, 0, 0, last],
            mtu: 9000,
            addresses: vec![
                format!("10.77.0.{last}/24").parse().unwrap(),
                format!("fd77::{last}/64").parse().unwrap(),
            ],
            routes: Vec::new(),
            dad_transmits: 0,
            rules: rules.clone(),
        };
        let link = made_of(last, link);
        Driver::new(interface, link).unwrap()
    };
    let (connects, listens) = (host(1, one), host(2, other));
    let network = |drivers: &[&Arc<Driver>]| {
        let drivers = drivers.iter().map(|driver| Arc::clone(driver)).collect();
        Inline::new(drivers, Vec::new())
    };
    Arc::new(Hosts {
        // Of two drivers that lead to the same network the last one is taken.
        both: network(&[&listens, &connects]),
        connects: network(&[&connects]),
        listens: network(&[&listens]),
    })
}

#[derive(Debug)]
struct Hosts {
    connects: Inline,
    listens: Inline,
    both: Inline,
}

/// The listening host's address of the same version.
fn there(addr: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match addr.ip() {
        ip if ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::new(10, 77, 0, 2).into(),
        IpAddr::V6(_) => "fd77::2".parse().unwrap(),
    };
    SocketAddr::new(ip, addr.port())
}

/// The connecting host's address of the same version.
fn from_here(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::new(10, 77, 0, 1).into(),
        IpAddr::V6(_) => "fd77::1".parse().unwrap(),
    }
}

/// This machine's address of the same version.
fn here(addr: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match addr {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, addr.port())
}

fn ending(carrier: Box<dyn Carrier>, peer: Option<SocketAddr>) -> Box<dyn Carrier> {
    let local = here(carrier.local_addr().unwrap());
    let peer = peer.unwrap_or_else(|| here(carrier.peer_addr().unwrap()));
    Box::new(Ending {
        carrier,
        local,
        peer,
    })
}

impl Network for Hosts {
    fn bind(&self, addr: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Bound>> {
        let bound = self.listens.bind(there(addr), options)?;
        Ok(Box::new(Held {
            local: SocketAddr::new(addr.ip(), bound.local_addr().port()),
            bound,
            connects: self.connects.clone(),
            options: *options,
        }))
    }

    fn connect(&self, peer: SocketAddr, options: &SocketOptions) -> io::Result<Box<dyn Carrier>> {
        let carrier = self.connects.connect(there(peer), options)?;
        Ok(ending(carrier, Some(peer)))
    }

    fn datagrams(
        &self,
        addr: SocketAddr,
        options: &SocketOptions,
        many: Option<usize>,
    ) -> io::Result<Box<dyn DatagramSocket>> {
        let socket = match addr.ip().is_unspecified() {
            true => self.both.datagrams(addr, options, many)?,
            false => self.listens.datagrams(there(addr), options, many)?,
        };
        Ok(Box::new(Datagrams(socket)))
    }

    fn source_towards(&self, peer: SocketAddr) -> io::Result<SocketAddr> {
        self.connects.source_towards(there(peer)).map(here)
    }

    fn drives(&self) -> Vec<Arc<dyn Drive>> {
        let mut drives = self.connects.drives();
        drives.extend(self.listens.drives());
        drives
    }

    fn leave(&self) {
        self.connects.leave();
        self.listens.leave();
    }

    fn deregistered(&self, memory: &Registered) {
        self.connects.deregistered(memory);
        self.listens.deregistered(memory);
    }
}

#[derive(Debug)]
struct Held {
    local: SocketAddr,
    bound: Box<dyn Bound>,
    connects: Inline,
    options: SocketOptions,
}

impl Bound for Held {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn listen(self: Box<Self>, backlog: i32) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(Listening(self.bound.listen(backlog)?)))
    }

    fn connect(self: Box<Self>, peer: SocketAddr) -> io::Result<Box<dyn Carrier>> {
        if peer == self.local {
            let carrier = self.bound.connect(there(peer))?;
            return Ok(ending(carrier, Some(peer)));
        }
        let from = SocketAddr::new(from_here(peer.ip()), self.local.port());
        let bound = self.connects.bind(from, &self.options)?;
        Ok(ending(bound.connect(there(peer))?, Some(peer)))
    }
}

#[derive(Debug)]
struct Listening(Box<dyn Listener>);

impl Source for Listening {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        self.0.wait_for(interest, readiness);
    }
}

impl Listener for Listening {
    fn accept(&self) -> io::Result<Option<(Box<dyn Carrier>, SocketAddr)>> {
        let accepted = self.0.accept()?;
        Ok(accepted.map(|(carrier, peer)| (ending(carrier, None), here(peer))))
    }

    fn has_waiting(&self) -> bool {
        self.0.has_waiting()
    }
}

/// An end of a connection, with the addresses that it is known by.
#[derive(Debug)]
struct Ending {
    carrier: Box<dyn Carrier>,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Source for Ending {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.carrier.descriptor()
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        self.carrier.wait_for(interest, readiness);
    }

    fn run_by(&self) -> Option<BorrowedFd<'_>> {
        self.carrier.run_by()
    }
}

impl Carrier for Ending {
    fn is_connected(&self) -> bool {
        self.carrier.is_connected()
    }

    fn connect_result(&self) -> io::Result<()> {
        self.carrier.connect_result()
    }

    fn send(&self, octets: &[u8]) -> Transfer {
        self.carrier.send(octets)
    }

    fn send_gather(&self, list: &Gather<'_>) -> Transfer {
        self.carrier.send_gather(list)
    }

    fn unreleased(&self) -> usize {
        self.carrier.unreleased()
    }

    fn keep_copies(&self) {
        self.carrier.keep_copies();
    }

    fn recv(&self, buffer: &mut [u8]) -> Transfer {
        self.carrier.recv(buffer)
    }

    fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer {
        self.carrier.recv_scatter(list)
    }

    fn finish(&self) {
        self.carrier.finish();
    }

    fn is_broken(&self) -> bool {
        self.carrier.is_broken()
    }

    fn abort_on_close(&self) {
        self.carrier.abort_on_close();
    }

    fn keep_after_close(&self, time: Duration) {
        self.carrier.keep_after_close(time);
    }

    fn emss(&self) -> io::Result<usize> {
        self.carrier.emss()
    }

    fn take_new_emss(&self) -> Option<usize> {
        self.carrier.take_new_emss()
    }

    fn attached(&self) {
        ATTACHED.fetch_add(1, Ordering::Relaxed);
        self.carrier.attached();
    }

    fn show(&self, row: Option<PathRow>) {
        self.carrier.show(row);
    }

    fn pieces(&self) -> Option<&dyn Pieces> {
        self.carrier.pieces()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

/// A socket for datagrams of both hosts: what it sends crosses the cable.
#[derive(Debug)]
struct Datagrams(Box<dyn DatagramSocket>);

impl Source for Datagrams {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        self.0.wait_for(interest, readiness);
    }
}

impl DatagramSocket for Datagrams {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = self.0.local_addr()?;
        match local.ip().is_unspecified() {
            true => Ok(local),
            false => Ok(here(local)),
        }
    }

    fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.0.connect(there(peer))
    }

    fn send(
        &self,
        list: &Gather<'_>,
        from: IpAddr,
        to: SocketAddr,
        segment: Option<u16>,
    ) -> io::Result<()> {
        // The listening host answers from its own address.
        let other = there(to);
        let listens = self.0.local_addr()?.ip() == other.ip();
        let (from, to) = match listens {
            true => (other.ip(), SocketAddr::new(from_here(from), to.port())),
            false => (from_here(from), other),
        };
        self.0.send(list, from, to, segment)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let received = self.0.receive(buffer)?;
        let to = here(SocketAddr::new(received.to, 0)).ip();
        Ok(Received {
            from: here(received.from),
            to,
            ..received
        })
    }

    fn room(&self, at: IpAddr) -> u32 {
        self.0.room(from_here(at))
    }
}
