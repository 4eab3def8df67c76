//! A stream in full operation: a socket, what was received of it and not consumed, and the two
//! loops that move octets between the socket and a queue pair.

mod in_order;

use std::net::SocketAddr;
use std::time::Duration;

use weft_os::lists::Gather;
use weft_os::net::is_end;
use weft_os::poll::Interest;
use weft_verbs::outgoing::Piece;
use weft_verbs::placing::PlacePolicy;
use weft_verbs::qp::{Ending, MeetingNumber, Qp as QpMachine};

use super::buffers::{self, BUFFER_OCTETS_MIN};
use super::placing::Placing;
use crate::carrier::{Carried, Carrier, Transfer};
use crate::host::EngineHost;
use crate::progress::Token;
use crate::stats::{Counted, Slot};

/// Octets framed ahead of the socket when payload goes by reference.
const FILL_BY_REFERENCE_OCTETS: usize = 512 * 1024;
/// The same when it is copied beside its header: what is copied stays in a core's cache until the
/// kernel has it.
const FILL_COPIED_OCTETS: usize = 128 * 1024;

/// How a stream came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamEnd {
    /// The peer sent FIN.
    Finished,
    /// Reset, timeout, or an error of the kernel's.
    Broken,
}

/// A queue pair's stream. In memory what every pass looks at comes first, as in the queue pair itself.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Stream {
    pub(super) carrier: Carried,
    /// Borrowed for a pass, and kept while octets in it are not consumed.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The socket takes no more for now.
    pub(super) blocked: bool,
    /// What the epoll set waits for.
    pub(super) interest: Interest,
    fin_sent: bool,
    /// The carrier may come to have rings.
    pub(super) has_rings: bool,
    /// It has, and octets go through them.
    pub(super) shares: bool,
    /// Whoever polls looks at it, and its bell is not armed.
    pub(super) listed: bool,
    /// The socket takes nothing any more.
    broken: bool,
    /// How it ended, where the queue pair goes on receiving what had arrived.
    pub(super) over: Option<StreamEnd>,
    /// Takes octets in any order; without it they are taken in order.
    placing: Option<Box<Placing>>,
    pub(super) token: Token,
    pub(super) slot: Slot,
    pub(super) octets_in: u64,
    pub(super) octets_out: u64,
    pub(super) counted: Counted,
    /// The other end: a socket that was reset does not know it any more.
    pub(super) peer: SocketAddr,
    /// When it is looked at next for room in its ring that no bell can tell of.
    pub(super) room_looked_for_at: Option<Duration>,
    /// What its peer was told, to offer rings by.
    pub(super) meeting: Option<MeetingNumber>,
}

impl Stream {
    pub(super) fn new(
        carrier: Box<dyn Carrier>,
        token: Token,
        peer: SocketAddr,
        slot: Slot,
        leftover: &[u8],
    ) -> Stream {
        Stream {
            has_rings: carrier.rings().is_some(),
            shares: false,
            room_looked_for_at: None,
            listed: false,
            meeting: None,
            carrier: carrier.into(),
            token,
            peer,
            slot,
            counted: Counted::default(),
            buffer: leftover.to_vec(),
            start: 0,
            end: leftover.len(),
            placing: None,
            blocked: false,
            interest: Interest::Read,
            fin_sent: false,
            over: None,
            broken: false,
            octets_in: leftover.len() as u64,
            octets_out: 0,
        }
    }

    /// Whether octets wait that came with the start-up.
    pub(super) fn has_buffered(&self) -> bool {
        self.end > self.start
            || self
                .placing
                .as_ref()
                .is_some_and(|placing| placing.has_arrived())
    }

    /// Whether octets are placed ahead of order where they come so.
    pub(super) fn places_ahead(&self) -> bool {
        self.placing.is_some()
    }

    /// Octets that were placed ahead of order so far, that had to be kept, and that are kept now.
    pub(super) fn placed_and_kept(&self) -> [u64; 3] {
        match &self.placing {
            Some(placing) => placing.placed_and_kept(),
            None => [0, self.carrier.kept_octets(), 0],
        }
    }

