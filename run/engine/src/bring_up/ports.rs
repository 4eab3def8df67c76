//! The ports at which queue pairs are found: listened on, with the attempts that wait at each.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::message::Message;
use super::passive::PassiveSide;
use super::pending::{Attempt, Entered, Pending, Ticket};
use crate::carrier::Bound;
use crate::cm::{Id, Newcomers, Shed};
use crate::engine::Engine;
use crate::error::Error;
use crate::numbers::{port_of, QUEUE_PAIRS_PER_PORT};

/// Connections to one port that have not sent their MPA Request, and as many again with those that have.
const BACKLOG: i32 = 1024;
/// Attempts that wait at one port: four for each queue pair. Fewer than the connections that a listener takes, so that
/// those that wait never keep others out.
const PENDING_MAX: usize = 4 * QUEUE_PAIRS_PER_PORT;
/// And of the descriptors the process may have they take one in so many at most.
const PENDING_SHARE: u64 = 4;

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
    pending: Pending<Arc<Id>>,
}

impl Ports {
    /// From now on peers may connect to every queue pair that there is.
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

    /// An attempt waits at the port of its number; `None` when nobody listens there.
    pub(super) fn wait(
        &self,
        id: &Arc<Id>,
        message: Message,
        from: IpAddr,
        engine: &Engine,
    ) -> Option<Entered<Arc<Id>>> {
        let whose = engine.refusals.whom(from);
        self.with_pending(message.to, |pending| {
            pending.enter(message, (from, whose), id.clone(), engine.now(), |id| {
                id.has_request()
            })
        })
    }

    /// The attempts that wait for a number.
    pub(super) fn attempts(&self, number: u32) -> Vec<Attempt<Arc<Id>>> {
        self.with_pending(number, |pending| pending.of(number))
            .unwrap_or_default()
    }

    /// One of them.
    pub(super) fn attempt(&self, number: u32, ticket: Ticket) -> Option<Attempt<Arc<Id>>> {
        self.with_pending(number, |pending| pending.get(ticket))?
    }

    /// It waits no longer; false when it did not.
    pub(super) fn stop_waiting(&self, number: u32, ticket: Ticket) -> bool {
        let stopped = self.with_pending(number, |pending| pending.take(ticket));
        stopped.unwrap_or(false)
    }

    /// It is wrong; true when that is news.
    pub(super) fn is_wrong(&self, number: u32, ticket: Ticket) -> bool {
        let news = self.with_pending(number, |pending| pending.is_wrong(ticket));
        news.unwrap_or(false)
    }

    fn with_pending<R>(
        &self,
        number: u32,
        act: impl FnOnce(&mut Pending<Arc<Id>>) -> R,
    ) -> Option<R> {
        let mut ports = self.ports.lock();
        let port = ports.iter_mut().find(|p| p.number == port_of(number))?;
        Some(act(&mut port.pending))
    }
}

/// Of all ports, at the one where the most attempts wait.
impl Shed for Ports {
    fn shed_one(&self) -> bool {
        let first = {
            let mut ports = self.ports.lock();
            let all = ports.iter_mut().map(|port| &mut port.pending);
            all.max_by_key(|pending| pending.count())
                .and_then(Pending::crowd_out_one)
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
        let listener = Id::of_bound(engine, socket, Arc::new(PassiveSide));
        listener.listen(BACKLOG)?;
        let (_, descriptors) = weft_os::descriptors::limits();
        Ok(Port {
            number,
            _listener: listener,
            pending: Pending::new(PENDING_MAX.min((descriptors / PENDING_SHARE).max(1) as usize)),
        })
    }
}
