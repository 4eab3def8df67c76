//! Sends to destinations that a rule requires a channel for: they never go plainly.
//!
//! What finds no channel waits in a queue of the destination's, which the thread empties, whether or not the program
//! ever calls again. The queue is the thread's to make: a call allocates nothing.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::beside::{self, socket_addr};
use weft_os::lock::Guard;
use weft_os::{dgram, process};
use weft_settings::datagrams::{Direction, Requires};
use weft_uoe::admission::{Attempt, Carrier, Verdict};
use weft_uoe::End;

use crate::counts::count;
use crate::link::Put;
use crate::mail::Mail;
use crate::offload::{now, Offload};
use crate::paths::{Path, Paths};
use crate::pause::Pause;
use crate::port::Port;
use crate::sending::{destination, sent, Sending, Sent, LOOK_AGAIN};
use crate::service::{full_timeout, time_at_rate};

/// The thread is told so often at most that one socket needs a queue.
const REQUIRED_EVERY_NS: u64 = 2_000_000;
/// How soon a send looks again whether there is a queue.
const LOOK_FOR_QUEUE: Duration = Duration::from_micros(50);
/// How long it looks; then the datagram is dropped. The thread makes a queue at once, but may be kept from a core, or
/// be in a call that takes the kernel some 20 ms: it makes the table of descriptors longer.
const QUEUE_WITHIN: Duration = Duration::from_millis(200);

/// Whether datagrams to this destination go to one socket.
fn is_one_host(to: End) -> bool {
    let is_broadcast = matches!(to.address(), IpAddr::V4(address) if address.is_broadcast());
    !to.address().is_multicast()
        && !to.address().is_unspecified()
        && !is_broadcast
        && to.port() != 0
}

impl Offload {
    /// Whether a rule requires a channel for what the socket behind `fd` sends to this destination.
    #[inline]
    pub(crate) fn requires(&self, paths: &mut Paths, fd: RawFd, to: End) -> bool {
        if !self.is_any_required || paths.not_required == Some(to) {
            return false;
        }
        let is_required = self.rules_require(fd, to);
        if !is_required {
            paths.not_required = Some(to);
        }
        is_required
    }

    /// The same, asked of the rules alone.
    fn rules_require(&self, fd: RawFd, to: End) -> bool {
        is_one_host(to) && self.required_by_rules(fd, to).is_some()
    }

    fn required_by_rules(&self, fd: RawFd, to: End) -> Option<Requires> {
        let mut name = [0; dgram::NAME_LEN];
        let len = dgram::local_name(fd, &mut name);
        let peer = to.to_socket_addr();
        let own = socket_addr(&name[..len]).unwrap_or(peer);
        self.rules.uoe(Direction::Send, &[own, peer])?.requires
    }

    /// A send of a signal handler that came amid another one of the same thread on the same socket: nothing of the
    /// socket can be looked at. What never goes plainly is dropped, and counted; says whether it is.
    #[cold]
    pub fn drop_interrupting(&self, port: &Port, sending: Sending<'_>) -> bool {
        let is_dropped = self.is_any_required
            && !port.is_off()
            && !self.is_over()
            && self.is_never_plain_by_rules(sending);
        if is_dropped {
            count(&self.counts.dropped_full);
        }
        is_dropped
    }

    fn is_never_plain_by_rules(&self, sending: Sending<'_>) -> bool {
        let to = match sending.to {
            [] => beside::peer_end(sending.fd),
            name => socket_addr(name),
        };
        let is_required = to.is_some_and(|to| self.rules_require(sending.fd, to.into()));
        is_required && !dgram::has_own_way(sending.fd)
    }

    /// Whether a rule says that what the socket sends to this destination never goes plainly.
    pub fn is_never_plain(&self, port: &'static Port, sending: Sending<'_>) -> bool {
        if !self.is_any_required || port.is_off() || self.is_over() || process::is_borrowed() {
            return false;
        }
        let Some(mut paths) = port.paths() else {
            return self.is_never_plain_by_rules(sending);
        };
        let Some(to) = destination(&mut paths, sending) else {
            return false;
        };
        let path = paths.find(to).map(|path| path.required.is_some());
        let is_required = path.unwrap_or_else(|| self.requires(&mut paths, sending.fd, to));
        is_required && !dgram::has_own_way(sending.fd)
    }

