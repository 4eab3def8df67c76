//! The sockets of one process, and the one place that decides what becomes of a call.
//!
//! A hook asks [`Stack::socket`] what a descriptor stands for: nearly always nothing of ours, and the call goes to
//! the C library unchanged. For a UDP socket that a rule names, [`outgoing`] and [`incoming`] decide.

mod incoming;
mod outgoing;
mod record;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::OnceLock;

use weft_os::dgram::{self, Facts};
use weft_os::{pages, process, user};
use weft_settings::datagrams::DatagramRules;
use weft_settings::Settings;

use crate::flusher::Flusher;
use crate::receiver::SLOT;
use crate::table::{Entry, Table};

pub use incoming::Receive;
pub use outgoing::Verdict;
pub use record::Record;

/// Sockets looked after at a time; those beyond are the kernel's.
pub const MOST_SOCKETS: usize = 4096;
/// Slots that processes share; one that another process may still have is never used again.
const MOST_SLOTS: usize = 65_536;

/// All there is for one process.
#[derive(Debug)]
pub struct Stack {
    table: Table,
    records: [OnceLock<&'static Record>; MOST_SOCKETS],
    /// A bit for every socket in which datagrams wait.
    dirty: [AtomicU64; MOST_SOCKETS / 64],
    dirty_count: AtomicU32,
    /// Shared with children. The first slot is none: its first word counts the slots given out, by any process.
    slots: &'static [AtomicU32],
    rules: DatagramRules,
    busy_after: u32,
    flusher: Flusher,
    /// The program confines itself (seccomp): we make no call that it does not make.
    confined: AtomicBool,
    /// What was done, for whoever asks at the end.
    pub counts: Counts,
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

impl Stack {
    /// What the settings ask for, for a program with these names; nothing if they ask for nothing.
    pub fn new(settings: &Settings, names: &[&str]) -> Option<Stack> {
        let rules = settings.udp.for_program(names);
        if !rules.any() || !process::watch() {
            return None;
        }
        user::guard_copies();
        Some(Stack {
            table: Table::new()?,
            records: [const { OnceLock::new() }; MOST_SOCKETS],
            dirty: [const { AtomicU64::new(0) }; MOST_SOCKETS / 64],
            dirty_count: AtomicU32::new(0),
            slots: pages::shared_words(MOST_SLOTS * SLOT)?,
            rules,
            busy_after: settings.udp_busy_after,
            flusher: Flusher::new(settings.udp_hold),
            confined: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// The socket of ours behind `fd`.
    #[inline]
    pub fn socket(&self, fd: i32) -> Option<&'static Record> {
        match self.table.get(fd) {
            Entry::Kernel => None,
            Entry::Socket(index) => self.record(index),
            Entry::Unknown => self.look(fd),
        }
    }

    /// The same, without looking at descriptors nobody has looked at.
    #[inline]
    pub fn known(&self, fd: i32) -> Option<&'static Record> {
        match self.table.get(fd) {
            Entry::Socket(index) => self.record(index),
            _ => None,
        }
    }

    #[inline]
    fn record(&self, index: usize) -> Option<&'static Record> {
        self.records[index].get().copied()
    }

    /// Finds out what `fd` is.
    #[cold]
    fn look(&self, fd: i32) -> Option<&'static Record> {
        if fd < 0 || self.is_confined() || process::is_borrowed() {
            return None;
        }
        self.adopt(fd, false)
    }

    /// Takes note of a socket that has just been made by a call of this process, whatever was known of its number
    /// before.
    pub fn made_socket(&self, fd: i32) {
        if fd < 0 || self.is_borrowed() {
            return;
        }
        self.lose(fd);
        if !self.is_confined() {
            self.adopt(fd, true);
        }
    }

    /// Takes note of a descriptor that came from elsewhere; what it is is seen when it is used.
    pub fn arrived(&self, fd: i32) {
        if fd >= 0 && self.table.get(fd) != Entry::Unknown && !self.is_borrowed() {
            self.lose(fd);
        }
    }

    /// Takes note of a descriptor that has just been made and is no UDP socket.
    pub fn made_other(&self, fd: i32) {
        if fd >= 0 && self.table.get(fd) != Entry::Kernel && !self.is_borrowed() {
            self.lose(fd);
            self.table.set(fd, Entry::Kernel);
        }
    }

    /// The program is about to confine itself. What gathered leaves; from now on nothing more gathers, and no
    /// descriptor is looked at: a call that it does not make itself may be its end.
    pub fn confine(&self) {
        self.flush_all();
        if !self.confined.swap(true, Ordering::SeqCst) && !process::is_borrowed() {
            self.flusher.end();
        }
    }

    /// Whether it has.
    #[inline]
    pub fn is_confined(&self) -> bool {
        self.confined.load(Ordering::Relaxed)
    }

    /// Whether this is a child in its parent's memory. Confined programs are not asked.
    fn is_borrowed(&self) -> bool {
        !self.is_confined() && process::is_borrowed()
    }

    /// `fd` was closed in a way no hook saw: what gathered is lost with it.
    fn lose(&self, fd: i32) {
        if let Entry::Socket(index) = self.table.set(fd, Entry::Unknown) {
            if let Some(record) = self.record(index) {
                self.drop_reference(record);
            }
        }
    }

    /// Enters `fd` in the table. `own`: the socket has just been made, nobody else can have it.
    fn adopt(&self, fd: i32, own: bool) -> Option<&'static Record> {
        let entry = dgram::facts(fd)
            .filter(|facts| [libc::AF_INET, libc::AF_INET6].contains(&facts.family))
            .and_then(|facts| self.record_for(facts, own));
        match entry {
            Some(record) => {
                self.table.set(fd, Entry::Socket(record.index));
                Some(record)
            }
            None => {
                self.table.set(fd, Entry::Kernel);
                None
            }
        }
    }

