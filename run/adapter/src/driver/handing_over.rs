//! Octets that arrived, for who takes them in order and for who places them as they come.

use std::io;

use weft_engine::carrier::{Arrived, Done, Scatter, Transfer};
use weft_inet::tcp::ConnectionId;
use weft_os::mem::Unmapped;

use super::commands::failed;
use super::state::State;
use super::table::{Conn, Incoming, Key};

impl State {
    /// Takes octets that arrived.
    pub fn recv(&mut self, key: Key, buffer: &mut [u8]) -> Transfer {
        let most = buffer.len();
        self.deliver(key, most, |[first, second]| {
            buffer[..first.len()].copy_from_slice(first);
            buffer[first.len()..][..second.len()].copy_from_slice(second);
            Ok(first.len() + second.len())
        })
    }

    /// The same to a list.
    pub fn recv_list(&mut self, key: Key, list: &Scatter<'_>) -> Transfer {
        self.deliver(key, list.octets(), |[first, second]| {
            Ok(list.fill(first)? + list.fill_from(first.len(), second)?)
        })
    }

    #[inline]
    fn deliver(
        &mut self,
        key: Key,
        most: usize,
        to: impl FnOnce([&[u8]; 2]) -> Result<usize, Unmapped>,
    ) -> Transfer {
        self.look(key);
        let Some(conn) = self.table.get_mut(key) else {
            return Transfer::Failed(failed(libc::ECONNRESET));
        };
        let Incoming::Ordered(buffer) = &mut conn.incoming else {
            return Transfer::Failed(failed(libc::EINVAL));
        };
        let octets = buffer.peek(conn.delivered, most);
        if octets[0].is_empty() {
            return conn.none_left();
        }
        let Ok(taken) = to(octets) else {
            return Transfer::Failed(failed(libc::EFAULT));
        };
        buffer.skip(taken);
        if conn.is_readable() {
            conn.waiter.tell(true, false);
        }
        if let Some(id) = conn.id {
            self.consume(id, taken as u64);
        }
        Transfer::Octets(taken)
    }

    /// Whether something is there that can be received, or the end.
    pub fn is_readable(&self, key: Key) -> bool {
        self.table.get(key).is_none_or(Conn::is_readable)
    }

    /// From now on a connection's octets are handed over as they come, those first that are there. Gives the offset in
    /// the stream of the first octet that was not received.
    pub fn begin_pieces(&mut self, key: Key) -> io::Result<u64> {
        let gone = || failed(libc::ECONNRESET);
        let conn = self.table.get_mut(key).ok_or_else(gone)?;
        let Incoming::Ordered(buffer) = &conn.incoming else {
            return Err(failed(libc::EINVAL));
        };
        let connection = conn.id.and_then(|id| self.stack.tcp().get(id));
        let start = buffer.start();
        let in_order = start..start.max(conn.delivered);
        let behind_holes = connection
            .iter()
            .flat_map(|connection| connection.behind_holes());
        let mut arrived = Arrived::default();
        for range in std::iter::once(in_order).chain(behind_holes) {
            let mut at = range.start;
            for part in buffer.range(range) {
                arrived.push(at, part);
                at += part.len() as u64;
            }
        }
        conn.incoming = Incoming::Pieces(arrived);
        conn.done.position = start;
        if conn.is_readable() {
            conn.waiter.tell(true, false);
        }
        Ok(start)
    }

    /// Hands over what arrived; the window follows what is done with.
    pub fn take_pieces(&mut self, key: Key, done: Done, arrived: &mut Arrived) -> Transfer {
        self.look(key);
        let Some(conn) = self.table.get_mut(key) else {
            return Transfer::Failed(io::Error::from_raw_os_error(libc::ECONNRESET));
        };
        let Incoming::Pieces(waiting) = &mut conn.incoming else {
            return Transfer::Failed(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let outcome = match waiting.octets() {
            0 => conn.none_left(),
            octets => {
                std::mem::swap(waiting, arrived);
                // The end of the stream is behind them.
                if conn.is_readable() {
                    conn.waiter.tell(true, false);
                }
                Transfer::Octets(octets)
            }
        };
        self.note_done(key, done);
        outcome
    }

    /// What is missing before this offset is waited for no more.
    pub fn forgive(&mut self, key: Key, offset: u64) {
        let now = self.now();
        let id = self.table.get(key).and_then(|conn| conn.id);
        let missing = id.and_then(|id| {
            self.stack
                .command(id, |connection| connection.forgive(offset, now))
        });
        if missing.is_some_and(|missing| missing > 0) {
            self.turn(now);
        }
    }

    /// The other end of a connection may do so.
    pub fn peer_forgives(&mut self, key: Key) {
        let id = self.table.get(key).and_then(|conn| conn.id);
        if let Some(id) = id {
            self.stack
                .command(id, weft_inet::tcp::Connection::set_peer_forgives);
        }
    }

    /// Octets that wait at one connection at most.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn waiting_octets_max(&self) -> usize {
        let waiting = self.table.conns().map(|conn| match &conn.incoming {
            Incoming::Ordered(_) => 0,
            Incoming::Pieces(arrived) => arrived.octets(),
        });
        waiting.max().unwrap_or(0)
    }

    /// Octets are done with: the peer may send so many more.
    fn note_done(&mut self, key: Key, done: Done) {
        let Some(conn) = self.table.get_mut(key) else {
            return;
        };
        let before = conn.done;
        conn.done = Done {
            position: done.position.min(conn.delivered).max(before.position),
            placed: done.placed,
        };
        let Some(id) = conn.id.filter(|_| conn.done != before) else {
            return;
        };
        let more = conn.done.position - before.position;
        if done.placed != before.placed {
            self.set_window(key);
        }
        self.consume(id, more);
    }

    /// Octets of a connection were taken: the peer is told of the room where that is due.
    pub(super) fn consume(&mut self, id: ConnectionId, octets: u64) {
        let tells = self.stack.command(id, |connection| {
            connection.consume(octets);
            !connection.has_nothing_to_send()
        });
        if tells.is_some_and(|tells| tells) {
            let now = self.now();
            self.turn(now);
        }
    }
}
