//! Sockets whose programs have to be woken: what came over carriers the kernel does not know of.
//!
//! A bell is a datagram of Weft's own to the socket. It may be lost, on the way or because the kernel's queue is full;
//! so while something waits that nobody takes, it is rung again, later and later. One that does not arrive goes to
//! somebody else, who has bound the same port (`SO_REUSEADDR`): then the channels to the socket are closed.
//!
//! A socket that is connected hears its peer alone, and is sent its bells by that one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::dgram;

use super::Service;
use crate::counts::count;
use crate::offload::now;
use crate::port::Held;
use crate::suitable::is_connected;

/// How long after a bell the next one is rung, doubled each time.
const AGAIN_MIN: Duration = Duration::from_millis(2);
/// The most.
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// From this pause between two bells on, which is 6 ms after the first, a connected socket whose peer's carriers are
/// all gone is sent them by itself: for a moment it hears nobody else, and what it sends comes back to it.
const BY_ITSELF_AFTER: Duration = Duration::from_millis(8);

/// How often it is looked whether a bell has arrived, at most, and how long between two looks: a program that has taken
/// it out of the kernel's queue may not have counted it yet. Not for long: the thread does nothing else meanwhile, and
/// who asks for channels to a socket that cannot be woken would keep it from its work.
const LOOKS_MAX: u32 = 10;
const LOOKS_EVERY: Duration = Duration::from_micros(50);

/// So many bells in a row may fail to arrive.
const UNHEARD_MAX: u32 = 2;

/// A socket that was rung for.
#[derive(Debug)]
struct Bell {
    port: Held,
    /// A channel on which something came for it: the place of the carrier, and the channel's number.
    by: (u32, u16),
    /// What the program had taken by then.
    taken: u64,
    again_at: Duration,
    pause: Duration,
    /// Bells in a row that did not arrive.
    unheard: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Bells(Vec<Bell>);

impl Bells {
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.0.iter().map(|bell| bell.again_at).min()
    }
}

impl Service {
    /// Something waits at a socket, and nobody was told. It came on this channel of the carrier of this generation.
    pub(crate) fn ring(&mut self, port: Held, by: (u32, u16)) {
        let is_heard = self.ring_once(port, by, Duration::ZERO);
        let taken = taken(port);
        let (again_at, pause) = (now() + AGAIN_MIN, AGAIN_MIN);
        // Where the program has taken nothing since the last bell that one is of the same row.
        let before = self
            .bells
            .0
            .iter()
            .find(|other| other.port == port && other.taken == taken);
        let unheard = before.map_or(0, |before| before.unheard);
        let bell = Bell {
            port,
            by,
            taken,
            again_at,
            pause,
            unheard: if is_heard { 0 } else { unheard + 1 },
        };
        match self.bells.0.iter_mut().find(|other| other.port == port) {
            Some(other) => *other = bell,
            None => self.bells.0.push(bell),
        }
    }

    /// Says whether the bell arrived, as far as that can be seen. `pause`: until the next one.
    fn ring_once(&mut self, port: Held, by: (u32, u16), pause: Duration) -> bool {
        if let Some(has_come) = self.ring_unconnected(port) {
            return has_come;
        }
        // It hears its peer alone: that is asked for a bell.
        match self.channel_of_peer(port, by) {
            Some((at, channel)) => {
                self.sides[at].ring(channel, now());
                count(&self.offload.counts.bells);
            }
            None if pause >= BY_ITSELF_AFTER => {
                self.ring_in_place_of_peer(port);
            }
            // A carrier may be on its way.
            None => {}
        }
        true
    }

    /// Whether a bell comes to it: it may be bound to an interface, or hear from some addresses alone, or another
    /// socket has its port. To one that is connected a bell comes where the proof does.
    pub(super) fn can_be_woken(&self, port: Held) -> bool {
        self.ring_unconnected(port).unwrap_or(true)
    }

