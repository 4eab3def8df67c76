//! The loop of a driver: frames in, timeouts, events, frames out, until there is nothing left to do.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_engine::carrier::Alarm;
use weft_engine::settings::transport::Direction;
use weft_engine::settings::TransportRules;
use weft_inet::stack::{Frame, FrameInfo, Stack};
use weft_inet::tcp::{Connection, ConnectionId, EndpointEvent, Event, State as TcpState};
use weft_os::device::BATCH_FRAMES_MAX;
use weft_os::packet::ReceivedFrame;

use super::copies::Pool;
use super::ports::Ports;
use super::showing::Showing;
use super::table::{Closed, Conn, Key, Table};
use crate::link::Link;

/// Frames that one turn takes from the link, so that whoever waits for the lock has it soon.
const FRAMES_OF_A_TURN_MAX: usize = 64;
/// Octets that one turn takes: then those have their turn for whom they are, while a core's cache still has them.
const OCTETS_OF_A_TURN_MAX: usize = 512 << 10;
/// Octets of the largest frame that a link shows.
const FRAME_MAX: usize = 64 << 10;
/// A link without frames is asked so often whether its interface is still there: it takes a system call, and frames
/// that come meanwhile wait for its end. Who is woken for an interface that went away may come by in vain so long.
const ASK_LINK_EVERY: Duration = Duration::from_millis(1);
/// No alarm is sooner, whatever the stack says: a thread that only waits for alarms leaves the core meanwhile.
const ALARM_AFTER_MIN: Duration = Duration::from_micros(50);
/// VIRTIO_NET_HDR_F_NEEDS_CSUM and _DATA_VALID: the frame never left the machine, or its checksum was verified.
const CHECKSUM_GOOD: u8 = 3;

/// Sums of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames that arrived, cut or tagged for a VLAN ones not among them.
    pub frames_in: u64,
    /// Frames that the link took.
    pub frames_out: u64,
    /// Frames that the link did not take.
    pub frames_lost: u64,
}

/// Everything behind a driver's lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) link: Box<dyn Link>,
    pub(super) stack: Stack,
    pub(super) table: Table,
    pub(super) ports: Ports,
    /// Memory for what connections copy.
    pub(super) pool: Pool,
    pub(super) counters: Counters,
    pub(super) showing: Showing,
    /// How connections send.
    pub rules: TransportRules,
    began: Instant,
    /// Frames that leave next; kept for its memory.
    pub(super) frames: Vec<Frame>,
    /// Frames for the interface itself.
    pub(super) looped: VecDeque<Vec<u8>>,
    /// The interface is gone.
    gone: bool,
    /// Looks of threads that poll.
    pub(super) looks: u32,
    /// When a link without frames is asked next whether its interface is there.
    asks_link_at: Duration,
    alarm: Option<Arc<dyn Alarm>>,
    /// When it was last told to run the driver.
    armed: Option<Duration>,
    /// The share of each connection in what windows promise, and for how many connections that is.
    pub(super) shares: usize,
}

impl State {
    pub fn new(link: Box<dyn Link>, stack: Stack, random: u64) -> State {
        let mut state = State {
            table: Table::default(),
            ports: Ports::new(random),
            pool: Pool::default(),
            counters: Counters::default(),
            showing: Showing::default(),
            rules: TransportRules::default(),
            began: Instant::now(),
            frames: Vec::with_capacity(BATCH_FRAMES_MAX),
            looped: VecDeque::new(),
            gone: false,
            looks: 0,
            asks_link_at: Duration::ZERO,
            alarm: None,
            armed: None,
            shares: 1,
            link,
            stack,
        };
        state.table.window = state.promised();
        state
    }

    /// Time since the driver began.
    #[inline]
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The clock goes on by so much.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn pass(&mut self, time: Duration) {
        if let Some(began) = self.began.checked_sub(time) {
            self.began = began;
        }
    }

    // --- the loop

    /// Takes what arrived, sends what is due.
    pub fn run(&mut self) {
        let now = self.now();
        self.receive(now);
        self.turn(now);
    }

