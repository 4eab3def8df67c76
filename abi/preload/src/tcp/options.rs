//! Socket options of a connection over DDP: those that Weft needs for itself keep the program's values, and those that
//! would reach into the stream are refused.

use std::ffi::{c_int, c_void};

use libc::socklen_t;
use weft_os::stream;
use weft_sockets::ddp::{Connection, Settled, State};
use weft_sockets::tcp::{self, MODE_OCTETS, STATUS_OCTETS};
use weft_sockets::verdict::Verdict;

use super::TcpSocket;
use crate::edge::{caught, get, get_octets, put, put_octets};

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
        let mut octets = [0; MODE_OCTETS];
        let given = match len as usize {
            MODE_OCTETS if !get_octets(value, &mut octets) => {
                return Verdict::Done(Err(libc::EFAULT))
            }
            MODE_OCTETS => &octets[..],
            // Of any other length it is none.
            _ => &[],
        };
        let set = || {
            let sockets = self.sockets();
            sockets.set_option(self.record, self.fd, option, given)
        };
        Verdict::Done(caught(Err(libc::EIO), set).map(|()| 0))
    }

    /// `getsockopt` at Weft's level: as much as there is room for.
    pub fn option(self, option: c_int, value: *mut c_void, len_at: *mut socklen_t) -> Verdict {
        let give = || {
            let room = get(len_at).ok_or(libc::EFAULT)?;
            let room = usize::try_from(room.cast_signed()).map_err(|_| libc::EINVAL)?;
            let sockets = self.sockets();
            let found = || sockets.option(self.record, self.fd, option);
            let status = caught(Err(libc::EIO), found)?;
            let given = &status[..room.min(STATUS_OCTETS)];
            put(len_at, given.len() as socklen_t)?;
            put_octets(value, given)
        };
        Verdict::Done(give().map(|()| 0))
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
