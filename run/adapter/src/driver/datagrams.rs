//! Datagrams: ports that are held, what waits at them, and what leaves.

use std::collections::VecDeque;
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weft_engine::carrier::{datagram_weight, Interest, Readiness, Received};
use weft_inet::stack::{Reach, SendError};

use super::commands::failed;
use super::ports::{fits, Holder, Ports};
use super::state::State;
use super::table::Waiter;

/// Octets that wait at a port at most, with what is noted of each datagram. More are dropped.
const WAITING_OCTETS_MAX: usize = 4 << 20;
/// How long a sender is told to try again while its neighbour's hardware address is asked for. Afterwards datagrams are
/// lost there, but for a few: nobody seems to be there, and a queue pair that sends to others too must not wait.
const ASKING_TIME_MAX: Duration = Duration::from_millis(50);

/// A datagram that waits.
#[derive(Clone, Copy, Debug)]
struct Head {
    from: SocketAddr,
    to: IpAddr,
    octets: usize,
}

/// A port that is held, and the datagrams that have come to it.
#[derive(Debug)]
pub(super) struct Inbox {
    holder: Holder,
    at: SocketAddr,
    /// All addresses of IPv6 are those alone.
    v6_only: bool,
    /// It receives from there only.
    peer: Option<SocketAddr>,
    /// Nobody has the peer's port: who receives is told once.
    refused: bool,
    heads: VecDeque<Head>,
    octets: VecDeque<u8>,
    waiter: Waiter,
}

/// All of a driver.
#[derive(Debug, Default)]
pub(super) struct Inboxes {
    ports: Ports,
    inboxes: Vec<Inbox>,
    /// Datagrams for which there was no room.
    pub dropped: u64,
}

impl Inbox {
    fn takes(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        fits(self.at, local)
            && !(self.v6_only && local.is_ipv4())
            && self.peer.is_none_or(|peer| peer == remote)
    }

    fn is_readable(&self) -> bool {
        self.refused || !self.heads.is_empty()
    }

    fn has_room_for(&self, octets: usize) -> bool {
        let heads = (self.heads.len() + 1) * size_of::<Head>();
        heads + self.octets.len() + octets <= WAITING_OCTETS_MAX
    }

    /// Takes the datagram that came first, and those behind it that are as long, the last of them perhaps shorter, go
    /// the same way and fit as well.
    fn take(&mut self, buffer: &mut [u8]) -> Option<Received> {
        let first = self.heads.pop_front()?;
        let mut used = self.take_octets(first.octets, buffer);
        let (mut last, whole) = (first.octets, used == first.octets);
        while let Some(next) = self.heads.front().copied() {
            let goes_along = whole
                && last == first.octets
                && (1..=last).contains(&next.octets)
                && (next.from, next.to) == (first.from, first.to)
                && used + next.octets <= buffer.len();
            if !goes_along {
                break;
            }
            self.heads.pop_front();
            used += self.take_octets(next.octets, &mut buffer[used..]);
            last = next.octets;
        }
        Some(Received {
            octets: used,
            segment: first.octets.max(1),
            from: first.from,
            to: first.to,
            interface: 0,
        })
    }

    /// Takes the first `octets`; how many of them found a place.
    fn take_octets(&mut self, octets: usize, buffer: &mut [u8]) -> usize {
        let taken = octets.min(buffer.len());
        let (front, back) = self.octets.as_slices();
        let of_front = taken.min(front.len());
        buffer[..of_front].copy_from_slice(&front[..of_front]);
        buffer[of_front..taken].copy_from_slice(&back[..taken - of_front]);
        self.octets.drain(..octets);
        taken
    }
}