    fn receive(&mut self, now: Duration) {
        if self.gone {
            return;
        }
        let State {
            link,
            stack,
            table,
            counters,
            asks_link_at,
            ..
        } = self;
        let (mut frames, mut octets) = (0, 0);
        let outcome = loop {
            // So few that not even the largest ones are more than a turn takes.
            let most =
                (FRAMES_OF_A_TURN_MAX - frames).min((OCTETS_OF_A_TURN_MAX - octets) / FRAME_MAX);
            if most == 0 {
                break Ok(());
            }
            let mut each = |frame: &ReceivedFrame<'_>| {
                octets = (octets + frame.octets.len()).min(OCTETS_OF_A_TURN_MAX);
                if frame.missing > 0 || frame.vlan.is_some() {
                    return;
                }
                counters.frames_in += 1;
                let info = FrameInfo {
                    checksum_good: frame.offload[0] & CHECKSUM_GOOD != 0,
                    looped: false,
                };
                stack.handle_frame(frame.octets, info, table, now);
            };
            match link.receive(most, &mut each) {
                Ok(came) => {
                    frames += came;
                    if came < most {
                        // A ring that one sees to be empty shows no error.
                        let is_silent = frames == 0 && !link.may_have_frame();
                        if !is_silent || now < *asks_link_at {
                            break Ok(());
                        }
                        *asks_link_at = now + ASK_LINK_EVERY;
                        break link.wait(Duration::ZERO).map(drop);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = outcome {
            self.note_link_error(&error);
        }
    }

    /// Does what follows from what arrived, from commands and from the time.
    pub fn turn(&mut self, now: Duration) {
        if self.stack.deadline().is_some_and(|at| at <= now) {
            self.stack.handle_timeout(now);
        }
        loop {
            self.follow_events();
            self.transmit(now);
            if self.looped.is_empty() {
                break;
            }
            while let Some(frame) = self.looped.pop_front() {
                let (stack, table) = (&mut self.stack, &mut self.table);
                stack.handle_frame(&frame, FrameInfo::LOOPED, table, now);
            }
        }
        self.follow_events();
        self.tell_if_due(now);
        self.follow_deadline(now);
    }

    /// From now on this is told when to run the driver.
    pub fn set_alarm(&mut self, alarm: Arc<dyn Alarm>) {
        self.alarm = Some(alarm);
        self.armed = None;
        let now = self.now();
        self.turn(now);
    }

    /// Sees to it that somebody comes by at the next deadline. One that moved away leaves its alarm, which finds
    /// nothing to do.
    #[inline]
    fn follow_deadline(&mut self, now: Duration) {
        let deadlines = [self.stack.deadline(), self.tells_at()];
        let (Some(alarm), Some(at)) = (&self.alarm, deadlines.into_iter().flatten().min()) else {
            return;
        };
        if self.armed.is_none_or(|armed| armed <= now || at < armed) {
            alarm.within(at.saturating_sub(now).max(ALARM_AFTER_MIN));
            self.armed = Some(at.max(now + ALARM_AFTER_MIN));
        }
    }

    // --- events

    fn follow_events(&mut self) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                EndpointEvent::Incoming(id) => self.note_incoming(id),
                EndpointEvent::Connection(id, event) => self.note_event(id, event),
            }
        }
    }

    fn note_incoming(&mut self, id: ConnectionId) {
        let Some(ends) = self.stack.tcp().tuple(id) else {
            return;
        };
        let key = match self.table.find(id) {
            Some(key) => key,
            None => self.table.insert(Conn::new(id, ends, self.table.window)),
        };
        let mss = self.stack.tcp().get(id).map_or(0, Connection::mss);
        if let Some(conn) = self.table.get_mut(key) {
            conn.ends = ends;
            conn.connected = true;
            (conn.mss, conn.mss_told) = (mss, mss);
        }
        self.follow_rules(id, &ends, Direction::Listen);
        match self.ports.queue_for(ends.local) {
            Some(queue) => {
                queue.waiting.push_back(key);
                queue.waiter.tell(true, false);
            }
            None => {
                self.stack.command(id, Connection::abort);
            }
        }
        self.set_window(key);
    }

