//! A network within one process: its connections are pairs of queues in memory.
//!
//! For tests, which run the engine's own over it: what holds here and over the kernel's TCP is the engine's, and not the
//! transport's. It has no descriptors, loses nothing and takes no time. A connection takes [`ROOM`] octets that nobody has
//! read; addresses are those that the engine asks for.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::{
    Bound, Carrier, Gather, Interest, Listener, Network, Readiness, Scatter, SocketOptions, Source,
    Transfer,
};

/// Octets that a direction takes before somebody reads them: as many as the kernel's TCP comes to on loopback.
pub const ROOM: usize = 8 << 20;
/// Payload of a segment, as a veth pair with jumbo frames has it.
const EMSS: usize = 8948;
/// Where ephemeral ports begin.
const EPHEMERAL: u16 = 32_768;

const ECONNREFUSED: i32 = 111;
const EADDRINUSE: i32 = 98;
const ECONNRESET: i32 = 104;
const ENOTCONN: i32 = 107;
const EPIPE: i32 = 32;
const EFAULT: i32 = 14;

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// A network of one process; copies are the same one.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    ports: Arc<Mutex<Ports>>,
}

#[derive(Debug, Default)]
struct Ports {
    /// Addresses that are held, with their queue where somebody listens.
    held: HashMap<u16, Weak<Mutex<Queue>>>,
    next: u16,
}

/// A listener's connections that nobody has accepted.
#[derive(Debug)]
struct Queue {
    waiting: VecDeque<End>,
    backlog: usize,
    watch: Watch,
}

/// Who waits for something, and for what.
#[derive(Debug, Default)]
struct Watch(Option<(Interest, Readiness)>);

impl Watch {
    fn tell(&self, readable: bool, writable: bool) {
        let Some((interest, readiness)) = &self.0 else {
            return;
        };
        let (reads, writes) = (interest.reads() && readable, interest.writes() && writable);
        if reads || writes {
            readiness.set(writes);
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    octets: VecDeque<u8>,
    /// Nothing more will be written.
    finished: bool,
}

/// A connection: what is on its way to each end, and who waits there.
#[derive(Debug)]
struct Connection {
    towards: [Direction; 2],
    watch: [Watch; 2],
    addresses: [SocketAddr; 2],
    reset: bool,
    /// Ends that are closed.
    gone: [bool; 2],
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    connection: Arc<Mutex<Connection>>,
    side: usize,
    abort: Mutex<bool>,
    /// The port is given back with the end that made the connection.
    _port: Option<Held>,
}

/// A connect that came to nobody.
#[derive(Debug)]
struct Refused {
    local: SocketAddr,
    peer: SocketAddr,
}

/// A port that is held until this is dropped.
#[derive(Debug)]
struct Held {
    ports: Arc<Mutex<Ports>>,
    port: u16,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ports.lock().held.remove(&self.port);
    }
}

#[derive(Debug)]
struct MemoryBound {
    held: Held,
    local: SocketAddr,
}

#[derive(Debug)]
struct MemoryListener {
    queue: Arc<Mutex<Queue>>,
    _held: Held,
}

impl Memory {
    fn hold(&self, addr: SocketAddr) -> io::Result<MemoryBound> {
        let mut ports = self.ports.lock();
        let port = match addr.port() {
            0 => {
                let free = (0..u16::MAX - EPHEMERAL)
                    .map(|n| EPHEMERAL + (ports.next.wrapping_add(n)) % (u16::MAX - EPHEMERAL))
                    .find(|port| !ports.held.contains_key(port));
                let port = free.ok_or(error(EADDRINUSE))?;
                ports.next = port - EPHEMERAL + 1;
                port
            }
            port if ports.held.contains_key(&port) => return Err(error(EADDRINUSE)),
            port => port,
        };
        ports.held.insert(port, Weak::new());
        Ok(MemoryBound {
            held: Held {
                ports: self.ports.clone(),
                port,
            },
            local: SocketAddr::new(addr.ip(), port),
        })
    }
}

impl Network for Memory {
    fn bind(&self, addr: SocketAddr, _options: &SocketOptions) -> io::Result<Box<dyn Bound>> {
        Ok(Box::new(self.hold(addr)?))
    }

