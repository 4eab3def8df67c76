//! Messages of one length over a stream. A program reads each of them whole, and no octet of the next, into memory of
//! its own; what it reads is looked at.

use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::TcpStream;

use anyhow::{ensure, Result};

use super::content::{check, check_number, message, set_number};

/// The number of a message behind which there is none.
pub(super) const LAST: u64 = u64::MAX;

/// What a look at the stream came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// So many octets came.
    Octets(usize),
    /// Nothing is there now.
    Nothing,
    /// The sender has said that this was all.
    Ended,
}

/// Messages that come, in the order of their numbers.
pub(super) struct Incoming {
    message: Vec<u8>,
    got: usize,
    /// How many have come whole; the one behind the last is none of them.
    pub(super) count: u64,
    /// Whether the last has come.
    pub(super) is_over: bool,
}

impl Incoming {
    /// Of messages of so many octets, at least those of a number.
    pub(super) fn new(size: usize) -> Incoming {
        Incoming {
            message: vec![0; size],
            got: 0,
            count: 0,
            is_over: false,
        }
    }

    /// One receive, for what the message still lacks.
    pub(super) fn look(&mut self, mut stream: &TcpStream) -> Result<Look> {
        match stream.read(&mut self.message[self.got..]) {
            Ok(0) => {
                ensure!(self.got == 0, "message {} ended half way", self.count);
                Ok(Look::Ended)
            }
            Ok(octets) => {
                self.got += octets;
                if self.got == self.message.len() {
                    self.completed()?;
                }
                Ok(Look::Octets(octets))
            }
            Err(error) if passing(error.kind()) => Ok(Look::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives until one more is whole, and tells it; none where the sender has said that this was all.
    pub(super) fn next(&mut self, stream: &TcpStream) -> Result<Option<&[u8]>> {
        let before = self.count;
        while self.count == before && !self.is_over {
            if self.look(stream)? == Look::Ended {
                return Ok(None);
            }
        }
        Ok((!self.is_over).then_some(&self.message[..]))
    }

    fn completed(&mut self) -> Result<()> {
        self.got = 0;
        if check_number(&self.message, LAST).is_ok() {
            self.is_over = true;
            return check(&self.message, LAST);
        }
        match self.count {
            0 => check(&self.message, 0)?,
            number => check_number(&self.message, number)?,
        }
        self.count += 1;
        Ok(())
    }
}

/// Messages that go, as far as the stream takes them at once.
pub(super) struct Outgoing {
    message: Vec<u8>,
    sent: usize,
    /// How many have gone whole; the one behind the last is none of them.
    pub(super) count: u64,
    is_last: bool,
    /// Whether the last has gone.
    pub(super) is_over: bool,
}

impl Outgoing {
    /// Of messages of so many octets, at least those of a number.
    pub(super) fn new(size: usize) -> Outgoing {
        Outgoing {
            message: message(size, 0),
            sent: 0,
            count: 0,
            is_last: false,
            is_over: false,
        }
    }

    /// One send of what is left of a message; whether anything went.
    pub(super) fn push(&mut self, mut stream: &TcpStream) -> IoResult<bool> {
        if self.is_over {
            return Ok(false);
        }
        match stream.write(&self.message[self.sent..]) {
            Ok(octets) => self.sent += octets,
            Err(error) if passing(error.kind()) => return Ok(false),
            Err(error) => return Err(error),
        }
        if self.sent == self.message.len() {
            self.sent = 0;
            self.is_over = self.is_last;
            self.count += u64::from(!self.is_last);
            set_number(&mut self.message, self.count);
        }
        Ok(true)
    }

    /// Whether a message is on its way in part.
    pub(super) fn is_within(&self) -> bool {
        self.sent > 0
    }

    /// The next one that begins is the last.
    pub(super) fn end(&mut self) {
        if !self.is_within() && !self.is_last {
            self.is_last = true;
            set_number(&mut self.message, LAST);
        }
    }
}

pub(super) fn passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn messages_come_whole_and_in_order_and_the_last_says_so() {
        let (to, from) = connection();
        let mut outgoing = Outgoing::new(1000);
        while outgoing.count < 3 {
            outgoing.push(&to).unwrap();
        }
        outgoing.end();
        while outgoing.push(&to).unwrap() {}
        let mut incoming = Incoming::new(1000);
        while incoming.next(&from).unwrap().is_some() {}
        assert_eq!((incoming.count, incoming.is_over), (3, true));
    }

    #[test]
    fn a_message_out_of_order_or_cut_off_is_an_error() {
        let (mut to, from) = connection();
        to.write_all(&message(100, 0)).unwrap();
        to.write_all(&message(100, 2)).unwrap();
        let mut incoming = Incoming::new(100);
        assert!(incoming.next(&from).unwrap().is_some());
        let error = incoming.next(&from).unwrap_err().to_string();
        assert!(error.starts_with("message 1 begins with"), "{error}");

        let (mut to, from) = connection();
        to.write_all(&message(100, 0)[..60]).unwrap();
        drop(to);
        let error = Incoming::new(100).next(&from).unwrap_err().to_string();
        assert_eq!(error, "message 0 ended half way");
    }
}