impl Inboxes {
    /// A datagram came; it waits at the port that says most of where to.
    pub fn push(&mut self, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        let takers = self
            .inboxes
            .iter_mut()
            .filter(|inbox| inbox.takes(local, remote));
        let taker = takers.max_by_key(|inbox| {
            let same_version = inbox.at.is_ipv4() == local.is_ipv4();
            (inbox.at.ip() == local.ip(), same_version)
        });
        let Some(inbox) = taker else {
            return;
        };
        if !inbox.has_room_for(payload.len()) {
            self.dropped += 1;
            return;
        }
        inbox.heads.push_back(Head {
            from: remote,
            to: local.ip(),
            octets: payload.len(),
        });
        inbox.octets.extend(payload);
        inbox.waiter.tell(true, false);
    }

    /// A datagram to `remote` came back, as nobody has that port: a connected port is told.
    pub fn refuse(&mut self, local: SocketAddr, remote: SocketAddr) {
        let connected = |inbox: &&mut Inbox| inbox.peer == Some(remote) && fits(inbox.at, local);
        if let Some(inbox) = self.inboxes.iter_mut().find(connected) {
            inbox.refused = true;
            inbox.waiter.tell(true, false);
        }
    }

    fn of(&mut self, holder: Holder) -> Option<&mut Inbox> {
        self.inboxes.iter_mut().find(|inbox| inbox.holder == holder)
    }

    fn any_at(&self, port: u16) -> bool {
        self.inboxes.iter().any(|inbox| inbox.at.port() == port)
    }
}

impl State {
    /// Holds a port for datagrams; port 0 takes a free one. With `v6_only` all addresses of IPv6 are those alone.
    pub fn bind_datagrams(
        &mut self,
        addr: SocketAddr,
        v6_only: bool,
    ) -> io::Result<(Holder, SocketAddr)> {
        self.check_is_ours(addr.ip())?;
        let inboxes = &mut self.table.inboxes;
        let held = inboxes.ports.hold(addr, v6_only);
        let (holder, at) = held.ok_or(failed(libc::EADDRINUSE))?;
        inboxes.inboxes.push(Inbox {
            holder,
            at,
            v6_only,
            peer: None,
            refused: false,
            heads: VecDeque::new(),
            octets: VecDeque::new(),
            waiter: Waiter::default(),
        });
        // Of several addresses the port may be bound already.
        self.stack.bind_udp(at.port());
        Ok((holder, at))
    }

    /// Lets go of a port, and of what waits there.
    pub fn release_datagrams(&mut self, holder: Holder) {
        let inboxes = &mut self.table.inboxes;
        inboxes.ports.release(holder);
        let place = inboxes
            .inboxes
            .iter()
            .position(|inbox| inbox.holder == holder);
        let gone = place.map(|place| inboxes.inboxes.swap_remove(place));
        if let Some(port) = gone.map(|gone| gone.at.port()) {
            if !self.table.inboxes.any_at(port) {
                self.stack.unbind_udp(port);
            }
        }
    }

    /// The port receives from `peer` only, from now on; what waits is gone.
    pub fn connect_datagrams(&mut self, holder: Holder, peer: SocketAddr) {
        if let Some(inbox) = self.table.inboxes.of(holder) {
            inbox.peer = Some(peer);
            inbox.heads.clear();
            inbox.octets.clear();
        }
    }

    /// Who is told by `readiness` of datagrams. A port always takes more to send.
    pub fn wait_for_datagrams(
        &mut self,
        holder: Holder,
        interest: Interest,
        readiness: &Readiness,
    ) {
        if let Some(inbox) = self.table.inboxes.of(holder) {
            inbox.waiter.set(interest, readiness);
            inbox.waiter.tell(inbox.is_readable(), true);
        }
    }

    /// Takes what came first to a port, or its error (see [`weft_engine::carrier::DatagramSocket::receive`]).
    pub fn receive_datagrams(&mut self, holder: Holder, buffer: &mut [u8]) -> io::Result<Received> {
        self.look_around();
        let inbox = self.table.inboxes.of(holder);
        let inbox = inbox.ok_or(failed(libc::EBADF))?;
        if std::mem::take(&mut inbox.refused) {
            return Err(failed(libc::ECONNREFUSED));
        }
        let received = inbox.take(buffer);
        if inbox.is_readable() {
            inbox.waiter.tell(true, false);
        }
        received.ok_or(failed(libc::EAGAIN))
    }

