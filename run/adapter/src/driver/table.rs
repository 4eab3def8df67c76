//! What the driver keeps of each connection beside the stack: octets on both ways, and who waits for what.

use std::io;
use std::net::SocketAddr;

use weft_engine::carrier::{Arrived, Done, Interest, Readiness, Transfer};
use weft_engine::stats::PathRow;
use weft_inet::tcp::connection::Reason;
use weft_inet::tcp::receive_buffer::ReceiveBuffer;
use weft_inet::tcp::{ConnectionId, Placement, Tuple};

use super::datagrams::Inboxes;
use super::outgoing::Outgoing;

/// Octets that a connection takes to send before the peer has acknowledged any, where it is one of few: what the window
/// of a peer that places behind holes comes to (four times the ring of its interface).
pub(super) const SEND_OCTETS_MAX: u64 = 64 << 20;
/// A sender that found no room is told when there is so much again.
const ROOM_TOLD_OCTETS_MIN: u64 = 256 << 10;

/// A place in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key(usize);

/// Who waits for something, and for what.
#[derive(Debug, Default)]
pub(super) struct Waiter(Option<(Interest, Readiness)>);

impl Waiter {
    pub fn set(&mut self, interest: Interest, readiness: &Readiness) {
        self.0 = Some((interest, readiness.clone()));
    }

    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Says what is there, if it is waited for.
    pub fn tell(&self, readable: bool, writable: bool) {
        if let Some((interest, readiness)) = &self.0 {
            let writes = interest.writes() && writable;
            if writes || (interest.reads() && readable) {
                readiness.set(writes);
            }
        }
    }

    /// Says that there is news, whatever is waited for.
    pub fn tell_anyway(&self, writable: bool) {
        if let Some((interest, readiness)) = &self.0 {
            readiness.set(interest.writes() && writable);
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closed {
    /// As TCP has it.
    Because(Reason),
    /// Its interface is gone.
    NoDevice,
    /// Memory that was to be sent is not mapped any more.
    NoMemory,
}

impl Closed {
    pub fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Closed::Because(Reason::Refused) => libc::ECONNREFUSED,
            Closed::Because(Reason::TimedOut) => libc::ETIMEDOUT,
            Closed::Because(Reason::Finished) => libc::EPIPE,
            Closed::Because(Reason::Reset | Reason::Aborted) => libc::ECONNRESET,
            Closed::NoDevice => libc::ENETDOWN,
            Closed::NoMemory => libc::EFAULT,
        })
    }
}

/// Octets that arrived and were not taken.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Put in order, for who takes them so.
    Ordered(ReceiveBuffer),
    /// As they came, for who places them.
    Pieces(Arrived),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Conn {
    /// In the stack, as long as it is there.
    pub id: Option<ConnectionId>,
    pub ends: Tuple,
    pub incoming: Incoming,
    /// Of what it handed over as pieces.
    pub done: Done,
    /// Where it tells of its path.
    pub row: Option<PathRow>,
    /// The largest window that the program wants; 0 for any.
    pub window_max: usize,
    /// Offset in the stream behind the last octet that arrived in order.
    pub delivered: u64,
    pub outgoing: Outgoing,
    pub waiter: Waiter,
    pub connected: bool,
    /// The peer sends no more behind what was delivered.
    pub peer_finished: bool,
    /// This end sends no more.
    pub finished: bool,
    pub closed: Option<Closed>,
    /// A carrier has it. Without one it goes when the stack is done with it.
    pub owned: bool,
    /// A queue pair has it: it has a share in what windows promise.
    pub attached: bool,
    /// A sender found no room.
    pub full: bool,
    /// Octets of a full segment, when it was looked at last.
    pub mss: u32,
    /// That was told.
    pub mss_told: u32,
}

impl Conn {
    pub fn new(id: ConnectionId, ends: Tuple, window: usize) -> Conn {
        Conn {
            id: Some(id),
            ends,
            incoming: Incoming::Ordered(ReceiveBuffer::new(window)),
            done: Done::default(),
            row: None,
            window_max: 0,
            delivered: 0,
            outgoing: Outgoing::default(),
            waiter: Waiter::default(),
            connected: false,
            peer_finished: false,
            finished: false,
            closed: None,
            owned: false,
            attached: false,
            full: false,
            mss: 0,
            mss_told: 0,
        }
    }

    /// Octets that may be taken to send, where `most` may wait for their acknowledgement.
    pub fn room(&self, acknowledged: u64, most: u64) -> usize {
        most.saturating_sub(self.outgoing.end() - acknowledged) as usize
    }

