//! Octets per CPU second of the TCP machine itself, without a device: bulk from one stack to another through a queue in
//! memory, against smoltcp on the same pattern.
//!
//!     cargo run --release -p weft-simulation --example tcp_throughput
//!
//! Checksums are off on both sides, as with a device that does them. smoltcp copies into its send buffer, into the
//! frame and out of its receive buffer; ours copies into the frame (what a device's ring would be given) and, in the
//! column "in order", through a receive buffer; in the column "placed" straight to the target.

use smoltcp::iface::{Config as SmolConfig, Interface, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use weft_inet::stack::{Cidr, FrameInfo, Payload, Sink, Stack, StackConfig};
use weft_inet::tcp::receive_buffer::ReceiveBuffer;
use weft_inet::tcp::{
    Algorithm, Backlog, Config, ConnectionId, EndpointEvent, Event, Placement, Secret,
};

const TOTAL: u64 = 1 << 30;
const WINDOW: usize = 1 << 20;
const ROUNDS: usize = 5;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// A receiver: either a buffer read in order, or the target itself.
struct Target {
    memory: Vec<u8>,
    buffer: Option<ReceiveBuffer>,
}

impl Sink for Target {
    fn place(&mut self, _: ConnectionId, placement: &Placement, payload: &[u8]) {
        match &mut self.buffer {
            Some(buffer) => buffer.place(placement, payload),
            None => {
                let octets = &payload[placement.octets.clone()];
                let at = placement.offset as usize % (self.memory.len() / 2);
                self.memory[at..at + octets.len()].copy_from_slice(octets);
            }
        }
    }

    fn datagram(&mut self, _: SocketAddr, _: SocketAddr, _: &[u8]) {}
}

fn stack(last: u8, mtu: u32) -> Stack {
    let address = Ipv4Addr::new(10, 0, 0, last);
    let addresses = vec![Cidr::new(address, 24)];
    let secret = Secret([last; 16]);
    Stack::new(StackConfig {
        mtu,
        ..StackConfig::new([2, 0, 0, 0, 0, last], addresses, secret)
    })
}

/// Octets of CPU seconds; `max_frame` 0 for frames of the MTU.
fn ours(mtu: u32, max_frame: u32, in_order: bool) -> f64 {
    let config = Config {
        mtu,
        receive_window: WINDOW as u64,
        max_frame,
        algorithm: Algorithm::Unlimited,
        ..Config::default()
    };
    let (mut a, mut b) = (stack(1, mtu), stack(2, mtu));
    let mut now = Duration::from_secs(1);
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80));
    let listens = b.listen(everywhere, config.clone(), Backlog::new(8));
    assert_eq!(listens, Ok(()));
    let id = a
        .connect(SocketAddr::from(([10, 0, 0, 2], 80)), config, now)
        .unwrap();
    let source = vec![7u8; 1 << 21];
    let mut target = Target {
        memory: vec![0; 1 << 21],
        buffer: in_order.then(|| ReceiveBuffer::new(WINDOW)),
    };
    let mut nobody = Target {
        memory: vec![0; 2],
        buffer: None,
    };
    let info = FrameInfo {
        checksum_good: true,
        ..FrameInfo::default()
    };
    let mut peer = None;
    let mut taken = 0;
    let mut octets = Vec::with_capacity(70_000);
    let mut out = vec![0; 65_536];
    let began = cpu();
    while taken < TOTAL {
        now += Duration::from_micros(10);
        while let Some(frame) = a.poll_transmit(now) {
            octets.clear();
            octets.extend_from_slice(&frame.head);
            if let Payload::Stream { range, .. } = frame.payload {
                let at = range.start as usize % (1 << 20);
                octets.extend_from_slice(&source[at..at + (range.end - range.start) as usize]);
            }
            b.handle_frame(&octets, info, &mut target, now);
            if let Some(peer) = peer {
                let delivered = b.tcp().get(peer).unwrap().delivered();
                if let Some(buffer) = &mut target.buffer {
                    while buffer.read(delivered, &mut out) > 0 {}
                }
                b.command(peer, |connection| connection.consume(delivered - taken));
                taken = delivered;
            }
        }
        while let Some(frame) = b.poll_transmit(now) {
            a.handle_frame(&frame.head, info, &mut nobody, now);
        }
        while let Some(event) = b.poll_event() {
            if let EndpointEvent::Incoming(id) = event {
                peer = Some(id);
            }
        }
        while let Some(event) = a.poll_event() {
            if event == EndpointEvent::Connection(id, Event::Established) {
                a.command(id, |connection| connection.write(TOTAL));
            }
        }
        a.handle_timeout(now);
        b.handle_timeout(now);
    }
    TOTAL as f64 / (cpu() - began)
}

struct Memory {
    mtu: usize,
    from: Queue,
    to: Queue,
}

struct Receive(Vec<u8>);
struct Transmit(Queue);

