//! Socket options, names and states: what depends on data that waits here.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{sockaddr, socklen_t};
use weft_os::dgram::{self, NAME_LEN};
use weft_sockets::tcp::SOL_WEFT;
use weft_sockets::verdict::Verdict;

use crate::edge::{caught, errno, fail, get, get_octets, put, settle};
use crate::mine::{known, mine, mine_or_file, Mine};
use crate::socket::{Socket, SIOCOUTQNSD};
use crate::stack::stack;
use crate::tcp::TcpSocket;
use crate::udp::UdpSocket;

/// What waits on `fd` leaves before a call that concerns the socket as a whole.
fn flush(fd: c_int) {
    if let Some(mine) = known(fd) {
        mine.flush();
    }
}

/// The socket behind `fd`, if its datagrams may take carriers.
fn carried(fd: c_int) -> Option<UdpSocket> {
    match mine(fd)? {
        Mine::Datagrams(socket) => Some(socket).filter(|socket| socket.has_carriers()),
        Mine::Streams(_) => None,
    }
}

/// Ends a hook whose call gives 0 or -1.
fn settle_status(verdict: Verdict, real: impl FnOnce() -> c_int) -> c_int {
    settle(verdict, || real() as isize) as c_int
}

hook!(fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, real => {
    flush(fd);
    if let Some(stack) = stack().filter(|_| is_datagram_socket(fd)) {
        let (name, len) = name_at(addr, len);
        caught((), || stack.kinds().streams.binding_beside(&name[..len]));
    }
    let mut status = real();
    if status != 0 && errno() == libc::EADDRINUSE && is_freed() {
        status = real();
    }
    if let Some(mine) = known(fd).filter(|_| status == 0) {
        mine.bound();
    }
    status
});

hook!(fn listen(fd: c_int, backlog: c_int) -> c_int, real => {
    let mine = mine(fd);
    let verdict = mine.map_or(Verdict::Kernel, |mine| mine.listening());
    let status = settle_status(verdict, real);
    if let Some(mine) = mine.filter(|_| status == 0) {
        mine.listened();
    }
    status
});

hook!(fn shutdown(fd: c_int, how: c_int) -> c_int, real => {
    let verdict = mine(fd).map_or(Verdict::Kernel, |mine| mine.shutting_down(how));
    settle_status(verdict, real)
});

/// An address is taken; whether it may be free now. A socket that the program has closed keeps its own a moment longer
/// where datagrams of its wait to be sent. Leaves errno as it is.
fn is_freed() -> bool {
    let before = errno();
    let freed = || stack().is_some_and(|stack| stack.kinds().datagrams.gives_address_back());
    let is_freed = caught(false, freed);
    fail(before);
    is_freed
}

fn is_datagram_socket(fd: c_int) -> bool {
    dgram::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM)
}

fn connecting(fd: c_int, addr: *const sockaddr, len: socklen_t) -> Verdict {
    let Some(mine) = mine(fd) else {
        return Verdict::Kernel;
    };
    let (name, len) = name_at(addr, len);
    mine.connecting(&name[..len])
}

/// A program's socket address, as much of it as says something; empty where it cannot be read.
fn name_at(addr: *const sockaddr, len: socklen_t) -> ([u8; NAME_LEN], usize) {
    let mut name = [0; NAME_LEN];
    let len = NAME_LEN.min(len as usize);
    match get_octets(addr.cast(), &mut name[..len]) {
        true => (name, len),
        false => (name, 0),
    }
}

fn connected(fd: c_int, status: c_int) -> c_int {
    let before = errno();
    if status == 0 || before == libc::EINPROGRESS {
        if let Some(mine) = known(fd) {
            mine.connected();
            fail(before);
        }
    }
    status
}

hook!(fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, real => {
    connected(fd, settle_status(connecting(fd, addr, len), real))
});

hook!(fn __connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, real => {
    connected(fd, settle_status(connecting(fd, addr, len), real))
});

hook!(fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, real => {
    // The first datagram binds a socket.
    flush(fd);
    real()
});

hook!(fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, real => {
    real()
});

hook!(fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int, real => {
    if level == SOL_WEFT {
        let of_udp = || carried(fd).map(|mine| mine.set_option(option, value, len));
        let verdict = TcpSocket::claim(fd).map(|mine| mine.set_option(option, value, len));
        return settle_status(verdict.or_else(of_udp).unwrap_or(Verdict::Kernel), real);
    }
    let verdict = mine(fd).map(|mine| mine.setting_option(level, option, value, len));
    settle_status(verdict.unwrap_or(Verdict::Kernel), real)
});

hook!(fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int, real => {
    if level == SOL_WEFT {
        let of_udp = || carried(fd).map(|mine| mine.option(option, value, len));
        let verdict = TcpSocket::claim(fd).map(|mine| mine.option(option, value, len));
        return settle_status(verdict.or_else(of_udp).unwrap_or(Verdict::Kernel), real);
    }
    let Some(mine) = known(fd) else {
        return real();
    };
    // Who has no room for an int is answered by the kernel.
    if get(len).is_none_or(|len| len < 4) {
        return real();
    }
    let number = match (level, option) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => mine.take_error(),
        _ => mine.own_option(level, option),
    };
    match number {
        Some(number) => give_number(number, value, len),
        None => real(),
    }
});

fn give_number(number: c_int, value: *mut c_void, len_at: *mut socklen_t) -> c_int {
    let written = put(value.cast::<c_int>(), number).and_then(|()| put(len_at, 4));
    match written {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    }
}

fn give_count(argument: *mut c_void, octets: usize) -> c_int {
    match put(argument.cast::<c_int>(), octets as c_int) {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    }
}

hook!(fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, real => {
    let counts = matches!(request, libc::FIONREAD | libc::TIOCOUTQ | SIOCOUTQNSD);
    let Some(mine) = (if counts { mine_or_file(fd) } else { known(fd) }) else {
        return real();
    };
    match request {
        libc::FIONREAD => match mine.next_len() {
            Some(octets) => give_count(argument, octets),
            None => real(),
        },
        libc::TIOCOUTQ | SIOCOUTQNSD => match mine.unsent(request) {
            Some(octets) => give_count(argument, octets),
            None => real(),
        },
        _ => real(),
    }
});
