//! The end of a sending direction, and what a program's close leaves to do.
//!
//! The kernel goes on for a program that has closed its socket: it sends what it took. What lies beside the socket is
//! ours to send, and a socket that is closed with octets unread resets the connection, framing or not. So a connection
//! that has something under way is kept a little longer than the program's descriptor.

use weft_os::stream;
use weft_stream::{Next, Word};

use super::directions::shut_down;
use super::slot::State;
use super::{Connection, Received};
use crate::Errno;

/// How a connection that the program has closed goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing is under way: the socket can be closed.
    Nothing,
    /// The end of a message has to come, or the other end's answer. The program's octets have all left.
    Framing,
    /// Octets of the program's have not left.
    Octets,
}

impl Connection<'_> {
    /// Nobody waits any longer for the peer to take what was sent: it gets a reset.
    pub fn give_up(&self) {
        let _ = self.break_off(
            &"the peer takes nothing of what was sent before it was closed, as too many do",
        );
    }

    /// Ends the sending direction: the peer reads what is on its way and then the end. `both`: and nothing is received
    /// any more.
    ///
    /// # Errors
    /// The connection is over.
    pub fn shut_down(&self, both: bool) -> Result<(), Errno> {
        let mut sending = self.take_sending()?;
        let is_open = self.slot.state() == State::Open;
        let is_told = is_open && !sending.sender.is_to_weft();
        let (word, next) = match is_told {
            // Between Weft peers the FIN says it all. A word before it would be octets: a peer that has closed answers
            // octets with a reset, which costs this end what it has not read yet, and answers a FIN with nothing.
            false => (None, shut_down::WANTED),
            // An RNIC takes a FIN for the end of both directions, and siw one that comes with octets for the end of
            // those: a peer that is not Weft is told by words, and gets the FIN when the socket is closed.
            true if both => (Some(Word::Disconnect), shut_down::TOLD_OF_BOTH),
            true => (Some(Word::Shutdown), shut_down::TOLD),
        };
        let is_more = (sending.shut_down, next) == (shut_down::TOLD, shut_down::TOLD_OF_BOTH);
        if sending.shut_down != shut_down::OPEN && !is_more {
            return Ok(());
        }
        sending.shut_down = next;
        // The end leaves as a rest does, should this thread not come to it.
        self.slot.set_has_rest(true);
        match self.slot.state() {
            State::Open => {}
            // It is told with what is kept, or ends as that leaves.
            State::Connecting
            | State::Asked
            | State::Accepted
            | State::Answering
            | State::Listening => return Ok(()),
            _ => return self.flush(&mut sending, 0).map(drop),
        }
        if let Some(word) = word {
            let word = sending.sender.control(word);
            sending.count_framing(word.len());
            self.queue(&mut sending, &word)?;
        }
        self.flush(&mut sending, 0).map(drop)
    }

    /// Goes on as far as it can at once with what a close would cut off; says what is left.
    pub fn wind_up(&self) -> Left {
        let try_to = || -> Result<Left, Errno> {
            // The end leaves as octets do: a client that says nothing is not waited for longer.
            self.settle_to_send()?;
            let has_left = self.finish()? && !self.may_be_cut_off()?;
            if !has_left {
                return Ok(Left::Octets);
            }
            match self.slot.state() {
                State::Asked | State::Accepted | State::Answering => Ok(Left::Framing),
                State::Open | State::Listening => match self.left_to_read()? {
                    Left::Nothing => self.left_to_hear(),
                    left => Ok(left),
                },
                _ => Ok(Left::Nothing),
            }
        };
        match try_to() {
            Ok(left) => left,
            // Another thread, of a process that shares the connection, is at it.
            Err(libc::EAGAIN) => Left::Octets,
            // Of a connection that is over nothing is left.
            Err(_) => Left::Nothing,
        }
    }

    /// A peer that was told of mapped memory writes there and cannot know of the close. To a socket that is closed
    /// those would be octets that nobody takes, and the kernel's answer a reset, which costs the peer what is on its
    /// way. So its Writes are thrown away until it has everything. Whether it has not.
    fn may_be_cut_off(&self) -> Result<bool, Errno> {
        if !self.slot.has_given_back() {
            return Ok(false);
        }
        // Octets of the stream make the close a reset whatever else comes.
        Ok(self.look()? == Received::Nothing && stream::unacknowledged(self.fd) > 0)
    }

    /// A peer that is not Weft goes on saying what gives credit. To a socket that is closed that would be octets that
    /// nobody takes, and the kernel's answer a reset, which costs the peer what it has not read. So it is told of the
    /// end, and the socket stays until it has ended too.
    fn left_to_hear(&self) -> Result<Left, Errno> {
        let (is_from_weft, is_over) = {
            let receiver = &self.take_receiving()?.receiver;
            (receiver.is_from_weft(), receiver.next() == Next::Nothing)
        };
        // Other processes may use what they share.
        if is_from_weft || is_over || self.slot.is_shared() {
            return Ok(Left::Nothing);
        }
        // Asked before the last look: what is behind that came with no end.
        let has_ended = stream::peer_has_ended(self.fd);
        let is_unread = matches!(self.look()?, Received::Octets(_));
        if has_ended || is_unread {
            return Ok(Left::Nothing);
        }
        self.shut_down(true)?;
        Ok(Left::Framing)
    }

    fn left_to_read(&self) -> Result<Left, Errno> {
        // Octets of the stream that nobody reads make the close a reset, as they do with TCP; the end is the end.
        let looked = self.look()?;
        let receiving = self.take_receiving()?;
        let receiver = &receiving.receiver;
        let is_over = match looked {
            Received::Octets(_) => true,
            // A program that receives no more, and an end that nobody else has seen, look alike here.
            Received::End => receiver.has_ended() || stream::peer_has_ended(self.fd),
            Received::Nothing => false,
        };
        if is_over {
            return Ok(Left::Nothing);
        }
        let is_in_payload = matches!(receiver.next(), Next::Payload(_));
        let owes_first = receiving.awaits_first != 0 && !receiver.has_begun();
        Ok(
            match owes_first || receiver.owes_message() && !is_in_payload {
                true => Left::Framing,
                false => Left::Nothing,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Settled, Slot};
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use weft_os::dgram::ready;
    use weft_os::user::OwnBuffer;
    use weft_stream::{start, ConnectionData, Receiver, Sender};

    /// rdma-core's rsockets end their direction by a word, and go on giving credit for what they receive: to a socket
    /// that was closed those would be octets that nobody takes, and cost them the last of what was sent.
    #[test]
    fn a_peer_that_is_not_weft_and_has_ended_its_direction_is_waited_for() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        let slot = &Slot::make(1).unwrap()[0];
        slot.restart_clock();
        let server = Connection::new(slot, socket.as_raw_fd());
        server.answer().unwrap();
        let own = ConnectionData {
            weft: false,
            ..Receiver::connection_data(1, 0x1000, 2, 0x2000)
        };
        client.write_all(&start::request(&own, false)).unwrap();
        while server.settle().unwrap() != Settled::Open {
            ready(server.fd(), libc::POLLIN, 1000);
        }
        let mut reply = [0; start::START_LEN];
        client.read_exact(&mut reply).unwrap();
        let (agreed, _) = start::read_reply(&reply, false).unwrap().unwrap();
        let mut sender = Sender::new(&agreed.peer, 1400, false);
        client.write_all(&sender.control(Word::Shutdown)).unwrap();
        let mut octets = [0; 10];
        let room = OwnBuffer::from(&mut octets[..]);
        while server.receive(&room, 0) != Ok(Received::End) {}
        assert_eq!(server.wind_up(), Left::Framing);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        while server.wind_up() != Left::Nothing {}
    }
}
