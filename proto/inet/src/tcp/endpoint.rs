//! All connections of one stack: which segment belongs to which, who listens, what is answered for those that do not
//! exist.

use super::config::Config;
use super::connection::{Connection, Event, Transmit};
use super::connections::Connections;
use super::isn::{Secret, Tuple};
use super::listen::{self, Backlog, Listener};
use super::listeners::Listeners;
use super::receive::Placement;
use super::segment::Header;
use super::seq::Seq;
use super::state::State;
use super::time_wait::{self, Remains, TimeWaits};
use alloc::collections::{BTreeSet, VecDeque};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

pub use super::connections::ConnectionId;

/// The bounds of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections.
    pub connections: usize,
    /// Entries in TIME-WAIT.
    pub time_wait: usize,
    /// Answers to strays that wait to be sent; more are not made.
    pub answers: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 65_536,
            time_wait: 32_768,
            answers: 64,
        }
    }
}

/// Why there is no new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// There is one between these two ends.
    InUse,
    /// The local address is not the interface's.
    NotOurs,
    /// No address of the interface leads to the remote end.
    NoRoute,
    /// No port is free towards this remote end.
    NoPort,
    /// As many connections as the limits allow.
    Full,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointEvent {
    /// A listener has a new connection. It takes a place in the listener's queue until [`Endpoint::accept`].
    Incoming(ConnectionId),
    /// Something happened to a connection. After [`Event::Closed`] its id means nothing any more.
    Connection(ConnectionId, Event),
}

/// All connections of one stack.
#[derive(Debug)]
pub struct Endpoint {
    secret: Secret,
    limits: Limits,
    /// Connections opened so far, actively or not.
    opened: u64,
    entries: Connections,
    listeners: Listeners,
    time_waits: TimeWaits,
    answers: VecDeque<(Tuple, Header)>,
    ready: VecDeque<ConnectionId>,
    eventful: VecDeque<ConnectionId>,
    deadlines: BTreeSet<(Duration, ConnectionId)>,
    events: VecDeque<EndpointEvent>,
}

