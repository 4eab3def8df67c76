//! A network within one process: its connections are pairs of queues in memory.
//!
//! For tests, which run the engine's own over it: what holds here and over the kernel's TCP is the engine's, and not
//! the transport's. It has no descriptors, loses nothing and takes no time. A connection takes [`ROOM`] octets that
//! nobody has read; addresses are those that the engine asks for, and ports are the same for all of them.

mod connection;
mod octets;
mod refused;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{
    Bound, Carrier, Interest, Listener, Network, Readiness, Registered, SocketOptions, Source,
};

pub use connection::ROOM;
use connection::{Connection, End, Wakeups};
use refused::Refused;

/// Where ephemeral ports begin.
const EPHEMERAL: u16 = 32_768;

const EADDRINUSE: i32 = 98;

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// A network of one process; copies are the same one.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    ports: Arc<Mutex<Ports>>,
    /// Registered memory is referred to and not copied.
    by_reference: bool,
    connections: Arc<Mutex<Connections>>,
}

type Connections = Vec<Weak<Mutex<Connection>>>;

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
    wakeups: Wakeups,
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
    network: Memory,
    held: Held,
    local: SocketAddr,
}

#[derive(Debug)]
struct MemoryListener {
    queue: Arc<Mutex<Queue>>,
    _held: Held,
}

impl Memory {
    /// A network that copies no registered memory when it is sent: it is read when the other end receives.
    #[must_use]
    pub fn by_reference() -> Memory {
        Memory {
            by_reference: true,
            ..Memory::default()
        }
    }

    /// Changes the payload of a segment, octets, on all its connections, as a route does that changes.
    pub fn set_emss(&self, emss: usize) {
        for connection in self.living() {
            connection.lock().set_emss(emss);
        }
    }

    fn living(&self) -> Vec<Arc<Mutex<Connection>>> {
        let connections = self.connections.lock();
        connections.iter().filter_map(Weak::upgrade).collect()
    }

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
            network: self.clone(),
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

    fn deregistered(&self, memory: &Registered) {
        if self.by_reference {
            for connection in self.living() {
                connection.lock().keep_copies(Some(memory));
            }
        }
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
            wakeups: Wakeups::default(),
        }));
        let MemoryBound { held, .. } = *self;
        held.ports
            .lock()
            .held
            .insert(held.port, Arc::downgrade(&queue));
        Ok(Box::new(MemoryListener { queue, _held: held }))
    }

    fn connect(self: Box<Self>, peer: SocketAddr) -> io::Result<Box<dyn Carrier>> {
        let MemoryBound {
            network,
            held,
            local,
        } = *self;
        let queue = held.ports.lock().held.get(&peer.port()).cloned();
        let local = match local.ip().is_unspecified() {
            true => SocketAddr::new(peer.ip(), local.port()),
            false => local,
        };
        let connection = Connection::between(local, peer, network.by_reference);
        {
            let mut all = network.connections.lock();
            all.retain(|known| known.strong_count() > 0);
            all.push(Arc::downgrade(&connection));
        }
        if local == peer {
            // What it sends it receives.
            return Ok(Box::new(End::new(&connection, 0, Some(held))));
        }
        let Some(queue) = queue.and_then(|queue| queue.upgrade()) else {
            return Ok(Box::new(Refused { local, peer }));
        };
        let mut queue = queue.lock();
        if queue.waiting.len() >= queue.backlog {
            return Ok(Box::new(Refused { local, peer }));
        }
        queue.waiting.push_back(End::new(&connection, 1, None));
        queue.wakeups.tell(true, false);
        Ok(Box::new(End::new(&connection, 0, Some(held))))
    }
}

impl Source for MemoryListener {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        let mut queue = self.queue.lock();
        queue.wakeups.set(interest, readiness);
        queue.wakeups.tell(!queue.waiting.is_empty(), false);
    }
}

impl Listener for MemoryListener {
    fn accept(&self) -> io::Result<Option<(Box<dyn Carrier>, SocketAddr)>> {
        let mut queue = self.queue.lock();
        let Some(end) = queue.waiting.pop_front() else {
            return Ok(None);
        };
        queue.wakeups.tell(!queue.waiting.is_empty(), false);
        let peer = end.peer_addr()?;
        Ok(Some((Box::new(end), peer)))
    }

    fn has_waiting(&self) -> bool {
        !self.queue.lock().waiting.is_empty()
    }
}
