//! Destinations that a rule requires a channel for: their queues, and channels that are tried for again and again.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::beside;
use weft_os::dgram::get_int;
use weft_os::lock::Guard;
use weft_settings::datagrams::{Direction, Requires, Uoe, Wait};
use weft_uoe::admission::Policy;
use weft_uoe::queue::{Drop, Limits};
use weft_uoe::way::Chooser;

use super::asking::ASKED_MAX;
use super::channels::Wanted;
use super::side::Side;
use super::Service;
use crate::counts::count;
use crate::link::{LinkId, Put};
use crate::offload::now;
use crate::paths::{Path, Paths, Required};
use crate::port::Held;

/// How soon a channel is tried for again, and by how much later each time: a receiver that is late by some time is
/// found within a quarter of that.
const AGAIN_MIN: Duration = Duration::from_millis(100);
const LATER_EACH_TIME: f64 = 1.25;
/// The most.
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// How long a try may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a destination without a channel is remembered that nothing is sent to. What waits for it is dropped then.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Destinations that are tried for again at a time, and connections that are begun for such, at most: the other places
/// are for those that are tried for the first time.
const AGAIN_AT_A_TIME: usize = 8;
const AGAIN_CONNECTING_MAX: usize = 32;
/// The most memory that one destination's queue is given, whatever the program says (`SO_SNDBUF`).
const MEMORY_MAX: usize = 1 << 20;
/// How soon it is looked again whether there is a place to try in.
const NO_PLACE_PAUSE: Duration = Duration::from_millis(20);
/// Octets of the longest datagram's record, which every queue has room for.
const RECORD_MAX: usize = 66 * 1024;

/// A destination that a rule requires a channel for.
#[derive(Debug)]
pub(crate) struct Requiring {
    pub(super) port: Held,
    pub(super) to: SocketAddr,
    without_udp: bool,
    /// It had a channel when it was looked at last.
    pub(super) was_up: bool,
    /// Datagrams wait in its queue.
    waits: bool,
    again_at: Duration,
    pause: Duration,
    /// It has been tried for since it had a channel last.
    was_tried: bool,
    /// It had a channel, and has none.
    was_lost: bool,
}

/// What is to be done for one.
enum Next {
    /// Nothing before this time; nothing at all where none is given.
    Nothing(Option<Duration>),
    /// Datagrams wait for room on the carrier.
    LookAgain,
    /// It has no channel.
    Try,
    /// Nobody wants it any more.
    Forget,
}

impl Requiring {
    /// Nothing is known of the destination yet.
    fn new(port: Held, to: SocketAddr, requires: &Requires) -> Requiring {
        Requiring {
            port,
            to,
            without_udp: requires.without_udp,
            was_up: false,
            waits: false,
            again_at: now(),
            pause: AGAIN_MIN,
            was_tried: false,
            was_lost: false,
        }
    }

    /// Whether those that were not tried for yet go before it. So they do before one that was lost and that nothing
    /// waits for: its receiver has mostly closed its socket, and answers nobody.
    fn comes_later(&self) -> bool {
        self.was_tried || (self.was_lost && !self.waits)
    }

    /// Whether datagrams waited when it was looked at last.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }
}