    /// Sends the bell to the socket from itself, and says whether it has come; nothing where the socket is connected.
    fn ring_unconnected(&self, port: Held) -> Option<bool> {
        let offload = self.offload;
        // The program may be waiting, and have taken the bell before it is looked for.
        let before = offload.bells_taken();
        let is_there = |fd| {
            offload.bells_taken() != before || dgram::ready(fd, libc::POLLIN, 0) & libc::POLLIN != 0
        };
        // One look at the descriptor for all of it: each bell takes these calls.
        let rung = port.with_fd(|fd| {
            let (is_connected, mut has_left, mut has_come) = (is_connected(fd), false, false);
            if !is_connected {
                has_left = offload.ring(fd);
                has_come = has_left && is_there(fd);
            }
            (is_connected, has_left, has_come)
        });
        let (is_connected, has_left, mut has_come) = rung.unwrap_or_default();
        if is_connected {
            return None;
        }
        for look in 1..LOOKS_MAX {
            if !has_left || has_come {
                break;
            }
            // A second bell would be one more for another program, where that has the port.
            if look > 1 {
                std::thread::sleep(LOOKS_EVERY);
            }
            has_come = port.with_fd(is_there) == Some(true);
        }
        Some(has_come)
    }

    /// The socket sends the bell to itself. Who is woken by it waits in its first call until the socket hears its peer
    /// again: else its answer might come back to it, and its own address be taken for its peer's.
    fn ring_in_place_of_peer(&self, port: Held) {
        let _no_send = port.paths();
        let _no_receive = port.inlet();
        port.with_fd(|fd| self.offload.ring_in_place_of_peer(fd));
    }

    /// A channel of the peer's to the socket: the one that something came by, or another one where that is closed. On a
    /// carrier that takes no more channels, as both ends have connected, it may be open for long.
    fn channel_of_peer(&self, port: Held, by: (u32, u16)) -> Option<(usize, u16)> {
        let sides = self.sides.iter().enumerate();
        let open = sides.filter(|(_, side)| side.is_heard());
        let channels = open.flat_map(|(at, side)| {
            let proven = side.peer_channels.iter();
            let proven = proven.filter(|(_, channel)| channel.source.is_some());
            let of_port = proven.filter(move |(_, channel)| channel.port == port);
            of_port.map(move |(number, _)| (at, *number))
        });
        let is_same = |(at, number): &(usize, u16)| (self.sides[*at].generation(), *number) == by;
        channels
            .clone()
            .find(is_same)
            .or_else(|| channels.clone().next())
    }

    /// Rings again where nobody came.
    pub(crate) fn ring_again(&mut self) {
        let mut at = 0;
        while at < self.bells.0.len() {
            let bell = &mut self.bells.0[at];
            if now() < bell.again_at {
                at += 1;
                continue;
            }
            let (port, by) = (bell.port, bell.by);
            let waits = port.inlet().is_some_and(|mut inlet| !inlet.is_empty(now()));
            if !waits {
                self.bells.0.swap_remove(at);
                continue;
            }
            let taken = taken(port);
            if taken != bell.taken {
                (bell.taken, bell.pause, bell.unheard) = (taken, AGAIN_MIN, 0);
                bell.again_at = now() + AGAIN_MIN;
                at += 1;
                continue;
            }
            bell.pause = (bell.pause * 2).min(AGAIN_MAX);
            bell.again_at = now() + bell.pause;
            let pause = bell.pause;
            let is_heard = self.ring_once(port, by, pause);
            let bell = &mut self.bells.0[at];
            bell.unheard = if is_heard { 0 } else { bell.unheard + 1 };
            if bell.unheard < UNHEARD_MAX {
                at += 1;
                continue;
            }
            self.bells.0.swap_remove(at);
            self.refuse_to(port);
        }
    }

    /// The program took something of late: it is there, and its queue is worth waiting for.
    pub(crate) fn is_busy(port: Held) -> bool {
        /// Ten milliseconds, and a tick of the slowest kernels, by whose clock a receive notes its time.
        const LATELY: u64 = 20_000_000;
        let taken_at = port.port.taken_at.load(Ordering::Relaxed);
        dgram::now_coarse().saturating_sub(taken_at) < LATELY
    }
}

fn taken(port: Held) -> u64 {
    port.inlet().map_or(0, |inlet| inlet.taken)
}
