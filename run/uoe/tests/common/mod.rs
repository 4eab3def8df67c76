//! Sockets of programs under Weft, as the hooks use them, without the hooks.

#![allow(dead_code, reason = "each test uses some of it")]

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use weft_discovery::answering::Owner;
use weft_discovery::{Answering, Connection, TakesCarriers};
use weft_os::beside::{socket_addr, socket_name};
use weft_os::dgram::NAME_LEN;
use weft_settings::datagrams::DatagramRules;
use weft_settings::{DiscoveryPort, Settings};
use weft_udp_offload::{Offload, Port, Sending, Sent, Taken};

/// What has to come comes within this time, however busy the machine is.
pub const SOON: Duration = Duration::from_secs(20);

struct Process(&'static Offload);

impl Owner for Process {
    fn promise(&self, _connection: &Connection, _now: Duration) -> bool {
        true
    }

    fn carriers(&self) -> Option<TakesCarriers> {
        self.0.takes_carriers()
    }
}

pub fn discovery_port() -> DiscoveryPort {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = 32_000 + (std::process::id() * 89 % 7000) as u16;
    loop {
        let port = begin + NEXT.fetch_add(1, Ordering::Relaxed) % 3000;
        if UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return DiscoveryPort::Agreed(port);
        }
    }
}

pub fn process(discovery: DiscoveryPort) -> &'static Offload {
    process_by("uoe prefer", discovery)
}

pub fn process_by(rules: &str, discovery: DiscoveryPort) -> &'static Offload {
    process_with(Settings {
        udp: DatagramRules::parse(rules).unwrap(),
        discovery_port: discovery,
        stat: false,
        ..Settings::default()
    })
}

pub fn process_with(settings: Settings) -> &'static Offload {
    process_of(settings, |offload| Box::leak(Box::new(Process(offload))))
}

/// A process whose questions are answered by this owner.
pub fn process_of(
    settings: Settings,
    owner: impl FnOnce(&'static Offload) -> &'static dyn Owner,
) -> &'static Offload {
    weft_os::process::watch();
    let discovery = settings.discovery_port;
    let offload = Offload::new(&settings).unwrap();
    let owner = owner(offload);
    let answering = Box::leak(Box::new(Answering::new(discovery, owner).unwrap()));
    offload.set_answering(answering);
    offload
}

/// A socket of a program under Weft, as the hooks use it.
pub struct Socket {
    pub offload: &'static Offload,
    pub port: &'static Port,
    pub kernel: UdpSocket,
}

impl Socket {
    pub fn bind(offload: &'static Offload, at: &str) -> Socket {
        let port: &'static Port = Box::leak(Box::default());
        port.begin(false, None);
        let kernel = UdpSocket::bind(at).unwrap();
        kernel
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        Socket {
            offload,
            port,
            kernel,
        }
    }

    pub fn at(&self) -> SocketAddr {
        let mut at = self.kernel.local_addr().unwrap();
        if at.ip().is_unspecified() {
            at.set_ip([127, 0, 0, 1].into());
        }
        at
    }

    /// Says whether it went by a carrier.
    pub fn send(&self, to: SocketAddr, octets: &[u8], is_busy: bool) -> bool {
        self.try_to_send(to, octets, is_busy, false).unwrap()
    }

    /// The same; `dont_wait` as a program says it. An error is the errno.
    pub fn try_to_send(
        &self,
        to: SocketAddr,
        octets: &[u8],
        is_busy: bool,
        dont_wait: bool,
    ) -> Result<bool, i32> {
        let is_v6 = self.kernel.local_addr().unwrap().is_ipv6();
        let (name, len) = socket_name(to, is_v6);
        let is_connected = self.kernel.peer_addr().is_ok();
        let sending = Sending {
            fd: self.kernel.as_raw_fd(),
            to: if is_connected { &[] } else { &name[..len] },
            len: octets.len(),
            is_busy,
            dont_wait,
            since: weft_os::dgram::now(),
        };
        let fill = |room: &mut [u8]| {
            room.copy_from_slice(octets);
            Ok(())
        };
        loop {
            match self.offload.send(self.port, sending, fill) {
                Sent::Done | Sent::Flushed => return Ok(true),
                Sent::Plain => {
                    // A full queue drops, as on any machine.
                    let _ = match is_connected {
                        true => self.kernel.send(octets),
                        false => self.kernel.send_to(octets, to),
                    };
                    return Ok(false);
                }
                Sent::Wait(pause) => pause.sleep(),
                Sent::Failed(errno) => return Err(errno),
            }
        }
    }