    /// A datagram to a destination that has no queue yet: the thread is to make one.
    #[cold]
    pub(crate) fn require(
        &'static self,
        port: &'static Port,
        mut paths: Guard<'_, Paths>,
        sending: Sending<'_>,
        to: End,
    ) -> Sent {
        let is_able = !process::is_borrowed() && !dgram::has_own_way(sending.fd);
        if !is_able || !dgram::have_port(sending.fd) {
            return Sent::Plain;
        }
        if self.is_deaf_to(sending, to) {
            return Sent::Failed(libc::EOPNOTSUPP);
        }
        // No descriptor is left to send it by, now or later.
        if !port.keep(sending.fd) {
            count(&self.counts.dropped_full);
            return Sent::Done;
        }
        let now = now();
        // All that there may be have channels: waiting makes no room.
        if !paths.may_require() {
            count(&self.counts.dropped_full);
            return Sent::Done;
        }
        let is_told = (now.as_nanos() as u64) < paths.wanted_at;
        if !is_told {
            paths.wanted_at = now.as_nanos() as u64 + REQUIRED_EVERY_NS;
        }
        drop(paths);
        self.ensure_thread();
        if !is_told {
            self.tell(Mail::Requires {
                port: port.held(),
                to: to.to_socket_addr(),
            });
        }
        if self.has_thread() && now < sending.since() + QUEUE_WITHIN {
            return Sent::Wait(Pause::of(LOOK_FOR_QUEUE));
        }
        count(&self.counts.dropped_full);
        Sent::Done
    }

    /// Whether the socket is connected to somebody else than `to`, whose proof it would then not hear.
    fn is_deaf_to(&self, sending: Sending<'_>, to: End) -> bool {
        let is_other = |peer: SocketAddr| End::from(peer) != to;
        let rule = || self.required_by_rules(sending.fd, to);
        !sending.to.is_empty()
            && beside::peer_end(sending.fd).is_some_and(is_other)
            && rule().is_some_and(|requires| !requires.without_udp)
    }

    /// A datagram to a destination that has a queue: by the channel, if there is one and nothing waits before it.
    #[inline]
    pub(crate) fn send_required(
        &'static self,
        port: &Port,
        path: &mut Path,
        sending: Sending<'_>,
        fill: &mut impl FnMut(&mut [u8]) -> Result<(), i32>,
    ) -> Sent {
        let Some(required) = &mut path.required else {
            return Sent::Plain;
        };
        required.used_at = sending.since();
        let mut full = None;
        let mut carrier = match required.is_up {
            true => Carrier::Ready,
            false => Carrier::Down,
        };
        if required.is_up && required.queue.is_empty() {
            let link = self.links.get(path.link.place);
            let put = link.map_or(Ok(Put::Gone), |link| {
                let put = link.put(path.link, path.channel, sending.len, None, &mut *fill);
                put.map(|put| self.see_off(link, put, sending.is_busy))
            });
            carrier = match put {
                Ok(put @ (Put::Done | Put::Flushed)) => {
                    count(&self.counts.sent);
                    return sent(put);
                }
                Ok(Put::Full { made, .. }) => {
                    full = Some(made);
                    Carrier::Full
                }
                Ok(Put::Gone) => Carrier::Down,
                Err(errno) => return Sent::Failed(errno),
            };
            required.is_up = carrier == Carrier::Full;
        }
        self.send_into_queue(port, path, (carrier, full), sending, fill)
    }

    fn send_into_queue(
        &'static self,
        port: &Port,
        path: &mut Path,
        (carrier, full): (Carrier, Option<u32>),
        sending: Sending<'_>,
        fill: &mut impl FnMut(&mut [u8]) -> Result<(), i32>,
    ) -> Sent {
        let Some(required) = &mut path.required else {
            return Sent::Plain;
        };
        let now = now();
        // Who waits for ever goes on wanting it.
        required.used_at = now;
        let at_rate = time_at_rate(port, sending.len);
        let attempt = Attempt {
            carrier,
            others_wait: !required.queue.is_empty(),
            has_room: required.queue.has_room(sending.len, now),
            may_block: sending.may_block(),
            since: sending.since(),
            full_timeout: full_timeout(port),
            down_timeout: at_rate,
        };
        match required.policy.admit(attempt, now) {
            Verdict::Queue => {
                if let Err(errno) = required.queue.push(sending.len, 0, now, &mut *fill) {
                    return Sent::Failed(errno);
                }
                let dropped = required.newly_dropped();
                self.counts
                    .dropped_full
                    .fetch_add(dropped, Ordering::Relaxed);
                self.tell_queued();
                Sent::Done
            }
            Verdict::Again => Sent::Failed(libc::EAGAIN),
            Verdict::Wait(_) if carrier != Carrier::Down && self.is_stalled(path.link.place) => {
                let left = (sending.since() + at_rate).saturating_sub(now);
                if !left.is_zero() {
                    return Sent::Wait(Pause::of(left.min(LOOK_AGAIN)));
                }
                count(&self.counts.dropped_full);
                Sent::Done
            }
            Verdict::Drop => {
                count(&self.counts.dropped_full);
                Sent::Done
            }
            Verdict::Wait(until) => {
                self.tell_queued();
                let left = until.map_or(LOOK_AGAIN, |until| until.saturating_sub(now));
                Sent::Wait(self.pause_for_room(path.link.place, full, left))
            }
            Verdict::Channel | Verdict::Plain => {
                self.tell_queued();
                Sent::Wait(Pause::of(LOOK_AGAIN))
            }
        }
    }

    /// Something waits that the thread is to send, or to have a channel for. It looks until nothing does.
    fn tell_queued(&self) {
        if !self.is_any_queued.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }
}