    fn connect(&self, peer: SocketAddr, _options: &SocketOptions) -> io::Result<Box<dyn Carrier>> {
        let bound = self.hold(SocketAddr::new(peer.ip(), 0))?;
        Bound::connect(Box::new(bound), peer)
    }

    fn source_towards(&self, peer: SocketAddr) -> io::Result<SocketAddr> {
        Ok(SocketAddr::new(peer.ip(), 0))
    }
}

impl Bound for MemoryBound {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn listen(self: Box<Self>, backlog: i32) -> io::Result<Box<dyn Listener>> {
        let queue = Arc::new(Mutex::new(Queue {
            waiting: VecDeque::new(),
            backlog: backlog.max(1) as usize,
            watch: Watch::default(),
        }));
        let MemoryBound { held, .. } = *self;
        held.ports
            .lock()
            .held
            .insert(held.port, Arc::downgrade(&queue));
        Ok(Box::new(MemoryListener { queue, _held: held }))
    }

    fn connect(self: Box<Self>, peer: SocketAddr) -> io::Result<Box<dyn Carrier>> {
        let MemoryBound { held, local } = *self;
        let queue = held.ports.lock().held.get(&peer.port()).cloned();
        let local = match local.ip().is_unspecified() {
            true => SocketAddr::new(peer.ip(), local.port()),
            false => local,
        };
        if local == peer {
            return Ok(Box::new(End::to_itself(local, held)));
        }
        let Some(queue) = queue.and_then(|queue| queue.upgrade()) else {
            return Ok(Box::new(Refused { local, peer }));
        };
        let connection = Arc::new(Mutex::new(Connection {
            towards: Default::default(),
            watch: Default::default(),
            addresses: [local, peer],
            reset: false,
            gone: [false; 2],
        }));
        let end = |side, port| End {
            connection: connection.clone(),
            side,
            abort: Mutex::new(false),
            _port: port,
        };
        let mut queue = queue.lock();
        if queue.waiting.len() >= queue.backlog {
            return Ok(Box::new(Refused { local, peer }));
        }
        queue.waiting.push_back(end(1, None));
        queue.watch.tell(true, false);
        Ok(Box::new(end(0, Some(held))))
    }
}

impl Source for MemoryListener {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        let mut queue = self.queue.lock();
        queue.watch = Watch(Some((interest, readiness.clone())));
        queue.watch.tell(!queue.waiting.is_empty(), false);
    }
}

impl Listener for MemoryListener {
    fn accept(&self) -> io::Result<Option<(Box<dyn Carrier>, SocketAddr)>> {
        let mut queue = self.queue.lock();
        let Some(end) = queue.waiting.pop_front() else {
            return Ok(None);
        };
        queue.watch.tell(!queue.waiting.is_empty(), false);
        let peer = end.connection.lock().addresses[0];
        Ok(Some((Box::new(end), peer)))
    }

    fn has_waiting(&self) -> bool {
        !self.queue.lock().waiting.is_empty()
    }
}

impl End {
    /// What it sends it receives.
    fn to_itself(address: SocketAddr, held: Held) -> End {
        End {
            connection: Arc::new(Mutex::new(Connection {
                towards: Default::default(),
                watch: Default::default(),
                addresses: [address; 2],
                reset: false,
                gone: [false; 2],
            })),
            side: 0,
            abort: Mutex::new(false),
            _port: Some(held),
        }
    }
}

impl Connection {
    /// The end that receives what this one sends.
    fn other(&self, side: usize) -> usize {
        match self.addresses[0] == self.addresses[1] {
            true => side,
            false => 1 - side,
        }
    }

    fn is_readable(&self, side: usize) -> bool {
        let towards = &self.towards[side];
        !towards.octets.is_empty() || towards.finished || self.reset
    }

    fn is_writable(&self, side: usize) -> bool {
        self.reset || self.towards[self.other(side)].octets.len() < ROOM
    }

    fn tell(&self, side: usize) {
        self.watch[side].tell(self.is_readable(side), self.is_writable(side));
    }

    fn tell_both(&self) {
        self.tell(0);
        self.tell(1);
    }

