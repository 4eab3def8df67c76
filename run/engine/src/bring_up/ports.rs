//! The ports at which queue pairs are found: listened on, with the dials that wait at each.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::answering::Answering;
use super::hello::Hello;
use super::room::{Dial, Entered, Room, Ticket};
use crate::carrier::Bound;
use crate::cm::{Id, Newcomers, Shed};
use crate::engine::Engine;
use crate::error::Error;
use crate::numbers::{port_of, QUEUE_PAIRS_PER_PORT};

/// Connections to one port that have not sent their MPA Request, and as many again with those that have.
const BACKLOG: i32 = 1024;
/// Dials that wait at one port: four for each queue pair. Fewer than the connections that a listener takes, so that
/// those that wait never keep others out.
const DIALS_MAX: usize = 4 * QUEUE_PAIRS_PER_PORT;
/// And of the descriptors the process may have they take one in so many at most.
const DIALS_SHARE: u64 = 4;

/// The process's ports.
#[derive(Debug, Default)]
pub(super) struct Ports {
    ports: Mutex<Vec<Port>>,
}

#[derive(Debug)]
struct Port {
    number: u16,
    /// Listens; kept for as long as the process lives.
    _listener: Arc<Id>,
    room: Room<Arc<Id>>,
}

impl Ports {
    /// From now on peers may dial every queue pair that there is.
    ///
    /// # Errors
    /// The kernel refuses to listen.
    pub(super) fn listen(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<(), Error> {
        let mut ports = self.ports.lock();
        if ports.is_empty() {
            engine.part::<Newcomers>().on_shortage(self.clone());
        }
        for socket in engine.numbers.take_sockets() {
            ports.push(Port::listen(socket, engine)?);
        }
        Ok(())
    }

    /// A dial waits at the port of its number; `None` when nobody listens there.
    pub(super) fn wait(
        &self,
        id: &Arc<Id>,
        hello: Hello,
        from: IpAddr,
        engine: &Engine,
    ) -> Option<Entered<Arc<Id>>> {
        let whose = engine.refusals.whom(from);
        self.with_room(hello.to, |room| {
            room.enter(hello, (from, whose), id.clone(), engine.now(), |id| {
                id.has_request()
            })
        })
    }

    /// The dials that wait for a number.
    pub(super) fn dials(&self, number: u32) -> Vec<Dial<Arc<Id>>> {
        self.with_room(number, |room| room.of(number))
            .unwrap_or_default()
    }

    /// One of them.
    pub(super) fn dial(&self, number: u32, ticket: Ticket) -> Option<Dial<Arc<Id>>> {
        self.with_room(number, |room| room.get(ticket))?
    }

    /// It waits no longer; false when it did not.
    pub(super) fn stop_waiting(&self, number: u32, ticket: Ticket) -> bool {
        let stopped = self.with_room(number, |room| room.take(ticket));
        stopped.unwrap_or(false)
    }

    /// It is wrong; true when that is news.
    pub(super) fn is_wrong(&self, number: u32, ticket: Ticket) -> bool {
        let news = self.with_room(number, |room| room.is_wrong(ticket));
        news.unwrap_or(false)
    }

    fn with_room<R>(&self, number: u32, act: impl FnOnce(&mut Room<Arc<Id>>) -> R) -> Option<R> {
        let mut ports = self.ports.lock();
        let port = ports.iter_mut().find(|p| p.number == port_of(number))?;
        Some(act(&mut port.room))
    }
}

/// Of all ports, at the one where the most dials wait.
impl Shed for Ports {
    fn shed_one(&self) -> bool {
        let first = {
            let mut ports = self.ports.lock();
            let rooms = ports.iter_mut().map(|port| &mut port.room);
            rooms
                .max_by_key(|room| room.count())
                .and_then(Room::crowd_out_one)
        };
        if let Some(first) = &first {
            first.destroy();
        }
        first.is_some()
    }
}

impl Port {
    fn listen(socket: Box<dyn Bound>, engine: &Arc<Engine>) -> Result<Port, Error> {
        let number = socket.local_addr().port();
        let listener = Id::of_bound(engine, socket, Arc::new(Answering));
        listener.listen(BACKLOG)?;
        let (_, descriptors) = weft_os::descriptors::limits();
        Ok(Port {
            number,
            _listener: listener,
            room: Room::new(DIALS_MAX.min((descriptors / DIALS_SHARE).max(1) as usize)),
        })
    }
}
