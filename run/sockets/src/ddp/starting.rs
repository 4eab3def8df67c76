//! MPA's Request and Reply.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_iwarp::startup::Rtr;
use weft_os::dgram::{get_int, set_int};
use weft_os::parts::{Receives, Sends};
use weft_os::stream;
use weft_stream::frame;
use weft_stream::start::{self, Agreed};
use weft_stream::{ConnectionData, Receiver, Sender};

use super::directions::{HeldReceiving, HeldSending, Numbers};
use super::marks::SHORTEST_WRITE;
use super::slot::State;
use super::Connection;
use crate::Errno;

/// The largest ULPDU between Weft peers, and to others: what one TCP segment of the least that is common takes would be
/// right for an RNIC, and the kernel's siw takes any.
const MULPDU: usize = 64_768;
/// Octets of the longest MPA frame.
pub(super) const FRAME_MAX: usize = 20 + 512;

/// How long the rest of a Request or a Reply is waited for, once its beginning is there, in milliseconds: a peer may
/// send it in parts, and one of them may be lost and sent again.
const REST_WITHIN_MS: u32 = 1000;

/// Connections whose start this process has brought to its end.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// How many connections this process has begun as DDP; of a forked child with those that its parent had begun before.
pub fn begun() -> u64 {
    BEGUN.load(Ordering::Relaxed)
}

/// How a start stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The stream is DDP.
    Open,
    /// The peer has not said enough.
    Waits,
    /// The octets are the program's: the peer began with something else.
    Plain,
    /// This end's octets are the program's. What the peer sends has not been looked at.
    Late,
}

