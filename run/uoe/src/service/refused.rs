//! Sockets whose sends were refused for want of room, and how their programs hear of some.
//!
//! The kernel's socket is writable all the time, so nobody who waits for that is woken by the kernel alone.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use weft_os::dgram::{self, get_int};
use weft_os::lowest;

use super::{Service, TICK};
use crate::offload::now;
use crate::port::Held;

/// Octets of the datagram that a queue is to have room for.
const DATAGRAM_OCTETS: usize = 1500;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    port: Held,
    to: SocketAddr,
}

impl Service {
    /// A send was refused.
    pub(crate) fn handle_refused(&mut self, port: Held, to: SocketAddr) {
        self.refused.push(Refused { port, to });
    }

    /// Tells those of room that have some.
    pub(crate) fn tell_of_room(&mut self) {
        for one in std::mem::take(&mut self.refused) {
            if !one.port.is_alive() {
                continue;
            }
            if !self.has_room(one) {
                self.refused.push(one);
                continue;
            }
            one.port.port.end_refusal();
            one.port.with_fd(give_edge);
        }
        if !self.refused.is_empty() {
            self.look_at(now() + TICK);
        }
    }

    /// Whether a datagram to that destination would find room: on its carrier, in its queue, or as it goes plainly by
    /// now.
    fn has_room(&self, one: Refused) -> bool {
        let Some(mut paths) = one.port.paths() else {
            return true;
        };
        let Some(path) = paths.find(one.to.into()) else {
            return true;
        };
        match &mut path.required {
            Some(required) => required.queue.has_room(DATAGRAM_OCTETS, now()),
            None => {
                let link = self.offload.links.get(path.link.place);
                link.is_none_or(|link| link.is_roomy(path.link.generation))
            }
        }
    }
}

/// Wakes who waits until the socket behind `fd` is writable, by its level or by an edge: the kernel does so when a
/// socket's buffer is given a size (socket(7), `SO_SNDBUF`), which stays what it is.
fn give_edge(fd: RawFd) {
    // What is asked for is half of what is said (socket(7)), and no more than the machine allows.
    let Ok(octets) = get_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF) else {
        return;
    };
    if octets / 2 <= most_allowed() {
        // Where that fails a program that waits for an edge hears of none.
        let _ = dgram::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, octets / 2);
    }
}

/// Octets that may be asked for (net.core.wmem_max). One that has more has been given it by privilege.
fn most_allowed() -> i32 {
    let said = lowest::read_to_string("/proc/sys/net/core/wmem_max");
    said.ok()
        .and_then(|said| said.trim().parse().ok())
        .unwrap_or(0)
}
