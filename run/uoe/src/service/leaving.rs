//! Sockets that their programs have closed before all was sent: what waits leaves, or is given up.

use weft_os::dgram;

use super::Service;
use crate::offload::now;
use crate::port::Held;

/// Datagrams of the program's that are taken out of the kernel's queue at a time, behind which a proof may be.
const UNREAD_AT_A_TIME: usize = 256;

impl Service {
    /// What the thread has of `from` is that of `to` from here on: the program has closed the socket.
    pub(super) fn handle_left(&mut self, from: Held, to: Held) {
        for side in &mut self.sides {
            let own = side.own_channels.values_mut();
            let wanted = own.map(|channel| &mut channel.wanted);
            let wanted = wanted.chain(&mut side.wants);
            wanted
                .filter(|wanted| wanted.port == from)
                .for_each(|wanted| wanted.port = to);
        }
        let asked = self.asked.iter_mut().map(super::Asked::wanted_mut);
        asked
            .filter(|wanted| wanted.port == from)
            .for_each(|wanted| wanted.port = to);
        let names = self.names.iter_mut();
        names
            .filter(|name| name.port == from)
            .for_each(|name| name.port = to);
        self.requiring.retain(|one| one.port != from);
        let queued = to.paths().map(|mut paths| paths.queued_to());
        for end in queued.unwrap_or_default() {
            self.set_up_as_it_is(to, end);
            self.require_on(to, end.to_socket_addr());
        }
    }

    /// A channel may have been lost between two owners.
    fn set_up_as_it_is(&self, port: Held, to: weft_uoe::End) {
        let Some(mut paths) = port.paths() else {
            return;
        };
        let Some(path) = paths.find(to) else { return };
        let (link, number) = (path.link, path.channel);
        let side = self.sides.iter().find(|side| side.link == Some(link));
        let channel = side.and_then(|side| side.own_channels.get(&number));
        let is_up = channel.is_some_and(|channel| channel.is_open && channel.wanted.port == port);
        if let Some(required) = &mut path.required {
            required.is_up = is_up;
        }
    }

    /// Closes those of which nothing waits any more, or for too long.
    pub(super) fn end_left(&mut self) {
        for left in self.offload.left() {
            if left.port.port.queued() > 0 && now() < left.until {
                self.look_at(left.until);
                continue;
            }
            self.offload.end_left(left.port);
            self.handle_closed_port(left.port);
        }
    }

    /// Nobody reads what comes to them, and the proof of a channel may be behind it.
    pub(super) fn empty_left(&self) {
        for left in self.offload.left() {
            let port = left.port.port;
            left.port.with_fd(|fd| {
                for _ in 0..UNREAD_AT_A_TIME {
                    if !self.offload.has_plain(port, fd) || dgram::discard(fd).is_err() {
                        break;
                    }
                }
            });
        }
    }
}
