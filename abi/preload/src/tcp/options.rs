//! Socket options of a connection over DDP: those that Weft needs for itself keep the program's values, and those that
//! would reach into the stream are refused.

use std::ffi::{c_int, c_void};

use libc::socklen_t;
use weft_os::stream;
use weft_sockets::ddp::{Connection, Settled, State};
use weft_sockets::tcp::{self, MODE_OCTETS};
use weft_sockets::verdict::Verdict;

use super::TcpSocket;
use crate::edge::{caught, get, give_own_option, set_own_option};

/// Options of TCP that tell of octets of the socket with what is received, or put others into it (linux/tcp.h).
const TCP_INQ: c_int = 36;
const TCP_ULP: c_int = 31;

impl TcpSocket {
    /// The connection, if its octets are framed or are going to be.
    pub(super) fn framed(self) -> Option<Connection<'static>> {
        let connection = self.connection()?;
        // What has come by now may say that they are not. An error is for a call that moves some.
        let settled = caught(Ok(Settled::Waits), || connection.settle());
        let is_plain = matches!(settled, Ok(Settled::Plain | Settled::Late));
        (!is_plain).then_some(connection)
    }

    /// `setsockopt` at Weft's level.
    pub fn set_option(self, option: c_int, value: *const c_void, len: socklen_t) -> Verdict {
        set_own_option::<MODE_OCTETS>(value, len, |given| {
            let sockets = self.sockets();
            sockets.set_option(self.record, self.fd, option, given)
        })
    }

    /// `getsockopt` at Weft's level.
    pub fn option(self, option: c_int, value: *mut c_void, len_at: *mut socklen_t) -> Verdict {
        give_own_option(value, len_at, || {
            self.sockets().option(self.record, self.fd, option)
        })
    }

    pub(super) fn set_kernel_option(
        self,
        level: c_int,
        option: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> Verdict {
        // What the kernel would tell or move are octets of the socket, not of the stream: those of a connection, or of
        // what a listener accepts.
        let is_counted =
            level == libc::SOL_SOCKET && matches!(option, libc::SO_ZEROCOPY | libc::SO_PEEK_OFF);
        if is_counted && (self.framed().is_some() || self.accepts_ddp()) {
            return Verdict::Done(Err(libc::EOPNOTSUPP));
        }
        // Before it is connected the kernel holds them, and they are taken over then.
        let begun =
            |connection: &Connection<'static>| connection.slot().state() != State::Connecting;
        let Some(connection) = self.framed().filter(begun) else {
            return Verdict::Kernel;
        };
        let number = || match len {
            0..4 => None,
            _ => get(value.cast::<c_int>()),
        };
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => match number() {
                Some(number) => {
                    // As the kernel takes them.
                    let octets = if number < 0 {
                        c_int::MAX
                    } else {
                        number.max(1)
                    };
                    connection.set_low_water(octets.cast_unsigned());
                    self.called(connection);
                    Verdict::Done(Ok(0))
                }
                None => Verdict::Kernel,
            },
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => match number() {
                Some(number) => {
                    connection.slot().set_no_delay(number != 0);
                    Verdict::Done(Ok(0))
                }
                None => Verdict::Kernel,
            },
            (libc::IPPROTO_TCP, TCP_INQ | TCP_ULP | libc::TCP_REPAIR) => {
                Verdict::Done(Err(libc::ENOPROTOOPT))
            }
            _ => Verdict::Kernel,
        }
    }

    /// Whether it is a listener whose connections are DDP.
    fn accepts_ddp(self) -> bool {
        stream::state(self.fd) == Some(stream::State::Listening)
            && self.sockets().standing(self.record, self.fd).state == tcp::State::Ddp
    }

    pub(super) fn option_kept(self, level: c_int, option: c_int) -> Option<c_int> {
        let slot = self.framed()?.slot();
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) if slot.state() != State::Connecting => {
                Some(c_int::try_from(slot.low_water()).unwrap_or(c_int::MAX))
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) if slot.state() != State::Connecting => {
                Some(slot.no_delay().into())
            }
            _ => None,
        }
    }
}
