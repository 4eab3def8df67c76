//! What the receiving direction was told for the sending one, and what the peer is told of the receiving one.

use std::ops::Range;

use weft_stream::receiver::Renewal;
use weft_stream::{frame, Event, Target};

use super::directions::HeldReceiving;
use super::Connection;
use crate::Errno;

impl Connection<'_> {
    /// Takes framing that is at this place of the scratch, and that began at this place of the socket; gives how many
    /// octets of the place are framing.
    pub(super) fn take_framing(
        &self,
        receiving: &mut HeldReceiving<'_>,
        place: Range<usize>,
        mut behind: u32,
    ) -> Result<usize, Errno> {
        let Range { start, end } = place;
        let mut at = start;
        while at < end {
            let (core, beside) = receiving.split();
            let framing = core.receiver.take_framing(&beside.scratch[at..end]);
            let framing = framing.map_err(|fault| self.break_off(&fault))?;
            at += framing.taken;
            behind = behind.wrapping_add(framing.taken as u32);
            match framing.event {
                Some(Event::ReadRequest { stag, to }) => {
                    receiving.told.read = Target { to, stag, len: 1 };
                }
                Some(Event::Terminate(layer_and_type, code)) => {
                    let why = format_args!(
                        "the peer ended it: Terminate {layer_and_type:#04x}/{code:#04x}"
                    );
                    return Err(self.break_off(&why));
                }
                Some(event) => {
                    self.end_for_everybody(&event);
                    self.heed(receiving, event, behind);
                }
                // Payload is next, or there are no more octets.
                None => break,
            }
        }
        Ok(at - start)
    }

    /// The end of a peer that is not Weft is a word and no FIN. Whoever takes the word is one of many who may wait for
    /// the end, so the socket is made to show it: to all of them, from now on. What the peer says later is queued all
    /// the same while this end's own direction is open.
    fn end_for_everybody(&self, event: &Event) {
        if self.slot.is_foreign() && matches!(event, Event::End | Event::Disconnect) {
            weft_os::stream::shut_receiving_down(self.fd);
        }
    }

    /// Takes note of what the peer gives or has mapped, which ends at this place of the socket, unless somebody has who
    /// looked that far.
    pub(super) fn heed(&self, receiving: &mut HeldReceiving<'_>, event: Event, behind: u32) {
        if receiving.was_acted_on(behind) {
            return;
        }
        match event {
            Event::Limit(limit) => receiving.told.limit = 1 << 16 | u32::from(limit),
            Event::Target(index, target) => {
                receiving.told.targets[index] = target;
                receiving.told.which |= 1 << index;
            }
            Event::Map(entry, map) => self.slot.told_maps.set(entry, &map),
            // They count where they stand.
            Event::ReadRequest { .. } | Event::End | Event::Disconnect | Event::Terminate(..) => {
                return
            }
        }
        receiving.acted_to = behind;
    }

    /// Whether the sending direction was not told yet what the peer said, or what the peer is to be told: another call
    /// had it in hand.
    ///
    /// # Errors
    /// `EAGAIN` where another call has the receiving direction in hand.
    pub fn has_untold(&self) -> Result<bool, Errno> {
        let receiving = self.take_receiving()?;
        Ok(receiving.told.is_any() || receiving.receiver.renewal().is_some())
    }

    /// Tells the sending direction what the receiving one was told, and the peer what it has to be told. What cannot be
    /// told now is told with the next call.
    #[inline]
    pub(super) fn pass_on(&self, receiving: &mut HeldReceiving<'_>) -> Result<(), Errno> {
        let renewal = receiving.receiver.renewal();
        if renewal.is_none() && !receiving.told.is_any() {
            return Ok(());
        }
        self.pass_these_on(receiving, renewal)
    }

    #[inline(never)]
    fn pass_these_on(
        &self,
        receiving: &mut HeldReceiving<'_>,
        renewal: Option<Renewal>,
    ) -> Result<(), Errno> {
        let told = receiving.told;
        let mut sending = match self.take_sending() {
            Ok(sending) => sending,
            Err(libc::EINTR | libc::EAGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if told.limit > 0 {
            sending.sender.set_limit(told.limit as u16);
        }
        for (index, target) in told.targets.iter().enumerate() {
            if told.which & 1 << index != 0 {
                sending.sender.set_target(index, *target);
            }
        }
        if told.read.len > 0 {
            let Target { stag, to, .. } = told.read;
            let answer = frame::empty_read_response(stag, to, sending.sender.has_crc());
            sending.count_framing(answer.len());
            self.queue(&mut sending, &answer)?;
        }
        receiving.told = Default::default();
        if let Some(renewal) = renewal {
            let (octets, len) = sending.sender.renew(&renewal);
            sending.count_framing(len);
            self.queue(&mut sending, &octets[..len])?;
            receiving.receiver.renewed(&renewal);
        }
        // A socket that takes nothing any more may have octets to be read: whoever sends, or reads to the end, is told.
        let _ = self.flush(&mut sending, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use weft_iwarp::Msn;
    use weft_os::dgram::ready;
    use weft_stream::start::{self, START_LEN};
    use weft_stream::{ConnectionData, Word};

    use super::super::{Settled, Slot};
    use super::*;

    /// An end of ours, and a peer's socket that is not Weft's and has buffers for few messages.
    fn connected() -> (TcpStream, &'static Slot, TcpStream) {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let slot = &Slot::make(1).unwrap()[0];
        slot.restart_clock();
        let connection = Connection::new(slot, socket.as_raw_fd());
        connection.ask().unwrap();
        let mut request = [0; START_LEN];
        peer.read_exact(&mut request).unwrap();
        let request = start::read_request(&request).unwrap().unwrap();
        let of_peer = ConnectionData {
            big_endian: false,
            weft: false,
            maps: false,
            credits: 4,
            map_entries: 0,
            targets: Target {
                to: 0x9000,
                stag: 3,
                len: 2,
            },
            data: Target {
                to: 0x1000,
                stag: 2,
                len: 100,
            },
        };
        let (reply, len, _) = request.accept(&of_peer, false);
        peer.write_all(&reply[..len]).unwrap();
        while connection.settle().unwrap() != Settled::Open {
            ready(socket.as_raw_fd(), libc::POLLIN, 1000);
        }
        (socket, slot, peer)
    }

    #[test]
    fn credit_that_could_not_be_told_is_told_later() {
        let (socket, slot, mut peer) = connected();
        let connection = Connection::new(slot, socket.as_raw_fd());
        assert_eq!(connection.lacks_credit(), Ok(true));
        let message = frame::message(Msn(1), Word::Credit(100), false);
        peer.write_all(&message).unwrap();
        ready(socket.as_raw_fd(), libc::POLLIN, 1000);
        let sending = connection.take_sending().unwrap();
        let other = connection.without_waiting();
        std::thread::scope(|scope| scope.spawn(|| other.look().map(drop)).join().unwrap()).unwrap();
        drop(sending);
        assert_eq!(connection.has_untold(), Ok(true));
        assert_eq!(connection.lacks_credit(), Ok(true));
        // Nothing has come since.
        connection.look().unwrap();
        assert_eq!(connection.has_untold(), Ok(false));
        assert_eq!(connection.lacks_credit(), Ok(false));
    }
}
