//! UDP sockets: datagrams that a busy program sends are gathered, and those it receives are coalesced by the kernel and
//! split here.
//!
//! How datagrams go together and come apart is in `proto/datagram`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `record` | what is known of one socket |
//! | `outgoing` | sends: which datagrams gather, and with which they leave |
//! | `flushing` | sends those that no later send takes along |
//! | `offloading` | datagrams over carriers: when they are offered one, and how they come out |
//! | `options` | options of a socket, which say what of this may be done |
//! | `incoming` | receives: when they are coalesced, and how datagrams come out |
//! | `receiver` | a socket's incoming datagrams, split |
//! | `slot` | what processes that share a socket agree on |

mod flushing;
mod incoming;
mod offloading;
mod options;
mod outgoing;
mod receiver;
mod record;
mod slot;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use weft_os::{dgram, pages, process};
use weft_settings::datagrams::DatagramRules;
use weft_udp_offload::counts::Counted;
use weft_udp_offload::Offload;

use crate::kind::{Origin, Sockets};
use crate::pool::Pool;
use crate::references::References;

use crate::flusher::{Flusher, Gathering};
use crate::waiting::Waiting;
use slot::SLOT_WORDS;

pub use incoming::Receive;
pub use options::RATE_OCTETS;
pub use outgoing::Call;
pub use receiver::{Ask, Datagram, CONTROL_OCTETS};
pub use record::Record;
pub use waits::Ended;

/// UDP sockets that can be looked after at a time: their records are some pages each.
const DATAGRAMS_MAX: usize = 4096;
/// Slots that processes share; one that another process may still have is never used again.
const SLOTS_MAX: usize = 65_536;

