//! TCP sockets, whose octets may go as DDP: which they are, and what was decided of each.
//!
//! Every send and receive is the kernel's. What decides whether a connection is to be more than TCP is a rule or the
//! socket option, when it connects or listens.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `record` | what is known of one socket |
//! | `standing` | what was asked for and decided of it |
//! | `deciding` | when that is, and what becomes of the program's call |
//! | `option` | the socket option by which a program asks itself |
//! | `rsocket` | what an rsocket has beside that |
//! | `preferring` | connections that are DDP where the other end is Weft |
//! | [`shown`] | what others see of them |
//! | `service` | the thread that does what nobody calls for |
//! | `holding` | what a call that waits holds |
//! | `lingering` | connections that the program has closed |
//! | `mapper` | the thread that takes what comes for mapped memory |
//! | `room` | what a program is told of room that the peer has to give |
//! | `watching` | in which epolls sockets are |
//! | `transport` | where DDP takes a connection over |

mod deciding;
mod holding;
mod lingering;
mod mapper;
mod option;
mod preferring;
mod record;
mod room;
mod rsocket;
mod service;
pub mod shown;
mod standing;
mod transport;
mod watching;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use weft_iwarp::mpa::crc;
use weft_os::{pages, process, stream};
use weft_settings::streams::StreamRules;

use crate::ddp::own_maps::Mapped;
use crate::ddp::Slots;
use crate::discovering::Discovery;
use crate::flusher::Flusher;
use crate::kind::{Origin, Sockets};
use crate::pool::Pool;
use crate::references::References;
use crate::waiting::Waiting;
use lingering::Lingering;
use mapper::Mapper;
use rsocket::Rsockets;
use watching::{Epolls, Others, Words};

pub use option::{MODE_OCTETS, SOL_WEFT, STATUS_OCTETS};
pub use record::{Record, Watch};
pub use rsocket::RdmaOptions;
pub use standing::{Asked, Reason, Standing, State};

/// TCP sockets that can be looked after at a time: a proxy may have tens of thousands.
const STREAMS_MAX: usize = 65_536;
/// The same where no rule looks for them, and a program asks for some.
const CLAIMED_MAX: usize = 4096;
/// What a row of records may be: a page, which is the least that the kernel gives.
const ROW_OCTETS: usize = 4096;
/// Records that are made at a time: the power of two that a page holds.
const ROW_RECORDS: usize = 1 << (ROW_OCTETS / std::mem::size_of::<Record>()).ilog2();

/// The TCP sockets of one process.
#[derive(Debug)]
pub struct Streams {
    records: Pool<Record, ROW_RECORDS>,
    rules: StreamRules,
    /// FPDUs are to carry a CRC.
    crc: bool,
    /// Of connections over DDP, in memory that forked processes share.
    slots: Option<&'static Slots>,
    /// Others may see how the octets of sockets go.
    is_shown: bool,
    /// Whether the other end of a connection is Weft; nothing where there is no memory to find out.
    discovery: Option<&'static Discovery>,
    /// Sockets in which something is left to do.
    waiting: Waiting,
    /// Connections that the program has closed; nothing where there is no memory to look after any.
    lingering: Option<Lingering>,
    flusher: Flusher,
    /// Memory that is mapped for peers; nothing where there is no memory for any.
    mapped: Option<Mapped>,
    mapper: Mapper,
    /// Sockets of which the kernel may report framing.
    doubtful: Waiting,
    /// Epolls in which sockets were entered.
    epolls: Epolls,
    /// With which words; nothing where there is no memory to count them.
    words: Option<Words>,
    /// Descriptors of other kinds that were entered, too.
    others: Others,
    /// Connections over DDP that this process has.
    connections: AtomicU32,
    /// The program confines itself: from then on every connection is TCP.
    confined: AtomicBool,
    /// Which of them are rsockets; nothing where there is no memory for any.
    rsockets: Option<Rsockets>,
    /// No hook sees the program's own calls: a number may stand for something else at any time.
    unseen: AtomicBool,
    /// Somebody was told that there is no room for more.
    is_full_told: AtomicBool,
    /// Sockets that were looked after.
    begun: AtomicU64,
}

