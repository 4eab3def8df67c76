//! One carrier, as the thread has it: its connection, its state machine, its channels.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use weft_engine::carrier::Transfer;
use weft_os::guarded::Guarded;
use weft_os::poll::Interest;
use weft_uoe::carrier::GREETING_TIMEOUT;
use weft_uoe::control::Why;
use weft_uoe::gather::{Gather, GATHERED_OCTETS};
use weft_uoe::greeting::{Instance, GREETING_LEN};
use weft_uoe::{Carrier, Control, Deframer, Fault, Greeting};

use super::any_order::AnyOrder;
use super::channels::{OwnChannel, PeerChannel, Wanted};
use super::delivering::behind_cost;
use super::rates::rated;
use super::wire::Wire;
use crate::frames::Frames;
use crate::link::{LinkId, Outlet};
use crate::port::Held;

/// How long a connection may take: who does not answer a SYN within it is plain.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a carrier that is closed waits for the other end to have read everything.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the other end's TCP may take nothing, or acknowledge nothing, before the connection is given up: what is
/// sent meanwhile is lost, and without a carrier it goes plainly.
const UNTAKEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phase {
    /// The SYN has no answer; it has to come until then.
    Connecting(Duration),
    /// The other end's greeting is not there yet.
    Greeting,
    Up,
    /// Everything is said; the other end closes, or this one does then.
    Closing(Duration),
    Gone,
}

/// One carrier.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) phase: Phase,
    pub(crate) wire: Wire,
    pub(crate) own: Greeting,
    /// The other end has connected it.
    pub(crate) is_accepted: bool,
    /// Which process it connects to, where that is known.
    pub(crate) connects_to: Option<Instance>,
    /// The socket whose alone it is, and whose rate it has.
    pub(crate) rated: Option<Held>,
    /// Where it connects to without having asked.
    pub(crate) connects_unasked_to: Option<SocketAddr>,
    /// A channel has been proven on it.
    pub(crate) was_used: bool,
    /// Channels that were refused since one was proven.
    pub(crate) refused: u32,
    pub(crate) carrier: Carrier,
    /// Where its frames leave, once it is up.
    pub(crate) link: Option<LinkId>,
    pub(crate) here: SocketAddr,
    /// Where it is for sockets that are bound to another address than the kernel would choose: that one.
    pub(crate) bound: Option<IpAddr>,
    /// The other end's address.
    pub(crate) there: IpAddr,
    /// Of one by the adapter: the host that has said that its adapter has the other end's address.
    pub(crate) host: Option<IpAddr>,
    /// Frames that come in order, once the greetings are there.
    pub(crate) deframer: Option<Deframer>,
    /// Frames that come in any order.
    pub(crate) any_order: Option<AnyOrder>,
    pub(crate) room: Vec<u8>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Taken from the state machine, without room in the stream. Others stay with it, which bounds them.
    pub(crate) unsaid: Option<Control>,
    pub(crate) wants: Vec<Wanted>,
    pub(crate) own_channels: BTreeMap<u16, OwnChannel>,
    pub(crate) peer_channels: BTreeMap<u16, PeerChannel>,
    /// All of these are for one socket.
    pub(crate) is_for_one: bool,
    /// Datagrams that wait for room at their socket; nothing more is read until then.
    pub(crate) held_up: VecDeque<(u16, Vec<u8>)>,
    /// Octets of datagrams that come behind plain ones.
    pub(crate) behind_octets: usize,
    /// The end of this direction was sent.
    is_finished: bool,
    /// Datagrams that the link had sent when the state machine was told last.
    pub(crate) sent_told: u64,
    pub(crate) fault: Option<Fault>,
}

impl Side {
    /// A connection that is begun, for `wanted`.
    pub(crate) fn connecting(
        wire: Wire,
        own: Greeting,
        to: Option<Instance>,
        wanted: Wanted,
        now: Duration,
    ) -> Side {
        let phase = Phase::Connecting(now + CONNECT_TIMEOUT);
        let mut side = Side::new(wire, own, phase, wanted.to, now);
        side.connects_to = to;
        side.rated = rated(wanted.port);
        if side.rated.is_some() {
            side.wire.set_rate(wanted.port.port.rate());
        }
        side.wants.push(wanted);
        side
    }

    /// A connection that was accepted; nothing where it is gone already.
    pub(crate) fn accepted(mut wire: Wire, own: Greeting, now: Duration) -> Option<Side> {
        let peer = wire.peer_addr()?;
        let here = wire.local_addr()?;
        let mut side = Side::new(wire, own, Phase::Greeting, peer, now);
        (side.here, side.is_accepted) = (here, true);
        side.greet().then_some(side)
    }

