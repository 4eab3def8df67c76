//! The connection identifier and the calls on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use weft_os::poll::Interest;
use weft_settings::transport::Policy;
use weft_verbs::iwarp::PeerRequest;

use super::bound::Bound;
use super::handler::Handler;
use super::newcomers::{Newcomers, Places, Waiting};
use super::request_order::{Order, Ticket};
use super::sidr::{Asked, Asking, Desk};
use super::startup::Startup;
use super::{ConnParam, Event, EventChannel, EventKind, Service, MAX_PRIVATE_DATA};
use crate::carrier::{self, Carrier, Listener, SocketOptions};
use crate::engine::{engine, Engine};
use crate::error::Error;
use crate::progress::Token;
use crate::qp::Qp;
use crate::ud::UdQp;

/// A connection identifier: what `rdma_cm_id` is.
#[derive(Debug)]
pub struct Id {
    pub(super) engine: Arc<Engine>,
    pub(super) service: Service,
    pub(super) inner: Mutex<Inner>,
    cookie: AtomicU64,
    pub(super) me: Weak<Id>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) channel: Option<Arc<EventChannel>>,
    pub(super) phase: Phase,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) options: SocketOptions,
    /// How the connection sends, where the program has said so.
    pub(super) policy: Option<Box<Policy>>,
    pub(super) qp: Option<Arc<Qp>>,
    /// The same of an id for datagrams.
    pub(super) ud_qp: Option<Arc<UdQp>>,
    /// For an id made by a connect request: where it came to.
    pub(super) listener: Weak<Id>,
    /// Its place among the listener's requests, until it is told.
    pub(super) ticket: Option<Ticket>,
    /// Who is told what happens, where that is no program.
    pub(super) handler: Option<Arc<dyn Handler>>,
}

/// Where an id is on its way.
#[derive(Debug)]
pub(super) enum Phase {
    Idle,
    Bound(Bound),
    /// Address resolved; the socket is there if the program bound one.
    Resolved(Option<Bound>),
    Listening {
        listener: Box<dyn Listener>,
        token: Token,
        backlog: usize,
        /// Connections that were accepted, up to the answer to their request.
        waiting: Arc<Waiting>,
        /// No connection is taken before that time.
        pause_until: Option<Duration>,
        /// Connections whose requests have not been told yet.
        order: Order<Event>,
    },
    /// The TCP handshake is under way.
    Connecting {
        carrier: Box<dyn Carrier>,
        token: Token,
        attempt: Attempt,
    },
    /// The peer refused; it may be about to listen again.
    Refused {
        /// For the timer alone.
        token: Token,
        again_at: Duration,
        attempt: Attempt,
    },
    /// MPA start-up is under way, or a request waits for the program.
    Starting {
        carrier: Box<dyn Carrier>,
        token: Token,
        /// Apart: an id is in this phase for a moment, and keeps room for the largest one for good.
        startup: Box<Startup>,
        /// The request, once it is there.
        request: Option<PeerRequest>,
        /// Of the accepting side.
        places: Option<Places>,
    },
    /// The socket is the queue pair's.
    Connected {
        /// What the program is to be told once the peer's first FPDU is there; nothing where it knows already.
        untold: Option<Box<Event>>,
        /// A program may keep the queue pair and the channel alone, and hears of the end all the same.
        _itself: Arc<Id>,
    },
    /// It takes requests for datagrams.
    Answering {
        desk: Arc<Desk>,
        token: Token,
    },
    /// Such a request waits for the program.
    Asked(Asked),
    /// Such a request is under way.
    Asking(Box<Asking>),
    /// Such a request was answered, and datagrams may go both ways.
    Served,
    Disconnected,
    Destroyed,
}

/// Requests that may wait where the program does not say how many, as in the kernel's connection manager.
pub(super) const BACKLOG: i32 = 1024;
/// For how long after the first attempt a refusal is not the last word. A server that closes its listener and opens
/// another on the same port refuses in between (perftest does so between its two connections), and an address
/// that is resolved without asking the network leaves it no time. A machine may stand still for half a second before
/// that server goes on, and perftest does not outlive a refusal.
const REFUSALS_FOR: Duration = Duration::from_secs(1);
/// The pause before the second attempt; each one is twice the one before.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(1);
/// The same at most.
pub(super) const RETRY_DELAY_MAX: Duration = Duration::from_millis(32);