    /// Takes octets as they arrive from now on, if the carrier hands them over so.
    pub(super) fn place_ahead(&mut self, policy: PlacePolicy) {
        let leftover = &self.buffer[self.start..self.end];
        self.placing = Placing::begin(&*self.carrier, policy, leftover).map(Box::new);
        if self.placing.is_some() {
            self.buffer = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }

    /// Sends what the queue pair has to send, as far as the socket takes it.
    pub(super) fn transmit(
        &mut self,
        qp: &mut QpMachine,
        host: &mut EngineHost<'_>,
    ) -> Option<StreamEnd> {
        if self.broken {
            let gone = !qp.ending().is_live();
            return gone.then_some(StreamEnd::Broken);
        }
        let budget = if qp.sends_by_reference() {
            FILL_BY_REFERENCE_OCTETS
        } else {
            FILL_COPIED_OCTETS
        };
        loop {
            qp.fill(budget, host);
            if qp.outgoing().queued() == 0 {
                self.blocked = false;
                if qp.ending() == Ending::Draining && !self.fin_sent {
                    self.fin_sent = true;
                    self.carrier.finish();
                }
                // With the peer's FIN, both directions are closed now.
                return self.over.filter(|_| self.fin_sent);
            }
            let (asked, outcome) = self.send_once(qp, host);
            match outcome {
                Transfer::Octets(octets) => {
                    self.octets_out += octets as u64;
                    qp.taken(octets, self.carrier.unreleased(), host);
                    if octets < asked {
                        self.blocked = true;
                        return None;
                    }
                }
                Transfer::WouldBlock => {
                    self.blocked = true;
                    return None;
                }
                Transfer::End => return self.cut_off(qp, host),
                Transfer::Failed(error) => {
                    return match is_end(&error) {
                        true => self.cut_off(qp, host),
                        false => Some(StreamEnd::Broken),
                    };
                }
            }
        }
    }

    /// Completes what the carrier has released since it was asked last.
    #[inline]
    pub(super) fn note_released(&self, qp: &mut QpMachine, host: &mut EngineHost<'_>) {
        let before = qp.outgoing().unreleased();
        if before > 0 {
            let unreleased = self.carrier.unreleased();
            if unreleased < before {
                qp.released(unreleased, host);
            }
        }
    }

    /// Octets go through rings from now on if the other end uses them, too. Whether that is news.
    #[inline]
    pub(super) fn begin_sharing(&mut self, qp: &mut QpMachine) -> bool {
        if self.shares || !self.has_rings {
            return false;
        }
        let Some(with_crc) = self.carrier.rings().and_then(|rings| rings.shared()) else {
            return false;
        };
        self.shares = true;
        self.blocked = false;
        if !with_crc {
            qp.stop_crc();
        }
        true
    }

    /// Whether a ring that was full has room again, which no descriptor says.
    #[inline]
    pub(super) fn has_room_in_ring(&self) -> bool {
        self.shares && self.carrier.rings().is_some_and(|rings| rings.has_room())
    }

    /// Sees to it that the carrier refers to none of the program's memory.
    #[inline]
    pub(super) fn keep_copies(&self, qp: &QpMachine) {
        if qp.outgoing().unreleased() > 0 {
            self.carrier.keep_copies();
        }
    }

    /// The socket takes no more. What had arrived before is received first: how it went on is known only then.
    fn cut_off(&mut self, qp: &mut QpMachine, host: &mut EngineHost<'_>) -> Option<StreamEnd> {
        self.broken = true;
        self.blocked = false;
        self.receive(qp, host).1
    }

    /// The queue pair goes on receiving what had arrived, and nothing more is read.
    pub(super) fn note_over(&mut self, end: StreamEnd) {
        self.over = self.over.or(Some(end));
        self.broken |= end == StreamEnd::Broken;
        self.blocked &= !self.broken;
    }

    fn send_once(&self, qp: &QpMachine, host: &EngineHost<'_>) -> (usize, Transfer) {
        let mut cuts = qp.outgoing().cuts().peekable();
        if let Some(only) = qp
            .outgoing()
            .only_octets()
            .filter(|_| cuts.peek().is_none())
        {
            return (only.len(), self.carrier.send(only));
        }
        let mut list = Gather::default();
        for piece in qp.outgoing().pieces() {
            let fits = match piece {
                Piece::Octets(octets) => list.push(octets),
                Piece::Memory(span) => match host.locate(span) {
                    Some((memory, offset)) => {
                        list.push_registered(memory, offset, span.len as usize)
                    }
                    // The program deregistered memory that it had posted: the message cannot be
                    // finished, and nobody else's octets may stand in for it.
                    None if list.octets() == 0 => {
                        let gone = std::io::Error::from(std::io::ErrorKind::InvalidInput);
                        return (0, Transfer::Failed(gone));
                    }
                    None => false,
                },
            };
            if !fits {
                break;
            }
        }
        let octets = list.octets();
        cuts.take_while(|cut| *cut <= octets)
            .for_each(|cut| list.cut(cut));
        (list.octets(), self.carrier.send_gather(&list))
    }

    /// Receives until the socket is empty, the budget is spent or the stream ends.
    pub(super) fn receive(
        &mut self,
        qp: &mut QpMachine,
        host: &mut EngineHost<'_>,
    ) -> (bool, Option<StreamEnd>) {
        if qp.is_full() || self.over.is_some() {
            // Told once. The messages that are held, and those behind them that the kernel has, are received all the
            // same.
            self.broken = self.broken || self.carrier.is_broken();
            self.blocked &= !self.broken;
            return (false, None);
        }
        // What came ahead of order is kept by this side, and no descriptor shows it.
        if qp.pauses() && self.placing.is_none() {
            return (false, None);
        }
        if let Some(placing) = &mut self.placing {
            let (octets, end) = placing.receive(&*self.carrier, qp, host);
            self.octets_in += octets as u64;
            return (octets > 0, end);
        }
        if self.buffer.len() < BUFFER_OCTETS_MIN {
            self.borrow_buffer();
        }
        let received = self.receive_all(qp, host);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            buffers::give_back(std::mem::take(&mut self.buffer));
        }
        received
    }
}