    /// The record of a socket that has one, else a new one; counts one descriptor more.
    fn record_for(&self, facts: Facts, own: bool) -> Option<&'static Record> {
        let same = |record: &&Record| record.is_of(facts.inode);
        if let Some(known) = self.all_records().find(same) {
            known.refs.fetch_add(1, Ordering::AcqRel);
            return Some(known);
        }
        let record = self.free_record()?;
        record.begin(facts, own);
        Some(record)
    }

    fn all_records(&self) -> impl Iterator<Item = &'static Record> + '_ {
        self.records.iter().map_while(|cell| cell.get().copied())
    }

    fn free_record(&self) -> Option<&'static Record> {
        if let Some(free) = self.all_records().find(|record| record.claim()) {
            if !free.owns_slot() {
                free.set_slot(self.new_slot()?);
            }
            free.slot().reset();
            return Some(free);
        }
        let slot = self.new_slot()?;
        for (index, cell) in self.records.iter().enumerate() {
            if cell.get().is_some() {
                continue;
            }
            let record = pages::place(Record::new(index, self.slots, slot))?;
            if cell.set(record).is_ok() {
                return self.record(index);
            }
        }
        None
    }

    fn new_slot(&self) -> Option<u32> {
        let number = 1 + self.slots[0].fetch_add(1, Ordering::Relaxed);
        ((number as usize) < MOST_SLOTS).then_some(number)
    }

    /// `fd` is about to be closed.
    pub fn closing(&self, fd: i32) {
        if self.table.get(fd) == Entry::Unknown || self.is_borrowed() {
            return;
        }
        self.forget(fd);
    }

    /// Descriptors `first` to `last` are about to be closed.
    pub fn closing_range(&self, first: u32, last: u32) {
        if self.is_borrowed() {
            return;
        }
        for fd in self.table.sockets(first, last) {
            self.forget(fd);
        }
        self.table.forget_kernels(first, last);
    }

    /// Whatever `fd` stood for, it does no longer; what gathered in it leaves.
    fn forget(&self, fd: i32) {
        let Some(record) = self.known(fd) else {
            self.table.set(fd, Entry::Unknown);
            return;
        };
        record.tx_fd.store(fd, Ordering::Relaxed);
        self.flush_for_good(record);
        self.table.set(fd, Entry::Unknown);
        self.drop_reference(record);
    }

    fn drop_reference(&self, record: &'static Record) {
        if record.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.clear_dirty(record);
            record.end();
        }
    }

    /// `new` is about to be made a duplicate of something else.
    pub fn overwriting(&self, new: i32) {
        if let Some(record) = self.known(new) {
            self.flush(record);
        }
    }

    /// `fd` is about to be made a duplicate of something that nobody will tell of.
    pub fn forgetting(&self, fd: i32) {
        if !self.is_borrowed() {
            self.forget(fd);
        }
    }

    /// `new` is a duplicate of `old` now.
    pub fn duplicated(&self, old: i32, new: i32) {
        if old == new || self.is_borrowed() {
            return;
        }
        let record = self.known(old);
        if let Some(record) = record {
            record.refs.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(before) = self.known(new) {
            self.drop_reference(before);
        }
        let entry = record.map_or(Entry::Unknown, |record| Entry::Socket(record.index));
        self.table.set(new, entry);
    }

    /// The process is about to fork: what gathered leaves, and sockets are shared from now on.
    pub fn before_fork(&self) {
        self.flush_all();
        for record in self.all_records().filter(|record| record.is_used()) {
            record.slot().share();
        }
    }

    /// Whether an option that the program sets is one that says it knows better.
    pub fn option_set(&self, record: &Record, level: i32, option: i32) {
        const SEND: [(i32, i32); 5] = [
            (dgram::SOL_UDP, dgram::UDP_SEGMENT),
            (dgram::SOL_UDP, libc::UDP_CORK),
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
            (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
            (libc::SOL_SOCKET, libc::SO_TXTIME),
        ];
        if SEND.contains(&(level, option)) {
            record.tx_off.store(true, Ordering::Release);
        }
        if (level, option) == (dgram::SOL_UDP, dgram::UDP_GRO) && !record.slot().is_coalesced() {
            record.rx_off.store(true, Ordering::Release);
        }
    }

    /// The socket is out of our hands (a stream of the C library was made of it): from now on the kernel's.
    pub fn release(&self, record: &'static Record) {
        self.flush(record);
        record.tx_off.store(true, Ordering::Release);
        record.rx_off.store(true, Ordering::Release);
    }

    /// Marks that datagrams wait in `record`.
    #[inline]
    fn set_dirty(&self, record: &Record) {
        let (word, bit) = (record.index / 64, 1 << (record.index % 64));
        if self.dirty[word].load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        if self.dirty[word].fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.dirty_count.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn clear_dirty(&self, record: &Record) {
        let (word, bit) = (record.index / 64, 1 << (record.index % 64));
        if self.dirty[word].fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            self.dirty_count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    #[inline]
    fn is_dirty(&self, record: &Record) -> bool {
        let (word, bit) = (record.index / 64, 1u64 << (record.index % 64));
        self.dirty[word].load(Ordering::Relaxed) & bit != 0
    }

    /// The thread that flushes.
    pub fn flusher(&self) -> &Flusher {
        &self.flusher
    }

    /// Whether datagrams wait anywhere.
    #[inline]
    pub fn anything_waits(&self) -> bool {
        self.dirty_count.load(Ordering::SeqCst) != 0
    }

    /// Sends what waits in every socket, as far as the kernel takes it at once.
    pub fn flush_all(&self) {
        if !self.anything_waits() {
            return;
        }
        for (number, word) in self.dirty.iter().enumerate() {
            let mut bits = word.load(Ordering::Acquire);
            while bits != 0 {
                let index = number * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(record) = self.record(index) {
                    self.flush(record);
                }
            }
        }
    }
}

/// A flag that hooks read without a lock.
type Flag = AtomicBool;
/// A descriptor.
type Fd = AtomicI32;
/// A small state.
type State = AtomicU8;
