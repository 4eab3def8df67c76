//! The program's sends: which datagrams take a carrier, and what becomes of those that find it full.

use std::os::fd::RawFd;
use std::time::Duration;

use weft_os::beside::{self, socket_addr};
use weft_os::lock::Locked;
use weft_os::{dgram, file, process};
use weft_settings::datagrams::Direction;
use weft_uoe::admission::{Attempt, Carrier, Policy, Verdict};
use weft_uoe::destinations::Known;
use weft_uoe::proof::Proof;
use weft_uoe::way::{Send, Way};
use weft_uoe::{Control, End};

use crate::counts::count;
use crate::link::{Link, Put};
use crate::mail::Mail;
use crate::offload::{now, Offload};
use crate::paths::{Path, Paths};
use crate::pause::Pause;
use crate::port::Port;
use crate::service::{full_timeout, time_at_rate};

/// The thread is told so often at most that one socket wants a channel where another one has it.
const WANTED_EVERY_NS: u64 = 20_000_000;
/// How long who waits for a carrier, or for room on one, sleeps before it looks again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing: it is to go plainly.
    Plain,
    /// It is on its way, or was dropped as datagrams are.
    Done,
    /// It is on its way, and TCP was given what waited: that took the program's time.
    Flushed,
    /// It is refused, with this errno.
    Failed(i32),
    /// Nothing yet: the caller is to sleep, without any lock of the socket's, and to offer it again.
    Wait(Pause),
}

/// A datagram that the program sends.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The socket's descriptor.
    pub fd: RawFd,
    /// The octets of the socket address that it goes to; empty for the connected peer.
    pub to: &'a [u8],
    /// Octets of it.
    pub len: usize,
    /// The program's sends come thick.
    pub is_busy: bool,
    /// `MSG_DONTWAIT`.
    pub dont_wait: bool,
    /// When the program called, as [`weft_os::dgram::now`] counts: the same each time that the datagram is offered.
    pub since: u64,
}

impl Sending<'_> {
    /// Whether the program's call may wait.
    pub(crate) fn may_block(&self) -> bool {
        !self.dont_wait && !file::does_not_wait(self.fd)
    }

    /// When the program called.
    pub(crate) fn since(&self) -> Duration {
        Duration::from_nanos(self.since)
    }
}

/// Where a datagram goes.
#[inline]
pub(crate) fn destination(paths: &mut Paths, sending: Sending<'_>) -> Option<End> {
    if !sending.to.is_empty() {
        return socket_addr(sending.to).map(End::from);
    }
    if paths.peer.is_none() {
        paths.peer = beside::peer_end(sending.fd).map(End::from);
    }
    paths.peer
}

/// What became of a datagram that is in.
pub(crate) fn sent(put: Put) -> Sent {
    match put {
        Put::Flushed => Sent::Flushed,
        _ => Sent::Done,
    }
}

enum Tried {
    Sent(Sent),
    /// The carrier with this place takes nothing more now; how often there was room.
    Full(usize, u32),
}

impl Offload {
    /// A datagram of the program's; `fill` writes its octets, and may be called more than once.
    #[inline]
    pub fn send(
        &'static self,
        port: &'static Port,
        sending: Sending<'_>,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), i32>,
    ) -> Sent {
        if port.is_off() || self.is_over() {
            return Sent::Plain;
        }
        let Some(mut paths) = port.paths() else {
            return match self.drop_interrupting(port, sending) {
                true => Sent::Done,
                false => Sent::Plain,
            };
        };
        let Some(to) = destination(&mut paths, sending) else {
            return Sent::Plain;
        };
        let Some(path) = paths.find(to) else {
            if self.requires(&mut paths, sending.fd, to) {
                return self.require(port, paths, sending, to);
            }
            let is_wanted = match self.known(to, sending.since()) {
                Known::Plain => false,
                // It is said once for each destination, and as seldom as they may be asked for.
                Known::Ask => true,
                // Another socket has one, which each send is told.
                Known::Channel(_) => {
                    let is_due = sending.since >= paths.wanted_at;
                    if is_due {
                        paths.wanted_at = sending.since + WANTED_EVERY_NS;
                    }
                    is_due
                }
            };
            if is_wanted {
                drop(paths);
                self.want(port, sending.fd, to);
            }
            return Sent::Plain;
        };
        if path.required.is_some() {
            let sent = self.send_required(port, path, sending, &mut fill);
            drop(paths);
            return match sent {
                Sent::Failed(libc::EAGAIN) => self.refuse(port, to),
                sent => sent,
            };
        }
        let sent = self.send_on(path, sending, &mut fill);
        drop(paths);
        let has_others = self.turns.note(to, sending.since);
        match sent {
            Tried::Sent(sent) => sent,
            Tried::Full(at, made) => match self.send_later(port, sending, (at, made), has_others) {
                Sent::Failed(libc::EAGAIN) => self.refuse(port, to),
                sent => sent,
            },
        }
    }

    /// There is no room for a datagram, and its send does not wait. The thread says when there is some: the kernel,
    /// whose socket has room, would never say so.
    #[cold]
    pub(crate) fn refuse(&'static self, port: &'static Port, to: End) -> Sent {
        if port.refuse() {
            let refused = Mail::Refused {
                port: port.held(),
                to: to.to_socket_addr(),
            };
            if !self.tell(refused) {
                port.end_refusal();
            }
        }
        Sent::Failed(libc::EAGAIN)
    }

