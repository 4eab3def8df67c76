//! One UDP socket of the program, whatever number of descriptors it has.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use weft_datagram::destination::Destination;
use weft_datagram::sender::{Sender, QUEUES};
use weft_os::lock::{Guard, Lock, Locked};
use weft_os::process;
use weft_udp_offload::Port;

use super::receiver::Receiver;
use super::slot::{Slot, SLOT_WORDS};
use crate::kind::Origin;
use crate::references::References;

/// What is known of a socket.
#[derive(Debug)]
pub struct Record {
    pub(super) number: usize,
    pub(super) references: References,
    slots: &'static [AtomicU32],
    /// Which of the slots.
    slot: AtomicU32,
    /// The process that took the slot: a child that finds the record free takes one of its own.
    slot_process: AtomicU32,
    /// Nothing is gathered on it.
    pub(super) tx_off: AtomicBool,
    /// The program has shut sending down: the kernel says how every send fails.
    pub(super) is_shut: AtomicBool,
    /// The program has set options by which a receive may give more than a datagram's octets, or others.
    pub(super) has_options: AtomicBool,
    /// Its receives are not to be coalesced.
    pub(super) rx_off: AtomicBool,
    /// A descriptor to flush through.
    pub(super) tx_fd: AtomicI32,
    /// When the first of what gathered did, as [`weft_os::dgram::now`] counts; who gathers has noted it.
    pub(super) gathers_since: AtomicU64,
    /// A descriptor that an epoll watches.
    pub(super) watched_fd: AtomicI32,
    tx: Lock<Outgoing>,
    rx: Lock<Incoming>,
    /// How its datagrams come and go over carriers.
    pub(super) port: Port,
    /// So many receives more are expected to wait, as one has found nothing.
    pub(super) waits: AtomicU32,
    /// How its waits were lately, as [`ShortWaits::to_word`](weft_os::busy_poll::short_waits::ShortWaits) has it.
    pub(super) short_waits: AtomicU64,
    /// The thread that has sent last.
    pub(super) sender: AtomicUsize,
    /// A receive has found nothing since one brought something.
    pub(super) found_nothing: AtomicBool,
    /// The thread that has sent last has waited for a datagram since, and had it.
    pub(super) answered: AtomicBool,
    /// Receives so far, and when every sixteenth was.
    pub(super) receives: AtomicU32,
    pub(super) receives_since: AtomicU64,
}

/// The sending side, under its lock.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) sender: Sender,
    /// The process whose datagrams these are.
    process: u32,
    /// The options of the socket were looked at.
    pub(super) examined: bool,
    /// Destinations that had a datagram the plain way, so that the program was told if they are none.
    tried: [Option<Destination>; QUEUES],
    next_tried: usize,
    /// Which of them was asked for last.
    last_tried: usize,
    /// The socket is known to be connected.
    pub(super) connected: bool,
    /// The last destination the rules were asked about, and what they said.
    pub(super) ruling: Option<(Destination, bool)>,
}

/// The receiving side, under its lock.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) receiver: Receiver,
}

impl Outgoing {
    /// Whether a datagram went to `to` the plain way before; from now on one has.
    #[inline]
    pub(super) fn try_first(&mut self, to: &Destination) -> bool {
        let is = |tried: &Option<Destination>| tried.as_ref() == Some(to);
        if is(&self.tried[self.last_tried]) {
            return true;
        }
        if let Some(found) = self.tried.iter().position(is) {
            self.last_tried = found;
            return true;
        }
        self.tried[self.next_tried] = Some(*to);
        self.next_tried = (self.next_tried + 1) % QUEUES;
        false
    }

    /// What was learnt of destinations holds no longer.
    pub(super) fn forget_destinations(&mut self) {
        self.tried = [None; QUEUES];
        self.ruling = None;
        self.connected = false;
    }
}