impl Service {
    /// A socket sends to a destination that its rule requires a channel for, and has no queue for it.
    pub(crate) fn handle_required(&mut self, port: Held, to: SocketAddr) {
        let is_it = |one: &Requiring| one.port == port && one.to == to;
        if self.requiring.iter().any(is_it) {
            return;
        }
        let own = port.with_fd(beside::local_end).flatten();
        let octets = port.with_fd(|fd| get_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF));
        let Some(own) = own else { return };
        let Some(uoe) = self.offload.rules.uoe(Direction::Send, &[own, to]) else {
            return;
        };
        let Some(requires) = uoe.requires else { return };
        let octets = octets.and_then(Result::ok).unwrap_or(0);
        let path = path(to, &uoe, requires, octets.max(0) as usize);
        let counts = &self.offload.counts;
        let is_put = port.paths().is_some_and(|mut paths| {
            let lost = paths.make_room();
            counts.dropped_full.fetch_add(lost, Ordering::Relaxed);
            paths.put(path)
        });
        if is_put {
            self.requiring.push(Requiring::new(port, to, &requires));
        }
    }

    /// A socket has a queue for a destination already, which another one had before.
    pub(super) fn require_on(&mut self, port: Held, to: SocketAddr) {
        let own = port.with_fd(beside::local_end).flatten();
        let uoe = own.and_then(|own| self.offload.rules.uoe(Direction::Send, &[own, to]));
        if let Some(requires) = uoe.and_then(|uoe| uoe.requires) {
            self.requiring.push(Requiring::new(port, to, &requires));
        }
    }

    /// Sends what waits and can leave; tries for channels that are not there.
    pub(crate) fn serve_required(&mut self) {
        self.required_at = None;
        let mut is_any_queued = false;
        if self.requiring.is_empty() {
            return;
        }
        self.offload.is_any_queued.store(false, Ordering::Release);
        // Who has waited longest is tried for first.
        self.requiring.sort_by_key(|one| one.again_at);
        for mut one in std::mem::take(&mut self.requiring) {
            let next = self.look_at_required(&mut one);
            match next {
                Next::Forget => continue,
                Next::LookAgain => self.look_at(now() + super::TICK),
                Next::Nothing(None) => {}
                Next::Nothing(Some(at)) => self.look_at(at),
                // It keeps its place in the row.
                Next::Try if !self.has_place_to_try(one.comes_later()) => {
                    self.look_at(now() + NO_PLACE_PAUSE);
                }
                Next::Try => {
                    one.again_at = now() + one.pause;
                    one.pause = one.pause.mul_f64(LATER_EACH_TIME).min(AGAIN_MAX);
                    self.look_at(one.again_at);
                    let is_again = one.comes_later();
                    one.was_tried = true;
                    self.find_carrier(Wanted {
                        port: one.port,
                        to: one.to,
                        until: now() + TRY_TIMEOUT,
                        is_required: true,
                        is_again,
                        without_udp: one.without_udp,
                    });
                }
            }
            is_any_queued |= one.waits;
            self.requiring.push(one);
        }
        if is_any_queued {
            // Who puts something in meanwhile need not wake anybody.
            self.offload.is_any_queued.store(true, Ordering::Release);
        }
    }

    /// Whether a channel to a destination can be tried for, which may have been tried for before. One that was not has
    /// the place of who has waited long for an answer.
    fn has_place_to_try(&mut self, is_again: bool) -> bool {
        if !is_again {
            // Who gives up a place to ask in may begin a connection.
            return self.make_place_to_ask() && self.make_place_to_connect();
        }
        let connecting = self.sides.iter().filter(|side| side.is_connecting());
        let asked = self.asked.iter().filter(|asked| asked.wanted().is_again);
        let is_again = |side: &&Side| side.wants.iter().any(|wanted| wanted.is_again);
        asked.count() < AGAIN_AT_A_TIME
            && self.asked.len() < ASKED_MAX
            && connecting.filter(is_again).count() < AGAIN_CONNECTING_MAX
    }

    /// What waits now is never sent.
    pub(super) fn count_unsent(&self) {
        for one in &self.requiring {
            let Some(mut paths) = one.port.paths() else {
                continue;
            };
            let path = paths.find(one.to.into());
            if let Some(required) = path.and_then(|path| path.required.as_mut()) {
                required.queue.clear();
                let counter = &self.offload.counts.dropped_full;
                counter.fetch_add(required.newly_dropped(), Ordering::Relaxed);
            }
        }
    }

    /// Destinations that require a channel are to be looked at by then.
    pub(super) fn look_at(&mut self, at: Duration) {
        self.required_at = Some(self.required_at.map_or(at, |before| before.min(at)));
    }

    fn look_at_required(&self, one: &mut Requiring) -> Next {
        if one.port.port.is_off() {
            return Next::Forget;
        }
        let Some(mut paths) = one.port.paths() else {
            return Next::Forget;
        };
        let now = now();
        let (offload, to) = (self.offload, one.to.into());
        let Some(path) = paths.find(to) else {
            return Next::Forget;
        };
        let (link, channel) = (path.link, path.channel);
        let Some(required) = &mut path.required else {
            return Next::Forget;
        };
        if required.is_up {
            send_queued(offload, link, channel, required, now);
        }
        let dropped = required.newly_dropped();
        offload
            .counts
            .dropped_full
            .fetch_add(dropped, Ordering::Relaxed);
        if one.was_up != required.is_up {
            (one.was_up, one.was_lost) = (required.is_up, !required.is_up);
            (one.pause, one.was_tried) = (AGAIN_MIN, false);
        }
        one.waits = !required.queue.is_empty();
        let since = now.saturating_sub(required.used_at);
        match (required.is_up, one.waits) {
            (true, true) => Next::LookAgain,
            (true, false) => Next::Nothing(None),
            (false, _) if since >= FORGOTTEN_AFTER => {
                required.queue.clear();
                let dropped = required.newly_dropped();
                let counter = &offload.counts.dropped_full;
                counter.fetch_add(dropped, Ordering::Relaxed);
                forget(paths, to)
            }
            (false, _) if now < one.again_at => Next::Nothing(Some(one.again_at)),
            // Nobody has sent of late: whoever does finds the channel tried for within the pause.
            (false, false) if since > AGAIN_MAX => Next::Nothing(Some(now + AGAIN_MAX)),
            (false, _) => Next::Try,
        }
    }
}