    fn new(wire: Wire, own: Greeting, phase: Phase, peer: SocketAddr, now: Duration) -> Side {
        Side {
            phase,
            wire,
            own,
            is_accepted: false,
            connects_to: None,
            rated: None,
            connects_unasked_to: None,
            was_used: false,
            refused: 0,
            carrier: Carrier::new(own, peer.ip(), now),
            link: None,
            here: peer,
            bound: None,
            there: peer.ip().to_canonical(),
            host: None,
            deframer: None,
            any_order: None,
            room: Vec::new(),
            start: 0,
            end: 0,
            unsaid: None,
            wants: Vec::new(),
            own_channels: BTreeMap::new(),
            peer_channels: BTreeMap::new(),
            is_for_one: true,
            held_up: VecDeque::new(),
            behind_octets: 0,
            is_finished: false,
            sent_told: 0,
            fault: None,
        }
    }

    /// The number to wait for, and what for.
    pub(crate) fn waits_for(&self) -> (RawFd, Interest) {
        let is_stuck = !self.held_up.is_empty();
        match self.phase {
            Phase::Connecting(_) => (self.wire.number(), Interest::Write),
            // What waits for room at a socket is looked at again when the program has taken something.
            _ if is_stuck => (-1, Interest::Read),
            _ => (self.wire.number(), Interest::Read),
        }
    }

    /// Whether something is there that no number shows.
    pub(crate) fn is_readable(&self) -> bool {
        let is_untold = self.any_order.as_ref().is_some_and(AnyOrder::is_untold);
        self.held_up.is_empty() && (is_untold || self.wire.is_readable())
    }

