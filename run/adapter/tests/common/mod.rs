//! Two hosts on a cable, run by the test itself.

#![allow(dead_code, reason = "each test uses some of it")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_adapter::link::ReceivedFrame;
use weft_adapter::{cable, Driver, Inline, Interface, Link};
use weft_engine::carrier::{Bound, Carrier, Drive, Network, SocketOptions, Transfer};
use weft_engine::settings::TransportRules;
use weft_os::device::Batch;

/// How long a test waits for what has to come.
const LIMIT: Duration = Duration::from_secs(20);

pub struct Host {
    pub network: Inline,
    pub driver: Arc<Driver>,
}

pub struct Hosts {
    pub one: Host,
    pub two: Host,
    pub cutter: cable::Cutter,
    lost: Arc<AtomicU64>,
}

/// The two ends of a connection.
pub struct Pair {
    pub active: Box<dyn Carrier>,
    pub passive: Box<dyn Carrier>,
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn interface(last: u8, addresses: &[String], gateway: Option<&str>) -> Interface {
    let route = |gateway: &str| weft_inet::stack::Route {
        destination: "0.0.0.0/0".parse().unwrap(),
        gateway: gateway.parse().unwrap(),
    };
    Interface {
        name: format!("cable{last}"),
        mac: [2, 0, 0, 0, 0, last],
        mtu: 9000,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        routes: gateway.map(route).into_iter().collect(),
        dad_transmits: 0,
        rules: TransportRules::default(),
    }
}

/// A host on a cable that leads nowhere.
pub fn host(last: u8, address: &str, gateway: Option<&str>) -> Arc<Driver> {
    let (link, _) = cable::pair().unwrap();
    let interface = interface(last, &[address.to_owned()], gateway);
    Driver::new(interface, Box::new(link)).unwrap()
}

/// Two hosts: 10.7.0.1 and fd07::1, 10.7.0.2 and fd07::2.
pub fn hosts() -> Hosts {
    lossy_hosts(0)
}

/// The same on a cable that loses each frame of so many; 0 none.
pub fn lossy_hosts(each: u64) -> Hosts {
    made(each, &TransportRules::default())
}

/// The same without losses, where connections send as rules say.
pub fn ruled_hosts(rules: &str) -> Hosts {
    made(0, &TransportRules::parse(rules).unwrap())
}

fn made(each: u64, rules: &TransportRules) -> Hosts {
    let (one, two) = cable::pair().unwrap();
    let cutter = one.cutter();
    let lost = Arc::new(AtomicU64::new(0));
    let host = |last: u8, link: cable::End| {
        let link = Lossy {
            link,
            each,
            sent: 0,
            lost: lost.clone(),
        };
        let addresses = [format!("10.7.0.{last}/24"), format!("fd07::{last}/64")];
        let interface = Interface {
            rules: rules.clone(),
            ..interface(last, &addresses, None)
        };
        let driver = Driver::new(interface, Box::new(link)).unwrap();
        Host {
            network: Inline::new(vec![driver.clone()], Vec::new()),
            driver,
        }
    };
    Hosts {
        one: host(1, one),
        two: host(2, two),
        cutter,
        lost,
    }
}

impl Host {
    pub fn bind(&self, at: SocketAddr) -> Box<dyn Bound> {
        self.network.bind(at, &SocketOptions::default()).unwrap()
    }
}

impl Hosts {
    /// Both hosts look once.
    pub fn run(&self) {
        self.one.driver.run();
        self.two.driver.run();
    }

    /// They look until something is so.
    pub fn until(&self, mut so: impl FnMut() -> bool) {
        let end = Instant::now() + LIMIT;
        while !so() {
            self.run();
            assert!(Instant::now() < end, "it never is");
        }
    }

    /// Host one connects to an address of host two, and queue pairs have both ends.
    pub fn connect(&self, at: SocketAddr) -> Pair {
        let listener = self.two.bind(at).listen(8).unwrap();
        let network = &self.one.network;
        let active = network.connect(at, &SocketOptions::default()).unwrap();
        let mut passive = None;
        self.until(|| {
            passive = passive.take().or_else(|| listener.accept().unwrap());
            active.is_connected() && passive.is_some()
        });
        active.connect_result().unwrap();
        let (passive, peer) = passive.unwrap();
        assert_eq!(peer, active.local_addr().unwrap());
        active.attached();
        passive.attached();
        Pair { active, passive }
    }

    /// Sends octets and gives what comes out at the other end.
    pub fn transfer(&self, from: &dyn Carrier, to: &dyn Carrier, octets: &[u8]) -> Vec<u8> {
        self.finish_transfer(from, to, octets, 0)
    }

    /// The same where the first `sent` octets were taken already.
    pub fn finish_transfer(
        &self,
        from: &dyn Carrier,
        to: &dyn Carrier,
        octets: &[u8],
        mut sent: usize,
    ) -> Vec<u8> {
        let mut got = Vec::new();
        let mut buffer = vec![0; 256 << 10];
        self.until(|| {
            if sent < octets.len() {
                if let Transfer::Octets(more) = from.send(&octets[sent..]) {
                    sent += more;
                }
            }
            if let Transfer::Octets(more) = to.recv(&mut buffer) {
                got.extend_from_slice(&buffer[..more]);
            }
            got.len() >= octets.len()
        });
        got
    }

    /// Receives so many octets.
    pub fn receive(&self, at: &dyn Carrier, len: usize) -> Vec<u8> {
        let mut got = Vec::new();
        let mut buffer = vec![0; 256 << 10];
        self.until(|| {
            if let Transfer::Octets(more) = at.recv(&mut buffer) {
                got.extend_from_slice(&buffer[..more]);
            }
            got.len() >= len
        });
        got
    }

    /// Frames that the cable lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// An end of a cable that loses frames.
#[derive(Debug)]
struct Lossy {
    link: cable::End,
    each: u64,
    sent: u64,
    lost: Arc<AtomicU64>,
}

impl Link for Lossy {
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        let (every, sent, lost) = (self.each, &mut self.sent, &self.lost);
        self.link.receive(most, &mut |frame| {
            *sent += 1;
            if every > 0 && sent.is_multiple_of(every) {
                lost.fetch_add(1, Ordering::Relaxed);
            } else {
                each(frame);
            }
        })
    }

    fn send(&mut self, batch: &mut Batch<'_>) -> io::Result<usize> {
        self.link.send(batch)
    }

    fn may_have_frame(&self) -> bool {
        self.link.may_have_frame()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        self.link.wait(timeout)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    fn waiting_frames_max(&self) -> usize {
        self.link.waiting_frames_max()
    }

    fn take_drops(&mut self) -> u64 {
        self.link.take_drops()
    }
}