fn forget(mut paths: Guard<'static, Paths>, to: weft_uoe::End) -> Next {
    paths.forget(to);
    Next::Forget
}

/// Gives the carrier what waits, as far as it takes it.
fn send_queued(
    offload: &crate::Offload,
    id: LinkId,
    channel: u16,
    required: &mut Required,
    now: Duration,
) {
    let Some(link) = offload.links.get(id.place) else {
        return;
    };
    while let Some(record) = required.queue.front(now) {
        let fill = |room: &mut [u8]| {
            room.copy_from_slice(record.octets);
            Ok::<(), std::convert::Infallible>(())
        };
        let put = link.put(id, channel, record.octets.len(), None, fill);
        match put.unwrap_or_else(|never| match never {}) {
            Put::Done | Put::Flushed => required.queue.pop(),
            Put::Full { .. } => break,
            Put::Gone => {
                required.is_up = false;
                break;
            }
        }
        count(&offload.counts.sent);
    }
    link.flush();
}

/// A destination whose datagrams wait, with a queue of so many octets as the socket's own.
fn path(to: SocketAddr, uoe: &Uoe, requires: Requires, octets: usize) -> Path {
    let octets = octets.clamp(RECORD_MAX, MEMORY_MAX);
    let limits = Limits {
        octets,
        drop: match uoe.drops_oldest {
            true => Drop::Oldest,
            false => Drop::Newest,
        },
        age: uoe.age,
    };
    let policy = match requires.wait {
        Wait::No => Policy::Buffer,
        Wait::For(time) => Policy::Wait(Some(time)),
        Wait::Forever => Policy::Wait(None),
    };
    Path {
        to: to.into(),
        // No carrier's: places begin another generation with 1.
        link: LinkId {
            place: 0,
            generation: 0,
        },
        channel: 0,
        mark: [0; 16],
        packet: 0,
        chooser: Chooser::default(),
        required: Some(Required::new(policy, limits, octets + RECORD_MAX, now())),
    }
}
