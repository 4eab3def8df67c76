//! Queue pair numbers that say where the queue pair is to be found.
//!
//! The upper 16 bits of a number are a TCP port that the process holds, the lower 8 tell its
//! queue pairs apart. The port is bound when the first number is given out and listened on from the
//! moment a program takes a queue pair to INIT itself, so that a process that only uses the
//! connection manager has no open port for this. The UDP port of the same number is opened for the
//! first queue pair that sends datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::hello::Hello;
use super::room::{Dial, Entered, Room, Ticket};
use crate::cm::Id;
use crate::engine::Engine;
use crate::error::Error;
use crate::ud::UdSocket;

/// Queue pairs of one port. Not all 256, so that a number rests before it is used again.
const PER_PORT: usize = 192;
/// Connections to one port that have not sent their MPA Request, and as many again with those that have.
const BACKLOG: i32 = 1024;
/// Dials that wait at one port: four for each queue pair. Fewer than the connections that a listener takes, so that
/// those that wait never keep others out.
const ROOM: usize = 4 * PER_PORT;
/// And of the descriptors the process may have they take one in so many at most.
const SHARE_OF_ROOM: u64 = 4;
/// Ports that are tried when somebody else has the UDP port of ours.
const TRIES: usize = 16;

/// The TCP port at which a queue pair is found.
pub(crate) fn port_of(number: u32) -> u16 {
    (number >> 8) as u16
}

/// The numbers given out.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ports: Vec<Port>,
    listening: bool,
}

#[derive(Debug)]
struct Port {
    number: u16,
    socket: Arc<Id>,
    datagrams: Option<Arc<UdSocket>>,
    room: Room<Arc<Id>>,
    used: [bool; 256],
    /// Those that a queue pair has or had.
    given: [bool; 256],
    live: usize,
    next: u8,
}

impl Numbers {
    /// A number that no queue pair has, and that was not used for as long as possible.
    ///
    /// # Errors
    /// No port is left.
    pub(crate) fn take(&self, engine: &Arc<Engine>) -> Result<u32, Error> {
        let mut inner = self.inner.lock();
        if inner.ports.iter().all(|p| p.live >= PER_PORT) {
            inner.add_port(engine)?;
        }
        let free = inner.ports.iter_mut().find(|p| p.live < PER_PORT);
        free.map(Port::take)
            .ok_or(Error::NoMemory("queue pair numbers"))
    }

    /// The same for a queue pair that sends datagrams, with the socket they come to.
    ///
    /// # Errors
    /// No port is left.
    pub(crate) fn take_for_datagrams(
        &self,
        engine: &Arc<Engine>,
    ) -> Result<(u32, Arc<UdSocket>), Error> {
        let mut inner = self.inner.lock();
        for _ in 0..TRIES {
            for port in inner.ports.iter_mut().filter(|p| p.live < PER_PORT) {
                if let Some(socket) = port.for_datagrams(engine) {
                    return Ok((port.take(), socket));
                }
            }
            inner.add_port(engine)?;
        }
        Err(Error::NoMemory("UDP ports"))
    }

    /// The queue pair of that number is gone.
    pub(crate) fn give_back(&self, number: u32) {
        let mut inner = self.inner.lock();
        let port = inner.ports.iter_mut().find(|p| p.number == port_of(number));
        if let Some(port) = port {
            if std::mem::take(&mut port.used[number as usize & 0xFF]) {
                port.live -= 1;
            }
        }
    }

    /// Whether a queue pair has or had the number.
    pub(crate) fn was_given(&self, number: u32) -> bool {
        let inner = self.inner.lock();
        let port = inner.ports.iter().find(|p| p.number == port_of(number));
        port.is_some_and(|p| p.given[number as usize & 0xFF])
    }

    /// A dial waits at the port of its number; `None` when that is not held.
    pub(super) fn wait(
        &self,
        id: &Arc<Id>,
        hello: Hello,
        from: IpAddr,
        engine: &Engine,
    ) -> Option<Entered<Arc<Id>>> {
        let whose = engine.whom(from);
        let mut inner = self.inner.lock();
        let room = inner.room_of(hello.to)?;
        Some(
            room.enter(hello, (from, whose), id.clone(), engine.now(), |id| {
                id.has_request()
            }),
        )
    }