impl Connection<'_> {
    /// Begins the stream at the end that connected: the socket is connected and carries nothing yet.
    ///
    /// # Errors
    /// The errno of the socket.
    pub fn ask(&self) -> Result<(), Errno> {
        let mut receiving = self.take_receiving()?;
        if !matches!(self.slot.state(), State::Free | State::Connecting) || self.slot.goes_plain() {
            return Ok(());
        }
        // A socket that is connected to itself would answer itself.
        if stream::is_its_own_peer(self.fd) {
            self.slot.set_goes_plain();
            return Ok(());
        }
        let own = self.prepare(&mut receiving);
        // The Reply is none of the program's: it is to wake nobody.
        let more_than_a_reply = start::START_LEN as i32 + SHORTEST_WRITE as i32;
        let _ = set_int(
            self.fd,
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            more_than_a_reply,
        );
        let request = start::request(&own, self.slot.wants_crc());
        self.say(&request)?;
        self.slot.set_state(State::Asked);
        Ok(())
    }

    /// Begins the stream at the end that accepted.
    ///
    /// # Errors
    /// As of [`Connection::ask`].
    pub fn answer(&self) -> Result<(), Errno> {
        let mut receiving = self.take_receiving()?;
        if !matches!(self.slot.state(), State::Free | State::Accepted) {
            return Ok(());
        }
        self.prepare(&mut receiving);
        self.slot.set_state(State::Answering);
        Ok(())
    }

    fn prepare(&self, receiving: &mut HeldReceiving<'_>) -> ConnectionData {
        // Where somebody died in the start the kernel has options of ours already.
        let get = |level, option| get_int(self.fd, level, option);
        if !self.slot.knows_no_delay() {
            let no_delay = get(libc::IPPROTO_TCP, libc::TCP_NODELAY);
            self.slot
                .set_no_delay(no_delay.is_ok_and(|value| value != 0));
        }
        if !self.slot.knows_low_water() {
            let low_water = get(libc::SOL_SOCKET, libc::SO_RCVLOWAT);
            self.slot
                .set_low_water(low_water.map_or(1, |octets| octets.max(1).cast_unsigned()));
        }
        // The first FPDU would make the second wait for its acknowledgement (RFC 1122 section 4.2.3.4).
        let _ = set_int(self.fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        let (one, other) = (weft_os::random_u64(), weft_os::random_u64());
        receiving.beside().own = Numbers {
            // Upper halves of zero leave room for a stream of any length.
            to: one >> 32 << 12,
            list_to: other >> 32 << 12,
            stag: one as u32 | 1,
            list_stag: (other as u32 | 1) ^ (2 * u32::from(other as u32 | 1 == one as u32 | 1)),
        };
        self.own_data(&receiving.beside().own)
    }

    /// What this end says of itself.
    fn own_data(&self, own: &Numbers) -> ConnectionData {
        own.data().with_map_entries(self.slot.map_entries())
    }

    /// Goes on with the start, as far as the peer's octets allow.
    ///
    /// # Errors
    /// The connection is over.
    #[inline]
    pub fn settle(&self) -> Result<Settled, Errno> {
        match self.slot.is_open() {
            true => Ok(Settled::Open),
            false => self.settle_for(false),
        }
    }

    /// The same before a send: an end that accepted does not wait for ever for a Request.
    ///
    /// # Errors
    /// As of [`Connection::settle`].
    #[inline]
    pub fn settle_to_send(&self) -> Result<Settled, Errno> {
        match self.slot.is_open() {
            true => Ok(Settled::Open),
            false => self.settle_for(true),
        }
    }

    fn settle_for(&self, is_sending: bool) -> Result<Settled, Errno> {
        let crc = self.slot.wants_crc();
        match self.slot.state() {
            State::Asked | State::Answering => {}
            State::Connecting if self.slot.goes_plain() => return self.leave_as_plain(),
            State::Connecting => match stream::state(self.fd) {
                // The kernel's own answer is the right one for a socket that is not connected.
                Some(stream::State::Connected)
                    if !self.is_held && stream::is_established(self.fd) =>
                {
                    self.ask()?;
                    // The answer came to another thread meanwhile.
                    if self.slot.goes_plain() {
                        return self.leave_as_plain();
                    }
                }
                _ => return Ok(Settled::Waits),
            },
            State::Accepted => self.answer()?,
            State::Plain => return Ok(Settled::Plain),
            State::Late => {}
            State::Over(errno) => return Err(errno),
            _ => return Ok(Settled::Open),
        }
        let mut receiving = self.take_receiving()?;
        let mut seen = [0; FRAME_MAX];
        let count = match self.look_at_start(&mut seen) {
            Ok(count) => count,
            Err(libc::EAGAIN) => return self.nothing_came(is_sending),
            Err(errno) => return Err(self.failed(errno)),
        };
        match self.slot.state() {
            State::Asked => self.read_reply(&mut receiving, &seen[..count], crc),
            State::Answering => self.read_request(&mut receiving, &seen[..count], crc),
            State::Late => self.look_late(&seen[..count]),
            _ => Ok(Settled::Open),
        }
    }

    /// The peer answered as no Weft does. One that was asked before, and said yes, is not believed again for a while.
    fn was_lied_to(&self, why: &dyn std::fmt::Display) -> Errno {
        if let Some(discovery) = self.discovery.filter(|_| self.slot.prefers()) {
            discovery.learn_that_it_lied(self.fd);
        }
        self.break_off(why)
    }

    /// What came of the question whether the other end is Weft: whoever else has the connection waits meanwhile, and
    /// `outcome` is not asked where one of them knows already. Where that is not so it is plain from the next look on
    /// ([`Connection::settle`]). Gives what the other end is; nothing where that is not known yet.
    pub fn resolve(&self, outcome: impl FnOnce() -> Option<bool>) -> Option<bool> {
        let _receiving = self.take_receiving().ok()?;
        if !self.slot.is_resolved() {
            if !outcome()? {
                self.slot.set_goes_plain();
            }
            self.slot.set_resolved();
        }
        Some(!self.slot.goes_plain())
    }

    fn read_reply(
        &self,
        receiving: &mut HeldReceiving<'_>,
        seen: &[u8],
        crc: bool,
    ) -> Result<Settled, Errno> {
        let (agreed, len) = match start::read_reply(seen, crc) {
            _ if seen.is_empty() => {
                return Err(self.was_lied_to(&"the peer ended it without a Reply"))
            }
            Ok(Ok(read)) => read,
            Ok(Err(octets)) => {
                return match self.waits_for_rest(receiving, octets) {
                    true => Ok(Settled::Waits),
                    false => Err(self.was_lied_to(&"a Reply that does not come whole")),
                }
            }
            Err(fault) => return Err(self.was_lied_to(&fault)),
        };
        // Before anything is taken: a handler amid a send of its own thread does not get it, and comes again.
        let mut sending = self.take_sending()?;
        self.open(receiving, &mut sending, &agreed, len)?;
        let by_read = frame::ready_to_receive_by_read(agreed.crc);
        let by_write = frame::ready_to_receive(agreed.crc);
        let octets = match agreed.ready_to_receive {
            Some(Rtr::Read) => &by_read[..],
            _ => &by_write[..],
        };
        self.begin(receiving, &mut sending, octets, State::Asked, State::Open)?;
        self.take_start(receiving, len)?;
        if !agreed.peer.weft {
            self.slot.begin_probing();
        }
        self.send_kept(&mut sending)?;
        Ok(Settled::Open)
    }

    fn read_request(
        &self,
        receiving: &mut HeldReceiving<'_>,
        seen: &[u8],
        crc: bool,
    ) -> Result<Settled, Errno> {
        match start::is_request(seen) {
            Some(true) => {}
            // A Request comes whole, and in time.
            None if !seen.is_empty() && !self.waited_enough() => return Ok(Settled::Waits),
            Some(false) | None => return self.go_plain(State::Plain),
        }
        let request = match start::read_request(seen) {
            Ok(Ok(request)) => request,
            Ok(Err(octets)) => {
                return match self.waits_for_rest(receiving, octets) {
                    true => Ok(Settled::Waits),
                    false => Err(self.break_off(&"a Request that does not come whole")),
                }
            }
            Err(fault) => {
                let (reply, len) = start::reject();
                let _ = self.say(&reply[..len]);
                return Err(self.break_off(&fault));
            }
        };
        // Likewise.
        let mut sending = self.take_sending()?;
        let (reply, len, agreed) = request.accept(&self.own_data(&receiving.beside().own), crc);
        self.open(receiving, &mut sending, &agreed, request.len)?;
        receiving.awaits_first = 1;
        let next = match agreed.peer.weft {
            true => State::Open,
            false => State::Listening,
        };
        self.begin(
            receiving,
            &mut sending,
            &reply[..len],
            State::Answering,
            next,
        )?;
        self.take_start(receiving, request.len)?;
        if let Some(discovery) = self.discovery {
            discovery.request_came(self.fd);
        }
        if agreed.peer.weft {
            self.send_kept(&mut sending)?;
        }
        Ok(Settled::Open)
    }

    /// A part of the start is there, of a Request or a Reply that takes so many octets. Whether the rest of it is still
    /// waited for: it comes at once, or not at all.
    fn waits_for_rest(&self, receiving: &mut HeldReceiving<'_>, octets: usize) -> bool {
        // Counted last: what came before the end may have come since it was looked at.
        let is_cut_off = stream::has_ended(self.fd) && stream::unread(self.fd) < octets;
        if is_cut_off || self.slot.part_age_ms() > REST_WITHIN_MS {
            return false;
        }
        // Fewer are to wake nobody.
        self.wait_for_whole(receiving, octets);
        true
    }

    /// Says this end's last word of the start. All that is agreed holds before: who is killed as it leaves, or before
    /// the peer's is taken, leaves a connection that goes on ([`Connection::take_receiving`]).
    fn begin(
        &self,
        receiving: &mut HeldReceiving<'_>,
        sending: &mut HeldSending<'_>,
        octets: &[u8],
        from: State,
        to: State,
    ) -> Result<(), Errno> {
        sending.count_framing(octets.len());
        sending.commit();
        receiving.commit();
        self.slot.advance(from, to);
        BEGUN.fetch_add(1, Ordering::Relaxed);
        self.say(octets)
    }

    /// Sets both directions to what is agreed. `seen`: octets of the peer's start, which are still to be taken.
    fn open(
        &self,
        receiving: &mut HeldReceiving<'_>,
        sending: &mut HeldSending<'_>,
        agreed: &Agreed,
        seen: usize,
    ) -> Result<(), Errno> {
        self.slot.set_has_crc(agreed.crc);
        if agreed.crc {
            self.make_room(receiving);
        }
        sending.sender = Sender::new(&agreed.peer, MULPDU, agreed.crc);
        let own = self.own_data(&receiving.beside().own);
        receiving.receiver = Receiver::new(&own, &agreed.peer, agreed.crc);
        self.slot.set_foreign(!agreed.peer.weft);
        self.begin_counting(receiving, sending, seen)
    }

    /// Sends a few octets into a socket that carries none yet, or hardly any.
    fn say(&self, octets: &[u8]) -> Result<(), Errno> {
        let mut sends = Sends::new();
        let has_place = sends.own(octets);
        debug_assert!(has_place);
        match sends.send(self.fd, 0) {
            Ok(sent) if sent == octets.len() => Ok(()),
            Ok(_) | Err(libc::EAGAIN) => {
                Err(self.break_off(&"a new socket without room for the start"))
            }
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Takes the peer's part of the start, which was seen.
    pub(super) fn take_start(
        &self,
        receiving: &mut HeldReceiving<'_>,
        octets: usize,
    ) -> Result<(), Errno> {
        self.take_seen(octets)?;
        // Not before: the kernel tells who waits of what is there as the mark sinks.
        self.tell_mark_again(receiving);
        Ok(())
    }

    /// Takes octets that were seen.
    fn take_seen(&self, octets: usize) -> Result<(), Errno> {
        let mut room = [0; FRAME_MAX];
        let mut receives = Receives::new();
        let has_place = receives.own(&mut room[..octets]);
        debug_assert!(has_place);
        match receives.receive(self.fd) {
            Ok(taken) if taken == octets => Ok(()),
            Ok(_) => Err(self.break_off(&"octets of the start went elsewhere")),
            Err(errno) => Err(self.failed(errno)),
        }
    }
}

impl Numbers {
    fn data(&self) -> ConnectionData {
        Receiver::connection_data(self.stag, self.to, self.list_stag, self.list_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::testing::pair;
    use crate::ddp::{Left, Received, Slot};
    use crate::discovering::Discovery;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use weft_os::dgram::ready;
    use weft_os::testing::{await_child, fork};
    use weft_os::user::OwnBuffer;
    use weft_settings::DiscoveryPort;

    fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn who_died_before_it_took_the_reply_leaves_that_to_the_next() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let (slots, sockets) = (Slot::make(2).unwrap(), pair());
        slots.iter().for_each(Slot::restart_clock);
        let [client, server] =
            [0, 1].map(|at| Connection::new(&slots[at], sockets[at].as_raw_fd()));
        client.ask().unwrap();
        server.answer().unwrap();
        assert_eq!(server.settle(), Ok(Settled::Open));
        assert!(await_child(fork(|| {
            let mut receiving = client.take_receiving().unwrap();
            let mut sending = client.take_sending().unwrap();
            let mut seen = [0; FRAME_MAX];
            let mut looks = Receives::new();
            let is_seen = looks.own(&mut seen) && looks.peek(client.fd()) == Ok(start::START_LEN);
            let (agreed, len) = start::read_reply(&seen, false).unwrap().unwrap();
            client
                .open(&mut receiving, &mut sending, &agreed, len)
                .unwrap();
            let octets = frame::ready_to_receive(false);
            let (from, to) = (State::Asked, State::Open);
            client
                .begin(&mut receiving, &mut sending, &octets, from, to)
                .unwrap();
            std::mem::forget((receiving, sending));
            is_seen
        })));
        assert_eq!(client.settle(), Ok(Settled::Open));
        for (from, to) in [(&client, &server), (&server, &client)] {
            let mut octets = [7; 50];
            let sent = from.send(&OwnBuffer::from(&mut octets[..]), 0, 0);
            assert_eq!(sent, Ok(50));
            ready(to.fd(), libc::POLLIN, 1000);
            let received = to.receive(&OwnBuffer::from(&mut octets[..]), 0);
            assert_eq!(received, Ok(Received::Octets(50)));
        }
    }

    #[test]
    fn a_promise_is_kept_with_the_request() {
        weft_os::process::watch();
        let discovery = Discovery::new(DiscoveryPort::Agreed(0), None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_client, server) = connected(&listener);
        let fd = server.as_raw_fd();
        assert!(discovery.promise(fd) && !discovery.wait_left(fd).is_zero());
        let (client, server) = connected(&listener);
        let (fd, slots) = (server.as_raw_fd(), Slot::make(2).unwrap());
        assert!(discovery.promise(fd));
        slots.iter().for_each(Slot::restart_clock);
        let asks = Connection::new(&slots[0], client.as_raw_fd());
        let answers = Connection::new(&slots[1], fd).with_discovery(Some(discovery));
        asks.ask().unwrap();
        answers.answer().unwrap();
        assert_eq!(answers.settle(), Ok(Settled::Open));
        // Else it would take room that others may need.
        assert!(discovery.wait_left(fd).is_zero());
    }

    /// A program that shuts its receiving direction down before the Request has come, as Ganglia's gmond does, is no
    /// client that has ended.
    #[test]
    fn who_receives_no_more_still_hears_a_request() {
        weft_os::process::watch();
        let (slots, sockets) = (Slot::make(2).unwrap(), pair());
        slots.iter().for_each(Slot::restart_clock);
        let [client, server] =
            [0, 1].map(|at| Connection::new(&slots[at], sockets[at].as_raw_fd()));
        server.answer().unwrap();
        server.stop_receiving();
        sockets[1].shutdown(std::net::Shutdown::Read).unwrap();
        assert_eq!(server.settle_to_send(), Ok(Settled::Waits));
        let mut octets = [7; 10];
        let ended = server.receive(&OwnBuffer::from(&mut octets[..]), 0);
        assert_eq!(
            (ended, server.look()),
            (Ok(Received::End), Ok(Received::End))
        );
        client.ask().unwrap();
        ready(server.fd(), libc::POLLIN, 1000);
        assert_eq!(server.settle_to_send(), Ok(Settled::Open));
        assert_eq!(
            server.wind_up(),
            Left::Framing,
            "the client's first FPDU may still come"
        );
        assert_eq!(client.settle(), Ok(Settled::Open));
        while server.wind_up() != Left::Nothing {}
    }

    #[test]
    fn the_end_of_a_client_is_told_to_who_receives_no_more() {
        weft_os::process::watch();
        let (slot, [client, server]) = (&Slot::make(1).unwrap()[0], pair());
        slot.restart_clock();
        let connection = Connection::new(slot, server.as_raw_fd());
        connection.answer().unwrap();
        connection.stop_receiving();
        server.shutdown(std::net::Shutdown::Read).unwrap();
        drop(client);
        while connection.settle() == Ok(Settled::Waits) {}
        assert_eq!(connection.settle(), Ok(Settled::Plain));
    }
}
