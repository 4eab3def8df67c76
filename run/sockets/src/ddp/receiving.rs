//! FPDUs to the program's buffers.

use weft_os::parts::Receives;
use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_stream::receiver::{Check, Receiver};
use weft_stream::Next;

use super::directions::HeldReceiving;
use super::slot::State;
use super::spans::{Span, Spans};
use super::Connection;
use crate::Errno;

/// Octets that are looked at first: a small message whole, and no more than it costs to copy.
const PEEK: usize = 128;

/// Octets of framing that one call takes while none of the stream come: many times what a peer has to say, which at
/// most tells of a whole table of mapped memory.
const FRAMING_AT_ONCE_MAX: usize = 1 << 20;

/// What a receive came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many octets of the stream.
    Octets(usize),
    /// None yet.
    Nothing,
    /// None any more.
    End,
}

/// What the socket has next.
pub(super) enum Ahead {
    /// Framing and payload by turns; and how many octets it has, where all of them were seen.
    Spans(Spans, Option<usize>),
    Nothing,
    End,
}

/// The steps of a call that goes on as long as there is something.
#[derive(Default)]
pub(super) struct Steps {
    /// A Write whose payload is there is begun, where there is room for none of that: its header is taken.
    pub(super) begins_writes: bool,
    /// The payload of a Write is there that was not begun.
    pub(super) is_at_write: bool,
    /// Octets of framing since the last one of the stream.
    framing: usize,
    /// The last step took all that there was.
    has_drained: bool,
}

