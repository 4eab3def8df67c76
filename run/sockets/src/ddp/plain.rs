//! An end that accepted and hears no Request: its program's octets leave as they are.

use weft_os::dgram::set_int;
use weft_stream::frame::WRITE_HEADER_LEN;
use weft_stream::start;

use super::directions::HeldSending;
use super::slot::State;
use super::starting::Settled;
use super::Connection;
use crate::Errno;

/// How long an end that accepted waits for a Request before its program's octets leave as they are: a client that is
/// going to ask does so when it is connected, so this only has to outlast a client that is not let run.
const REQUEST_WITHIN_MS: u32 = 50;

impl Connection<'_> {
    /// The peer has sent nothing yet.
    pub(super) fn nothing_came(&self, is_sending: bool) -> Result<Settled, Errno> {
        match self.slot.state() {
            State::Late => Ok(Settled::Late),
            // What is to leave, or was kept, waits no longer.
            State::Answering if self.has_to_leave(is_sending) && self.may_go_plain() => {
                self.go_plain(State::Late)
            }
            _ => Ok(Settled::Waits),
        }
    }

    /// Whether octets of the program's are held back: those of a call, those that were kept, those of a send that was
    /// refused.
    fn has_to_leave(&self, is_sending: bool) -> bool {
        is_sending || self.slot.has_rest() || self.slot.is_short()
    }

    pub(super) fn waited_enough(&self) -> bool {
        self.slot.age_ms() >= REQUEST_WITHIN_MS
    }

    /// Whether the program's octets leave, although no Request has come.
    fn may_go_plain(&self) -> bool {
        if !self.slot.prefers() {
            return self.waited_enough();
        }
        let until = self.slot.wait_until_ms().unwrap_or_else(|| {
            let left = self.discovery.map(|discovery| discovery.wait_left(self.fd));
            let left = left.unwrap_or_default().as_millis() as u32;
            let until = match left {
                0 => 0,
                left => self.slot.age_ms().saturating_add(left + 1),
            };
            self.slot.set_wait_until_ms(until);
            until
        });
        self.slot.age_ms() >= until
    }

    /// The other end was asked, and is not Weft: what the program has sent meanwhile leaves as it is.
    pub(super) fn leave_as_plain(&self) -> Result<Settled, Errno> {
        let mut sending = self.take_sending()?;
        // The kernel tells the program of an error. What could not leave is gone.
        if self.flush_early(&mut sending) == Ok(false) {
            return Ok(Settled::Waits);
        }
        self.slot.advance(State::Connecting, State::Plain);
        Ok(Settled::Plain)
    }

    /// Sends what was kept as it is; whether all of it has left.
    fn flush_early(&self, sending: &mut HeldSending<'_>) -> Result<bool, Errno> {
        let early = std::mem::take(&mut sending.early);
        if early > 0 {
            (sending.rest_at, sending.rest_len) = (WRITE_HEADER_LEN as u32, early);
            self.slot.set_has_rest(true);
        }
        self.flush(sending, 0)
    }

    /// The stream is none of DDP: what the program has sent meanwhile leaves as it is.
    pub(super) fn go_plain(&self, next: State) -> Result<Settled, Errno> {
        let mut sending = self.take_sending()?;
        if !self.flush_early(&mut sending)? {
            return Ok(Settled::Waits);
        }
        self.give_options_back();
        self.slot.advance(State::Answering, next);
        Ok(match next {
            State::Late => Settled::Late,
            _ => Settled::Plain,
        })
    }

    /// The kernel's options are the program's again.
    fn give_options_back(&self) {
        let set = |level, option, value: usize| {
            let value = i32::try_from(value).unwrap_or(i32::MAX);
            let _ = set_int(self.fd, level, option, value);
        };
        set(
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            self.slot.no_delay().into(),
        );
        set(libc::SOL_SOCKET, libc::SO_RCVLOWAT, self.slot.low_water());
    }

    /// Looks at a peer's first octets, which come after the program's own have left as they are.
    pub(super) fn look_late(&self, seen: &[u8]) -> Result<Settled, Errno> {
        match start::is_request(seen) {
            Some(true) => Err(self.break_off(&"a Request came after plain octets had left")),
            // A Request comes whole.
            Some(false) | None => {
                self.slot.advance(State::Late, State::Plain);
                Ok(Settled::Plain)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::Slot;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use weft_os::user::UserBuffers;

    #[test]
    fn what_was_kept_leaves_as_it_is_where_the_other_end_is_not_weft() {
        weft_os::process::watch();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let slot = &Slot::make(1).unwrap()[0];
        slot.begin(State::Connecting, false, None);
        let known = Connection::new(slot, client.as_raw_fd());
        let asking = known.held();
        let sent = |octets: &'static [u8]| {
            let octets =
                weft_os::user::UserRange::from(Box::leak(octets.to_vec().into_boxed_slice()));
            asking.send(&octets.buffers(), 0, 0)
        };
        assert_eq!(asking.settle_to_send(), Ok(Settled::Waits));
        assert_eq!((sent(b"one"), sent(b"two")), (Ok(3), Ok(3)));
        assert_eq!(
            asking.receive(&UserBuffers::none(), 0),
            Ok(super::super::Received::Nothing)
        );
        asking.shut_down(false).unwrap();
        assert_eq!(sent(b"three"), Err(libc::EPIPE));
        assert!(asking.resolve(|| None).is_none() && asking.is_asking());
        // Whoever sees the connection as the answer is taken begins nothing.
        assert_eq!(known.resolve(|| Some(false)), Some(false));
        assert_eq!(asking.resolve(|| Some(true)), Some(false), "the first word");
        known.ask().unwrap();
        assert_eq!(known.settle(), Ok(Settled::Plain));
        let mut octets = Vec::new();
        server.read_to_end(&mut octets).unwrap();
        assert_eq!(octets, b"onetwo");
    }
}