    /// Sends octets as datagrams of `segment` octets, the last of which may be shorter.
    pub fn send_datagrams(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        octets: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        if self.is_gone() {
            return Err(failed(libc::ENETDOWN));
        }
        let now = self.now();
        let datagrams = octets.chunks(segment.max(1));
        let frames = datagrams.len().max(1) * self.stack.frames_of_datagram(from.ip(), segment);
        match self.stack.reach(from.ip(), to.ip(), now) {
            Reach::Now => {}
            Reach::Nowhere => return Err(failed(libc::ENETUNREACH)),
            Reach::Asking { room, .. } if frames <= room => {}
            Reach::Asking { since, .. } if now.saturating_sub(since) < ASKING_TIME_MAX => {
                self.turn(now);
                return Err(failed(libc::EINPROGRESS));
            }
            Reach::Asking { .. } => {}
        }
        // An empty datagram is one, too.
        let empty = octets.is_empty().then_some(octets);
        let mut outcome = Ok(());
        for datagram in datagrams.chain(empty) {
            let mut sent = self.stack.send_udp(from, to, datagram, now);
            if sent == Err(SendError::Full) {
                self.transmit(now);
                sent = self.stack.send_udp(from, to, datagram, now);
            }
            outcome = outcome.and(sent);
        }
        self.turn(now);
        outcome.map_err(|error| {
            failed(match error {
                SendError::TooLong => libc::EMSGSIZE,
                SendError::NoRoute => libc::ENETUNREACH,
                SendError::NotOurs => libc::EADDRNOTAVAIL,
                SendError::Full => libc::ENOBUFS,
            })
        })
    }