impl RxToken for Receive {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Transmit {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.borrow_mut().push_back(frame);
        result
    }
}

impl Device for Memory {
    type RxToken<'a> = Receive;
    type TxToken<'a> = Transmit;

    fn receive(&mut self, _: Instant) -> Option<(Receive, Transmit)> {
        let frame = self.from.borrow_mut().pop_front()?;
        Some((Receive(frame), Transmit(self.to.clone())))
    }

    fn transmit(&mut self, _: Instant) -> Option<Transmit> {
        Some(Transmit(self.to.clone()))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

fn smol_end(
    last: u8,
    device: &mut Memory,
) -> (Interface, SocketSet<'static>, smoltcp::iface::SocketHandle) {
    let config = SmolConfig::new(EthernetAddress([2, 0, 0, 0, 0, last]).into());
    let mut interface = Interface::new(config, device, Instant::from_millis(0));
    interface.update_ip_addrs(|addresses| {
        addresses
            .push(IpCidr::new(IpAddress::v4(10, 0, 0, last), 24))
            .unwrap();
    });
    let buffer = || tcp::SocketBuffer::new(vec![0; WINDOW]);
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
    (interface, sockets, handle)
}

fn smoltcp(mtu: usize) -> f64 {
    let (forth, back) = (Queue::default(), Queue::default());
    let mut device_a = Memory {
        mtu,
        from: back.clone(),
        to: forth.clone(),
    };
    let mut device_b = Memory {
        mtu,
        from: forth,
        to: back,
    };
    let (mut a, mut sockets_a, handle_a) = smol_end(1, &mut device_a);
    let (mut b, mut sockets_b, handle_b) = smol_end(2, &mut device_b);
    sockets_b
        .get_mut::<tcp::Socket>(handle_b)
        .listen(80)
        .unwrap();
    let remote = (IpAddress::v4(10, 0, 0, 2), 80);
    sockets_a
        .get_mut::<tcp::Socket>(handle_a)
        .connect(a.context(), remote, 5000)
        .unwrap();
    let source = vec![7u8; 65_536];
    let mut out = vec![0; 65_536];
    let (mut micros, mut taken) = (0, 0u64);
    let began = cpu();
    while taken < TOTAL {
        micros += 10;
        let now = Instant::from_micros(micros);
        a.poll(now, &mut device_a, &mut sockets_a);
        b.poll(now, &mut device_b, &mut sockets_b);
        let socket = sockets_a.get_mut::<tcp::Socket>(handle_a);
        while socket.can_send() && socket.send_slice(&source).unwrap() > 0 {}
        let socket = sockets_b.get_mut::<tcp::Socket>(handle_b);
        while socket.can_recv() {
            taken += socket.recv_slice(&mut out).unwrap() as u64;
        }
    }
    TOTAL as f64 / (cpu() - began)
}

/// CPU seconds of this thread so far.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9
}

fn main() {
    // For a profiler: one pattern alone, `placed 1500`, `ordered 9000` or `smoltcp 1500`.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [which, mtu] = &arguments[..] {
        let mtu: u32 = mtu.parse().expect("the MTU in octets");
        let rate = match which.as_str() {
            "placed" => ours(mtu, 0, false),
            "ordered" => ours(mtu, 0, true),
            "smoltcp" => smoltcp(mtu as usize),
            other => panic!("no such pattern: {other} (there are placed, ordered, smoltcp)"),
        };
        println!("{which} {mtu}: {:.2} GB per CPU second", rate * 1e-9);
        return;
    }
    println!(
        "GB per CPU second, both ends together, {} MB; medians of {ROUNDS} runs that take turns",
        TOTAL >> 20
    );
    println!(
        "{:>22} {:>9} {:>9} {:>9}",
        "", "placed", "in order", "smoltcp"
    );
    for (name, mtu, max_frame) in [
        ("MTU 1500", 1500, 0),
        ("MTU 9000", 9000, 0),
        ("large frames of 1500", 1500, 65_535),
    ] {
        // smoltcp has no frames of several segments.
        let theirs = || match max_frame {
            0 => smoltcp(mtu as usize),
            _ => f64::NAN,
        };
        let rounds: Vec<[f64; 3]> = (0..ROUNDS)
            .map(|_| {
                [
                    ours(mtu, max_frame, false),
                    ours(mtu, max_frame, true),
                    theirs(),
                ]
            })
            .collect();
        let [placed, ordered, theirs] = [0, 1, 2].map(|column| median(&rounds, column) * 1e-9);
        match max_frame {
            0 => println!("{name:>22} {placed:>9.2} {ordered:>9.2} {theirs:>9.2}"),
            _ => println!("{name:>22} {placed:>9.2} {ordered:>9.2} {:>9}", "-"),
        }
    }
}

fn median(rounds: &[[f64; 3]], column: usize) -> f64 {
    let mut rates: Vec<f64> = rounds.iter().map(|round| round[column]).collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
