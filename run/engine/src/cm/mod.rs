//! Connections: addresses, listening, connecting, accepting, and their events.
//!
//! An [`Id`] is what `rdma_cm_id` is: it resolves addresses, listens or connects, and its events
//! come through an [`EventChannel`]. MPA start-up runs here; once it is over the socket belongs
//! to the queue pair.
//!
//! | iWARP | event |
//! | --- | --- |
//! | MPA Request arrived | [`EventKind::ConnectRequest`] on the listener's channel |
//! | MPA Reply, accepted | [`EventKind::Established`] |
//! | MPA Reply, rejected; TCP refused or reset | [`EventKind::Rejected`] |
//! | no answer in time; no route | [`EventKind::Unreachable`] |
//! | Reply sent (and, in peer-to-peer mode, first FPDU arrived) | [`EventKind::Established`] |
//! | FIN, RST or Terminate, or the end of a local disconnect | [`EventKind::Disconnected`] |
//!
//! An id for datagrams ([`Id::for_datagrams`]) makes no connection: it asks the listener's connection manager which
//! queue pair serves them, or answers such requests.
//!
//! | lookup | event |
//! | --- | --- |
//! | request arrived | [`EventKind::ConnectRequest`] on the listener's channel |
//! | answer, served | [`EventKind::Established`], at the client only |
//! | answer, rejected; nobody at the port; no answer in time | [`EventKind::Unreachable`] |

mod accepting;
mod bound;
mod half_open;
mod handler;
mod id;
mod listen;
mod newcomers;
mod policy;
mod request_order;
mod shortage;
mod sidr;
mod startup;
mod turn;

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::channel::Channel;
use crate::engine::{engine, Engine};
use crate::error::Error;

pub(crate) use handler::Handler;
pub use id::Id;
pub(crate) use newcomers::{Newcomers, Shed};
pub use sidr::{UdPeer, QKEY, REPLY_OCTETS_MAX, REQUEST_OCTETS_MAX};

/// Most octets of private data a connection carries in each direction with IRD/ORD negotiation
/// (RFC 6581 section 9).
pub const MAX_PRIVATE_DATA: usize = 508;

/// How many times [`Progress::busy_poll`] who waits for an event of a connection looks for it before it sleeps. A
/// connection takes that long: TCP's handshake and MPA's, and both ends make a queue pair meanwhile.
///
/// [`Progress::busy_poll`]: crate::progress::Progress::busy_poll
const LOOKS: u32 = 4;

/// What an id is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    /// Connections (`RDMA_PS_TCP`).
    Stream,
    /// Datagrams (`RDMA_PS_UDP`).
    Datagrams,
}

/// What happened to an [`Id`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// The address is resolved and bound to the device.
    AddrResolved,
    /// It could not be.
    AddrError,
    /// The route is resolved.
    RouteResolved,
    /// It could not be.
    RouteError,
    /// Somebody wants to connect; the event's id is a new one.
    ConnectRequest,
    /// Connecting failed for a reason that is neither refusal nor silence.
    ConnectError,
    /// Nobody answers there.
    Unreachable,
    /// Refused.
    Rejected,
    /// Connected.
    Established,
    /// Not connected any more.
    Disconnected,
}

/// Parameters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnParam<'a> {
    /// For the other side's program; at most [`MAX_PRIVATE_DATA`] octets.
    pub private_data: &'a [u8],
    /// Reads the other side may have outstanding here (IRD).
    pub responder_resources: u8,
    /// Reads this side wants to have outstanding there (ORD).
    pub initiator_depth: u8,
}

/// An event of a connection.
#[derive(Clone, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// 0, or a negative errno that says why.
    pub status: i32,
    /// To whom; a new id for [`EventKind::ConnectRequest`].
    pub id: Arc<Id>,
    /// The listener that a connect request came to.
    pub listener: Option<Arc<Id>>,
    /// What the other side's program sent along.
    pub private_data: Vec<u8>,
    /// Reads the other side wants to have outstanding here.
    pub responder_resources: u8,
    /// Reads this side may have outstanding there.
    pub initiator_depth: u8,
    /// Who serves datagrams: of [`EventKind::Established`] where the id is for them.
    pub datagrams: Option<UdPeer>,
}

/// A channel for connection events.
#[derive(Debug)]
pub struct EventChannel {
    engine: Arc<Engine>,
    events: Channel<Event>,
}

impl EventChannel {
    /// A new channel.
    ///
    /// # Errors
    /// The engine cannot start, or no descriptor is left.
    pub fn new() -> Result<Arc<EventChannel>, Error> {
        Ok(Arc::new(EventChannel {
            engine: engine()?,
            events: Channel::new(LOOKS)?,
        }))
    }

    /// A descriptor that is readable while an event waits.
    pub fn fd(&self) -> RawFd {
        self.events.fd()
    }

    /// The next event; waits for it unless the descriptor is non-blocking.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn get_event(&self) -> Result<Event, Error> {
        self.events.get(&self.engine.progress)
    }

    pub(crate) fn post(&self, event: Event) {
        self.events.post(event, &self.engine.progress);
    }

    /// Takes the undelivered events of an id out, for another channel or for nobody.
    pub(crate) fn take_events_of(&self, id: &Arc<Id>) -> Vec<Event> {
        let about = |event: &Event| {
            let listener = event.listener.as_ref();
            Arc::ptr_eq(&event.id, id) || listener.is_some_and(|l| Arc::ptr_eq(l, id))
        };
        self.events.remove(about)
    }
}