    fn note_event(&mut self, id: ConnectionId, event: Event) {
        let Some(key) = self.table.find(id) else {
            return;
        };
        let connection = self.stack.tcp().get(id);
        let acknowledged = connection.map_or(0, Connection::acknowledged);
        let delivered = connection.map(Connection::delivered);
        let mss = connection.map(Connection::mss);
        let is_served = self.table.at == Some(key);
        let most = self.send_octets_max();
        let Some(conn) = self.table.get_mut(key) else {
            return;
        };
        conn.delivered = delivered.unwrap_or(conn.delivered);
        conn.mss = mss.unwrap_or(conn.mss);
        let mut news = conn.connected && conn.mss != conn.mss_told;
        let mut writable = false;
        match event {
            Event::Established => {
                conn.connected = true;
                conn.mss_told = conn.mss;
                writable = true;
            }
            Event::Delivered | Event::PeerFinished => {
                conn.peer_finished |= event == Event::PeerFinished;
                // Who is about to look finds it.
                if !is_served {
                    conn.waiter.tell(true, false);
                }
            }
            Event::Acknowledged => {
                news |= conn.outgoing.release(acknowledged, &mut self.pool);
                if conn.full && conn.is_writable(acknowledged, most) {
                    conn.full = false;
                    writable = true;
                }
            }
            Event::Urgent => {}
            Event::Closed(reason) => self.close(key, Closed::Because(reason)),
        }
        if let Some(conn) = self.table.get(key).filter(|_| news || writable) {
            match news {
                true => conn.waiter.tell_anyway(writable),
                false => conn.waiter.tell(false, true),
            }
        }
    }

    /// A connection is over: its carrier is told; one without goes.
    fn close(&mut self, key: Key, closed: Closed) {
        let Some(conn) = self.table.get_mut(key) else {
            return;
        };
        let id = conn.id.take();
        conn.closed = conn.closed.or(Some(closed));
        conn.waiter.tell_anyway(true);
        let owned = conn.owned;
        self.table.forget(id);
        if !owned {
            let queues = self.ports.queues.values_mut();
            queues.for_each(|queue| queue.waiting.retain(|waiting| *waiting != key));
            self.table.remove(key);
        }
        self.share_windows();
    }

    /// Ends a connection for a reason of this end's.
    pub(super) fn abort(&mut self, key: Key, closed: Closed) {
        let Some(conn) = self.table.get_mut(key) else {
            return;
        };
        conn.closed = conn.closed.or(Some(closed));
        if let Some(id) = conn.id {
            self.stack.command(id, Connection::abort);
        }
    }

    // --- the link

    /// An interface that is down loses frames and may come back. One that is gone takes its connections along.
    pub(super) fn note_link_error(&mut self, error: &io::Error) {
        if self.gone || !is_gone(error) {
            return;
        }
        self.gone = true;
        let keys: Vec<Key> = self.table.keys().collect();
        for key in keys {
            self.abort(key, Closed::NoDevice);
        }
    }

    /// The interface is there no more.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Every connection ends as if its carrier had been dropped.
    pub fn finish_all(&mut self) {
        let keys: Vec<Key> = self.table.keys().collect();
        for key in keys {
            self.copy(key, None);
            self.finish(key);
        }
    }

    /// Something that was taken is still to leave, or to be acknowledged.
    pub fn has_unfinished(&self) -> bool {
        self.table.keys().any(|key| {
            let id = self.table.get(key).and_then(|conn| conn.id);
            let connection = id.and_then(|id| self.stack.tcp().get(id));
            connection.is_some_and(|connection| {
                use TcpState::{Closing, FinWait1, LastAck};
                connection.outstanding() > 0
                    || matches!(connection.state(), FinWait1 | Closing | LastAck)
            })
        })
    }
}

/// An error of a link says that its interface is there no more.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let gone = [libc::ENXIO, libc::ENODEV, libc::EBADFD];
    let errno = error.raw_os_error();
    errno.is_some_and(|errno| gone.contains(&errno))
}
