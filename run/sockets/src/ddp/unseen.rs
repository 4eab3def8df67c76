//! A receive whose octets are taken from the socket before anybody has looked at them: a small message costs one call
//! of the system, as over TCP, where a look before it would cost another.
//!
//! What comes is framing and payload in an order that nobody knows yet, so all of it goes to memory of ours first. No
//! more is asked for than the framing that surely comes first, and what the program has room for: none of the stream's
//! octets stay here, where the kernel, and so every wait for readiness, would not know of them. The memory is the
//! connection's, in every process that has it: framing that a process took which was killed is not lost.

use std::ops::Range;

use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_stream::Next;

use super::directions::HeldReceiving;
use super::spans::FRAMING_MAX;
use super::{Connection, Received};
use crate::Errno;

impl Connection<'_> {
    /// How many octets may be taken unseen for a reader that has this room: 0 where they are to be looked at before.
    pub(super) fn unseen_at_once(
        &self,
        receiving: &HeldReceiving<'_>,
        room: &UserBuffers,
        place: Range<usize>,
    ) -> usize {
        let Some(framing) = receiving.receiver.framing_ahead() else {
            return 0;
        };
        // Behind a CRC octets are nothing before that was checked. What is for mapped memory is none of the room's.
        if self.slot.has_crc() || self.slot.is_mapped() || place.is_empty() {
            return 0;
        }
        let payload = place.len().min(FRAMING_MAX - framing);
        // The octets could not be put back where the program's memory is none.
        match room.is_writable(place.start..place.start + payload) {
            true => framing + payload,
            false => 0,
        }
    }

    /// Takes no more than `octets` from the socket, those of the stream into `room` from `at` on.
    pub(super) fn take_unseen(
        &self,
        receiving: &mut HeldReceiving<'_>,
        room: &UserBuffers,
        at: usize,
        octets: usize,
        has_drained: &mut bool,
    ) -> Result<Received, Errno> {
        receiving.begin_to_take_unseen();
        let taken = match stream::take(self.fd, &mut receiving.beside().scratch[..octets]) {
            Ok(0) => return self.at_end(&receiving.receiver),
            Ok(taken) => taken,
            Err(libc::EAGAIN) => return Ok(self.nothing_more(&receiving.receiver)),
            Err(errno) => return Err(self.failed(errno)),
        };
        *has_drained = taken < octets;
        self.account_unseen(receiving, taken, Some((room, at)))
            .map(Received::Octets)
    }

    /// Takes note of the first `taken` octets of the scratch and delivers those of the stream; gives how many these
    /// are. Where whoever took them has died they are gone with it.
    pub(super) fn account_unseen(
        &self,
        receiving: &mut HeldReceiving<'_>,
        taken: usize,
        room: Option<(&UserBuffers, usize)>,
    ) -> Result<usize, Errno> {
        let begins = receiving.taken;
        receiving.taken = begins.wrapping_add(taken as u32);
        let (mut at, mut payload) = (0, 0);
        while at < taken {
            match receiving.receiver.next() {
                Next::Framing(_) => {
                    match self.take_framing(receiving, at..taken, begins.wrapping_add(at as u32)) {
                        Ok(0) => break,
                        Ok(octets) => at += octets,
                        // What stands before it is told first; the next call meets the error.
                        Err(_) if payload > 0 => return Ok(payload),
                        Err(errno) => return Err(errno),
                    }
                }
                Next::Payload(left) => {
                    let now = (left as usize).min(taken - at);
                    if let Some((room, place)) = room {
                        let place = place + payload..place + payload + now;
                        let octets = &receiving.beside().scratch[at..at + now];
                        // Another thread has unmapped it since it was looked at.
                        let _ = room.write_range(place, octets);
                    }
                    receiving.receiver.take_payload(now as u32);
                    (at, payload) = (at + now, payload + now);
                }
                // The peer ended the connection. Nothing is mapped.
                Next::Nothing | Next::Mapped { .. } => break,
            }
        }
        self.note_taken(receiving)?;
        Ok(payload)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use weft_os::dgram::ready;
    use weft_os::testing::{await_child, fork};
    use weft_os::user::OwnBuffer;

    use super::super::testing::{open, pair};
    use super::super::Slot;
    use super::*;

    fn connected(sockets: &[TcpStream; 2]) -> [Connection<'static>; 2] {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        open(Slot::make(2).unwrap(), sockets)
    }

    fn send(by: &Connection<'_>, octets: &mut [u8]) {
        assert_eq!(
            by.send(&OwnBuffer::from(&mut octets[..]), 0, 0),
            Ok(octets.len())
        );
    }

    /// Octets of the socket that carry a message of 100: 16 before them and 4 behind.
    const MESSAGE: usize = 120;

    fn await_octets(at: &Connection<'_>, octets: usize) {
        let begun = Instant::now();
        while stream::unread(at.fd()) < octets {
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
    }

    fn receive(at: &Connection<'_>, room: &mut [u8]) -> Result<Received, Errno> {
        ready(at.fd(), libc::POLLIN, 1000);
        at.receive(&OwnBuffer::from(room), 0)
    }

    #[test]
    fn messages_of_every_length_come_whole() {
        let sockets = pair();
        let [client, server] = connected(&sockets);
        let mut octets: Vec<u8> = (0..3000u32).map(|number| (number % 251) as u8).collect();
        for len in 1..octets.len() {
            send(&client, &mut octets[..len]);
            let (mut room, mut got) = (vec![0; 4000], 0);
            while got < len {
                // From less room than is taken unseen to more than all of it.
                let now = (got + 100 + len * 7 % 900).min(room.len());
                if let Received::Octets(some) = receive(&server, &mut room[got..now]).unwrap() {
                    got += some;
                }
            }
            assert_eq!(room[..len], octets[..len]);
            assert_eq!(room[len..], vec![0; room.len() - len]);
        }
    }

    #[test]
    fn nothing_is_taken_for_memory_that_cannot_be_written() {
        let sockets = pair();
        let [client, server] = connected(&sockets);
        send(&client, &mut [7; 100]);
        ready(server.fd(), libc::POLLIN, 1000);
        let nowhere = OwnBuffer::unmapped(1000);
        assert_eq!(server.receive(&nowhere, 0), Err(libc::EFAULT));
        let mut room = [0; 1000];
        assert_eq!(receive(&server, &mut room), Ok(Received::Octets(100)));
        assert_eq!(room[..101], [[7; 100].as_slice(), &[0]].concat());
    }

    /// What a killed process took unseen ends in the middle of framing: the next one goes on there.
    #[test]
    fn who_died_with_unseen_octets_leaves_a_connection_that_goes_on() {
        let sockets = pair();
        let [client, server] = connected(&sockets);
        for taken in 1..200 {
            (0..2).for_each(|_| send(&client, &mut [7; 100]));
            await_octets(&server, 2 * MESSAGE);
            assert!(await_child(fork(|| {
                let mut receiving = server.take_receiving().unwrap();
                receiving.begin_to_take_unseen();
                let room = &mut receiving.beside().scratch[..taken];
                let is_taken = stream::take(server.fd(), room) == Ok(taken);
                std::mem::forget(receiving);
                is_taken
            })));
            let lost = taken.saturating_sub(16).min(100) + taken.saturating_sub(MESSAGE + 16);
            let (mut room, mut got) = ([0; 300], lost);
            while got < 200 {
                match receive(&server, &mut room).unwrap() {
                    Received::Octets(octets) => got += octets,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(got, 200, "{taken}");
        }
    }

    #[test]
    fn octets_before_a_fault_are_delivered_and_none_behind_it() {
        let [socket, other] = pair();
        let sockets = [socket, other];
        let [client, server] = connected(&sockets);
        send(&client, &mut [7; 100]);
        (&sockets[0]).write_all(&[9; 100]).unwrap();
        await_octets(&server, MESSAGE + 100);
        let mut room = [0; 1000];
        assert_eq!(receive(&server, &mut room), Ok(Received::Octets(100)));
        assert_eq!(room[..101], [[7; 100].as_slice(), &[0]].concat());
        assert!(matches!(server.settle(), Err(libc::ECONNRESET)));
    }
}