    /// Whether there is a channel for this datagram's destination, or a queue.
    pub fn has_path(&self, port: &'static Port, sending: Sending<'_>) -> bool {
        port.paths().is_some_and(|mut paths| {
            let to = destination(&mut paths, sending);
            to.is_some_and(|to| paths.find(to).is_some())
        })
    }

    /// Puts a datagram on its way.
    #[inline]
    fn send_on(
        &self,
        path: &mut Path,
        sending: Sending<'_>,
        fill: &mut impl FnMut(&mut [u8]) -> Result<(), i32>,
    ) -> Tried {
        let way = path.chooser.choose(Send {
            len: sending.len,
            is_busy: sending.is_busy,
            packet: path.packet,
        });
        let before = match way {
            Way::Plain => return Tried::Sent(Sent::Plain),
            Way::ChannelBehind(number) => {
                let mark = Proof::new(path.mark, number).to_octets();
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                if dgram::send(sending.fd, sending.to, &mark, None, flags).is_err() {
                    // The plain datagrams before it have filled the socket: this one follows them.
                    path.chooser.handle_mark_not_said();
                    return Tried::Sent(Sent::Plain);
                }
                Some(Control::Behind {
                    channel: path.channel,
                    number,
                })
            }
            Way::Channel | Way::ChannelBarrier(_) => None,
        };
        let Some(link) = self.links.get(path.link.place) else {
            return Tried::Sent(Sent::Plain);
        };
        let put = link.put(path.link, path.channel, sending.len, before, fill);
        let is_put = matches!(put, Ok(Put::Done | Put::Flushed));
        if let Way::ChannelBarrier(number) = way {
            let channel = path.channel;
            let barrier = Control::Barrier { channel, number };
            if !is_put || !link.say(path.link.generation, &barrier) {
                path.chooser.handle_barrier_not_sent();
            }
        }
        match put.map(|put| self.see_off(link, put, sending.is_busy)) {
            Ok(put @ (Put::Done | Put::Flushed)) => {
                count(&self.counts.sent);
                Tried::Sent(sent(put))
            }
            Ok(Put::Full { said, made }) => {
                if !said {
                    // The mark is behind plain datagrams, and nothing on the channel says so yet.
                    path.chooser.handle_mark_not_said();
                }
                Tried::Full(path.link.place, made)
            }
            Ok(Put::Gone) => {
                path.chooser.handle_lost();
                Tried::Sent(Sent::Plain)
            }
            Err(errno) => Tried::Sent(Sent::Failed(errno)),
        }
    }

    /// The carrier is full: refuses, or waits a little and drops. Who `has_others` to send to does not wait: they would
    /// be kept waiting by a receiver that is slow; but a rate of the program's own holds.
    #[cold]
    fn send_later(
        &'static self,
        port: &'static Port,
        sending: Sending<'_>,
        (place, made): (usize, u32),
        has_others: bool,
    ) -> Sent {
        let attempt = Attempt {
            carrier: Carrier::Full,
            others_wait: false,
            has_room: false,
            may_block: sending.may_block(),
            since: sending.since(),
            full_timeout: full_timeout(port),
            down_timeout: Duration::ZERO,
        };
        let now = now();
        let at_rate = sending.since() + time_at_rate(port, sending.len);
        match Policy::Prefer.admit(attempt, now) {
            Verdict::Again => Sent::Failed(libc::EAGAIN),
            Verdict::Wait(_) if !has_others && !self.is_stalled(place) => {
                Sent::Wait(self.pause_for_room(place, Some(made), LOOK_AGAIN))
            }
            Verdict::Wait(_) if now < at_rate => {
                Sent::Wait(Pause::of((at_rate - now).min(LOOK_AGAIN)))
            }
            _ => {
                count(&self.counts.dropped_full);
                Sent::Done
            }
        }
    }

    /// A sleep of who waits for room on the carrier with this place, or for something else there; `made` is of
    /// [`Put::Full`].
    pub(crate) fn pause_for_room(
        &'static self,
        place: usize,
        made: Option<u32>,
        most: Duration,
    ) -> Pause {
        let most = most.min(LOOK_AGAIN);
        match (self.links.get(place), made) {
            (Some(link), Some(made)) => link.pause(made, most),
            _ => Pause::of(most),
        }
    }

    /// Whether nobody waits for room on the carrier with this place.
    pub(crate) fn is_stalled(&self, place: usize) -> bool {
        self.links.get(place).is_none_or(Link::is_stalled)
    }

    /// Whether a channel to this destination is worth having, as busily as it is sent to.
    #[inline]
    fn known(&self, to: End, now: Duration) -> Known {
        let (Locked::Held(mut known) | Locked::Orphaned(mut known)) = self.destinations.lock()
        else {
            return Known::Plain;
        };
        known.handle_send(to, now)
    }

    /// Has the thread ask for a channel.
    #[cold]
    fn want(&'static self, port: &'static Port, fd: RawFd, to: End) {
        let mut name = [0; dgram::NAME_LEN];
        let len = dgram::local_name(fd, &mut name);
        let own = socket_addr(&name[..len]);
        let peer = to.to_socket_addr();
        let ends = [own.unwrap_or(peer), peer];
        let is_ruled = self.rules.uoe(Direction::Send, &ends).is_some();
        // A connection would not take the way that the program has chosen for its datagrams.
        let has_own_way = dgram::has_own_way(fd);
        if !is_ruled || has_own_way || process::is_borrowed() || !port.keep(fd) {
            self.with_destinations(|known| {
                known.handle_no(to, now());
            });
            return;
        }
        self.ensure_thread();
        let held = port.held();
        self.tell(Mail::Wants {
            port: held,
            to: peer,
        });
    }
}