/// The UDP sockets of one process.
#[derive(Debug)]
pub struct Datagrams {
    /// That can be looked after.
    most: usize,
    records: Pool<Record, 1>,
    waiting: Waiting,
    /// Sockets that an epoll watches and that had no port yet when they were looked at.
    portless: Waiting,
    /// Shared with children. The first slot is none: its first word counts the slots given out, by any process.
    slots: &'static [AtomicU32],
    rules: DatagramRules,
    /// Sends or receives in quick succession after which a socket is busy; 0 for always.
    busy_after: u32,
    flusher: Flusher,
    /// How many batches had left when the flusher looked last.
    looked_at_sends: AtomicU64,
    /// What carries datagrams over connections, where a rule lets any.
    offload: Option<&'static Offload>,
    /// The thread that was about to sleep last, in a wait for several descriptors; 0 once it has received.
    slept: AtomicUsize,
    /// The program confines itself: nothing more gathers.
    confined: AtomicBool,
    counts: Counts,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Counts {
    /// Datagrams that were gathered.
    pub gathered: AtomicU64,
    /// Calls in which they left.
    pub sends: AtomicU64,
    /// Datagrams handed out by splitting.
    pub split: AtomicU64,
    /// Heads they were split from.
    pub heads: AtomicU64,
}

impl Datagrams {
    /// No sockets yet; of those to come `rules` says which are offloaded, and datagrams wait for `hold` at most.
    /// `offload` has their carriers, if any may have some.
    /// Nothing where there is no memory.
    pub fn new(
        rules: DatagramRules,
        busy_after: u32,
        hold: Duration,
        offload: Option<&'static Offload>,
    ) -> Option<Datagrams> {
        // Without a rule that offloads anything none is looked after.
        let most = if rules.any() { DATAGRAMS_MAX } else { 0 };
        Some(Datagrams {
            most,
            records: Pool::new(most),
            waiting: Waiting::new(most),
            portless: Waiting::new(most),
            slots: pages::shared_words(SLOTS_MAX * SLOT_WORDS)?,
            rules,
            busy_after,
            flusher: Flusher::new(hold),
            looked_at_sends: AtomicU64::new(0),
            offload,
            slept: AtomicUsize::new(0),
            confined: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// What is known of the socket with this number.
    #[inline]
    pub fn record(&self, number: usize) -> Option<&'static Record> {
        self.records.get(number)
    }

    /// What was done so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What became of datagrams over carriers, where any may have one.
    pub fn carried(&self) -> Option<Counted> {
        self.offload.map(Offload::counted)
    }

    /// Whether the program has confined itself.
    #[inline]
    pub(crate) fn is_confined(&self) -> bool {
        self.confined.load(Ordering::Relaxed)
    }

    /// A slot that no process has had.
    fn new_slot(&self) -> Option<u32> {
        let number = 1 + self.slots[0].fetch_add(1, Ordering::Relaxed);
        ((number as usize) < SLOTS_MAX).then_some(number)
    }
}

impl Sockets for Datagrams {
    fn most(&self) -> usize {
        self.most
    }

    fn is_looked_for(&self) -> bool {
        self.rules.any()
    }

    /// Datagrams are sent and received by calls that only sockets have, in nearly every program.
    fn is_met_by_read(&self) -> bool {
        false
    }

    fn is_made_by(&self, family: i32, socket_type: i32, _protocol: i32) -> bool {
        socket_type == libc::SOCK_DGRAM && is_internet(family)
    }

    fn look(&self, fd: i32, _origin: Origin) -> Option<u64> {
        let facts = dgram::facts(fd)?;
        is_internet(facts.family).then_some(facts.inode)
    }

    fn begin(&self, _inode: u64, origin: Origin) -> Option<usize> {
        let make = |number| {
            let record = pages::place(Record::new(number, self.slots))?;
            Some(std::slice::from_ref(&*record))
        };
        let record = self.records.take(make)?;
        if !record.owns_slot() {
            let Some(slot) = self.new_slot() else {
                self.records.give_back(record.number);
                return None;
            };
            record.set_slot(slot);
        }
        record.slot().reset();
        record.begin(origin);
        Some(record.number)
    }

    /// A UDP socket accepts nothing.
    fn handed_on(&self, _number: usize, _fd: i32) -> u32 {
        0
    }

    fn references(&self, number: usize) -> Option<&References> {
        self.record(number).map(|record| &record.references)
    }

    fn end(&self, number: usize) {
        self.waiting.remove(number);
        self.portless.remove(number);
        if let Some(record) = self.record(number) {
            self.offload_closed(record);
        }
        self.records.give_back(number);
    }

    /// What waits is this process's to send.
    fn share(&self, number: usize) {
        if let Some(record) = self.record(number) {
            self.flush_record(record);
        }
        self.offload_nothing(number);
    }

    fn is_inherited(&self) -> bool {
        false
    }

    /// A bell may be all that the kernel has, of a socket that had none when the wait began.
    #[inline]
    fn looks_again(&self) -> bool {
        self.offload.is_some()
    }

    /// The thread that flushes needs none of the program's.
    fn needs_descriptor(&self, _number: usize) -> bool {
        false
    }

    fn go_on_with(&'static self, _number: usize, _fd: i32) {}

    fn ending(&self, number: usize, _fd: i32, _waited: u32) -> bool {
        if let Some(record) = self.record(number) {
            self.flush_record(record);
        }
        true
    }

    fn ending_closed(&self, _waited: u32) -> bool {
        if let Some(offload) = self.offload {
            offload.ending();
        }
        true
    }

    fn closing(&'static self, number: usize, fd: i32) {
        if let Some(record) = self.record(number) {
            record.tx_fd.store(fd, Ordering::Relaxed);
            self.flush_for_good(record);
        }
    }

    fn release(&self, number: usize) {
        if let Some(record) = self.record(number) {
            self.flush_record(record);
            record.tx_off.store(true, Ordering::Release);
            record.rx_off.store(true, Ordering::Release);
            self.offload_nothing(number);
        }
    }

    /// A datagram is one by itself; only the order matters, and that none of Weft's own is met.
    fn passed_by(&self, number: usize) {
        if let Some(record) = self.record(number) {
            self.flush_record(record);
        }
        self.offload_nothing(number);
    }

    /// None of UDP accepts.
    fn accepting_unseen(&self, _number: usize) {}

    #[inline]
    fn anything_waits(&self) -> bool {
        self.waiting.any() || self.offload.is_some_and(Offload::anything_waits)
    }

    fn closing_numbers(&self, first: u32, last: u32) {
        if let Some(offload) = self.offload {
            offload.closing_numbers(first, last);
        }
    }

    fn flush_all(&self) {
        if let Some(offload) = self.offload {
            offload.flush_all();
        }
        if !self.waiting.any() {
            return;
        }
        for record in self.waiting.iter().filter_map(|number| self.record(number)) {
            self.flush_record(record);
        }
    }

    fn before_fork(&self) {
        self.flush_all();
        let used = |record: &&Record| record.references.is_used();
        for record in self.records.taken().filter(used) {
            record.slot().share();
            self.offload_shared(record);
        }
    }

    fn confine(&self) {
        self.confined.store(true, Ordering::SeqCst);
        // The thread of a child in its parent's memory is the parent's.
        if !process::is_borrowed() {
            self.flusher.end();
            if let Some(offload) = self.offload {
                offload.confine();
            }
        }
    }
}

impl Gathering for Datagrams {
    fn waits(&self) -> bool {
        self.anything_waits()
    }

    fn send_waiting(&self) {
        self.flush_aged();
    }

    fn next_tick(&self) -> Option<Duration> {
        self.next_look()
    }

    fn is_over(&self) -> bool {
        self.is_confined()
    }
}

fn is_internet(family: i32) -> bool {
    [libc::AF_INET, libc::AF_INET6].contains(&family)
}

#[cfg(test)]
mod tests;
mod waits;