impl Connection<'_> {
    /// Receives octets of the stream into `room` behind its first `from`: as many as there are and go into it.
    ///
    /// # Errors
    /// The connection is over, or memory of the program's cannot be written.
    pub fn receive(&self, room: &UserBuffers, from: usize) -> Result<Received, Errno> {
        if !self.is_open() {
            return Ok(self.before_start());
        }
        let mut receiving = self.take_receiving()?;
        let received = self.receive_steps(&mut receiving, room, from);
        self.keep_mark(&mut receiving);
        received
    }

    fn receive_steps(
        &self,
        receiving: &mut HeldReceiving<'_>,
        room: &UserBuffers,
        from: usize,
    ) -> Result<Received, Errno> {
        let (mut got, mut steps) = (0, Steps::default());
        // What comes after the socket was empty is the next call's.
        while from + got < room.octets() && (got == 0 || !steps.has_drained) {
            match self.bounded_step(receiving, room, from + got, &mut steps) {
                Ok(Received::Octets(octets)) => got += octets,
                // What was received is told first; an error or the end is met again.
                _ if got > 0 => break,
                other => return other,
            }
        }
        if self.slot.is_mapped_here() {
            // Somebody may watch mapped memory alone, and nobody would tell of what stands before the next octets. An
            // error is met again.
            let _ = self.skip_framing(receiving);
        }
        Ok(Received::Octets(got))
    }

    /// One step of a call that goes on while framing comes, up to a bound: a peer that sends nothing else, as fast as
    /// it is taken, would keep a call that does not wait for ever.
    pub(super) fn bounded_step(
        &self,
        receiving: &mut HeldReceiving<'_>,
        room: &UserBuffers,
        got: usize,
        steps: &mut Steps,
    ) -> Result<Received, Errno> {
        // Octets for mapped memory are what the program asked for.
        let is_mapped = matches!(receiving.receiver.next(), Next::Mapped { .. });
        let before = receiving.taken;
        let received = self.receive_step(receiving, room, got, steps)?;
        steps.framing = match received {
            Received::Octets(0) if !is_mapped => {
                steps.framing + receiving.taken.wrapping_sub(before) as usize
            }
            _ => 0,
        };
        if steps.framing > FRAMING_AT_ONCE_MAX {
            return Err(self.break_off(&"framing without end, and no octets of the stream"));
        }
        Ok(received)
    }

    /// One call that takes octets from the socket, those of the stream into `room` behind its first `got`.
    fn receive_step(
        &self,
        receiving: &mut HeldReceiving<'_>,
        room: &UserBuffers,
        got: usize,
        steps: &mut Steps,
    ) -> Result<Received, Errno> {
        (steps.has_drained, steps.is_at_write) = (false, false);
        self.pass_on(receiving)?;
        if let Next::Mapped { stag, to, left } = receiving.receiver.next() {
            return self.place(receiving, stag, to, left);
        }
        let unseen = self.unseen_at_once(receiving, room, got..room.octets());
        if unseen > 0 {
            let received =
                self.take_unseen(receiving, room, got, unseen, &mut steps.has_drained)?;
            self.pass_on(receiving)?;
            return Ok(received);
        }
        self.receive_seen(receiving, room, got, steps)
    }

    /// The same of octets that are looked at before they are taken.
    #[inline(never)]
    fn receive_seen(
        &self,
        receiving: &mut HeldReceiving<'_>,
        room: &UserBuffers,
        got: usize,
        steps: &mut Steps,
    ) -> Result<Received, Errno> {
        let left = room.octets() - got;
        let is_left_there = left == 0 && !steps.begins_writes;
        let seen_for = if is_left_there { 1 } else { left };
        let (spans, all) = match self.look_ahead(receiving, seen_for)? {
            // A thread that waits for a Write of a few octets in the kernel would not be woken for the rest of it. What
            // stands before it is taken: it may be the peer's first FPDU, or credit.
            Ahead::Spans(spans, _) if is_left_there && spans.payload() > 0 => {
                match spans.before_write() {
                    Some(before) => (before, None),
                    None => {
                        steps.is_at_write = true;
                        return Ok(Received::Octets(0));
                    }
                }
            }
            Ahead::Spans(spans, all) => (spans, all),
            Ahead::Nothing => return Ok(Received::Nothing),
            Ahead::End => return Ok(Received::End),
        };
        let (taken, asked) = match self.take_spans(receiving, &spans, room, got)? {
            Some((0, _)) => return self.at_end(&receiving.receiver),
            Some(took) => took,
            None => return Ok(self.nothing_more(&receiving.receiver)),
        };
        steps.has_drained = taken < asked || all.is_some_and(|all| taken >= all);
        let octets = self.account(receiving, &spans, taken)?;
        self.pass_on(receiving)?;
        Ok(Received::Octets(octets))
    }

    /// What comes next, for a reader that has `room`.
    pub(super) fn look_ahead(
        &self,
        receiving: &mut HeldReceiving<'_>,
        room: usize,
    ) -> Result<Ahead, Errno> {
        let receiver = &receiving.receiver.clone();
        match receiver.next() {
            Next::Nothing => return Ok(Ahead::End),
            // What lies behind the payload at hand need not be seen to be taken with it.
            Next::Payload(_) | Next::Mapped { .. } => {
                let spans = self.spans(receiver, &[], room)?;
                return Ok(Ahead::Spans(spans, None));
            }
            Next::Framing(_) => {}
        }
        let mut seen = [0; PEEK];
        let count = match self.seen(&mut seen)? {
            None => {
                return Ok(match self.nothing_more(receiver) {
                    Received::End => Ahead::End,
                    _ => Ahead::Nothing,
                })
            }
            Some(0) => return self.at_end(receiver).map(|_| Ahead::End),
            Some(count) => count,
        };
        let all = (count < PEEK).then_some(count);
        match self.check(receiver, &seen[..count])? {
            Check::Good(good) => self
                .spans(receiver, &seen[..good], room)
                .map(|spans| Ahead::Spans(spans, all)),
            Check::Need(_) => {
                // Asked before: the rest may come with the end after the look.
                let has_ended = stream::has_ended(self.fd);
                let mut area = self.take_octets(&self.slot.area)?;
                let seen = self.seen(&mut area[..])?.unwrap_or(0);
                match self.check(receiver, &area[..seen])? {
                    Check::Good(good) => {
                        let spans = self.spans(receiver, &area[..good], room)?;
                        Ok(Ahead::Spans(spans, None))
                    }
                    // A socket that had ended has no more.
                    Check::Need(_) if has_ended && !self.is_over(receiver) => Err(self.cut_off()),
                    Check::Need(_) if has_ended => Ok(Ahead::End),
                    Check::Need(octets) => {
                        self.wait_for_fpdu(receiving, octets);
                        Ok(Ahead::Nothing)
                    }
                }
            }
        }
    }

    pub(super) fn spans(
        &self,
        receiver: &Receiver,
        seen: &[u8],
        room: usize,
    ) -> Result<Spans, Errno> {
        Spans::of(*receiver, seen, room).map_err(|fault| self.break_off(&fault))
    }

    /// How many of these octets are covered by a CRC that is right.
    pub(super) fn checked(&self, receiver: &Receiver, seen: &[u8]) -> Result<usize, Errno> {
        Ok(match self.check(receiver, seen)? {
            Check::Good(good) => good,
            Check::Need(_) => 0,
        })
    }

    fn check(&self, receiver: &Receiver, seen: &[u8]) -> Result<Check, Errno> {
        receiver.check(seen).map_err(|fault| self.break_off(&fault))
    }

    /// Copies what the socket has next; gives how many octets, 0 at its end, `None` where it has none.
    pub(super) fn seen(&self, room: &mut [u8]) -> Result<Option<usize>, Errno> {
        match stream::peek(self.fd, room) {
            Ok(octets) => Ok(Some(octets)),
            Err(libc::EAGAIN) => Ok(None),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Takes these spans from the socket, their framing into the receiving direction's scratch; gives how many octets
    /// of them, 0 at its end, and how many it was asked for. `None` where it has none.
    fn take_spans(
        &self,
        receiving: &mut HeldReceiving<'_>,
        spans: &Spans,
        room: &UserBuffers,
        got: usize,
    ) -> Result<Option<(usize, usize)>, Errno> {
        receiving.begin_to_take(*spans);
        let mut receives = Receives::new();
        let (mut scratch, mut at) = (&mut receiving.beside().scratch[..], got);
        for span in spans.iter() {
            let has_place = match span {
                Span::Framing(octets) => {
                    let (now, behind) = scratch.split_at_mut(octets);
                    scratch = behind;
                    receives.own(now)
                }
                Span::Payload(octets) => {
                    at += octets;
                    receives.user(room, at - octets..at)
                }
            };
            if !has_place {
                break;
            }
        }
        let asked = receives.octets();
        match receives.receive(self.fd) {
            Ok(octets) => Ok(Some((octets, asked))),
            Err(libc::EAGAIN) => Ok(None),
            // The program's memory: the connection goes on.
            Err(libc::EFAULT) => Err(libc::EFAULT),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Takes note of the first `taken` octets of `spans`; gives how many of them are the stream's.
    pub(super) fn account(
        &self,
        receiving: &mut HeldReceiving<'_>,
        spans: &Spans,
        taken: usize,
    ) -> Result<usize, Errno> {
        let mut begins = receiving.taken;
        receiving.taken = begins.wrapping_add(taken as u32);
        let (mut left, mut at, mut payload) = (taken, 0, 0);
        for span in spans.iter() {
            let now = span.octets().min(left);
            let len = now as u32;
            match (span, receiving.receiver.next()) {
                (Span::Framing(octets), _) => {
                    self.take_framing(receiving, at..at + now, begins)?;
                    at += octets;
                }
                (_, Next::Mapped { left, .. }) if len <= left => {
                    receiving.receiver.take_mapped(len)
                }
                (_, Next::Payload(left)) if len <= left => {
                    receiving.receiver.take_payload(len);
                    payload += now;
                }
                // Whoever noted the spans has died, and others may write to that memory.
                _ => return Err(self.break_off(&"what was taken is not what was to be taken")),
            }
            begins = begins.wrapping_add(len);
            left -= now;
            if left == 0 {
                break;
            }
        }
        self.note_taken(receiving)?;
        Ok(payload)
    }

    /// What was taken from the socket was acted on. Whoever has called this keeps the mark where it takes no more.
    pub(super) fn note_taken(&self, receiving: &mut HeldReceiving<'_>) -> Result<(), Errno> {
        receiving.keep_up();
        self.slot.end_probing();
        self.slot
            .set_owes_message(receiving.receiver.owes_message());
        receiving.beside().mark_is_due = 1;
        if receiving.receiver.has_begun() && self.slot.state() == State::Listening {
            let mut sending = self.take_sending()?;
            self.slot.advance(State::Listening, State::Open);
            self.send_kept(&mut sending)?;
        }
        Ok(())
    }

    /// Octets of the stream were taken that the receiver has before it.
    pub(super) fn take_payload(&self, receiving: &mut HeldReceiving<'_>, octets: usize) {
        receiving.count_taken(octets);
        receiving.receiver.take_payload(octets as u32);
        self.slot
            .set_owes_message(receiving.receiver.owes_message());
        self.set_mark(receiving);
    }

    /// The socket has ended.
    pub(super) fn at_end(&self, receiver: &Receiver) -> Result<Received, Errno> {
        match receiver.is_between_fpdus() || self.is_over(receiver) {
            true => Ok(Received::End),
            false => Err(self.cut_off()),
        }
    }

    /// No more octets of the stream come, whatever the socket has. A peer that said its last octet may say more that is
    /// none of the stream, and the socket reads as ended by then.
    fn is_over(&self, receiver: &Receiver) -> bool {
        receiver.has_ended() || self.slot.receives_no_more()
    }

    fn cut_off(&self) -> Errno {
        self.break_off(&"the peer's stream ended in the middle of an FPDU")
    }

    /// The socket itself failed.
    pub(super) fn failed(&self, errno: Errno) -> Errno {
        // The number stands for something else by now, which is no matter of the connection's.
        if errno != libc::EBADF && errno != libc::ENOTSOCK {
            self.slot.end(errno);
        }
        errno
    }

    /// The socket has no octets: whether any may come.
    pub(super) fn nothing_more(&self, receiver: &Receiver) -> Received {
        if self.is_over(receiver) {
            Received::End
        } else {
            Received::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpStream};

    use weft_iwarp::mpa::fpdu::crc32c;
    use weft_os::dgram::ready;
    use weft_os::user::OwnBuffer;
    use weft_stream::frame::{trailer, trailer_len, write_header};

    use super::super::testing::{open, pair};
    use super::super::Slot;
    use super::*;

    const OCTETS: usize = 3000;

    /// An end of a connection with CRC, the other one's socket, and a Write of so many octets for it.
    fn connected() -> (TcpStream, Connection<'static>, TcpStream, Vec<u8>) {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let (slots, sockets) = (Slot::make(2).unwrap(), pair());
        slots.iter().for_each(|slot| slot.set_wants_crc(true));
        let [_, server] = open(slots, &sockets);
        let own = server.take_receiving().unwrap().beside().own;
        let mut fpdu = write_header(own.stag, own.to, OCTETS).to_vec();
        fpdu.extend_from_slice(&[7; OCTETS]);
        let crc = {
            let padding = vec![0; trailer_len(OCTETS) - 4];
            crc32c(&[&fpdu[..], &padding].concat())
        };
        let (behind, len) = trailer(OCTETS, crc);
        fpdu.extend_from_slice(&behind[..len]);
        let [peer, socket] = sockets;
        (socket, server, peer, fpdu)
    }

    fn received(server: &Connection<'_>) -> Result<usize, Errno> {
        let (mut room, mut got) = ([0; OCTETS], 0);
        loop {
            match server.receive(&OwnBuffer::from(&mut room[..]), 0)? {
                Received::Octets(octets) => got += octets,
                Received::End => return Ok(got),
                Received::Nothing => drop(ready(server.fd(), libc::POLLIN, 1000)),
            }
        }
    }

    /// What is looked at as the last part of an FPDU comes, and the end with it, is not the end.
    #[test]
    fn the_end_may_come_with_the_rest_of_an_fpdu() {
        for round in 0..800u64 {
            let (_socket, server, mut peer, fpdu) = connected();
            let (first, rest) = fpdu.split_at(1 + round as usize * 37 % (fpdu.len() - 1));
            peer.write_all(first).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..round % 300).for_each(|_| std::hint::spin_loop());
                    peer.write_all(rest).unwrap();
                    peer.shutdown(Shutdown::Write).unwrap();
                });
                assert_eq!(received(&server), Ok(OCTETS), "round {round}");
            });
        }
    }

    #[test]
    fn an_end_amid_an_fpdu_is_an_error() {
        for first in [1, 16, 200, OCTETS] {
            let (_socket, server, mut peer, fpdu) = connected();
            peer.write_all(&fpdu[..first]).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(received(&server), Err(libc::ECONNRESET), "{first}");
        }
    }
}
