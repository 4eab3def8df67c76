//! Ids of the datagram service (`RDMA_PS_UDP`): a client asks at a UDP port which queue pair serves it, and the
//! listener there has its program decide (decision 0013). The two state machines are in [`weft_verbs::sidr`]; here
//! are their sockets, and what their outcomes mean for the id.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use weft_os::lists::Gather;
use weft_os::poll::Interest;
use weft_verbs::sidr::requester::{Outcome, Requester};
use weft_verbs::sidr::responder::{Action, RequestKey, Responder};
use weft_verbs::sidr::{TooLong, Verdict, MESSAGE_MOST};
use weft_verbs::types::QpState;

pub use weft_verbs::sidr::{QKEY, REPLY_OCTETS_MAX, REQUEST_OCTETS_MAX};

use super::bound::Bound;
use super::id::{Id, Phase, BACKLOG};
use super::{Event, EventKind, Service};
use crate::carrier::DatagramSocket;
use crate::engine::Engine;
use crate::error::Error;
use crate::progress::Token;
use crate::stats::Total;
use crate::ud::UdQp;

/// Datagrams that are taken in one go.
const DATAGRAMS_IN_A_ROW_MAX: usize = 64;
/// Nobody serves datagrams at that port: what InfiniBand's connection manager answers then.
const UNSUPPORTED: i32 = 1;
/// The listener's program said no.
const REJECTED: i32 = 2;
const ETIMEDOUT: i32 = 110;

/// Who serves datagrams, as a lookup found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdPeer {
    /// The queue pair's number.
    pub number: u32,
    /// Its Q_Key.
    pub qkey: u32,
    /// The address of this end.
    pub local: IpAddr,
    /// The address of the other end.
    pub peer: IpAddr,
    /// The type of service that the id was given.
    pub tos: u8,
}

/// What a listener of datagrams shares with the requests that its program has not answered.
#[derive(Debug)]
pub(super) struct Desk {
    socket: Box<dyn DatagramSocket>,
    answerer: Mutex<Responder>,
    /// Who holds it receives.
    inbox: Mutex<[u8; MESSAGE_MOST + 1]>,
}

/// A request that waits for the program.
#[derive(Debug)]
pub(super) struct Asked {
    desk: Arc<Desk>,
    key: RequestKey,
    /// The address of this machine that it came to.
    to: IpAddr,
}

/// A lookup under way.
#[derive(Debug)]
pub(super) struct Asking {
    socket: Box<dyn DatagramSocket>,
    token: Token,
    asker: Requester,
    ends: (SocketAddr, SocketAddr),
    /// A timer is set for then.
    called_at: Option<Duration>,
}

impl Asking {
    /// Sends what is to be sent, and asks to be called again.
    fn go_on(&mut self, engine: &Engine) {
        if let Some(octets) = self.asker.poll_transmit() {
            let (local, peer) = self.ends;
            send(&*self.socket, &octets, local.ip(), peer);
        }
        let deadline = self.asker.deadline();
        if let (Some(at), true) = (deadline, deadline != self.called_at) {
            engine.progress.add_timer(at, self.token);
        }
        self.called_at = deadline;
    }

    pub(super) fn end(&self, engine: &Engine) {
        engine.progress.remove_source(&*self.socket, self.token);
    }
}

impl Desk {
    pub(super) fn end(&self, token: Token, engine: &Engine) {
        engine.progress.remove_source(&*self.socket, token);
    }
}

impl Asked {
    /// Tells the client what was decided.
    fn answer(&self, verdict: Verdict, private_data: &[u8], engine: &Engine) -> Result<(), Error> {
        let octets = {
            let mut answerer = self.desk.answerer.lock();
            answerer.answer(self.key, verdict, private_data, engine.now())
        };
        let octets = octets.map_err(too_long)?;
        send(&*self.desk.socket, &octets, self.to, self.key.from);
        Ok(())
    }

    /// The program ends the id without an answer.
    pub(super) fn drop_request(&self, engine: &Engine) {
        // Without private data nothing can go wrong.
        let _ = self.answer(Verdict::Rejected, &[], engine);
    }
}

fn too_long(_: TooLong) -> Error {
    Error::Invalid("private data: more than 180 octets in a request, or 136 in an answer")
}

/// Sends a message. One that is lost is like any other lost datagram: the client asks again.
fn send(socket: &dyn DatagramSocket, octets: &[u8], from: IpAddr, to: SocketAddr) {
    let mut list = Gather::default();
    list.push(octets);
    if let Err(error) = socket.send(&list, from, to, None) {
        crate::debug!("a message of the connection manager to {to} is lost: {error}");
    }
}

