//! One connection.
//!
//! Drive it like every state machine here: segments by [`Connection::handle_segment`], commands by methods named after
//! them, time by [`Connection::handle_timeout`]; after each of these drain [`Connection::poll_placement`],
//! [`Connection::poll_transmit`] and [`Connection::poll_event`], then wait until [`Connection::deadline`].
//!
//! The connection knows numbers, not octets: [`Transmit::payload`] says which part of the stream to put behind the
//! header, [`Placement`] where octets of the payload just handed in belong.
//!
//! | file | concern |
//! | --- | --- |
//! | `handshake.rs` | until both SYNs are acknowledged |
//! | `input.rs` | what an arriving segment means, in the order of RFC 9293 section 3.10.7.4 |
//! | `acknowledge.rs` | what its ACK, SACK and window mean to the sender |
//! | `recovery.rs` | losses: when a recovery begins and ends |
//! | `output.rs` | what leaves next |
//! | `cut.rs` | where segments end |
//! | `expiry.rs` | what an expired timer means |
//! | `sender.rs` | the sending half's data |
//! | `settings.rs` | what the program may change on the way |

mod acknowledge;
mod counters;
mod cut;
mod expiry;
mod handshake;
mod input;
mod output;
mod recovery;
mod sender;
mod settings;

use super::ack::Acknowledger;
use super::challenge::Challenges;
use super::config::Config;
use super::keepalive::Probes;
use super::receive::{Placement, Receiver};
use super::segment::Header;
use super::seq::{Position, Seq, FIRST_OCTET};
use super::state::{Cause, State};
use super::timers::{Timer, Timers};
use super::timestamps::Clock;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;
use sender::Sender;

pub use counters::Counters;
pub use handshake::{Accepted, Secrets};

/// A segment to send. Ports are the owner's to fill in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The header, ports zero.
    pub header: Header,
    /// Which octets of the stream follow it, counted from the first octet of data.
    pub payload: Range<u64>,
    /// When the payload is for several segments: octets of data in each (the last may have fewer). The device or the
    /// driver cuts it.
    pub segment_size: Option<u16>,
}

/// Why a connection is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Both sides closed.
    Finished,
    /// The peer refused the attempt.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// Nothing was heard for too long.
    TimedOut,
    /// The program aborted it, or closed it before it was there.
    Aborted,
}

/// Something the program wants to know. Each is told once; several advances of one kind are told as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The connection is there.
    Established,
    /// More octets are there in order; [`Connection::delivered`] says how many.
    Delivered,
    /// More octets are acknowledged; [`Connection::acknowledged`] says how many. Buffers before are the program's
    /// again.
    Acknowledged,
    /// The peer announced urgent octets, or more of them; [`Connection::urgent`] says up to where.
    Urgent,
    /// The peer will send no more.
    PeerFinished,
    /// Nothing will happen any more, but a farewell in TIME-WAIT.
    Closed(Reason),
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: State,
    send: Sender,
    /// Exists from the peer's SYN on.
    receive: Option<Receiver>,
    /// Shift of the window field we send.
    shift: u8,
    /// The shift that our SYN says, or will. The peer goes by it, whatever the window has become when it answers.
    offered_shift: u8,
    sack: bool,
    clock: Option<Clock>,
    clock_offset: u32,
    ack: Acknowledger,
    last_ack_sent: Seq,
    timers: Timers,
    challenges: Challenges,
    probes: Probes,
    /// Pacing, and nothing else, held back the next segment when it was asked for last.
    paced: bool,
    /// Window probes since the window was last open.
    persist_backoff: u32,
    /// When the SYN left, while it left once.
    syn_left: Option<Duration>,
    /// The answer to a segment that is not of this connection.
    stray: Option<Header>,
    due: DueNow,
    placements: Vec<Placement>,
    pending: Pending,
    detached: bool,
    progress: Option<Duration>,
    /// The peer's FIN was just reached.
    peer_finished: bool,
    counters: Counters,
}

/// Segments that are to leave whatever the windows say.
#[derive(Clone, Copy, Debug, Default)]
struct DueNow {
    syn: bool,
    reset: bool,
    window_probe: bool,
    loss_probe: bool,
}

/// Events not told yet.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    established: bool,
    delivered: bool,
    acknowledged: bool,
    urgent: bool,
    peer_finished: bool,
    closed: Option<Reason>,
}

impl Connection {
    /// State as of RFC 9293.
    pub fn state(&self) -> State {
        self.state
    }

    /// Octets of data received in order so far.
    pub fn delivered(&self) -> u64 {
        self.receive.as_ref().map_or(0, Receiver::delivered)
    }

    /// Octets received behind holes.
    pub fn out_of_order(&self) -> u64 {
        self.receive.as_ref().map_or(0, Receiver::out_of_order)
    }

    /// The offsets in the stream of the octets received behind holes.
    pub fn behind_holes(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.receive.iter().flat_map(Receiver::behind_holes)
    }

    /// Offset in the stream behind the last octet that the peer calls urgent, as long as the program has not taken it.
    /// Urgent octets stand in the stream among the others: nothing takes them out (RFC 6093 section 6).
    pub fn urgent(&self) -> Option<u64> {
        self.receive.as_ref()?.urgent()
    }

    /// When the peer last showed that our segments reach it: it acknowledged something new, or went on where our ACKs
    /// let it (RFC 4861 section 7.3.1).
    pub fn progress(&self) -> Option<Duration> {
        self.progress
    }