/// What a connect was asked for, and how long it goes on.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// When there has to be a connection.
    pub(super) deadline: Duration,
    /// The address the id was bound to.
    pub(super) source: Option<SocketAddr>,
    /// A refusal after this is told.
    pub(super) refusals_until: Duration,
    /// The pause before the next attempt.
    pub(super) again_after: Duration,
    pub(super) param: OwnedParam,
}

#[derive(Clone, Debug)]
pub(super) struct OwnedParam {
    pub(super) private_data: Vec<u8>,
    pub(super) ird: u16,
    pub(super) ord: u16,
}

impl OwnedParam {
    pub(super) fn new(param: &ConnParam<'_>) -> Result<OwnedParam, Error> {
        if param.private_data.len() > MAX_PRIVATE_DATA {
            return Err(Error::Invalid("private data: more than 508 octets"));
        }
        Ok(OwnedParam {
            private_data: param.private_data.to_vec(),
            ird: u16::from(param.responder_resources),
            ord: u16::from(param.initiator_depth),
        })
    }
}

impl Id {
    /// A new id; its events go to `channel`, and `cookie` is for the caller.
    ///
    /// # Errors
    /// The engine cannot start.
    pub fn new(channel: Option<&Arc<EventChannel>>, cookie: u64) -> Result<Arc<Id>, Error> {
        Ok(Id::make(engine()?, channel.cloned(), cookie, Weak::new()))
    }

    /// An id for connections.
    pub(super) fn make(
        engine: Arc<Engine>,
        channel: Option<Arc<EventChannel>>,
        cookie: u64,
        listener: Weak<Id>,
    ) -> Arc<Id> {
        Id::of_service(Service::Stream, engine, channel, cookie, listener)
    }

    pub(super) fn of_service(
        service: Service,
        engine: Arc<Engine>,
        channel: Option<Arc<EventChannel>>,
        cookie: u64,
        listener: Weak<Id>,
    ) -> Arc<Id> {
        Arc::new_cyclic(|me| Id {
            inner: Mutex::new(Inner {
                channel,
                phase: Phase::Idle,
                local: None,
                peer: None,
                options: SocketOptions {
                    buffer: engine.settings.socket_buffer.unwrap_or(0),
                    ..SocketOptions::default()
                },
                policy: None,
                qp: None,
                ud_qp: None,
                listener,
                ticket: None,
                handler: None,
            }),
            engine,
            service,
            cookie: AtomicU64::new(cookie),
            me: me.clone(),
        })
    }

    /// An id of the engine's own: a handler is told what happens instead of a program.
    pub(crate) fn for_handler(engine: &Arc<Engine>, handler: Arc<dyn Handler>) -> Arc<Id> {
        let id = Id::make(engine.clone(), None, 0, Weak::new());
        id.inner.lock().handler = Some(handler);
        id
    }

    /// One that holds an address already.
    pub(crate) fn of_bound(
        engine: &Arc<Engine>,
        socket: Box<dyn carrier::Bound>,
        handler: Arc<dyn Handler>,
    ) -> Arc<Id> {
        let id = Id::for_handler(engine, handler);
        {
            let mut inner = id.inner.lock();
            inner.local = Some(socket.local_addr());
            inner.phase = Phase::Bound(Bound::Stream(socket));
        }
        id
    }