impl Id {
    /// A new id for the datagram service; its events go to `channel`, and `cookie` is for the caller.
    ///
    /// # Errors
    /// The engine cannot start.
    pub fn for_datagrams(
        channel: Option<&Arc<super::EventChannel>>,
        cookie: u64,
    ) -> Result<Arc<Id>, Error> {
        let engine = crate::engine::engine()?;
        let service = Service::Datagrams;
        Ok(Id::of_service(
            service,
            engine,
            channel.cloned(),
            cookie,
            Weak::new(),
        ))
    }

    /// Whether it is for the datagram service.
    pub fn is_for_datagrams(&self) -> bool {
        self.service == Service::Datagrams
    }

    /// Binds the queue pair that datagrams come to.
    ///
    /// # Errors
    /// It has one already, or is for connections.
    pub fn attach_ud_qp(&self, qp: &Arc<UdQp>) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        if !self.is_for_datagrams() {
            return Err(Error::Invalid("the id is for connections"));
        }
        if inner.ud_qp.is_some() {
            return Err(Error::Invalid("the id has a queue pair already"));
        }
        inner.ud_qp = Some(qp.clone());
        Ok(())
    }

    // --- the client

    /// Asks which queue pair serves datagrams at the resolved address; the outcome is an event.
    ///
    /// # Errors
    /// Not resolved, or too much private data.
    pub fn look_up(&self, private_data: &[u8]) -> Result<(), Error> {
        let now = self.engine.now();
        let timeout = self.engine.settings.connect_timeout;
        let lookup = weft_os::random_u64();
        let asker = Requester::new(lookup, private_data, now, timeout).map_err(too_long)?;
        let mut inner = self.inner.lock();
        let peer = inner.peer.ok_or(Error::State("a resolved id"))?;
        let bound = match std::mem::replace(&mut inner.phase, Phase::Idle) {
            Phase::Resolved(bound) if self.is_for_datagrams() => bound,
            other => {
                inner.phase = other;
                return Err(Error::State("a resolved id for datagrams"));
            }
        };
        inner.phase = Phase::Disconnected;
        let opened = match bound {
            Some(Bound::Datagrams(socket, _)) => Ok(socket),
            _ => {
                let network = &self.engine.network;
                network.datagrams(any_towards(peer), &inner.options, None)
            }
        };
        let connected = opened.and_then(|socket| {
            socket.connect(peer)?;
            let local = socket.local_addr()?;
            Ok((socket, local))
        });
        let (socket, local) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                crate::error::explain(&error);
                let errno = error.raw_os_error().unwrap_or(22);
                self.post(&inner, EventKind::Unreachable, -errno);
                return Ok(());
            }
        };
        inner.local = Some(local);
        let token = self
            .engine
            .progress
            .add_source(&*socket, self.arc()?, Interest::Read)?;
        let mut asking = Asking {
            socket,
            token,
            asker,
            ends: (local, peer),
            called_at: None,
        };
        asking.go_on(&self.engine);
        inner.phase = Phase::Asking(Box::new(asking));
        Ok(())
    }

    /// Something came for a lookup, or its time is up.
    pub(super) fn go_on_asking(&self) {
        let engine = &self.engine;
        let mut inner = self.inner.lock();
        let Phase::Asking(asking) = &mut inner.phase else {
            return;
        };
        let mut refused = false;
        let mut octets = [0; MESSAGE_MOST + 1];
        for _ in 0..DATAGRAMS_IN_A_ROW_MAX {
            match asking.socket.receive(&mut octets) {
                Ok(received) => {
                    let octets = &octets[..received.octets];
                    asking.asker.handle_datagram(octets, engine.now());
                }
                Err(error) => {
                    refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
                    break;
                }
            }
        }
        asking.asker.handle_timeout(engine.now());
        let outcome = asking.asker.poll_event();
        if outcome.is_none() && !refused {
            return asking.go_on(engine);
        }
        asking.end(engine);
        let (local, peer) = asking.ends;
        inner.phase = Phase::Disconnected;
        let Ok(me) = self.arc() else {
            return;
        };
        let event = match outcome {
            Some(Outcome::Answered(verdict, private_data)) => {
                let mut event = match verdict {
                    Verdict::Served { number, qkey } => {
                        let mut event = Event::about(me, EventKind::Established, 0);
                        event.datagrams = Some(UdPeer {
                            number,
                            qkey,
                            local: local.ip().to_canonical(),
                            peer: peer.ip().to_canonical(),
                            tos: inner.options.tos.unwrap_or(0),
                        });
                        inner.phase = Phase::Served;
                        event
                    }
                    Verdict::Rejected => Event::about(me, EventKind::Unreachable, REJECTED),
                };
                event.private_data = private_data;
                event
            }
            Some(Outcome::TimedOut) => Event::about(me, EventKind::Unreachable, -ETIMEDOUT),
            None => Event::about(me, EventKind::Unreachable, UNSUPPORTED),
        };
        if let Some(channel) = &inner.channel {
            channel.post(event);
        }
    }

    // --- the listener

    /// Begins to take requests on a bound socket.
    pub(super) fn listen_for_lookups(
        &self,
        socket: Box<dyn DatagramSocket>,
        backlog: i32,
    ) -> Result<Phase, Error> {
        let backlog = if backlog <= 0 { BACKLOG } else { backlog };
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&weft_os::random_u64().to_ne_bytes());
        secret[8..].copy_from_slice(&weft_os::random_u64().to_ne_bytes());
        let token = self
            .engine
            .progress
            .add_source(&*socket, self.arc()?, Interest::Read)?;
        // As many as a listener for connections takes.
        let most = backlog.min(BACKLOG) as usize * 2;
        let desk = Arc::new(Desk {
            socket,
            answerer: Mutex::new(Responder::new(secret, most)),
            inbox: Mutex::new([0; MESSAGE_MOST + 1]),
        });
        Ok(Phase::Answering { desk, token })
    }

    /// Takes what came to a listener.
    pub(super) fn take_lookups(self: &Arc<Self>, desk: &Arc<Desk>) {
        let Some(mut inbox) = desk.inbox.try_lock() else {
            // Another thread does.
            return;
        };
        for _ in 0..DATAGRAMS_IN_A_ROW_MAX {
            let Ok(received) = desk.socket.receive(&mut inbox[..]) else {
                return;
            };
            let octets = &inbox[..received.octets];
            let action = {
                let mut answerer = desk.answerer.lock();
                answerer.handle_datagram(octets, received.from, self.engine.now())
            };
            match action {
                Action::Wait => {}
                Action::Drop => {
                    crate::debug!("{} sent what is no lookup", received.from);
                    self.engine.stats.add(Total::DatagramsDropped, 1);
                }
                Action::Send(octets) => send(&*desk.socket, &octets, received.to, received.from),
                Action::Tell(key, private_data) => {
                    let asked = Asked {
                        desk: desk.clone(),
                        key,
                        to: received.to,
                    };
                    self.tell_lookup(asked, private_data);
                }
            }
        }
    }

    /// The program is told of a request, with an id of its own.
    fn tell_lookup(self: &Arc<Self>, asked: Asked, private_data: Vec<u8>) {
        let child = Id::of_service(
            Service::Datagrams,
            self.engine.clone(),
            None,
            0,
            Arc::downgrade(self),
        );
        let mut event = Event::about(child.clone(), EventKind::ConnectRequest, 0);
        event.listener = Some(self.clone());
        event.private_data = private_data;
        let own = self.inner.lock();
        let channel = match (&own.phase, &own.channel) {
            (Phase::Answering { .. }, Some(channel)) => channel.clone(),
            // Nobody listens any more.
            _ => return asked.drop_request(&self.engine),
        };
        {
            let mut inner = child.inner.lock();
            inner.options = own.options;
            inner.channel = Some(channel.clone());
            let port = own.local.map_or(0, |local| local.port());
            inner.local = Some(SocketAddr::new(asked.to, port));
            inner.peer = Some(asked.key.from);
            inner.phase = Phase::Asked(asked);
        }
        channel.post(event);
    }

    /// Answers a request: datagrams go to the id's queue pair, or, if it has none, to the one of that number.
    ///
    /// # Errors
    /// There is no request, no queue pair, or too much private data.
    pub fn accept_lookup(&self, number: u32, private_data: &[u8]) -> Result<(), Error> {
        let number = match &self.inner.lock().ud_qp {
            Some(qp) => qp.number(),
            None => number,
        };
        if number == 0 || number >> 24 != 0 {
            return Err(Error::Invalid("the id has no queue pair"));
        }
        let verdict = Verdict::Served { number, qkey: QKEY };
        self.answer_lookup(verdict, private_data, Phase::Served)
    }

    /// Says no to a request.
    pub(super) fn reject_lookup(&self, private_data: &[u8]) -> Result<(), Error> {
        self.answer_lookup(Verdict::Rejected, private_data, Phase::Disconnected)
    }

    fn answer_lookup(
        &self,
        verdict: Verdict,
        private_data: &[u8],
        then: Phase,
    ) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        let Phase::Asked(asked) = &inner.phase else {
            return Err(Error::Invalid("the id has no request to answer"));
        };
        asked.answer(verdict, private_data, &self.engine)?;
        inner.phase = then;
        Ok(())
    }

    /// What is left of a disconnect without a connection: the queue pair fails.
    pub(super) fn stop_datagrams(&self) -> Result<(), Error> {
        let qp = self.inner.lock().ud_qp.clone();
        match qp {
            Some(qp) => qp.modify_state(QpState::Error),
            None => Err(Error::Invalid("the id has no queue pair")),
        }
    }
}

/// Every address of the peer's family, and an ephemeral port.
fn any_towards(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