    pub fn is_readable(&self) -> bool {
        let any = match &self.incoming {
            Incoming::Ordered(buffer) => buffer.readable(self.delivered) > 0,
            Incoming::Pieces(arrived) => !arrived.is_empty(),
        };
        any || self.peer_finished || self.closed.is_some()
    }

    /// What is said to who wants octets where none is left.
    pub fn none_left(&self) -> Transfer {
        match self.closed {
            _ if self.peer_finished => Transfer::End,
            Some(Closed::Because(Reason::Finished)) => Transfer::End,
            Some(closed) => Transfer::Failed(closed.error()),
            None => Transfer::WouldBlock,
        }
    }

    pub fn is_writable(&self, acknowledged: u64, most: u64) -> bool {
        self.closed.is_some()
            || (self.connected && self.room(acknowledged, most) as u64 >= ROOM_TOLD_OCTETS_MIN)
    }

    /// Both directions are over.
    pub fn is_broken(&self) -> bool {
        self.closed.is_some() || (self.peer_finished && self.finished)
    }
}

/// All connections of a driver.
#[derive(Debug, Default)]
pub(super) struct Table {
    places: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// By the stack's places.
    by_slot: Vec<Option<(ConnectionId, Key)>>,
    /// Octets that an incoming connection's buffer may come to.
    pub window: usize,
    /// Datagrams that arrived, by port.
    pub inboxes: Inboxes,
    /// The connection that whoever holds the lock is about to look at: it need not be told of.
    pub at: Option<Key>,
}

impl Table {
    pub fn insert(&mut self, conn: Conn) -> Key {
        let key = Key(self.free.pop().unwrap_or(self.places.len()));
        if let Some(id) = conn.id {
            let slot = id.slot();
            if self.by_slot.len() <= slot {
                self.by_slot.resize(slot + 1, None);
            }
            self.by_slot[slot] = Some((id, key));
        }
        match self.places.get_mut(key.0) {
            Some(place) => *place = Some(conn),
            None => self.places.push(Some(conn)),
        }
        key
    }

    pub fn remove(&mut self, key: Key) {
        if let Some(conn) = self.places.get_mut(key.0).and_then(Option::take) {
            self.forget(conn.id);
            self.free.push(key.0);
        }
    }

    /// The stack has the connection no more, and may give its place to another.
    pub fn forget(&mut self, id: Option<ConnectionId>) {
        let Some(id) = id else {
            return;
        };
        if let Some(place) = self.by_slot.get_mut(id.slot()) {
            if place.is_some_and(|(of, _)| of == id) {
                *place = None;
            }
        }
    }

    #[inline]
    pub fn find(&self, id: ConnectionId) -> Option<Key> {
        let place = self.by_slot.get(id.slot()).copied().flatten();
        place.filter(|(of, _)| *of == id).map(|(_, key)| key)
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&Conn> {
        self.places.get(key.0)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Conn> {
        self.places.get_mut(key.0)?.as_mut()
    }

    pub fn conns(&self) -> impl Iterator<Item = &Conn> + '_ {
        self.places.iter().flatten()
    }

    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let taken = self.places.iter().enumerate();
        taken
            .filter(|(_, place)| place.is_some())
            .map(|(at, _)| Key(at))
    }
}

/// Octets that arrive wait at their connection, datagrams at their port.
impl weft_inet::stack::Sink for Table {
    fn place(&mut self, connection: ConnectionId, placement: &Placement, payload: &[u8]) {
        let key = match self.find(connection) {
            Some(key) => key,
            // The segment that ended its handshake brought octets; who it is the event says that follows.
            None => {
                let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
                let ends = Tuple {
                    local: nowhere,
                    remote: nowhere,
                };
                self.insert(Conn::new(connection, ends, self.window))
            }
        };
        let is_served = self.at == Some(key);
        let Some(conn) = self.get_mut(key) else {
            return;
        };
        match &mut conn.incoming {
            Incoming::Ordered(buffer) => buffer.place(placement, payload),
            Incoming::Pieces(arrived) => {
                // Behind a hole nothing is delivered, and no event says that it came.
                let is_news = arrived.is_empty() && !is_served;
                arrived.push(placement.offset, &payload[placement.octets.clone()]);
                if is_news {
                    conn.waiter.tell(true, false);
                }
            }
        }
    }

    fn datagram(&mut self, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        self.inboxes.push(local, remote, payload);
    }

    fn refused(&mut self, local: SocketAddr, remote: SocketAddr) {
        self.inboxes.refuse(local, remote);
    }
}