    /// Octets of data the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.send.una.clamp(FIRST_OCTET, self.send.end) - FIRST_OCTET
    }

    /// Octets of data the program gave so far.
    pub fn written(&self) -> u64 {
        self.send.end - FIRST_OCTET
    }

    /// Octets given and not yet acknowledged.
    pub fn outstanding(&self) -> u64 {
        self.written() - self.acknowledged()
    }

    /// Octets that the program gave and that were not sent yet.
    pub fn unsent(&self) -> u64 {
        self.send.unsent()
    }

    /// Octets of data in a full segment now: the EMSS of RFC 5044.
    pub fn mss(&self) -> u32 {
        self.send.mss()
    }

    /// Sums so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// SND.NXT and RCV.NXT as numbers, for a TIME-WAIT entry.
    pub(crate) fn numbers(&self) -> (Seq, Seq) {
        let next = self.receive.as_ref().map_or(Seq(0), Receiver::next_seq);
        (self.send.seq(self.send.nxt), next)
    }

    /// The timestamp clock's offset and the peer's last value, for a TIME-WAIT entry.
    pub(crate) fn timestamps(&self) -> Option<(u32, u32)> {
        self.clock
            .as_ref()
            .map(|clock| (self.clock_offset, clock.recent()))
    }

    /// The program gives `octets` more to send. They must stay readable until [`Event::Acknowledged`] has passed them.
    /// False when the connection is closed for sending.
    pub fn write(&mut self, octets: u64) -> bool {
        if !self.state.may_send() || self.send.finished {
            return false;
        }
        self.send.end += octets;
        true
    }

    /// A message ends behind the octets given so far. When the connection is [`Config::aligned`], segments end at cuts:
    /// several pieces between cuts share a segment when they fit whole, and only a piece that is larger than a segment
    /// is divided.
    pub fn cut(&mut self) {
        let end = self.send.end;
        if self.config.aligned && self.send.cuts.back() != Some(&end) {
            self.send.cuts.push_back(end);
        }
    }

    /// The program has taken `octets` of what was delivered: so much more may come.
    pub fn consume(&mut self, octets: u64) {
        let mss = u64::from(self.config.mss());
        let Some(receive) = &mut self.receive else {
            return;
        };
        receive.consume(octets);
        if receive.window_grew(mss) && self.state.may_receive() {
            self.ack.at_once();
        }
    }

    /// The program will send no more (CLOSE, RFC 9293 section 3.10.4). What it gave is sent before the FIN.
    pub fn close(&mut self) {
        if self.send.finished {
            return;
        }
        let Some(next) = self.state.next(Cause::Close) else {
            return;
        };
        self.send.finished = true;
        if next == State::Closed {
            self.end(Reason::Aborted);
        } else {
            self.state = next;
        }
    }

    /// Nobody will read what the peer sends from now on: FIN-WAIT-2 does not last for ever, and data that arrives after
    /// the close is answered with a reset (RFC 9293 section 3.6.1, RFC 1122 section 4.2.2.13).
    pub fn detach(&mut self, now: Duration) {
        self.detached = true;
        if self.state == State::FinWait2 {
            self.timers.set(Timer::Linger, now + self.config.linger);
        }
    }

    /// The program wants no more of it (ABORT, RFC 9293 section 3.10.5): the peer gets a reset.
    pub fn abort(&mut self) {
        self.due.reset = self.state.is_synchronized() || self.state == State::SynReceived;
        self.due.reset &= self.state != State::TimeWait;
        self.end(Reason::Aborted);
    }

    /// Octets of the payload handed in last belong somewhere. Drain it before the next segment.
    pub fn poll_placement(&mut self) -> Option<Placement> {
        (!self.placements.is_empty()).then(|| self.placements.remove(0))
    }

    /// All of [`Connection::poll_placement`] at once.
    pub fn placements(&mut self) -> alloc::vec::Drain<'_, Placement> {
        self.placements.drain(..)
    }

    /// There is an event to poll.
    pub fn has_event(&self) -> bool {
        let pending = &self.pending;
        pending.established
            | pending.delivered
            | pending.acknowledged
            | pending.urgent
            | pending.peer_finished
            | pending.closed.is_some()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let pending = &mut self.pending;
        let flags = [
            (&mut pending.established, Event::Established),
            // Before the octets it speaks of.
            (&mut pending.urgent, Event::Urgent),
            (&mut pending.delivered, Event::Delivered),
            (&mut pending.acknowledged, Event::Acknowledged),
            (&mut pending.peer_finished, Event::PeerFinished),
        ];
        for (flag, event) in flags {
            if core::mem::take(flag) {
                return Some(event);
            }
        }
        pending.closed.take().map(Event::Closed)
    }

    /// When to call [`Connection::handle_timeout`] and to poll again.
    pub fn deadline(&self) -> Option<Duration> {
        let pace = self.paced.then(|| self.send.pacer.next());
        match (self.timers.next(), pace) {
            (Some(timer), Some(pace)) => Some(timer.min(pace)),
            (timer, pace) => timer.or(pace),
        }
    }

    /// Moves to where `cause` leads.
    fn step(&mut self, cause: Cause, now: Duration) {
        let Some(next) = self.state.next(cause) else {
            return;
        };
        self.state = next;
        match next {
            State::Closed | State::TimeWait => self.end_in(next, Reason::Finished),
            State::FinWait2 if self.detached => {
                self.timers.set(Timer::Linger, now + self.config.linger);
            }
            _ => {}
        }
    }

    /// There is no connection any more.
    fn end(&mut self, reason: Reason) {
        self.end_in(State::Closed, reason);
    }

    fn end_in(&mut self, state: State, reason: Reason) {
        if self.state == State::Closed && state == State::Closed && self.pending.closed.is_some() {
            return;
        }
        self.state = state;
        self.timers.stop_all();
        self.pending.closed = Some(reason);
    }

    fn seq_of(&self, at: Position) -> Seq {
        self.send.seq(at)
    }
}