    /// One that waits has to go, because a descriptor is needed: of all ports, at the one where the most wait.
    pub(super) fn crowd_out_one(&self) -> Option<Arc<Id>> {
        let mut inner = self.inner.lock();
        let rooms = inner.ports.iter_mut().map(|port| &mut port.room);
        rooms.max_by_key(|room| room.count())?.crowd_out_one()
    }

    /// The dials that wait for a number.
    pub(super) fn dials(&self, number: u32) -> Vec<Dial<Arc<Id>>> {
        let mut inner = self.inner.lock();
        let room = inner.room_of(number);
        room.map_or_else(Vec::new, |room| room.of(number))
    }

    /// One of them.
    pub(super) fn dial(&self, number: u32, ticket: Ticket) -> Option<Dial<Arc<Id>>> {
        self.inner.lock().room_of(number)?.get(ticket)
    }

    /// It waits no longer; false when it did not.
    pub(super) fn stop_waiting(&self, number: u32, ticket: Ticket) -> bool {
        let mut inner = self.inner.lock();
        inner.room_of(number).is_some_and(|room| room.take(ticket))
    }

    /// It is wrong; true when that is news.
    pub(super) fn is_wrong(&self, number: u32, ticket: Ticket) -> bool {
        let mut inner = self.inner.lock();
        inner
            .room_of(number)
            .is_some_and(|room| room.is_wrong(ticket))
    }

    /// From now on peers may dial.
    ///
    /// # Errors
    /// The kernel refuses to listen.
    pub(crate) fn listen(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        if !std::mem::replace(&mut inner.listening, true) {
            for port in &inner.ports {
                port.socket.listen(BACKLOG)?;
            }
        }
        Ok(())
    }
}

impl Inner {
    fn room_of(&mut self, number: u32) -> Option<&mut Room<Arc<Id>>> {
        let port = self.ports.iter_mut().find(|p| p.number == port_of(number));
        port.map(|port| &mut port.room)
    }

    fn add_port(&mut self, engine: &Arc<Engine>) -> Result<(), Error> {
        let port = Port::bind(engine)?;
        if self.listening {
            port.socket.listen(BACKLOG)?;
        }
        self.ports.push(port);
        Ok(())
    }
}

impl Port {
    /// A port on all the machine's addresses, of both families where there are two.
    fn bind(engine: &Arc<Engine>) -> Result<Port, Error> {
        let any = [
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ];
        let mut outcome = Err(Error::NoMemory("ports"));
        for address in any {
            let socket = Id::for_bring_up(engine);
            socket.set_v6_only(false);
            outcome = socket.bind(SocketAddr::new(address, 0)).map(|()| socket);
            if outcome.is_ok() {
                break;
            }
        }
        let socket = outcome?;
        let number = socket.local_addr().map_or(0, |a| a.port());
        let (_, descriptors) = weft_os::descriptors::limits();
        Ok(Port {
            number,
            socket,
            datagrams: None,
            room: Room::new(ROOM.min((descriptors / SHARE_OF_ROOM).max(1) as usize)),
            used: [false; 256],
            given: [false; 256],
            live: 0,
            next: weft_os::random_u64() as u8,
        })
    }

    /// The UDP socket of the same number; `None` when somebody else has the port.
    fn for_datagrams(&mut self, engine: &Arc<Engine>) -> Option<Arc<UdSocket>> {
        if self.datagrams.is_none() {
            self.datagrams = UdSocket::open(self.number, engine).ok();
        }
        self.datagrams.clone()
    }

    fn take(&mut self) -> u32 {
        while self.used[usize::from(self.next)] {
            self.next = self.next.wrapping_add(1);
        }
        let low = self.next;
        self.used[usize::from(low)] = true;
        self.given[usize::from(low)] = true;
        self.live += 1;
        self.next = low.wrapping_add(1);
        u32::from(self.number) << 8 | u32::from(low)
    }
}