    /// Whether something is to be looked at soon that wakes nobody.
    pub(crate) fn needs_tick(&self) -> bool {
        let is_opening = |channel: &OwnChannel| !channel.is_open;
        let is_ending = matches!(self.phase, Phase::Closing(_)) && !self.is_finished;
        !self.held_up.is_empty()
            || is_ending
            || self.unsaid.is_some()
            || !self.wants.is_empty() && self.is_up()
            || self.own_channels.values().any(is_opening)
            || self
                .peer_channels
                .values()
                .any(|channel| !channel.behind.is_empty() || channel.barrier.is_some())
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Connecting(until) | Phase::Closing(until) => Some(until),
            Phase::Greeting | Phase::Up => {
                // What waits for room at a socket is read no further until then.
                let any_order = self.any_order.as_ref().filter(|_| self.held_up.is_empty());
                let any_order = any_order.and_then(AnyOrder::deadline);
                self.carrier.deadline().into_iter().chain(any_order).min()
            }
            Phase::Gone => None,
        }
    }

    /// Whether nobody has answered at the other end yet.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_))
    }

    /// Since when nobody has answered at the other end.
    pub(crate) fn connecting_since(&self) -> Option<Duration> {
        match self.phase {
            Phase::Connecting(until) => Some(until - CONNECT_TIMEOUT),
            _ => None,
        }
    }

    /// Whether channels may be opened now.
    pub(crate) fn is_up(&self) -> bool {
        self.phase == Phase::Up && self.carrier.is_up()
    }

    /// Whether channels may be opened now or soon.
    pub(crate) fn is_usable(&self) -> bool {
        match self.phase {
            Phase::Connecting(_) | Phase::Greeting => true,
            Phase::Up => self.carrier.is_up(),
            Phase::Closing(_) | Phase::Gone => false,
        }
    }

    /// A channel of the other end's begins.
    pub(crate) fn add_peer_channel(&mut self, number: u16, channel: PeerChannel) {
        self.peer_channels.insert(number, channel);
        self.count_sockets();
    }

    /// A channel of the other end's is over; what of it waits behind a mark is lost.
    pub(crate) fn remove_peer_channel(&mut self, number: u16) -> Option<PeerChannel> {
        let channel = self.peer_channels.remove(&number)?;
        let costs = channel.behind.iter().map(|octets| behind_cost(octets));
        self.behind_octets -= costs.sum::<usize>();
        self.count_sockets();
        self.set_age();
        Some(channel)
    }

    fn count_sockets(&mut self) {
        let mut ports = self.peer_channels.values().map(|channel| channel.port);
        let first = ports.next();
        self.is_for_one = ports.all(|port| Some(port) == first);
    }

    /// Channels of the other end's that are not proven yet.
    pub(crate) fn unproven_channels(&self) -> usize {
        let channels = self.peer_channels.values();
        channels.filter(|channel| channel.source.is_none()).count()
    }

    /// Whether it was accepted from somebody who has proven nothing.
    pub(crate) fn is_strange(&self) -> bool {
        self.is_accepted && !self.was_used
    }

    pub(crate) fn has_channel(&self, wanted: &Wanted) -> bool {
        let mut own = self.own_channels.values();
        own.any(|channel| channel.wanted == *wanted)
    }

    pub(crate) fn generation(&self) -> u32 {
        self.link.map_or(0, |link| link.generation)
    }

    /// Whether a socket that is connected is woken in time: by its peer, which is told by the carrier that something
    /// waits, and sends a datagram. Meanwhile more comes, and of what comes in a long round trip a queue holds a part.
    pub(crate) fn rings_soon_enough(&mut self) -> bool {
        const WITHIN: Duration = Duration::from_millis(2);
        let round_trip = self.wire.round_trip();
        !self.is_without_udp() && round_trip.is_some_and(|time| time <= WITHIN)
    }

    /// Whether the other end hears what is said, as it does on a carrier that takes no more channels and has some.
    pub(crate) fn is_heard(&self) -> bool {
        self.phase == Phase::Up
    }

    /// The other end is asked for a bell.
    pub(crate) fn ring(&mut self, channel: u16, now: Duration) {
        self.carrier.ring(channel, now);
    }

    /// Sends what is said first; false if the connection is gone.
    fn greet(&mut self) -> bool {
        let octets = self.own.to_octets();
        let sent = self.wire.send(&octets);
        // A connection that has sent nothing has room for it.
        matches!(sent, Some(Transfer::Octets(GREETING_LEN)))
    }

    /// The SYN was answered, or will not be, as far as it shows yet.
    pub(crate) fn handle_connected(&mut self, now: Duration) {
        let Some(result) = self.wire.connect_result() else {
            return;
        };
        let here = result.ok().and_then(|()| self.wire.local_addr());
        let Some(here) = here else {
            self.phase = Phase::Gone;
            return;
        };
        self.here = here;
        let address = self
            .wants
            .first()
            .map_or(here.ip(), |wanted| wanted.to.ip());
        self.carrier = Carrier::new(self.own, address, now);
        self.phase = match self.greet() {
            true => Phase::Greeting,
            false => Phase::Gone,
        };
    }

    /// The greetings are there: gives what frames are put into, and where those leave for who sends them.
    pub(crate) fn begin(
        &mut self,
        peer: Greeting,
        now: Duration,
    ) -> Option<(Gather<Vec<u8>>, Outlet)> {
        self.carrier.handle_greeting(peer, now);
        let (to_peer, from_peer) = self.carrier.keys()?;
        let offset = GREETING_LEN as u64;
        self.wire.keep_after_close(UNTAKEN_TIMEOUT);
        let outlet = match &mut self.wire {
            Wire::Kernel(stream) => {
                self.deframer = Some(Deframer::new(from_peer, offset));
                Outlet::Kernel(Guarded::new(stream.get()?.second().ok()?))
            }
            // Both ends of such a connection are adapters.
            Wire::Adapter(_) if !peer.takes_any_order => return None,
            Wire::Adapter(connection) => {
                self.any_order = AnyOrder::begin(&**connection, from_peer).ok();
                self.any_order.as_ref()?;
                if peer.wants_times {
                    connection.peer_forgives();
                }
                // Only the greeting was read into it.
                (self.room, self.start, self.end) = (Vec::new(), 0, 0);
                Outlet::Thread(Frames::new(connection.emss().ok()?, peer.wants_times))
            }
        };
        self.phase = Phase::Up;
        // The longest datagram fits behind what gathers otherwise.
        let memory = vec![0; GATHERED_OCTETS];
        let gather = Gather::new(memory, to_peer, offset);
        Some(match self.any_order {
            Some(_) => (gather.counting(), outlet),
            None => (gather, outlet),
        })
    }

    /// Nothing more is to be said: the connection is closed when the other end has read everything.
    pub(crate) fn finish(&mut self, now: Duration) {
        self.phase = Phase::Closing(now + CLOSE_TIMEOUT);
    }

    /// Ends this direction where everything has left.
    pub(crate) fn send_end(&mut self) {
        if !matches!(self.phase, Phase::Closing(_)) || self.is_finished {
            return;
        }
        self.wire.finish();
        self.is_finished = true;
    }

    /// Ends it, in order where it is up.
    pub(crate) fn shut(&mut self, why: Why, now: Duration) {
        match self.phase {
            Phase::Up => self.carrier.shut(why, now),
            Phase::Closing(_) => {}
            _ => self.phase = Phase::Gone,
        }
    }

    /// Whether it has taken too long.
    pub(crate) fn is_late(&self, now: Duration) -> bool {
        match self.phase {
            Phase::Connecting(until) | Phase::Closing(until) => now >= until,
            _ => false,
        }
    }
}

const _: () = assert!(GREETING_TIMEOUT.as_secs() < CONNECT_TIMEOUT.as_secs());