impl Record {
    /// The record with this number, without a socket and without one of the slots.
    pub(super) fn new(number: usize, slots: &'static [AtomicU32]) -> Record {
        Record {
            number,
            references: References::new(),
            slots,
            slot: AtomicU32::new(0),
            slot_process: AtomicU32::new(0),
            tx_off: AtomicBool::new(false),
            is_shut: AtomicBool::new(false),
            has_options: AtomicBool::new(false),
            rx_off: AtomicBool::new(false),
            tx_fd: AtomicI32::new(-1),
            gathers_since: AtomicU64::new(0),
            watched_fd: AtomicI32::new(-1),
            tx: Lock::new(Outgoing {
                sender: Sender::new(),
                process: 0,
                examined: false,
                tried: [None; QUEUES],
                next_tried: 0,
                last_tried: 0,
                connected: false,
                ruling: None,
            }),
            rx: Lock::new(Incoming {
                receiver: Receiver::new(),
            }),
            port: Port::new(),
            waits: AtomicU32::new(0),
            short_waits: AtomicU64::new(0),
            sender: AtomicUsize::new(0),
            found_nothing: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            receives: AtomicU32::new(0),
            receives_since: AtomicU64::new(0),
        }
    }

    /// From here on it is the record of a new socket.
    pub(super) fn begin(&self, origin: Origin) {
        self.tx_off.store(false, Ordering::Relaxed);
        self.is_shut.store(false, Ordering::Relaxed);
        self.has_options.store(false, Ordering::Relaxed);
        // Of a socket that others may have too some may receive in ways that no hook sees.
        self.rx_off
            .store(origin == Origin::Found, Ordering::Relaxed);
        let among = self.slot().lock_word();
        self.port.begin(origin == Origin::Found, Some(among));
        self.receives.store(0, Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
        self.short_waits.store(0, Ordering::Relaxed);
        self.found_nothing.store(false, Ordering::Relaxed);
        self.answered.store(false, Ordering::Relaxed);
        if let Some(mut tx) = self.outgoing() {
            tx.sender.abandon();
            tx.sender.forget_path();
            tx.examined = false;
            tx.forget_destinations();
        }
        if let Some(mut rx) = self.incoming() {
            rx.receiver.forget();
        }
    }

    /// What the processes share that have the socket.
    #[inline]
    pub(super) fn slot(&self) -> Slot {
        let at = self.slot.load(Ordering::Relaxed) as usize * SLOT_WORDS;
        Slot::new(&self.slots[at..at + SLOT_WORDS])
    }

    pub(super) fn set_slot(&self, slot: u32) {
        self.slot.store(slot, Ordering::Relaxed);
        self.slot_process.store(process::id(), Ordering::Relaxed);
    }

    /// Whether no other process can have anything to do with the slot.
    pub(super) fn owns_slot(&self) -> bool {
        self.slot_process.load(Ordering::Relaxed) == process::id() && !self.slot().is_shared()
    }

    /// Whether the program can send at a socket that the kernel calls writable.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.port.is_writable()
    }

    /// The calling thread sends. Whether it has waited for a datagram since it did so last, and had it.
    #[inline(always)]
    pub(super) fn sends_after_answer(&self) -> bool {
        self.sender.store(process::thread(), Ordering::Relaxed);
        let answered = self.answered.load(Ordering::Relaxed);
        if answered {
            self.answered.store(false, Ordering::Relaxed);
        }
        answered
    }

    /// The sending side; nothing if this thread has it already and was interrupted by a signal.
    #[inline(always)]
    pub(super) fn outgoing(&self) -> Option<Guard<'_, Outgoing>> {
        let mut outgoing = match self.tx.lock() {
            Locked::Held(guard) | Locked::Orphaned(guard) => guard,
            Locked::Again => return None,
        };
        let process = process::id();
        if outgoing.process != process {
            // What a parent gathered it sends itself.
            outgoing.process = process;
            outgoing.sender.abandon();
        }
        Some(outgoing)
    }

    /// The receiving side, likewise.
    #[inline]
    pub(super) fn incoming(&self) -> Option<Guard<'_, Incoming>> {
        match self.rx.lock() {
            Locked::Held(guard) => Some(guard),
            Locked::Orphaned(mut guard) => {
                guard.receiver.forget();
                Some(guard)
            }
            Locked::Again => None,
        }
    }
}
