//! Sockets whose programs have to be woken: what came over carriers the kernel does not know of.
//!
//! A bell is a datagram of Weft's own to the socket. It may be lost, on the way or because the kernel's queue is full;
//! so while something waits that nobody takes, it is rung again, later and later.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Service;
use crate::offload::now;
use crate::port::Held;

/// How long after a bell the next one is rung, doubled each time.
const AGAIN_MIN: Duration = Duration::from_millis(2);
/// The most.
const AGAIN_MAX: Duration = Duration::from_secs(1);

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
        self.ring_once(port, by);
        let taken = taken(port);
        let (again_at, pause) = (now() + AGAIN_MIN, AGAIN_MIN);
        let bell = Bell {
            port,
            by,
            taken,
            again_at,
            pause,
        };
        match self.bells.0.iter_mut().find(|other| other.port == port) {
            Some(other) => *other = bell,
            None => self.bells.0.push(bell),
        }
    }

    fn ring_once(&mut self, port: Held, (generation, channel): (u32, u16)) {
        let offload = self.offload;
        // A socket that is connected hears its peer alone.
        let is_connected = |fd| weft_os::beside::peer_end(fd).is_some();
        if port.with_fd(is_connected) != Some(true) {
            port.with_fd(|fd| offload.ring(fd));
            return;
        }
        let by = self.sides.iter_mut();
        if let Some(side) = by.into_iter().find(|side| side.generation() == generation) {
            side.ring(channel, now());
            crate::counts::count(&offload.counts.bells);
        }
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
            let inlet = bell.port.inlet();
            let waits = inlet.is_some_and(|mut inlet| !inlet.is_empty(now()));
            if !waits {
                self.bells.0.swap_remove(at);
                continue;
            }
            let taken = taken(bell.port);
            if taken == bell.taken {
                bell.pause = (bell.pause * 2).min(AGAIN_MAX);
                let (port, by) = (bell.port, bell.by);
                bell.again_at = now() + bell.pause;
                self.ring_once(port, by);
            } else {
                (bell.taken, bell.pause) = (taken, AGAIN_MIN);
                bell.again_at = now() + AGAIN_MIN;
            }
            at += 1;
        }
    }

    /// The program took something of late: it is there, and its queue is worth waiting for.
    pub(crate) fn is_busy(port: Held) -> bool {
        const LATELY: u64 = 10_000_000;
        let taken_at = port.port.taken_at.load(Ordering::Relaxed);
        (now().as_nanos() as u64).saturating_sub(taken_at) < LATELY
    }
}

fn taken(port: Held) -> u64 {
    port.inlet().map_or(0, |inlet| inlet.taken)
}