    /// The next datagram, its source, and whether it came by a carrier; nothing within the socket's time.
    pub fn receive(&self) -> Option<(Vec<u8>, SocketAddr, bool)> {
        self.receive_within(Duration::from_millis(200))
    }

    /// The same; nothing where none is there, at a socket that does not wait.
    pub fn receive_now(&self) -> Option<(Vec<u8>, SocketAddr, bool)> {
        self.receive_within(Duration::ZERO)
    }

    fn receive_within(&self, time: Duration) -> Option<(Vec<u8>, SocketAddr, bool)> {
        let fd = self.kernel.as_raw_fd();
        self.offload
            .receives(self.port, fd as u32, fd, weft_udp_offload::Use::Receives);
        let begun = Instant::now();
        loop {
            if self.port.begin_plain() {
                let mut room = vec![0; 70_000];
                let received = self.kernel.recv_from(&mut room);
                self.port.end_plain();
                let (len, from) = received.ok()?;
                room.truncate(len);
                return Some((room, from, false));
            }
            let by_carrier = self.offload.take(self.port, fd, false, |waiting| {
                let from = socket_addr(waiting.name).unwrap();
                (waiting.octets.to_vec(), from, true)
            });
            if by_carrier.is_some() {
                return by_carrier;
            }
            match self.take_head() {
                (Taken::Datagram(_), octets, from) => return Some((octets, from.unwrap(), false)),
                (Taken::Own, ..) => continue,
                (Taken::Nothing, ..) => {}
                (Taken::Failed(errno), ..) => panic!("errno {errno}"),
            }
            if begun.elapsed() > time {
                return None;
            }
            // As a program that sleeps in the kernel.
            weft_os::dgram::ready(fd, libc::POLLIN, time.as_millis() as i32);
        }
    }

    /// Takes the head of the kernel's queue, whatever else waits: what it was, its octets, where it came from.
    pub fn take_head(&self) -> (Taken, Vec<u8>, Option<SocketAddr>) {
        let (mut room, mut name) = (vec![0; 70_000], [0; NAME_LEN]);
        let fd = self.kernel.as_raw_fd();
        let taken = self.offload.take_head(self.port, fd, &mut room, &mut name);
        let Taken::Datagram(head) = taken else {
            return (taken, Vec::new(), None);
        };
        room.truncate(head.octets);
        (taken, room, socket_addr(&name[..head.name]))
    }

    pub fn flush(&self) {
        self.offload.flush_all();
    }
}

/// A datagram that says which one it is, and can be told from a damaged one.
pub fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut octets: Vec<u8> = (0..len).map(|at| (at as u32 ^ number) as u8).collect();
    octets[..4].copy_from_slice(&number.to_be_bytes());
    octets
}

pub fn number_of(octets: &[u8]) -> u32 {
    let number = u32::from_be_bytes(octets[..4].try_into().unwrap());
    assert_eq!(octets, numbered(number, octets.len()), "damaged");
    number
}

/// Sends until so many left by a carrier, and takes everything in. Gives how many came that way.
pub fn run(sender: &Socket, receiver: &Socket, by_carrier: u32, from: SocketAddr) -> u32 {
    let to = receiver.at();
    let begun = Instant::now();
    let (mut sent, mut left, mut came, mut received) = (0, 0, 0, 0);
    let mut last = None;
    receiver.receive();
    while left < by_carrier {
        for _ in 0..8 {
            left += u32::from(sender.send(to, &numbered(sent, 64 + sent as usize % 1400), true));
            sent += 1;
        }
        sender.flush();
        if left == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
        while received < sent {
            let Some((octets, seen_from, is_by_carrier)) = receiver.receive() else {
                break;
            };
            let number = number_of(&octets);
            assert!(
                last.is_none_or(|last| last < number),
                "{number} after {last:?}"
            );
            assert_eq!(seen_from, from);
            last = Some(number);
            came += u32::from(is_by_carrier);
            received += 1;
        }
        assert_eq!((received, came), (sent, left), "nothing is lost");
        assert!(
            begun.elapsed() < SOON,
            "{left} of {sent} by carrier: {:?}, {:?}",
            sender.offload.counted(),
            receiver.offload.counted()
        );
    }
    came
}