impl Streams {
    /// No sockets yet; of those to come `rules` say whose octets are to go as DDP.
    /// `crc`: their FPDUs carry one. `discovery` finds out whether others are Weft. `is_shown`: others may see how
    /// their octets go.
    pub fn new(
        rules: StreamRules,
        crc: bool,
        discovery: Option<&'static Discovery>,
        is_shown: bool,
    ) -> Streams {
        // Before there is a thread of ours.
        crc::prepare();
        let mut streams = Streams {
            records: Pool::new(0),
            rules,
            crc,
            slots: None,
            is_shown,
            discovery,
            waiting: Waiting::new(0),
            lingering: Lingering::new(),
            flusher: Flusher::new(service::TICK),
            mapped: Mapped::new(),
            mapper: Mapper::new(0),
            doubtful: Waiting::new(0),
            epolls: Epolls::new(),
            words: Words::new(),
            others: Others::new(),
            connections: AtomicU32::new(0),
            confined: AtomicBool::new(false),
            rsockets: None,
            unseen: AtomicBool::new(false),
            is_full_told: AtomicBool::new(false),
            begun: AtomicU64::new(0),
        };
        let slots = Slots::new(streams.rules.any());
        streams.slots = slots.map(|slots| &*Box::leak(Box::new(slots)));
        if let (Some(discovery), Some(slots)) = (discovery, streams.slots) {
            discovery.look_for(slots);
        }
        streams.records = Pool::new(streams.most());
        streams.waiting = Waiting::new(streams.most());
        streams.doubtful = Waiting::new(streams.most());
        streams.mapper = Mapper::new(streams.most());
        streams.rsockets = Rsockets::new(streams.most());
        streams
    }

    /// What is known of the socket with this number.
    #[inline]
    pub fn record(&self, number: usize) -> Option<&'static Record> {
        self.records.get(number)
    }

    /// A descriptor that nobody may close: programs started from here find their connections by it.
    pub fn kept(&self) -> Option<i32> {
        self.slots.as_ref()?.file()
    }

    /// Sockets that were looked after so far.
    #[inline]
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Sockets that have a record now.
    pub fn open(&self) -> usize {
        self.records.taken().count()
    }
}

impl Sockets for Streams {
    fn most(&self) -> usize {
        match self.rules.any() {
            true => STREAMS_MAX,
            false => CLAIMED_MAX,
        }
    }

    fn is_looked_for(&self) -> bool {
        self.rules.any()
    }

    /// Many programs use `read` and `write` alone on their connections.
    fn is_met_by_read(&self) -> bool {
        self.rules.any()
    }

    fn is_made_by(&self, family: i32, socket_type: i32, protocol: i32) -> bool {
        socket_type == libc::SOCK_STREAM
            && [0, libc::IPPROTO_TCP].contains(&protocol)
            && stream::is_internet(family)
    }

    fn look(&self, fd: i32, origin: Origin) -> Option<u64> {
        match origin {
            Origin::Accepted(_) => stream::inode(fd),
            Origin::Made | Origin::Found => stream::tcp_inode(fd),
        }
    }