    /// The engine that it belongs to.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The caller's value.
    pub fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Acquire)
    }

    /// Sets the caller's value.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Release);
    }

    /// This end's address, once bound, resolved or connected.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.lock().local
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.lock().peer
    }

    /// `IPV6_V6ONLY` for sockets that are bound from now on.
    pub fn set_v6_only(&self, on: bool) {
        self.inner.lock().options.v6_only = Some(on);
    }

    /// Type of service of the connection.
    pub fn set_tos(&self, tos: u8) {
        self.inner.lock().options.tos = Some(tos);
    }

    /// The channel its events go to.
    pub fn channel(&self) -> Option<Arc<EventChannel>> {
        self.inner.lock().channel.clone()
    }

    /// Whether its request waits for an answer.
    pub(crate) fn has_request(&self) -> bool {
        let phase = &self.inner.lock().phase;
        matches!(
            phase,
            Phase::Starting {
                request: Some(_),
                ..
            }
        )
    }

    /// Sends its events to another channel from now on, those that wait included.
    pub fn migrate(&self, channel: Option<&Arc<EventChannel>>) {
        let old = {
            let mut inner = self.inner.lock();
            std::mem::replace(&mut inner.channel, channel.cloned())
        };
        if let (Some(old), Some(new), Some(me)) = (old, channel, self.me.upgrade()) {
            // Every id of a connect request comes by here, and all events that wait would be looked at for each.
            if Arc::ptr_eq(&old, new) {
                return;
            }
            for event in old.take_events_of(&me) {
                new.post(event);
            }
        }
    }

    /// Binds to a local address; port 0 takes an ephemeral port.
    ///
    /// # Errors
    /// Bound already, or the kernel refuses the address.
    pub fn bind(&self, addr: SocketAddr) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        if !matches!(inner.phase, Phase::Idle) {
            return Err(Error::State("an id that is not bound yet"));
        }
        let socket = self.bind_to(addr, &inner.options)?;
        inner.local = Some(socket.local_addr());
        inner.phase = Phase::Bound(socket);
        Ok(())
    }

    /// Resolves where `peer` is reached from; the outcome is an event.
    ///
    /// # Errors
    /// The id is past that, or `source` cannot be bound.
    pub fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        _timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        let bound = match std::mem::replace(&mut inner.phase, Phase::Idle) {
            Phase::Idle => None,
            Phase::Bound(socket) => Some(socket),
            other => {
                inner.phase = other;
                return Err(Error::State("an id whose address is not resolved yet"));
            }
        };
        let bound = match (bound, source) {
            (None, Some(source)) if !source.ip().is_unspecified() || source.port() != 0 => {
                Some(self.bind_to(source, &inner.options)?)
            }
            (bound, _) => bound,
        };
        inner.peer = Some(peer);
        let outcome = match &bound {
            // A group is reached from wherever the program says (`rdma_join_multicast(3)`); it need not be routed.
            Some(bound)
                if peer.ip().is_multicast() && !bound.local_addr().ip().is_unspecified() =>
            {
                Ok(bound.local_addr())
            }
            _ => self.engine.network.source_towards(peer),
        };
        match outcome {
            Ok(local) => {
                inner.local = Some(match &bound {
                    Some(socket) if !socket.local_addr().ip().is_unspecified() => {
                        socket.local_addr()
                    }
                    Some(socket) => SocketAddr::new(local.ip(), socket.local_addr().port()),
                    None => local,
                });
                inner.phase = Phase::Resolved(bound);
                self.post(&inner, EventKind::AddrResolved, 0);
            }
            Err(error) => {
                inner.phase = match bound {
                    Some(socket) => Phase::Bound(socket),
                    None => Phase::Idle,
                };
                let errno = error.raw_os_error().unwrap_or(22);
                self.post(&inner, EventKind::AddrError, -errno);
            }
        }
        Ok(())
    }

    /// Resolves the route: the kernel has it, so the event comes at once.
    ///
    /// # Errors
    /// The address is not resolved.
    pub fn resolve_route(&self) -> Result<(), Error> {
        let inner = self.inner.lock();
        if !matches!(inner.phase, Phase::Resolved(_)) {
            return Err(Error::State("an id whose address is resolved"));
        }
        self.post(&inner, EventKind::RouteResolved, 0);
        Ok(())
    }

    /// Binds the queue pair that the connection will carry.
    ///
    /// # Errors
    /// It has one already.
    pub fn attach_qp(&self, qp: &Arc<Qp>) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        if self.is_for_datagrams() {
            return Err(Error::Invalid("the id is for datagrams"));
        }
        if inner.qp.is_some() {
            return Err(Error::Invalid("the id has a queue pair already"));
        }
        inner.qp = Some(qp.clone());
        Ok(())
    }

    /// Lets go of the queue pair.
    pub fn detach_qp(&self) -> Option<Arc<Qp>> {
        let mut inner = self.inner.lock();
        inner.ud_qp = None;
        inner.qp.take()
    }

    /// The queue pair.
    pub fn qp(&self) -> Option<Arc<Qp>> {
        self.inner.lock().qp.clone()
    }

    /// Begins to listen; connect requests are events.
    ///
    /// # Errors
    /// Not bound and no ephemeral port to be had, or the address is taken.
    pub fn listen(&self, backlog: i32) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        let bound = match std::mem::replace(&mut inner.phase, Phase::Idle) {
            Phase::Bound(socket) => socket,
            Phase::Idle => {
                let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
                let any4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
                self.bind_to(any, &inner.options)
                    .or_else(|_| self.bind_to(any4, &inner.options))?
            }
            other => {
                inner.phase = other;
                return Err(Error::State("an id that is bound"));
            }
        };
        inner.local = Some(bound.local_addr());
        let bound = match bound {
            Bound::Stream(bound) => bound,
            Bound::Datagrams(socket, _) => {
                inner.phase = self.listen_for_lookups(socket, backlog)?;
                return Ok(());
            }
        };
        let backlog = if backlog <= 0 { BACKLOG } else { backlog };
        // A SYN that finds the kernel's queue full is sent again a second later, and those that come before the program
        // has answered others wait in that queue.
        let listener = bound.listen(backlog.max(BACKLOG))?;
        let token = self
            .engine
            .progress
            .add_source(&*listener, self.arc()?, Interest::Read)?;
        inner.phase = Phase::Listening {
            listener,
            token,
            backlog: backlog as usize,
            waiting: Arc::default(),
            pause_until: None,
            order: Order::default(),
        };
        Ok(())
    }

    /// Connects; the outcome is an event.
    ///
    /// # Errors
    /// Not resolved, no queue pair, or parameters out of range.
    pub fn connect(&self, param: ConnParam<'_>) -> Result<(), Error> {
        let param = OwnedParam::new(&param)?;
        let mut inner = self.inner.lock();
        if inner.qp.is_none() {
            return Err(Error::Invalid("the id has no queue pair"));
        }
        let peer = inner.peer.ok_or(Error::State("a resolved id"))?;
        let bound = match std::mem::replace(&mut inner.phase, Phase::Idle) {
            Phase::Resolved(bound) => bound,
            other => {
                inner.phase = other;
                return Err(Error::State("a resolved id"));
            }
        };
        let bound = match bound {
            Some(Bound::Stream(bound)) => Some(bound),
            _ => None,
        };
        let source = bound.as_ref().map(|bound| bound.local_addr());
        let begin = self.engine.now();
        let started = match bound {
            Some(bound) => bound.connect(peer),
            None => self.engine.network.connect(peer, &inner.options),
        };
        let carrier = match started {
            Ok(carrier) => carrier,
            Err(error) => {
                crate::error::explain(&error);
                inner.phase = Phase::Disconnected;
                let errno = error.raw_os_error().unwrap_or(22);
                self.post(&inner, EventKind::Unreachable, -errno);
                return Ok(());
            }
        };
        inner.follow_policy(&*carrier);
        // On loopback the handshake is over already.
        if carrier.is_connected() {
            let connected = self.engine.now();
            self.initiate(inner, carrier, None, param);
            let busy_wait = &self.engine.progress.busy_wait;
            busy_wait.asked(connected, connected - begin);
            return Ok(());
        }
        let now = self.engine.now();
        let attempt = Attempt {
            deadline: now + self.engine.settings.connect_timeout,
            source,
            refusals_until: now + REFUSALS_FOR,
            again_after: RETRY_DELAY_MIN,
            param,
        };
        self.watch_connect(&mut inner, carrier, attempt)?;
        // On loopback a refusal is known already.
        drop(inner);
        self.serve_socket();
        Ok(())
    }

    fn bind_to(&self, addr: SocketAddr, options: &SocketOptions) -> std::io::Result<Bound> {
        Bound::bind(self.service, &*self.engine.network, addr, options)
    }

    /// The handshake is under way.
    pub(super) fn watch_connect(
        &self,
        inner: &mut Inner,
        carrier: Box<dyn Carrier>,
        attempt: Attempt,
    ) -> Result<(), Error> {
        let token = self
            .engine
            .progress
            .add_source(&*carrier, self.arc()?, Interest::Write)?;
        self.engine.progress.add_timer(attempt.deadline, token);
        inner.phase = Phase::Connecting {
            carrier,
            token,
            attempt,
        };
        Ok(())
    }

    /// Ends the connection; the event comes when it is over on both sides.
    ///
    /// # Errors
    /// It is not connected.
    pub fn disconnect(&self) -> Result<(), Error> {
        if self.is_for_datagrams() {
            return self.stop_datagrams();
        }
        let qp = {
            let inner = self.inner.lock();
            match inner.phase {
                Phase::Connected { .. } => inner.qp.clone(),
                Phase::Disconnected => return Ok(()),
                _ => return Err(Error::Invalid("the id is not connected")),
            }
        };
        if let Some(qp) = qp {
            qp.disconnect();
        }
        Ok(())
    }

    /// Ends the id: what it was doing stops, and events of it that wait are dropped.
    pub fn destroy(&self) {
        // A request that the program leaves without an answer is refused, as kernels do: a peer that was closed upon
        // could only guess why.
        let _ = self.reject(&[]);
        let (phase, channel) = {
            let mut inner = self.inner.lock();
            inner.handler = None;
            let phase = std::mem::replace(&mut inner.phase, Phase::Destroyed);
            (phase, inner.channel.take())
        };
        match phase {
            Phase::Listening {
                listener,
                token,
                order,
                ..
            } => {
                self.engine.progress.remove_source(&*listener, token);
                self.engine.part::<Newcomers>().forget_listener(token);
                for request in order.into_requests() {
                    request.id.destroy();
                }
            }
            Phase::Connecting { carrier, token, .. } | Phase::Starting { carrier, token, .. } => {
                self.engine.progress.remove_source(&*carrier, token);
            }
            Phase::Refused { token, .. } => self.engine.progress.release(token),
            Phase::Answering { desk, token } => desk.end(token, &self.engine),
            Phase::Asked(asked) => asked.drop_request(&self.engine),
            Phase::Asking(asking) => asking.end(&self.engine),
            _ => {}
        }
        // A queue pair outlives its id; without one its connection ends.
        let qp = self.detach_qp();
        if let Some(qp) = qp {
            qp.disconnect();
        }
        let (Some(channel), Some(me)) = (channel, self.me.upgrade()) else {
            return;
        };
        for event in channel.take_events_of(&me) {
            // Connect requests that nobody will ever see are closed.
            if event.kind == EventKind::ConnectRequest && !Arc::ptr_eq(&event.id, &me) {
                event.id.destroy();
            }
        }
    }

    pub(super) fn arc(&self) -> Result<Arc<Id>, Error> {
        self.me.upgrade().ok_or(Error::State("an id that exists"))
    }

    /// Posts an event without further contents.
    pub(super) fn post(&self, inner: &MutexGuard<'_, Inner>, kind: EventKind, status: i32) {
        if let (Some(channel), Some(id)) = (&inner.channel, self.me.upgrade()) {
            channel.post(Event::about(id, kind, status));
        }
        let over = !matches!(kind, EventKind::AddrResolved | EventKind::RouteResolved);
        if let (true, Some(handler)) = (over, &inner.handler) {
            handler.on_over(self);
        }
    }
}

impl Event {
    pub(super) fn about(id: Arc<Id>, kind: EventKind, status: i32) -> Event {
        Event {
            kind,
            status,
            id,
            listener: None,
            private_data: Vec::new(),
            responder_resources: 0,
            initiator_depth: 0,
            datagrams: None,
        }
    }
}
