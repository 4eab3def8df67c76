//! Statistics of a process, readable by others while it lives.
//!
//! A memfd of 64-bit words, found as `/proc/PID/fd/N -> /memfd:weft-stat (deleted)`; it goes away
//! with the process, whatever way that ends. Word 0 is [`MAGIC`], word 1 the layout version, then
//! the counts of [`Totals`], and from word [`SLOTS_AT`] on [`SLOT_WORDS`] words for each
//! connection slot in the order of [`Connection`]; behind those come the addresses of [`Refused`], and behind
//! these the interfaces of [`Interface`].

mod addresses;
mod paths;
mod reading;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use weft_os::shm::SharedWords;

use addresses::address_words;
pub use paths::{Control, Interface, InterfaceRow, Path as NetworkPath, PathRow};
pub use reading::read;

/// The memfd's name.
pub const NAME: &str = "weft-stat";
/// First word: `weftstat`.
pub const MAGIC: u64 = 0x7765_6674_7374_6174;
/// Second word: changes with the layout.
pub const VERSION: u64 = 3;
/// Words before the connection slots.
pub const SLOTS_AT: usize = 32;
/// Words of a connection slot.
pub const SLOT_WORDS: usize = 32;
/// Connections shown at most; more are counted in the totals only.
pub const SLOTS: usize = 1024;
/// Addresses that were refused something, shown at most.
pub(crate) const REFUSED_ADDRESSES_MAX: usize = 256;
/// Where the addresses begin.
const REFUSED_AT: usize = SLOTS_AT + SLOTS * SLOT_WORDS;
/// Words of an address.
const REFUSED_WORDS: usize = 4;
/// First word of a slot that the connection's network writes.
const PATH_AT: usize = 24;
/// Interfaces of a network of its own, shown at most.
const INTERFACES_MAX: usize = 16;
/// Where they begin.
const INTERFACES_AT: usize = REFUSED_AT + REFUSED_ADDRESSES_MAX * REFUSED_WORDS;
/// Words of an interface.
const INTERFACE_WORDS: usize = 6;
/// Words in all.
const ALL_WORDS: usize = INTERFACES_AT + INTERFACES_MAX * INTERFACE_WORDS;

/// Counts of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The process.
    pub pid: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections ever.
    pub connections_ever: u64,
    /// Queue pairs now.
    pub queue_pairs: u64,
    /// Memory regions now.
    pub regions: u64,
    /// Octets of the streams received.
    pub octets_in: u64,
    /// Octets of the streams sent.
    pub octets_out: u64,
    /// Send work requests completed.
    pub sends: u64,
    /// Receives completed.
    pub recvs: u64,
    /// Work requests that failed, and protocol errors.
    pub errors: u64,
    /// Calls of the poll functions that found nothing, as of the service thread's last round.
    pub empty_polls: u64,
    /// Passes made by the service thread.
    pub service_passes: u64,
    /// How the process is served now: 0 by its service thread, 1 by its own polling.
    pub polled: u64,
    /// Datagrams that came and were dropped.
    pub datagrams_dropped: u64,
    /// Times a peer reached for memory that it was not given.
    pub refused_accesses: u64,
    /// Connections that had to wait, or were refused, because their address did so too often.
    pub slowed: u64,
    /// Connections accepted now whose MPA Request is not there yet.
    pub half_open: u64,
    /// Such connections that were closed to make room for others.
    pub crowded_out: u64,
    /// Datagrams that were dropped because their Q_Key was not the queue pair's.
    pub wrong_qkeys: u64,
    /// Connect attempts of bring-ups that named no queue pair, or were not the peer that it waits for.
    pub wrong_bring_ups: u64,
}

/// Counts of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Queue pair number.
    pub qp: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Octets of the stream received.
    pub octets_in: u64,
    /// Octets of the stream sent.
    pub octets_out: u64,
    /// Send work requests completed.
    pub sends: u64,
    /// Receives completed.
    pub recvs: u64,
    /// DDP segments received.
    pub segments_in: u64,
    /// DDP segments sent.
    pub segments_out: u64,
    /// Errors.
    pub errors: u64,
    /// The CRC is on.
    pub crc: bool,
    /// Largest ULPDU sent, octets.
    pub mulpdu: u64,
    /// Times the peer reached for memory that it was not given.
    pub refused_accesses: u64,
    /// Octets go through memory that both ends share, not through the connection.
    pub rings: bool,
    /// Octets of payload that were placed before what precedes them had arrived.
    pub placed_ahead: u64,
    /// Octets that had to be kept until it had.
    pub copied: u64,
    /// Octets of those that are kept now.
    pub buffered: u64,
    /// What its network knows of its path, where that is not the kernel's.
    pub path: Option<NetworkPath>,
}

/// An address that reached for memory it was not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The address; of IPv6 the network of 64 bits.
    pub address: IpAddr,
    /// How often.
    pub accesses: u64,
    /// Connections of it that needed a turn: they waited, or were refused.
    pub slowed: u64,
}

/// What a reader sees of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counts of the process.
    pub totals: Totals,
    /// Its connections.
    pub connections: Vec<Connection>,
    /// The addresses that reached for memory they were not given.
    pub refused: Vec<Refused>,
    /// The interfaces of a network of its own.
    pub interfaces: Vec<Interface>,
}

/// A count of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Total {
    Connections = 3,
    ConnectionsEver,
    QueuePairs,
    Regions,
    OctetsIn,
    OctetsOut,
    Sends,
    Recvs,
    Errors,
    EmptyPolls,
    ServicePasses,
    Polled,
    DatagramsDropped,
    RefusedAccesses,
    Slowed,
    HalfOpen,
    CrowdedOut,
    WrongQKeys,
    WrongBringUps,
}