    /// Octets that one end may write now.
    fn room(&self, side: usize) -> Result<usize, Transfer> {
        let towards = &self.towards[self.other(side)];
        if self.reset {
            return Err(Transfer::Failed(error(ECONNRESET)));
        }
        if towards.finished {
            return Err(Transfer::Failed(error(EPIPE)));
        }
        match ROOM.saturating_sub(towards.octets.len()) {
            0 => Err(Transfer::WouldBlock),
            room => Ok(room),
        }
    }

    /// What is there for one end to read. A reset takes back nothing of what arrived before it, as in Linux.
    fn arrived(&mut self, side: usize, most: usize) -> Result<Vec<u8>, Transfer> {
        let towards = &mut self.towards[side];
        match (towards.octets.len(), towards.finished) {
            (0, _) if self.reset => Err(Transfer::Failed(error(ECONNRESET))),
            (0, true) => Err(Transfer::End),
            (0, false) => Err(Transfer::WouldBlock),
            (there, _) => Ok(towards.octets.drain(..there.min(most)).collect()),
        }
    }
}

impl Source for End {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        let mut connection = self.connection.lock();
        connection.watch[self.side] = Watch(Some((interest, readiness.clone())));
        connection.tell(self.side);
    }
}

impl Carrier for End {
    fn is_connected(&self) -> bool {
        true
    }

    fn connect_result(&self) -> io::Result<()> {
        Ok(())
    }

    fn send(&self, octets: &[u8]) -> Transfer {
        let mut connection = self.connection.lock();
        let room = match connection.room(self.side) {
            Ok(room) => room,
            Err(outcome) => return outcome,
        };
        let taken = octets.len().min(room);
        let to = connection.other(self.side);
        if connection.gone[to] {
            // The transport took them. A closed end answers them with a reset.
            connection.reset = true;
            connection.tell_both();
        } else {
            connection.towards[to].octets.extend(&octets[..taken]);
            connection.tell(to);
        }
        Transfer::Octets(taken)
    }

    fn send_gather(&self, list: &Gather<'_>) -> Transfer {
        let mut octets = Vec::new();
        match list.append_to(ROOM, &mut octets) {
            Ok(_) => self.send(&octets),
            Err(_) => Transfer::Failed(error(EFAULT)),
        }
    }

    fn recv(&self, buffer: &mut [u8]) -> Transfer {
        let mut connection = self.connection.lock();
        match connection.arrived(self.side, buffer.len()) {
            Ok(octets) => {
                buffer[..octets.len()].copy_from_slice(&octets);
                connection.tell_both();
                Transfer::Octets(octets.len())
            }
            Err(outcome) => outcome,
        }
    }

    fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer {
        let mut connection = self.connection.lock();
        match connection.arrived(self.side, list.octets()) {
            Ok(octets) => {
                connection.tell_both();
                match list.fill(&octets) {
                    Ok(placed) => Transfer::Octets(placed),
                    Err(_) => Transfer::Failed(error(EFAULT)),
                }
            }
            Err(outcome) => outcome,
        }
    }

    fn finish(&self) {
        let mut connection = self.connection.lock();
        let to = connection.other(self.side);
        connection.towards[to].finished = true;
        connection.tell_both();
    }

    fn is_broken(&self) -> bool {
        let connection = self.connection.lock();
        let both = connection.towards.iter().all(|towards| towards.finished);
        connection.reset || both
    }

    fn abort_on_close(&self) {
        *self.abort.lock() = true;
    }

    fn keep_after_close(&self, _time: Duration) {
        // The other end has everything already.
    }

    fn emss(&self) -> io::Result<usize> {
        Ok(EMSS)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.connection.lock().addresses[self.side])
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        let connection = self.connection.lock();
        match connection.reset {
            true => Err(error(ENOTCONN)),
            false => Ok(connection.addresses[1 - self.side]),
        }
    }
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

impl Drop for End {
    /// As the kernel closes a socket: a reset where that was asked for or something was not read, else the end of the
    /// stream.
    fn drop(&mut self) {
        let mut connection = self.connection.lock();
        connection.watch[self.side] = Watch::default();
        let unread = !connection.towards[self.side].octets.is_empty();
        connection.reset |= *self.abort.lock() || unread;
        connection.gone[self.side] = true;
        let to = connection.other(self.side);
        connection.towards[to].finished = true;
        connection.tell_both();
    }
}
