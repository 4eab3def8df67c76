//! What the program's calls tell the thread.

use std::net::SocketAddr;

use weft_uoe::proof::Proof;

use crate::port::Held;

/// Messages that wait for the thread at most. What comes to more is lost: an asking is asked again by the next busy
/// sends, a proof is sent again, and a socket that is closed is found out.
const MAIL_MAX: usize = 256;

/// One message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mail {
    /// The socket sends busily to this destination, of which nothing is known, or for which it has no channel.
    Wants { port: Held, to: SocketAddr },
    /// A datagram of Weft's own came to the socket.
    Own {
        port: Held,
        proof: Proof,
        from: SocketAddr,
    },
    /// A rule requires a channel for what the socket sends to this destination, for which it has no queue yet.
    Requires { port: Held, to: SocketAddr },
    /// A send to this destination was refused for want of room: the program is to be told when there is some.
    Refused { port: Held, to: SocketAddr },
    /// The socket is closed, or nothing of it goes over carriers any more.
    Closed { port: Held },
    /// The program has closed the first while datagrams of its wait; they are the second's.
    Left { from: Held, to: Held },
    /// The program connects it, or has set an option: what it may receive over carriers is to be seen anew.
    Changed { port: Held },
    /// The program has set the rate of its carriers.
    Rated { port: Held },
}

/// Messages in their order.
#[derive(Debug)]
pub(crate) struct Mailbox {
    mail: [Option<Mail>; MAIL_MAX],
    count: usize,
}

impl Mailbox {
    pub(crate) const fn new() -> Mailbox {
        Mailbox {
            mail: [None; MAIL_MAX],
            count: 0,
        }
    }

    /// Puts one in; says whether there was room.
    pub(crate) fn put(&mut self, mail: Mail) -> bool {
        let Some(place) = self.mail.get_mut(self.count) else {
            return false;
        };
        *place = Some(mail);
        self.count += 1;
        true
    }

    /// Takes all out.
    pub(crate) fn take(&mut self, into: &mut Vec<Mail>) {
        into.extend(self.mail[..self.count].iter_mut().filter_map(Option::take));
        self.count = 0;
    }

    /// Throws all away.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard_in_order_and_bounded() {
        let mut mailbox = Mailbox::new();
        let port: &'static crate::Port = Box::leak(Box::default());
        let own = |number: usize| Mail::Own {
            port: port.held(),
            proof: Proof::new([0; 16], number as u32),
            from: ([127, 0, 0, 1], 1).into(),
        };
        let put = (0..MAIL_MAX + 5).filter(|number| mailbox.put(own(*number)));
        assert_eq!(put.count(), MAIL_MAX);
        let mut heard = Vec::new();
        mailbox.take(&mut heard);
        let is_it = |(at, mail): (usize, &Mail)| match mail {
            Mail::Own { proof, .. } => proof.number as usize == at,
            _ => false,
        };
        assert!(heard.len() == MAIL_MAX && heard.iter().enumerate().all(is_it));
        assert!(mailbox.put(own(1)));
        mailbox.clear();
        heard.clear();
        mailbox.take(&mut heard);
        assert!(heard.is_empty());
    }
}
