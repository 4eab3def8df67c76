//! Channels that sockets here want: opened, in use, lost.

use std::time::Duration;

use weft_uoe::carrier::Secrets;
use weft_uoe::control::Why;
use weft_uoe::way::Chooser;
use weft_uoe::End;

use super::asking::source;
use super::channels::{OwnChannel, Wanted};
use super::names::Owns;
use super::{nonce, Service};
use crate::counts::count;
use crate::offload::now;
use crate::paths::Path;
use crate::stat;
use crate::suitable::is_not_coalesced;

impl Service {
    /// Opens channels that sockets wait for.
    pub(super) fn open_wanted(&mut self, at: usize, now: Duration) {
        if !self.sides[at].is_up() {
            return;
        }
        for wanted in std::mem::take(&mut self.sides[at].wants) {
            let is_known = self.sides[at].has_channel(&wanted);
            if !wanted.port.is_alive() || wanted.port.port.is_off() || is_known {
                continue;
            }
            let owns = self.owns(wanted.port);
            if owns == Owns::No {
                self.stay_plain(&wanted, stat::Why::Shared);
                continue;
            }
            // The proof of the other end comes to this socket.
            let is_early = owns == Owns::Soon || !wanted.port.port.look_at();
            if is_early && now < wanted.until {
                self.sides[at].wants.push(wanted);
                continue;
            }
            let here = self.sides[at].here_towards(wanted.to);
            let source = source(&wanted.port, here);
            let is_looked_at = wanted.port.port.look_at();
            if wanted.port.with_fd(is_not_coalesced) != Some(true) {
                self.leave_alone(wanted.to, stat::Why::Refused);
                continue;
            }
            let opened = source.filter(|_| is_looked_at);
            let opened = opened.is_some_and(|source| self.open(at, wanted, source, now));
            if !opened {
                self.forget(wanted.to);
            }
        }
    }

    fn open(&mut self, at: usize, wanted: Wanted, source: End, now: Duration) -> bool {
        let secrets = Secrets {
            nonce: nonce(),
            challenge: nonce(),
        };
        let nonce = secrets.nonce;
        let carrier = &mut self.sides[at].carrier;
        let Some(channel) = carrier.open(source, wanted.to.into(), secrets, now) else {
            return false;
        };
        self.offload.nonces.add(nonce);
        let own = OwnChannel {
            wanted,
            source,
            nonce,
            is_open: false,
        };
        self.sides[at].own_channels.insert(channel, own);
        true
    }

    /// A channel of a socket here may be used.
    pub(super) fn handle_opened(&mut self, at: usize, number: u16) {
        let side = &mut self.sides[at];
        // Where nothing is proven nothing goes plainly, and no mark is sent.
        let mark = side.carrier.mark_nonce(number).unwrap_or_default();
        let (Some(link), Some(channel)) = (side.link, side.own_channels.get_mut(&number)) else {
            return;
        };
        channel.is_open = true;
        let packet = side.wire.datagram_in_one_packet(channel.wanted.to);
        side.was_used = true;
        side.wire.attached();
        let mut chooser = Chooser::default();
        chooser.handle_opened();
        let path = Path {
            to: channel.wanted.to.into(),
            link,
            channel: number,
            mark,
            packet,
            chooser,
            required: None,
        };
        let (port, to) = (channel.wanted.port, path.to);
        let is_put = port.paths().is_some_and(|mut paths| {
            let is_put = paths.put(path);
            let path = paths.find(to).filter(|_| is_put);
            if let Some(required) = path.and_then(|path| path.required.as_mut()) {
                required.is_up = true;
            }
            is_put
        });
        if !is_put {
            self.sides[at].carrier.close(number, Why::Ends, now());
            return;
        }
        count(&self.offload.counts.opened);
        self.offload.with_destinations(|known| {
            known.handle_channel(to, link.place as u32);
        });
        self.note_channel(to);
        // What waits for the channel leaves.
        self.look_at(now());
    }

    pub(super) fn handle_lost(&mut self, at: usize, number: u16, why: Why) {
        let link = self.sides[at].link;
        let Some(channel) = self.sides[at].own_channels.remove(&number) else {
            return;
        };
        self.retire(channel.nonce);
        if let (Some(link), Some(mut paths)) = (link, channel.wanted.port.paths()) {
            paths.remove(link, number);
        }
        let to = channel.wanted.to;
        match why {
            Why::NoSocket => self.leave_alone(to, stat::Why::Refused),
            Why::NoProof => self.leave_alone(to, stat::Why::NotProven),
            Why::TooMany => self.leave_alone(to, stat::Why::TooMany),
            _ => self.forget(to),
        }
    }

    pub(super) fn handle_passed(&mut self, at: usize, number: u16, barrier: u32) {
        let Some(channel) = self.sides[at].own_channels.get(&number) else {
            return;
        };
        let (port, to) = (channel.wanted.port, channel.wanted.to.into());
        if let Some(mut paths) = port.paths() {
            let path = paths.find(to);
            // The barrier may be one of a channel that this destination had before.
            if let Some(path) = path.filter(|path| path.channel == number) {
                path.chooser.handle_passed(barrier);
            }
        }
    }
}
