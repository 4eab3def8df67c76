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
use crate::link::Put;
use crate::mail::Mail;
use crate::offload::{now, Offload};
use crate::paths::Path;
use crate::port::Port;

/// The thread is told so often at most that one socket wants a channel.
const WANTED_EVERY_NS: u64 = 20_000_000;
/// How long who sends on a full carrier sleeps before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing: it is to go plainly.
    Plain,
    /// It is on its way, or was dropped as datagrams are.
    Done,
    /// It is refused, with this errno.
    Failed(i32),
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
}

enum Tried {
    Sent(Sent),
    Full,
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
            return Sent::Plain;
        };
        let to = match sending.to.is_empty() {
            false => socket_addr(sending.to).map(End::from),
            true if paths.peer.is_some() => paths.peer,
            true => {
                paths.peer = beside::peer_end(sending.fd).map(End::from);
                paths.peer
            }
        };
        let Some(to) = to else {
            return Sent::Plain;
        };
        let since = now();
        let Some(path) = paths.find(to) else {
            if self.is_wanted(to, since) && since.as_nanos() as u64 >= paths.wanted_at {
                paths.wanted_at = since.as_nanos() as u64 + WANTED_EVERY_NS;
                drop(paths);
                self.want(port, sending.fd, to);
            }
            return Sent::Plain;
        };
        let sent = self.send_on(path, sending, &mut fill);
        drop(paths);
        match sent {
            Tried::Sent(sent) => sent,
            Tried::Full => self.send_later(port, sending, to, since, &mut fill),
        }
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
                let (nonce, name) = (path.mark, sending.to);
                let mark = Proof { nonce, number }.to_octets();
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                // A mark that is lost is waited for 20 ms by the receiver.
                let _ = dgram::send(sending.fd, name, &mark, None, flags);
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
        let is_put = matches!(put, Ok(Put::Done));
        if let Way::ChannelBarrier(number) = way {
            let channel = path.channel;
            let barrier = Control::Barrier { channel, number };
            if !is_put || !link.say(path.link.generation, &barrier) {
                path.chooser.handle_barrier_not_sent();
            }
        }
        match put {
            Ok(Put::Done) => {
                count(&self.counts.sent);
                Tried::Sent(Sent::Done)
            }
            Ok(Put::Full { said }) => {
                if !said {
                    // The mark is behind plain datagrams, and nothing on the channel says so yet.
                    path.chooser.handle_opened();
                }
                Tried::Full
            }
            Ok(Put::Gone) => {
                path.chooser.handle_lost();
                Tried::Sent(Sent::Plain)
            }
            Err(errno) => Tried::Sent(Sent::Failed(errno)),
        }
    }

    /// The carrier is full: refuses, or waits a little and drops.
    #[cold]
    fn send_later(
        &'static self,
        port: &'static Port,
        sending: Sending<'_>,
        to: End,
        since: Duration,
        fill: &mut impl FnMut(&mut [u8]) -> Result<(), i32>,
    ) -> Sent {
        let may_block = !sending.dont_wait && !file::does_not_wait(sending.fd);
        loop {
            let attempt = Attempt {
                carrier: Carrier::Full,
                others_wait: false,
                has_room: false,
                may_block,
                since,
            };
            match Policy::Prefer.admit(attempt, now()) {
                Verdict::Again => return Sent::Failed(libc::EAGAIN),
                Verdict::Wait(_) => std::thread::sleep(LOOK_AGAIN),
                _ => {
                    count(&self.counts.dropped_full);
                    return Sent::Done;
                }
            }
            let Some(mut paths) = port.paths() else {
                return Sent::Plain;
            };
            let Some(path) = paths.find(to) else {
                return Sent::Plain;
            };
            if let Tried::Sent(sent) = self.send_on(path, sending, fill) {
                return sent;
            }
        }
    }

    /// Whether a channel to this destination is worth having, as busily as it is sent to.
    #[inline]
    fn is_wanted(&self, to: End, now: Duration) -> bool {
        let (Locked::Held(mut known) | Locked::Orphaned(mut known)) = self.destinations.lock()
        else {
            return false;
        };
        known.handle_send(to, now) != Known::Plain
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
        if !is_ruled || process::is_borrowed() || !port.keep(fd) {
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