/// Ephemeral ports (RFC 6335 section 6).
const EPHEMERAL: core::ops::RangeInclusive<u16> = 49_152..=65_535;

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(secret: Secret, limits: Limits) -> Endpoint {
        Endpoint {
            secret,
            limits,
            opened: 0,
            entries: Connections::default(),
            listeners: Listeners::default(),
            time_waits: TimeWaits::new(limits.time_wait),
            answers: VecDeque::new(),
            ready: VecDeque::new(),
            eventful: VecDeque::new(),
            deadlines: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes connections at an address and port; they get `config`. The unspecified address stands for all of its
    /// version, and that of IPv6 for all of both, as the kernel's dual-stack sockets have it. Of several listeners for
    /// one port the one that says most is asked. False when someone listens there already.
    pub fn listen(&mut self, local: SocketAddr, config: Config, backlog: Backlog) -> bool {
        self.listeners.insert(local, Listener::new(config, backlog))
    }

    /// Takes no more connections there. Handshakes that are under way are forgotten, and connections that the program
    /// has not accepted are reset: nobody would ever see them. Those it has accepted stay.
    pub fn unlisten(&mut self, local: SocketAddr) {
        let Some(listener) = self.listeners.remove(local) else {
            return;
        };
        for id in listener.waiting() {
            self.command(id, Connection::abort);
        }
    }

    /// The listener of an address and port, as they were given to [`Endpoint::listen`].
    pub fn listener(&self, local: SocketAddr) -> Option<&Listener> {
        self.listeners.get(local)
    }

    /// The program took a connection that was [`EndpointEvent::Incoming`]: its listener has room for another.
    pub fn accept(&mut self, id: ConnectionId) {
        if let Some(local) = self
            .entries
            .get_mut(id)
            .and_then(|entry| entry.listener.take())
        {
            if let Some(listener) = self.listeners.get_mut(local) {
                listener.left(id);
            }
        }
    }

    /// Opens a connection. `local_port` 0 takes a free ephemeral one.
    pub fn connect(
        &mut self,
        local: IpAddr,
        local_port: u16,
        remote: SocketAddr,
        config: Config,
        now: Duration,
    ) -> Result<ConnectionId, ConnectError> {
        if self.entries.len() >= self.limits.connections {
            return Err(ConnectError::Full);
        }
        let port = match local_port {
            0 => self.free_port(local, remote).ok_or(ConnectError::NoPort)?,
            port => port,
        };
        let tuple = Tuple {
            local: SocketAddr::new(local, port),
            remote,
        };
        if self.is_used(&tuple) {
            return Err(ConnectError::InUse);
        }
        let secrets = self.secret.for_connection(&tuple, now);
        let config = config.for_version_of(local);
        Ok(self.insert(tuple, Connection::connect(config, secrets, now)))
    }

    fn free_port(&self, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        let count = u32::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
        let offset =
            u32::from(self.secret.port_offset(local, remote)).wrapping_add(self.opened as u32);
        (0..count)
            .map(|i| EPHEMERAL.start() + (offset.wrapping_add(i) % count) as u16)
            .find(|port| {
                let local = SocketAddr::new(local, *port);
                !self.is_used(&Tuple { local, remote })
            })
    }

    fn is_used(&self, tuple: &Tuple) -> bool {
        self.entries.contains(tuple) || self.time_waits.contains(tuple)
    }

    fn insert(&mut self, tuple: Tuple, connection: Connection) -> ConnectionId {
        self.opened += 1;
        let id = self.entries.insert(tuple, connection);
        self.touched(id);
        id
    }

    /// Connections.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Entries in TIME-WAIT.
    pub fn time_wait_len(&self) -> usize {
        self.time_waits.len()
    }

    /// The two ends of a connection.
    pub fn tuple(&self, id: ConnectionId) -> Option<Tuple> {
        self.entries.get(id).map(|entry| entry.tuple)
    }

    /// A connection, to ask it something.
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.entries.get(id).map(|entry| &entry.connection)
    }

    /// Gives commands to a connection.
    pub fn command<R>(
        &mut self,
        id: ConnectionId,
        command: impl FnOnce(&mut Connection) -> R,
    ) -> Option<R> {
        let result = command(&mut self.entries.get_mut(id)?.connection);
        self.touched(id);
        Some(result)
    }

    /// Where octets of the payload handed in last for this connection belong.
    pub fn placements(&mut self, id: ConnectionId) -> impl Iterator<Item = Placement> + '_ {
        let entry = self.entries.get_mut(id);
        entry
            .into_iter()
            .flat_map(|entry| entry.connection.placements())
    }

    /// A segment arrived, its checksum verified. When it belongs to a connection its id is returned; drain
    /// [`Endpoint::placements`] before the next segment.
    pub fn handle_segment(
        &mut self,
        tuple: &Tuple,
        header: &Header,
        payload: usize,
        now: Duration,
    ) -> Option<ConnectionId> {
        let id = match self.entries.find(tuple) {
            Some(id) => id,
            None => self.unconnected(tuple, header, payload, now)?,
        };
        let entry = self.entries.get_mut(id)?;
        entry.connection.handle_segment(header, payload, now);
        self.touched(id);
        Some(id)
    }

    fn unconnected(
        &mut self,
        tuple: &Tuple,
        header: &Header,
        payload: usize,
        now: Duration,
    ) -> Option<ConnectionId> {
        match self.time_waits.handle_segment(tuple, header, payload, now) {
            Some(time_wait::Outcome::Nothing) => return None,
            Some(time_wait::Outcome::Reply(answer)) => {
                self.answer(*tuple, answer);
                return None;
            }
            Some(time_wait::Outcome::Reused) | None => {}
        }
        let room = self.entries.len() < self.limits.connections;
        let (place, outcome) =
            self.listeners
                .handle_segment(&self.secret, tuple, header, room, now);
        match outcome {
            listen::Outcome::Nothing => None,
            listen::Outcome::Reply(answer) => {
                self.answer(*tuple, answer);
                None
            }
            listen::Outcome::Stray => {
                if let Some(reset) = header.reset_for(payload) {
                    self.answer(*tuple, reset);
                }
                None
            }
            listen::Outcome::Established(accepted) => {
                let place = place?;
                let config = self.listeners.get(place)?.config().clone();
                let config = config.for_version_of(tuple.local.ip());
                let id = self.insert(*tuple, Connection::accept(config, &accepted, now));
                self.listeners.get_mut(place)?.waits(id);
                self.entries.get_mut(id)?.listener = Some(place);
                self.events.push_back(EndpointEvent::Incoming(id));
                Some(id)
            }
        }
    }

    fn answer(&mut self, tuple: Tuple, header: Header) {
        if self.answers.len() < self.limits.answers {
            self.answers.push_back((tuple, header));
        }
    }

    /// A router said that a packet was too large (see [`Connection::handle_packet_too_big`]).
    pub fn handle_packet_too_big(&mut self, tuple: &Tuple, seq: Seq, mtu: u32, now: Duration) {
        if let Some(id) = self.entries.find(tuple) {
            self.command(id, |connection| {
                connection.handle_packet_too_big(seq, mtu, now)
            });
        }
    }

    /// An ICMP error came for a packet (see [`Connection::handle_unreachable`]).
    pub fn handle_unreachable(&mut self, tuple: &Tuple, seq: Seq, hard: bool) {
        if let Some(id) = self.entries.find(tuple) {
            self.command(id, |connection| connection.handle_unreachable(seq, hard));
        }
    }

    /// The next segment to send, with the connection whose octets it carries.
    pub fn poll_transmit(
        &mut self,
        now: Duration,
    ) -> Option<(Tuple, Option<ConnectionId>, Transmit)> {
        if let Some((tuple, header)) = self.answers.pop_front() {
            let transmit = Transmit {
                header,
                payload: 0..0,
                segment_size: None,
            };
            return Some((tuple, None, transmit));
        }
        while let Some(id) = self.ready.front().copied() {
            let Some(entry) = self.entries.get_mut(id) else {
                self.ready.pop_front();
                continue;
            };
            if let Some(mut transmit) = entry.connection.poll_transmit(now) {
                let tuple = entry.tuple;
                transmit.header.source = tuple.local.port();
                transmit.header.destination = tuple.remote.port();
                if entry.connection.has_nothing_to_send() {
                    // The usual end of a message: whoever asks for more finds nobody to ask.
                    entry.queued = false;
                    self.ready.pop_front();
                    self.settle(id, now);
                } else if self.ready.len() > 1 {
                    // The next connection has its turn.
                    self.ready.rotate_left(1);
                }
                return Some((tuple, Some(id), transmit));
            }
            entry.queued = false;
            self.ready.pop_front();
            self.settle(id, now);
        }
        None
    }

    /// Whether [`Endpoint::poll_event`] may have one; where this says no it has none.
    #[inline]
    pub fn may_have_event(&self) -> bool {
        !(self.events.is_empty() && self.eventful.is_empty())
    }

    /// Whether [`Endpoint::poll_transmit`] may have a segment; where this says no it has none.
    #[inline]
    pub fn may_have_segment(&self) -> bool {
        !(self.answers.is_empty() && self.ready.is_empty())
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(id) = self.eventful.front().copied() {
            if let Some(entry) = self.entries.get_mut(id) {
                if let Some(event) = entry.connection.poll_event() {
                    return Some(EndpointEvent::Connection(id, event));
                }
                entry.eventful = false;
            }
            self.eventful.pop_front();
        }
        None
    }

    /// Something changed: it may have events now, and something to send.
    fn touched(&mut self, id: ConnectionId) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if !entry.eventful && entry.connection.has_event() {
            entry.eventful = true;
            self.eventful.push_back(id);
        }
        if !entry.queued {
            entry.queued = true;
            self.ready.push_back(id);
        }
    }

    /// A connection has nothing to send: its deadline goes into the table, or it goes.
    fn settle(&mut self, id: ConnectionId, now: Duration) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let state = entry.connection.state();
        let gone = matches!(state, State::TimeWait | State::Closed);
        let deadline = entry.connection.deadline();
        // A deadline moves away with nearly every segment: the retransmission timer's does. Then the earlier entry
        // stays and is looked at when its time comes: a table changed for each segment costs more than a look too many.
        let earlier = match (entry.deadline, deadline) {
            (Some(old), Some(at)) => at < old,
            (None, at) => at.is_some(),
            (_, None) => false,
        };
        if gone || earlier {
            if let Some(old) = entry.deadline.take() {
                self.deadlines.remove(&(old, id));
            }
            if let Some(at) = deadline.filter(|_| !gone) {
                self.deadlines.insert((at, id));
                entry.deadline = Some(at);
            }
        }
        if gone {
            self.remove(id, state, now);
        }
    }

    fn remove(&mut self, id: ConnectionId, state: State, now: Duration) {
        // Whoever ended before the program took it has left the queue.
        self.accept(id);
        let Some(mut entry) = self.entries.remove(id) else {
            return;
        };
        // What it has still to tell outlives it.
        while let Some(event) = entry.connection.poll_event() {
            self.events.push_back(EndpointEvent::Connection(id, event));
        }
        if state == State::TimeWait {
            let remains = Remains {
                numbers: entry.connection.numbers(),
                timestamps: entry.connection.timestamps(),
            };
            self.time_waits.insert(entry.tuple, remains, now);
        }
    }

    /// When to call [`Endpoint::handle_timeout`]. May be early, never late.
    pub fn deadline(&self) -> Option<Duration> {
        let connections = self.deadlines.first().map(|(at, _)| *at);
        [
            connections,
            self.listeners.deadline(),
            self.time_waits.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some((at, id)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop_first();
            if let Some(entry) = self.entries.get_mut(id) {
                entry.deadline = None;
                entry.connection.handle_timeout(now);
                self.touched(id);
            }
        }
        self.repeat_answers(now);
        self.time_waits.expire(now);
    }

    fn repeat_answers(&mut self, now: Duration) {
        while self.answers.len() < self.limits.answers {
            let Some(answer) = self.listeners.poll_answer(now) else {
                break;
            };
            self.answers.push_back(answer);
        }
    }
}
