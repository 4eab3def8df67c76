//! What carriers and listeners ask of a driver.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weft_engine::carrier::{Gather, Interest, Readiness, Registered, SocketOptions, Transfer};
use weft_engine::settings::transport::Direction;
use weft_inet::stack::ListenError;
use weft_inet::tcp::{Backlog, ConnectError, Connection, Tuple};
use weft_os::mem::Unmapped;

use super::copies::Pool;
use super::outgoing::Outgoing;
use super::ports::{Holder, Queue};
use super::state::State;
use super::table::{Closed, Conn, Key};

/// Segments at the end of what is taken that are copied: a peer may hold back the acknowledgement of the last one for
/// 40 ms, and a message is complete when its memory is the program's again.
const SEGMENTS_COPIED: usize = 2;

pub(super) fn failed(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl State {
    // --- addresses

    /// Holds an address; port 0 takes a free one. With `v6_only` all addresses of IPv6 are those alone.
    pub fn bind(&mut self, addr: SocketAddr, v6_only: bool) -> io::Result<(Holder, SocketAddr)> {
        self.check_is_ours(addr.ip())?;
        let held = self.ports.hold(addr, v6_only);
        held.ok_or(failed(libc::EADDRINUSE))
    }

    /// An address may be held here.
    pub(super) fn check_is_ours(&self, address: IpAddr) -> io::Result<()> {
        let ours = self.stack.addresses().any(|(own, _)| own == address);
        match ours || address.is_unspecified() {
            true => Ok(()),
            false => Err(failed(libc::EADDRNOTAVAIL)),
        }
    }

    /// Lets go of an address; who listened there does no longer.
    pub fn release(&mut self, holder: Holder) {
        if let Some(queue) = self.ports.release(holder) {
            for local in queue.locals {
                self.stack.unlisten(local);
            }
            let now = self.now();
            self.turn(now);
        }
    }

    /// Begins to listen at an address that is held.
    pub fn listen(
        &mut self,
        holder: Holder,
        local: SocketAddr,
        v6_only: bool,
        backlog: i32,
    ) -> io::Result<()> {
        let all_ipv6 = v6_only && local.ip().is_unspecified();
        let locals: Vec<SocketAddr> = match all_ipv6 {
            // The stack's wildcard of IPv6 takes both versions.
            true => self
                .stack
                .addresses()
                .filter(|(own, _)| own.is_ipv6())
                .map(|(own, _)| SocketAddr::new(own, local.port()))
                .collect(),
            false => vec![local],
        };
        let backlog = Backlog::new(backlog.max(1) as usize);
        for (done, local) in locals.iter().enumerate() {
            let config = self.config();
            let listened = self.stack.listen(*local, config, backlog);
            if let Err(error) = listened {
                locals[..done]
                    .iter()
                    .for_each(|at| self.stack.unlisten(*at));
                return Err(failed(match error {
                    ListenError::InUse => libc::EADDRINUSE,
                    ListenError::NotOurs => libc::EADDRNOTAVAIL,
                }));
            }
        }
        let queue = Queue {
            locals,
            ..Queue::default()
        };
        self.ports.queues.insert(holder, queue);
        Ok(())
    }

    /// The next connection of a listener.
    pub fn accept(&mut self, holder: Holder) -> Option<(Key, Tuple)> {
        let queue = self.ports.queues.get_mut(&holder)?;
        let key = queue.waiting.pop_front()?;
        queue.waiter.tell(!queue.waiting.is_empty(), false);
        let conn = self.table.get_mut(key)?;
        conn.owned = true;
        if let Some(id) = conn.id {
            self.stack.accept(id);
        }
        Some((key, conn.ends))
    }

    /// Whether a connection waits to be accepted.
    pub fn has_waiting(&self, holder: Holder) -> bool {
        let queue = self.ports.queues.get(&holder);
        queue.is_some_and(|queue| !queue.waiting.is_empty())
    }

    /// Who listens is told by `readiness` of connections, as long as it wants to hear of them: one that has no place
    /// for another pauses, and would be told of the same connection again and again.
    pub fn wait_for_connections(
        &mut self,
        holder: Holder,
        interest: Interest,
        readiness: &Readiness,
    ) {
        if let Some(queue) = self.ports.queues.get_mut(&holder) {
            queue.waiter.set(interest, readiness);
            queue.waiter.tell(!queue.waiting.is_empty(), false);
        }
    }

    // --- connections

    /// Begins to connect; the stack chooses the address and the port where they are unspecified.
    pub fn connect(
        &mut self,
        local: SocketAddr,
        peer: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<(Key, Tuple)> {
        if self.is_gone() {
            return Err(failed(libc::ENETDOWN));
        }
        let now = self.now();
        let mut config = self.config();
        config.timestamps &= !options.without_timestamps;
        let id = self
            .stack
            .connect_from(local, peer, config, now)
            .map_err(|error| {
                failed(match error {
                    ConnectError::InUse => libc::EADDRINUSE,
                    ConnectError::NotOurs | ConnectError::NoPort => libc::EADDRNOTAVAIL,
                    ConnectError::NoRoute => libc::ENETUNREACH,
                    ConnectError::Full => libc::ENOBUFS,
                })
            })?;
        let tcp = self.stack.tcp();
        let ends = tcp.tuple(id).ok_or(failed(libc::ENOBUFS))?;
        self.follow_rules(id, &ends, Direction::Connect);
        let tcp = self.stack.tcp();
        let mut conn = Conn::new(id, ends, self.table.window);
        conn.owned = true;
        conn.window_max = options.buffer;
        conn.mss = tcp.get(id).map_or(0, Connection::mss);
        let key = self.table.insert(conn);
        self.set_window(key);
        self.turn(now);
        Ok((key, ends))
    }

    /// Whether the connect is over, and well.
    pub fn is_connected(&self, key: Key) -> bool {
        let conn = self.table.get(key);
        conn.is_some_and(|conn| conn.connected && conn.closed.is_none())
    }

    /// Why the connection is over, if it is.
    pub fn error(&self, key: Key) -> Option<io::Error> {
        self.table.get(key)?.closed.map(Closed::error)
    }

    /// Both directions are over.
    pub fn is_broken(&self, key: Key) -> bool {
        self.table.get(key).is_none_or(Conn::is_broken)
    }

    /// Octets of a full segment.
    pub fn emss(&self, key: Key) -> usize {
        self.table.get(key).map_or(0, |conn| conn.mss as usize)
    }

    /// The same where it has changed since it was asked last.
    pub fn take_new_emss(&mut self, key: Key) -> Option<usize> {
        let conn = self.table.get_mut(key)?;
        let changed = conn.connected && conn.mss != conn.mss_told && conn.mss > 0;
        conn.mss_told = conn.mss;
        changed.then_some(conn.mss as usize)
    }

    /// What is waited for from now on, and who is told.
    pub fn wait_for(&mut self, key: Key, interest: Interest, readiness: &Readiness) {
        let (acknowledged, most) = (self.acknowledged(key), self.send_octets_max());
        if let Some(conn) = self.table.get_mut(key) {
            conn.waiter.set(interest, readiness);
            match conn.closed {
                Some(_) => conn.waiter.tell_anyway(true),
                None => conn
                    .waiter
                    .tell(conn.is_readable(), conn.is_writable(acknowledged, most)),
            }
        }
    }

    fn acknowledged(&self, key: Key) -> u64 {
        let id = self.table.get(key).and_then(|conn| conn.id);
        id.and_then(|id| self.stack.tcp().get(id))
            .map_or(0, Connection::acknowledged)
    }

    /// Takes octets to send.
    pub fn send(&mut self, key: Key, octets: &[u8]) -> Transfer {
        self.take(key, octets.len(), &[], |outgoing, pool, room, _| {
            let taken = octets.len().min(room);
            outgoing.push(&octets[..taken], pool);
            Ok(taken)
        })
    }

    /// Takes a list to send; of registered memory by reference what is not at its end.
    pub fn send_list(&mut self, key: Key, list: &Gather<'_>) -> Transfer {
        self.take(
            key,
            list.octets(),
            list.cuts(),
            |outgoing, pool, room, copied| outgoing.push_list(list, room, copied, pool),
        )
    }

    /// Appends what `add` takes of so many `offered` octets, within the room there is; segments end at the `cuts`.
    fn take(
        &mut self,
        key: Key,
        offered: usize,
        cuts: &[usize],
        add: impl FnOnce(&mut Outgoing, &mut Pool, usize, usize) -> Result<usize, Unmapped>,
    ) -> Transfer {
        let (acknowledged, most) = (self.acknowledged(key), self.send_octets_max());
        let Some(conn) = self.table.get_mut(key) else {
            return Transfer::Failed(failed(libc::ECONNRESET));
        };
        let id = match (conn.closed, conn.id) {
            (None, Some(id)) if !conn.finished => id,
            (Some(closed), _) => return Transfer::Failed(closed.error()),
            _ => return Transfer::Failed(failed(libc::EPIPE)),
        };
        let room = conn.room(acknowledged, most);
        if room == 0 {
            conn.full = true;
            return Transfer::WouldBlock;
        }
        let copied = SEGMENTS_COPIED * conn.mss as usize;
        let Ok(taken) = add(&mut conn.outgoing, &mut self.pool, room, copied) else {
            return Transfer::Failed(failed(libc::EFAULT));
        };
        // Whoever had less taken than offered waits to be told, also where it was unmapped memory that ended it.
        conn.full = taken == room || taken < offered;
        self.stack.command(id, |connection| {
            let mut from = 0;
            for cut in cuts.iter().take_while(|cut| **cut <= taken) {
                connection.write((cut - from) as u64);
                connection.cut();
                from = *cut;
            }
            connection.write((taken - from) as u64)
        });
        let now = self.now();
        self.turn(now);
        Transfer::Octets(taken)
    }

    /// Octets from the first that it has no copy of to the end of what was taken.
    pub fn unreleased(&self, key: Key) -> usize {
        let conn = self.table.get(key);
        conn.map_or(0, |conn| conn.outgoing.unreleased())
    }

    /// Octets that were taken and not sent yet.
    pub fn unsent(&self, key: Key) -> usize {
        let id = self.table.get(key).and_then(|conn| conn.id);
        let connection = id.and_then(|id| self.stack.tcp().get(id));
        connection.map_or(0, |connection| connection.unsent() as usize)
    }

    /// Copies what a connection refers to: all of it, or that of `memory` alone. A connection whose memory is gone
    /// ends.
    pub fn copy(&mut self, key: Key, memory: Option<&Registered>) {
        let Some(conn) = self.table.get_mut(key) else {
            return;
        };
        match conn.outgoing.copy(memory) {
            Ok(false) => {}
            Ok(true) => conn.waiter.tell_anyway(false),
            Err(Unmapped) => {
                self.abort(key, Closed::NoMemory);
                let now = self.now();
                self.turn(now);
            }
        }
    }

    /// Copies what any connection refers to of some memory.
    pub fn copy_all(&mut self, memory: &Registered) {
        let keys: Vec<Key> = self.table.keys().collect();
        for key in keys {
            self.copy(key, Some(memory));
        }
    }

    /// This end sends no more; what was taken leaves.
    pub fn finish(&mut self, key: Key) {
        let Some(conn) = self.table.get_mut(key) else {
            return;
        };
        conn.finished = true;
        if let Some(id) = conn.id {
            self.stack.command(id, Connection::close);
            let now = self.now();
            self.turn(now);
        }
    }

    /// What was taken is kept for so long while the peer takes none of it.
    pub fn keep(&mut self, key: Key, time: Duration) {
        let now = self.now();
        if let Some(id) = self.table.get(key).and_then(|conn| conn.id) {
            self.stack.command(id, |connection| {
                connection.set_user_timeout(Some(time), now);
            });
        }
    }

    /// The carrier is gone: what was taken still leaves, or the peer gets a reset.
    pub fn disown(&mut self, key: Key, abort: bool) {
        self.copy(key, None);
        let now = self.now();
        let Some(conn) = self.table.get_mut(key) else {
            return;
        };
        conn.owned = false;
        conn.waiter.forget();
        let Some(id) = conn.id else {
            self.table.remove(key);
            return;
        };
        self.stack.command(id, |connection| match abort {
            true => connection.abort(),
            false => {
                connection.close();
                connection.detach(now);
            }
        });
        self.turn(now);
    }
}
