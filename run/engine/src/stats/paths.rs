//! What a network of its own tells of its connections and its interfaces, where `weft stat` reads it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use weft_os::shm::SharedWords;

use super::{INTERFACES_AT, INTERFACE_WORDS, PATH_AT};

/// Octets of a name that are shown.
const NAME_OCTETS: usize = 16;

/// Congestion control of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// CUBIC.
    Cubic,
    /// Reno.
    Reno,
    /// A fixed rate.
    Rate,
    /// None.
    Unlimited,
}

impl Control {
    /// Every value, in the order of their numbers.
    pub const ALL: [Control; 4] = [
        Control::Cubic,
        Control::Reno,
        Control::Rate,
        Control::Unlimited,
    ];
}

/// What a TCP of our own knows of a connection's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Its congestion control.
    pub control: Control,
    /// Octets a second that it may send now.
    pub rate: u64,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Segments sent again.
    pub retransmissions: u64,
    /// The most holes that there ever were at a time in what it received.
    pub holes: u64,
}

impl Path {
    pub(super) const WORDS: usize = 5;

    fn words(&self) -> [u64; Path::WORDS] {
        [
            1 + self.control as u64,
            self.rate,
            self.rtt.as_nanos() as u64,
            self.retransmissions,
            self.holes,
        ]
    }

    /// None where nobody has told.
    pub(super) fn of(words: [u64; Path::WORDS]) -> Option<Path> {
        let [control, rate, rtt, retransmissions, holes] = words;
        Some(Path {
            control: *Control::ALL.get(control.checked_sub(1)? as usize)?,
            rate,
            rtt: Duration::from_nanos(rtt),
            retransmissions,
            holes,
        })
    }
}

/// An interface of such a network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Frames that were received.
    pub frames_in: u64,
    /// Frames that were sent.
    pub frames_out: u64,
    /// Frames that it did not take.
    pub frames_lost: u64,
    /// Frames that came while nobody looked, for which there was no room.
    pub dropped: u64,
}

impl Interface {
    fn words(&self) -> [u64; INTERFACE_WORDS] {
        let mut name = [0; NAME_OCTETS];
        for (place, octet) in name.iter_mut().zip(self.name.bytes()) {
            *place = octet;
        }
        let half =
            |from: usize| u64::from_ne_bytes(name[from..from + 8].try_into().unwrap_or_default());
        [
            half(0),
            half(8),
            self.frames_in,
            self.frames_out,
            self.frames_lost,
            self.dropped,
        ]
    }

    /// None where nobody has told.
    pub(super) fn of(words: [u64; INTERFACE_WORDS]) -> Option<Interface> {
        let [first, second, frames_in, frames_out, frames_lost, dropped] = words;
        let octets: Vec<u8> = [first, second]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .take_while(|octet| *octet > 0)
            .collect();
        (!octets.is_empty()).then(|| Interface {
            name: String::from_utf8_lossy(&octets).into_owned(),
            frames_in,
            frames_out,
            frames_lost,
            dropped,
        })
    }
}

/// Where a connection tells of its path, as long as it is open.
#[derive(Clone, Debug)]
pub struct PathRow {
    pub(super) words: Arc<SharedWords>,
    /// First word of the connection.
    pub(super) slot: usize,
}

impl PathRow {
    /// Tells how the path is now.
    pub fn write(&self, path: &Path) {
        store(&self.words.words()[self.slot + PATH_AT..], &path.words());
    }
}

/// Where an interface tells of itself.
#[derive(Clone, Debug)]
pub struct InterfaceRow {
    pub(super) words: Arc<SharedWords>,
    pub(super) place: usize,
}

impl InterfaceRow {
    /// Tells what it has done so far.
    pub fn write(&self, interface: &Interface) {
        let at = INTERFACES_AT + self.place * INTERFACE_WORDS;
        store(&self.words.words()[at..], &interface.words());
    }
}

fn store(words: &[AtomicU64], values: &[u64]) {
    for (word, value) in words.iter().zip(values) {
        word.store(*value, Ordering::Relaxed);
    }
}