    /// Octets that may wait at a port until somebody looks, as a kernel counts them: the link's frames are fewer than
    /// what waits behind it.
    pub fn datagram_room(&self) -> u32 {
        let frames = u32::try_from(self.link.waiting_frames_max()).unwrap_or(u32::MAX);
        frames.saturating_mul(datagram_weight(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Inboxes at these addresses.
    fn at(addresses: &[&str]) -> (Inboxes, Vec<Holder>) {
        let mut all = Inboxes::default();
        let mut holders = Vec::new();
        for text in addresses {
            let (holder, at) = all.ports.hold(addr(text), false).unwrap();
            holders.push(holder);
            all.inboxes.push(Inbox {
                holder,
                at,
                v6_only: false,
                peer: None,
                refused: false,
                heads: VecDeque::new(),
                octets: VecDeque::new(),
                waiter: Waiter::default(),
            });
        }
        (all, holders)
    }

    const HERE: &str = "10.0.0.1:7";
    const THERE: &str = "10.0.0.2:9";

    #[test]
    fn datagrams_of_one_length_and_sender_are_taken_together() {
        let (mut all, holders) = at(&["[::]:7"]);
        let other = addr("10.0.0.3:9");
        for (from, datagram) in [
            (addr(THERE), &b"abc"[..]),
            (addr(THERE), b"def"),
            (addr(THERE), b"g"),
            (addr(THERE), b"hij"),
            (other, b"klm"),
            (other, b""),
            (other, b"nopq"),
        ] {
            all.push(addr(HERE), from, datagram);
        }
        let inbox = all.of(holders[0]).unwrap();
        let mut buffer = [0; 8];
        let mut take = || {
            let received = inbox.take(&mut buffer)?;
            let octets = String::from_utf8(buffer[..received.octets].to_vec()).unwrap();
            Some((received.from, received.segment, octets))
        };
        for (from, segment, octets) in [
            (addr(THERE), 3, "abcdefg"),
            (addr(THERE), 3, "hij"),
            (other, 3, "klm"),
            (other, 1, ""),
            (other, 4, "nopq"),
        ] {
            assert_eq!(take(), Some((from, segment, octets.to_owned())));
        }
        assert_eq!(take(), None);
        assert!(inbox.octets.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_cut_off_and_costs_its_neighbours_nothing() {
        let (mut all, holders) = at(&["[::]:7"]);
        all.push(addr(HERE), addr(THERE), b"too long");
        all.push(addr(HERE), addr(THERE), b"next");
        let inbox = all.of(holders[0]).unwrap();
        let mut buffer = [0; 5];
        assert_eq!(inbox.take(&mut buffer).unwrap().octets, 5);
        assert_eq!(&buffer, b"too l");
        assert_eq!(inbox.take(&mut buffer).unwrap().octets, 4);
        assert_eq!(&buffer[..4], b"next");
    }

    #[test]
    fn a_port_that_nobody_reads_keeps_so_much_and_counts_the_rest() {
        let (mut all, holders) = at(&["[::]:7"]);
        for _ in 0..100_000 {
            all.push(addr(HERE), addr(THERE), &[0; 100]);
            all.push(addr(HERE), addr(THERE), &[]);
        }
        let inbox = all.of(holders[0]).unwrap();
        let (heads, octets) = (inbox.heads.len(), inbox.octets.len());
        let all_octets = octets + heads * size_of::<Head>();
        assert!(all_octets <= WAITING_OCTETS_MAX && all_octets > WAITING_OCTETS_MAX - 200);
        assert_eq!(heads as u64 + all.dropped, 200_000);
    }

    #[test]
    fn a_datagram_waits_where_most_is_said_of_it() {
        let (mut all, holders) = at(&["[::1]:7", "10.0.0.1:7", "0.0.0.0:8", "[::]:9"]);
        let mut comes_to = |local: &str, remote: &str| {
            all.push(addr(local), addr(remote), b"x");
            holders.iter().position(|holder| {
                let inbox = all.of(*holder).unwrap();
                inbox.take(&mut [0; 1]).is_some()
            })
        };
        for (local, place) in [
            (HERE, Some(1)),
            ("[::1]:7", Some(0)),
            ("10.0.0.3:7", None),
            ("10.0.0.3:8", Some(2)),
            ("10.0.0.3:9", Some(3)),
            ("[fd00::1]:9", Some(3)),
            ("[fd00::1]:8", None),
        ] {
            assert_eq!(comes_to(local, THERE), place, "{local}");
        }
        all.of(holders[1]).unwrap().peer = Some(addr(THERE));
        all.push(addr(HERE), addr("10.0.0.2:10"), b"of a stranger");
        assert!(all.of(holders[1]).unwrap().heads.is_empty());
    }

    #[test]
    fn only_the_port_that_is_connected_there_hears_that_nobody_is() {
        let (mut all, holders) = at(&["10.0.0.1:7", "10.0.0.1:8", "[::]:9"]);
        for (holder, peer) in [(holders[0], THERE), (holders[2], THERE)] {
            all.of(holder).unwrap().peer = Some(addr(peer));
        }
        let refused = |all: &Inboxes| {
            let inboxes = all.inboxes.iter();
            inboxes.map(|inbox| inbox.refused).collect::<Vec<_>>()
        };
        for (local, remote) in [
            (HERE, "10.0.0.2:10"),
            ("10.0.0.1:8", THERE),
            ("10.0.0.3:7", THERE),
        ] {
            all.refuse(addr(local), addr(remote));
        }
        assert_eq!(refused(&all), [false; 3]);
        all.refuse(addr(HERE), addr(THERE));
        assert_eq!(refused(&all), [true, false, false]);
        all.refuse(addr("10.0.0.3:9"), addr(THERE));
        assert_eq!(refused(&all), [true, false, true]);
    }
}
