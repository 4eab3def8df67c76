//! Whether octets of the stream come next, or the end: framing before them is taken away. And what is there before the
//! stream has begun.

use weft_os::parts::Receives;
use weft_os::stream;
use weft_os::user::UserBuffers;
use weft_stream::Next;

use super::directions::HeldReceiving;
use super::receiving::Steps;
use super::slot::State;
use super::starting::FRAME_MAX;
use super::{Connection, Received};
use crate::Errno;

impl Connection<'_> {
    /// Takes away what stands before the next octets of the stream, where that is framing: credit, targets, the end.
    /// The header of a Write stays where octets of it are there. [`Received::Octets`] of 0 says that some are.
    ///
    /// # Errors
    /// The connection is over.
    pub fn look(&self) -> Result<Received, Errno> {
        if !self.is_open() {
            return Ok(self.before_start());
        }
        let mut receiving = self.take_receiving()?;
        self.skip_framing(&mut receiving)
    }

    /// How many octets of the peer's start are there, which are left where they are; none where it has ended.
    pub(super) fn look_at_start(&self, seen: &mut [u8; FRAME_MAX]) -> Result<usize, Errno> {
        let mut looks = Receives::new();
        let has_place = looks.own(seen);
        debug_assert!(has_place);
        match looks.peek(self.fd)? {
            // The program's own end may be all that the socket tells of, where it receives no more. Whose octets have
            // left as TCP waits for no Request.
            0 if self.slot.state() != State::Late && self.slot.receives_no_more() => {
                match stream::peer_has_ended(self.fd) {
                    // Octets may have come with the peer's end, since the look.
                    true => looks.peek(self.fd),
                    false => Err(libc::EAGAIN),
                }
            }
            count => Ok(count),
        }
    }

    /// What a receive gets where the peer has not said whether it is Weft.
    pub fn before_start(&self) -> Received {
        match self.slot.state() {
            State::Asked | State::Accepted | State::Answering if self.slot.receives_no_more() => {
                Received::End
            }
            _ => Received::Nothing,
        }
    }

    pub(super) fn skip_framing(
        &self,
        receiving: &mut HeldReceiving<'_>,
    ) -> Result<Received, Errno> {
        self.step_to_payload(receiving, Steps::default())
    }

    /// The same, and the header of the Write that has the octets is taken too: they come next. Who does so takes them.
    pub(super) fn begin_write(&self, receiving: &mut HeldReceiving<'_>) -> Result<Received, Errno> {
        let mut steps = Steps::default();
        steps.begins_writes = true;
        self.step_to_payload(receiving, steps)
    }

    fn step_to_payload(
        &self,
        receiving: &mut HeldReceiving<'_>,
        steps: Steps,
    ) -> Result<Received, Errno> {
        let looked = self.steps_to_payload(receiving, steps);
        self.keep_mark(receiving);
        looked
    }

    fn steps_to_payload(
        &self,
        receiving: &mut HeldReceiving<'_>,
        mut steps: Steps,
    ) -> Result<Received, Errno> {
        let none = UserBuffers::none();
        loop {
            if let Next::Payload(_) = receiving.receiver.next() {
                return Ok(Received::Octets(0));
            }
            match self.bounded_step(receiving, &none, 0, &mut steps)? {
                Received::Octets(_) if steps.is_at_write => return Ok(Received::Octets(0)),
                Received::Octets(_) => {}
                other => return Ok(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{open, pair};
    use super::super::{Settled, Slot, State};
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use weft_os::dgram::ready;
    use weft_os::stream;
    use weft_os::user::OwnBuffer;

    /// A thread that waits in the kernel for a Write would miss one whose header another thread's look has taken.
    #[test]
    fn a_look_leaves_a_write_whole() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        for crc in [false, true] {
            let (slots, sockets) = (Slot::make(2).unwrap(), pair());
            slots.iter().for_each(|slot| slot.set_wants_crc(crc));
            let [client, server] = open(slots, &sockets);
            let mut octets = [7; 4];
            for _ in 0..3 {
                let sent = client.send(&OwnBuffer::from(&mut octets[..]), 0, 0);
                assert_eq!(sent, Ok(4));
                ready(server.fd(), libc::POLLIN, 1000);
                assert_eq!(server.look(), Ok(Received::Octets(0)));
                let before = stream::unread(server.fd());
                assert!(before >= 16 + 4 + 4, "{before}");
                assert_eq!(server.look(), Ok(Received::Octets(0)));
                assert_eq!(stream::unread(server.fd()), before);
                let room = OwnBuffer::from(&mut octets[..]);
                assert_eq!(server.receive(&room, 0), Ok(Received::Octets(4)));
                assert_eq!(server.look(), Ok(Received::Nothing));
                assert_eq!(stream::unread(server.fd()), 0, "framing alone is taken");
            }
        }
    }

    /// A peer that is not Weft may have sent a Write by the time anybody looks for its first FPDU. Who waits to map
    /// memory takes no octets of the stream, and would wait for ever.
    #[test]
    fn a_look_takes_what_stands_before_a_write() {
        use weft_stream::{frame, start, ConnectionData, Receiver, Word};
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let [mut peer, socket] = pair();
        let slot = &Slot::make(1).unwrap()[0];
        slot.restart_clock();
        let connection = Connection::new(slot, socket.as_raw_fd());
        let of_peer = ConnectionData {
            weft: false,
            ..Receiver::connection_data(2, 0x1000, 3, 0x9000)
        };
        peer.write_all(&start::request(&of_peer, false)).unwrap();
        connection.answer().unwrap();
        while connection.settle().unwrap() != Settled::Open {
            ready(socket.as_raw_fd(), libc::POLLIN, 1000);
        }
        assert_eq!(slot.state(), State::Listening);
        let own = connection.take_receiving().unwrap().beside().own;
        let (trailer, trailer_len) = frame::trailer(5, 0);
        let write = [
            &frame::write_header(own.stag, own.to, 5)[..],
            b"hello",
            &trailer[..trailer_len],
            &frame::message(weft_iwarp::Msn(1), Word::Data(5), false),
        ]
        .concat();
        let both = [&frame::ready_to_receive(false)[..], &write].concat();
        peer.write_all(&both).unwrap();
        while stream::unread(socket.as_raw_fd()) < both.len() {}
        assert_eq!(connection.look(), Ok(Received::Octets(0)));
        assert_eq!(slot.state(), State::Open);
        assert_eq!(stream::unread(socket.as_raw_fd()), write.len());
        let mut room = [0; 9];
        let received = connection.receive(&OwnBuffer::from(&mut room[..]), 0);
        assert_eq!(
            (received, &room[..5]),
            (Ok(Received::Octets(5)), &b"hello"[..])
        );
    }
}