const PID: usize = 2;

/// The process's statistics segment; without one (no memfd to be had) counting goes nowhere.
#[derive(Debug)]
pub(crate) struct Stats {
    words: Option<Arc<SharedWords>>,
    free: Mutex<Vec<u32>>,
}

/// A connection's slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot(Option<u32>);

/// What a stream keeps of what it published last: where none of it has changed nothing is published. The rest of
/// [`Published`] changes with octets, or where octets are placed ahead of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub octets_in: u64,
    pub octets_out: u64,
    pub sends: u64,
    pub recvs: u64,
    pub errors: u64,
    pub refused_accesses: u64,
    pub mulpdu: u32,
    pub rings: bool,
}

/// What a connection publishes after a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Published {
    pub counted: Counted,
    pub segments_in: u64,
    pub segments_out: u64,
    pub placed_ahead: u64,
    pub copied: u64,
    pub buffered: u64,
}

impl Stats {
    pub(crate) fn new(wanted: bool) -> Stats {
        let words = wanted
            .then(|| SharedWords::create(NAME, ALL_WORDS).ok())
            .flatten()
            .map(Arc::new);
        if let Some(words) = &words {
            words.words()[PID].store(u64::from(std::process::id()), Ordering::Relaxed);
            words.words()[1].store(VERSION, Ordering::Relaxed);
            words.words()[0].store(MAGIC, Ordering::Release);
        }
        Stats {
            words,
            free: Mutex::new((0..SLOTS as u32).rev().collect()),
        }
    }

    fn total(&self, total: Total) -> Option<&AtomicU64> {
        self.words.as_ref()?.words().get(total as usize)
    }

    pub(crate) fn add(&self, total: Total, n: u64) {
        if let Some(count) = self.total(total) {
            count.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(crate) fn subtract(&self, total: Total, n: u64) {
        if let Some(count) = self.total(total) {
            count.fetch_sub(n, Ordering::Relaxed);
        }
    }

    pub(crate) fn set(&self, total: Total, n: u64) {
        if let Some(count) = self.total(total) {
            count.store(n, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, total: Total) -> u64 {
        self.total(total)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn slot_words(&self, slot: Slot) -> Option<&[AtomicU64]> {
        let start = SLOTS_AT + slot.0? as usize * SLOT_WORDS;
        Some(&self.words.as_ref()?.words()[start..start + SLOT_WORDS])
    }

    /// Takes a slot for a connection.
    pub(crate) fn open(&self, qp: u32, local: SocketAddr, peer: SocketAddr, crc: bool) -> Slot {
        self.add(Total::Connections, 1);
        self.add(Total::ConnectionsEver, 1);
        let slot = Slot(self.free.lock().pop());
        if let Some(words) = self.slot_words(slot) {
            let addresses = address_words(local).into_iter().chain(address_words(peer));
            for (word, value) in words[2..8].iter().zip(addresses) {
                word.store(value, Ordering::Relaxed);
            }
            for word in &words[8..] {
                word.store(0, Ordering::Relaxed);
            }
            words[8].store(u64::from(crc), Ordering::Relaxed);
            words[1].store(u64::from(qp), Ordering::Relaxed);
            words[0].store(1, Ordering::Release);
        }
        slot
    }

    /// Where the connection's network tells of its path.
    pub(crate) fn path_row(&self, slot: Slot) -> Option<PathRow> {
        Some(PathRow {
            words: self.words.clone()?,
            slot: SLOTS_AT + slot.0? as usize * SLOT_WORDS,
        })
    }

    /// Where an interface of the network tells of itself.
    pub(crate) fn interface_row(&self, place: usize) -> Option<InterfaceRow> {
        let words = self.words.clone().filter(|_| place < INTERFACES_MAX)?;
        Some(InterfaceRow { words, place })
    }

    /// Publishes what a connection has counted; the totals grow by the difference to `before`.
    pub(crate) fn publish(&self, slot: Slot, before: &Counted, published: &Published) {
        let now = &published.counted;
        if let Some(words) = self.slot_words(slot) {
            let counts = [
                now.octets_in,
                now.octets_out,
                now.sends,
                now.recvs,
                published.segments_in,
                published.segments_out,
                now.errors,
                u64::from(now.mulpdu),
                now.refused_accesses,
                u64::from(now.rings),
                published.placed_ahead,
                published.copied,
                published.buffered,
            ];
            for (word, count) in words[9..].iter().zip(counts) {
                word.store(count, Ordering::Relaxed);
            }
        }
        let grown = [
            (Total::OctetsIn, now.octets_in - before.octets_in),
            (Total::OctetsOut, now.octets_out - before.octets_out),
            (Total::Sends, now.sends - before.sends),
            (Total::Recvs, now.recvs - before.recvs),
            (Total::Errors, now.errors - before.errors),
        ];
        for (total, by) in grown.into_iter().filter(|(_, by)| *by > 0) {
            self.add(total, by);
        }
    }

    /// Publishes what is known of an address that reached for memory it was not given.
    pub(crate) fn publish_refused(&self, place: usize, refused: &Refused) {
        if let Some(words) = &self.words {
            let at = REFUSED_AT + place * REFUSED_WORDS;
            let [high, low, _] = address_words(SocketAddr::new(refused.address, 0));
            let values = [high, low, refused.accesses, refused.slowed];
            for (word, value) in words.words()[at..].iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Gives a slot back.
    pub(crate) fn close(&self, slot: Slot) {
        self.subtract(Total::Connections, 1);
        if let Some(words) = self.slot_words(slot) {
            words[0].store(0, Ordering::Release);
        }
        if let Some(index) = slot.0 {
            self.free.lock().push(index);
        }
    }
}
