//! A connection in memory and its two ends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::octets::Octets;
use super::{error, Held};
use crate::carrier::{Carrier, Gather, Interest, Readiness, Registered, Scatter, Source, Transfer};

/// Octets that a direction takes before somebody reads them: as many as the kernel's TCP comes to on loopback.
pub const ROOM: usize = 8 << 20;
/// Payload of a segment, as a veth pair with jumbo frames has it.
const EMSS_OCTETS: usize = 8948;

const ECONNRESET: i32 = 104;
const ENOTCONN: i32 = 107;
const EPIPE: i32 = 32;
const EFAULT: i32 = 14;

/// Who waits for something, and for what.
#[derive(Debug, Default)]
pub(super) struct Wakeups(Option<(Interest, Readiness)>);

impl Wakeups {
    pub(super) fn set(&mut self, interest: Interest, readiness: &Readiness) {
        self.0 = Some((interest, readiness.clone()));
    }

    pub(super) fn tell(&self, readable: bool, writable: bool) {
        let Some((interest, readiness)) = &self.0 else {
            return;
        };
        let (reads, writes) = (interest.reads() && readable, interest.writes() && writable);
        if reads || writes {
            readiness.set(writes);
        }
    }

    /// Whatever it waits for.
    fn tell_anyway(&self) {
        if let Some((_, readiness)) = &self.0 {
            readiness.set(false);
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    octets: Octets,
    /// Nothing more will be written.
    finished: bool,
}

/// A connection: what is on its way to each end, and who waits there.
#[derive(Debug)]
pub(super) struct Connection {
    /// Registered memory is referred to until it is received.
    by_reference: bool,
    towards: [Direction; 2],
    wakeups: [Wakeups; 2],
    addresses: [SocketAddr; 2],
    reset: bool,
    /// Ends that are closed.
    gone: [bool; 2],
    emss: usize,
    /// Ends that have not been told of this EMSS_OCTETS.
    emss_is_new: [bool; 2],
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    connection: Arc<Mutex<Connection>>,
    side: usize,
    abort: Mutex<bool>,
    /// The port is given back with the end that made the connection.
    _port: Option<Held>,
}

impl End {
    /// One of the two; `port` is given back with it.
    pub(super) fn new(connection: &Arc<Mutex<Connection>>, side: usize, port: Option<Held>) -> End {
        End {
            connection: connection.clone(),
            side,
            abort: Mutex::new(false),
            _port: port,
        }
    }
}

impl Connection {
    /// End 0 is the one that connects.
    pub(super) fn between(
        local: SocketAddr,
        peer: SocketAddr,
        by_reference: bool,
    ) -> Arc<Mutex<Connection>> {
        Arc::new(Mutex::new(Connection {
            by_reference,
            towards: Default::default(),
            wakeups: Default::default(),
            addresses: [local, peer],
            reset: false,
            gone: [false; 2],
            emss: EMSS_OCTETS,
            emss_is_new: [false; 2],
        }))
    }

    pub(super) fn set_emss(&mut self, emss: usize) {
        self.emss = emss;
        self.emss_is_new = [true; 2];
        for wakeups in &self.wakeups {
            wakeups.tell_anyway();
        }
    }

    /// Memory that is gone cannot be sent: the connection is cut.
    pub(super) fn keep_copies(&mut self, of: Option<&Registered>) {
        for side in [0, 1] {
            let octets = &mut self.towards[side].octets;
            let unreleased = octets.unreleased();
            self.reset |= octets.copy(of).is_err();
            if self.reset || self.towards[side].octets.unreleased() < unreleased {
                self.wakeups[self.other(side)].tell_anyway();
            }
        }
    }

    /// The end that receives what this one sends.
    fn other(&self, side: usize) -> usize {
        match self.addresses[0] == self.addresses[1] {
            true => side,
            false => 1 - side,
        }
    }

    fn is_readable(&self, side: usize) -> bool {
        let towards = &self.towards[side];
        towards.octets.len() > 0 || towards.finished || self.reset
    }

    fn is_writable(&self, side: usize) -> bool {
        self.reset || self.towards[self.other(side)].octets.len() < ROOM
    }

    fn tell(&self, side: usize) {
        self.wakeups[side].tell(self.is_readable(side), self.is_writable(side));
    }

    fn tell_both(&self) {
        self.tell(0);
        self.tell(1);
    }

    /// Octets that one end may write now.
    fn room(&self, side: usize) -> Result<usize, Transfer> {
        let towards = &self.towards[self.other(side)];
        if self.reset {
            return Err(Transfer::Failed(error(ECONNRESET)));
        }
        if towards.finished {
            return Err(Transfer::Failed(error(EPIPE)));
        }
        match ROOM.saturating_sub(towards.octets.len()) {
            0 => Err(Transfer::WouldBlock),
            room => Ok(room),
        }
    }

    /// What is there for one end to read. A reset takes back nothing of what arrived before it, as in Linux.
    fn arrived(&mut self, side: usize, most: usize) -> Result<Vec<u8>, Transfer> {
        let towards = &mut self.towards[side];
        match (towards.octets.len(), towards.finished) {
            (0, _) if self.reset => return Err(Transfer::Failed(error(ECONNRESET))),
            (0, true) => return Err(Transfer::End),
            (0, false) => return Err(Transfer::WouldBlock),
            _ => {}
        }
        let unreleased = towards.octets.unreleased();
        let Ok(octets) = towards.octets.take(most) else {
            self.reset = true;
            self.tell_both();
            return Err(Transfer::Failed(error(ECONNRESET)));
        };
        if self.towards[side].octets.unreleased() < unreleased {
            self.wakeups[self.other(side)].tell_anyway();
        }
        self.tell_both();
        Ok(octets)
    }

    /// The transport takes octets from one end: `append` puts them on their way, as many as there is room for.
    fn take_from(
        &mut self,
        side: usize,
        append: impl FnOnce(&mut Octets, usize) -> usize,
    ) -> Transfer {
        let room = match self.room(side) {
            Ok(room) => room,
            Err(outcome) => return outcome,
        };
        let to = self.other(side);
        if !self.gone[to] {
            let taken = append(&mut self.towards[to].octets, room);
            self.tell(to);
            return Transfer::Octets(taken);
        }
        // A closed end answers what comes with a reset; the sender's transport has taken it all the same.
        let taken = append(&mut Octets::default(), room);
        self.reset = true;
        self.tell_both();
        Transfer::Octets(taken)
    }
}

impl Source for End {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait_for(&self, interest: Interest, readiness: &Readiness) {
        let mut connection = self.connection.lock();
        connection.wakeups[self.side].set(interest, readiness);
        connection.tell(self.side);
    }
}

impl Carrier for End {
    fn is_connected(&self) -> bool {
        true
    }

    fn connect_result(&self) -> io::Result<()> {
        Ok(())
    }

    fn send(&self, octets: &[u8]) -> Transfer {
        self.connection.lock().take_from(self.side, |queue, room| {
            let taken = octets.len().min(room);
            queue.push(&octets[..taken]);
            taken
        })
    }

    fn send_gather(&self, list: &Gather<'_>) -> Transfer {
        let mut connection = self.connection.lock();
        if connection.by_reference {
            return connection
                .take_from(self.side, |queue, room| queue.push_by_reference(list, room));
        }
        let mut octets = Vec::new();
        if list.append_to(ROOM, &mut octets).is_err() {
            return Transfer::Failed(error(EFAULT));
        }
        drop(connection);
        self.send(&octets)
    }

    fn unreleased(&self) -> usize {
        let connection = self.connection.lock();
        connection.towards[connection.other(self.side)]
            .octets
            .unreleased()
    }

    fn keep_copies(&self) {
        self.connection.lock().keep_copies(None);
    }

    fn recv(&self, buffer: &mut [u8]) -> Transfer {
        let mut connection = self.connection.lock();
        match connection.arrived(self.side, buffer.len()) {
            Ok(octets) => {
                buffer[..octets.len()].copy_from_slice(&octets);
                Transfer::Octets(octets.len())
            }
            Err(outcome) => outcome,
        }
    }

    fn recv_scatter(&self, list: &Scatter<'_>) -> Transfer {
        let mut connection = self.connection.lock();
        match connection.arrived(self.side, list.octets()) {
            Ok(octets) => match list.fill(&octets) {
                Ok(placed) => Transfer::Octets(placed),
                Err(_) => Transfer::Failed(error(EFAULT)),
            },
            Err(outcome) => outcome,
        }
    }

    fn finish(&self) {
        let mut connection = self.connection.lock();
        let to = connection.other(self.side);
        connection.towards[to].finished = true;
        connection.tell_both();
    }

    fn is_broken(&self) -> bool {
        let connection = self.connection.lock();
        let both = connection.towards.iter().all(|towards| towards.finished);
        connection.reset || both
    }

    fn abort_on_close(&self) {
        *self.abort.lock() = true;
    }

    fn keep_after_close(&self, _time: Duration) {
        // The other end has everything already.
    }

    fn emss(&self) -> io::Result<usize> {
        Ok(self.connection.lock().emss)
    }

    fn take_new_emss(&self) -> Option<usize> {
        let mut connection = self.connection.lock();
        let is_new = std::mem::take(&mut connection.emss_is_new[self.side]);
        is_new.then_some(connection.emss)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.connection.lock().addresses[self.side])
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        let connection = self.connection.lock();
        match connection.reset {
            true => Err(error(ENOTCONN)),
            false => Ok(connection.addresses[1 - self.side]),
        }
    }
}

impl Drop for End {
    /// As the kernel closes a socket: a reset where that was asked for or something was not read, else the end of the
    /// stream.
    fn drop(&mut self) {
        let mut connection = self.connection.lock();
        connection.wakeups[self.side] = Wakeups::default();
        connection.keep_copies(None);
        let unread = connection.towards[self.side].octets.len() > 0;
        connection.reset |= *self.abort.lock() || unread;
        connection.gone[self.side] = true;
        let to = connection.other(self.side);
        connection.towards[to].finished = true;
        connection.tell_both();
    }
}