    fn begin(&self, inode: u64, origin: Origin) -> Option<usize> {
        let row = |first: usize| {
            let records = std::array::from_fn(|at| Record::new((first + at) as u32));
            pages::place::<[Record; ROW_RECORDS]>(records).map(|row| &row[..])
        };
        let record = self.records.take(row)?;
        record.begin(origin);
        // What another process has decided of a socket that was found goes on being shown.
        self.show(inode, record.standing(), origin != Origin::Found);
        if let (Origin::Accepted(word), Some(rsockets)) = (origin, &self.rsockets) {
            rsockets.inherit(record.number(), word);
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        Some(record.number as usize)
    }

    fn handed_on(&self, number: usize, fd: i32) -> u32 {
        self.record(number).map_or(0, |record| {
            self.standing(record, fd).to_word() | self.handed_on_maps(record)
        })
    }

    fn references(&self, number: usize) -> Option<&References> {
        self.record(number).map(|record| &record.references)
    }

    fn end(&self, number: usize) {
        if let Some(record) = self.record(number) {
            self.forget_question(record);
            self.forget_watches(record);
            self.end_ddp(record);
        }
        if let Some(discovery) = self.discovery {
            discovery.leave(number as u32);
        }
        if let Some(rsockets) = &self.rsockets {
            rsockets.forget(number);
        }
        // The thread has nothing to do for whoever has the number next.
        self.waiting.remove(number);
        self.records.give_back(number);
    }

    fn is_inherited(&self) -> bool {
        self.slots.is_some_and(Slots::are_inherited)
    }

    fn share(&self, number: usize) {
        if let (Some(slots), Some(record)) = (&self.slots, self.record(number)) {
            if let Ok(Some(slot)) = record.slot() {
                slots.share(slot);
            }
        }
    }

    fn closing(&'static self, number: usize, fd: i32) {
        let Some(record) = self.record(number) else {
            return;
        };
        self.serve(record);
        self.take_from_thread(record);
        self.leave_stand_in(record, fd);
        if self.is_anothers(record) {
            return;
        }
        match record.references.is_last() {
            true => self.wind_up(record, fd),
            false => {
                self.give_memory_back(record, fd);
                self.watched_no_more(record, None, fd);
            }
        }
    }

    fn needs_descriptor(&self, number: usize) -> bool {
        // The number matters to no part of this.
        self.record(number)
            .filter(|record| !record.references.is_last())
            .and_then(|record| self.connection(record, -1))
            .is_some_and(|connection| {
                connection.needs_service() || connection.slot().is_mapped_here()
            })
    }

    fn go_on_with(&'static self, number: usize, fd: i32) {
        if let Some(record) = self.record(number) {
            if let Some(connection) = self.connection(record, fd) {
                self.called(record, connection);
                if connection.slot().is_mapped_here() {
                    self.watch(record, fd);
                }
            }
        }
    }

    fn ending(&self, number: usize, fd: i32, waited: u32) -> bool {
        self.record(number)
            .is_none_or(|record| self.wind_up_at_end(record, fd, waited))
    }

    fn ending_closed(&self, waited: u32) -> bool {
        self.wind_up_lingering(waited)
    }

    fn release(&self, number: usize) {
        if let Some(record) = self.record(number) {
            record.release();
        }
    }

    /// The octets of a connection are one stream: whoever writes some of them past the hooks writes those of TCP.
    fn passed_by(&self, number: usize) {
        self.release(number);
    }

    fn accepting_unseen(&self, number: usize) {
        if let Some(record) = self.record(number) {
            record.release();
            self.leave_listener(record);
        }
    }

    #[inline]
    fn anything_waits(&self) -> bool {
        self.waiting.any() || self.lingering.as_ref().is_some_and(Lingering::any)
    }

    #[inline]
    fn looks_again(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    fn flush_all(&self) {
        let lingers = self.lingering.as_ref().is_some_and(Lingering::any);
        if !lingers && !self.looks_again() {
            return;
        }
        // A child in its parent's memory may have closed what the numbers stand for. Confined programs are not asked:
        // the system call that asks could be their end.
        if !self.is_confined() && process::is_borrowed() {
            return;
        }
        if let (Some(lingering), Some(slots)) = (&self.lingering, &self.slots) {
            lingering.serve(slots, self.discovery);
        }
        let records = self.waiting.iter().filter_map(|number| self.record(number));
        records.for_each(|record| self.serve(record));
    }

    /// A child has a copy of what was decided, and the same connections.
    fn before_fork(&self) {
        self.share_ddp();
    }

    fn confine(&self) {
        self.confined.store(true, Ordering::SeqCst);
        if !process::is_borrowed() {
            self.flusher.end();
            self.mapper.end();
            if let Some(discovery) = self.discovery {
                discovery.confine();
            }
        }
    }
}
