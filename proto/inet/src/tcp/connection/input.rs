//! What an arriving segment means (RFC 9293 section 3.10.7.4, with RFC 5961 and RFC 7323).

use super::super::segment::{Flags, Header};
use super::super::seq::{Position, FIRST_OCTET};
use super::super::state::{Cause, State};
use super::super::timers::Timer;
use super::{Connection, Reason};
use core::time::Duration;

impl Connection {
    /// A segment of this connection arrived, its checksum verified. `payload` is how many octets of data it has; where
    /// they belong is told by [`Connection::poll_placement`].
    pub fn handle_segment(&mut self, header: &Header, payload: usize, now: Duration) {
        self.placements.clear();
        self.counters.segments_received += 1;
        match self.state {
            State::Closed => self.stray = header.reset_for(payload),
            State::SynSent => self.syn_sent(header, payload, now),
            _ => self.synchronized(header, payload, now),
        }
    }

    fn synchronized(&mut self, header: &Header, payload: usize, now: Duration) {
        if self.una() == 0 && header.flags.contains(Flags::SYN | Flags::ACK) {
            // A simultaneous open repeats the SYN: the rest of the segment counts without it.
            let without = Header {
                flags: header.flags - Flags::SYN,
                seq: header.seq.advanced(1),
                ..*header
            };
            return self.take_segment(&without, payload, now);
        }
        self.take_segment(header, payload, now);
    }

    fn take_segment(&mut self, header: &Header, payload: usize, now: Duration) {
        let Some(start) = self.checked(header, payload, now) else {
            return;
        };
        let Some(ack) = self.acceptable_ack(header, payload, now) else {
            return;
        };
        self.heard(header, now);
        if let (Some(clock), Some(timestamps)) = (&mut self.clock, header.options.timestamps) {
            clock.update(timestamps.value, header.seq, self.last_ack_sent, now);
        }
        self.handle_ack(header, start, ack, payload, now);
        if header.flags.contains(Flags::URG) {
            self.urgent_pointer(start + u64::from(header.urgent));
        }
        if payload > 0 {
            let push = header.flags.contains(Flags::PSH);
            self.data(start, payload, push, now);
        }
        if header.flags.contains(Flags::FIN) {
            self.fin(start + payload as u64);
        }
        self.take_fin(now);
    }

    /// First to fourth step: the sequence number, RST, SYN, and that there is an ACK. Gives the position of a segment
    /// to look at further.
    fn checked(&mut self, header: &Header, payload: usize, now: Duration) -> Option<Position> {
        let reset = header.flags.contains(Flags::RST);
        if !reset && self.is_old(header, now) {
            self.counters.old_segments += 1;
            self.challenge(now);
            return None;
        }
        let receive = self.receive.as_mut()?;
        let start = receive.position(header.seq);
        let len = header.sequence_len(payload);
        let Some(start) = start.filter(|start| receive.is_acceptable(*start, len)) else {
            self.unacceptable(header, payload, now);
            return None;
        };
        if reset {
            self.reset(header, now);
            return None;
        }
        if header.flags.contains(Flags::SYN) {
            // RFC 5961 section 4.2: whatever its number, a SYN is answered with a challenge.
            self.challenge(now);
            return None;
        }
        header.flags.contains(Flags::ACK).then_some(start)
    }

    /// PAWS, and segments that ought to have a timestamp (RFC 7323 sections 3.2 and 5.3).
    fn is_old(&self, header: &Header, now: Duration) -> bool {
        match (&self.clock, header.options.timestamps) {
            (Some(clock), Some(timestamps)) => clock.is_old(timestamps.value, now),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// First step: outside of the window. The answer is an ACK, so that a peer that missed one hears it again; how many
    /// is limited, so that two ends that disagree do not go on for ever.
    fn unacceptable(&mut self, header: &Header, payload: usize, now: Duration) {
        if header.flags.contains(Flags::RST) {
            return;
        }
        self.heard_late(header, now);
        let Some(receive) = &mut self.receive else {
            return;
        };
        if let Some(start) = receive.position(header.seq) {
            if payload > 0 && start + payload as u64 <= receive.next() {
                // Data that was there before: reported as duplicate (RFC 2883 section 4).
                receive.data(start, payload, &mut self.placements);
                self.ack.at_once();
                return;
            }
        }
        self.challenge(now);
    }

    /// An old segment may still carry a current ACK: a keep-alive's or a window probe's answer.
    fn heard_late(&mut self, header: &Header, now: Duration) {
        if header.flags.contains(Flags::ACK) && header.ack == self.seq_of(self.una()) {
            self.heard(header, now);
        }
    }

    /// Second step (RFC 5961 section 3.2): only the exact number resets.
    fn reset(&mut self, header: &Header, now: Duration) {
        let exact = self
            .receive
            .as_ref()
            .is_some_and(|receive| receive.next_seq() == header.seq);
        if !exact {
            self.challenge(now);
            return;
        }
        match self.state {
            State::SynReceived => self.end(Reason::Refused),
            // The other end has finished with it: nothing is lost.
            State::Closing | State::LastAck | State::TimeWait if self.send.fin_acknowledged() => {
                self.end(Reason::Finished);
            }
            _ => self.end(Reason::Reset),
        }
    }

    /// An ACK that makes the peer show that it is the peer (RFC 5961).
    pub(super) fn challenge(&mut self, now: Duration) {
        if self.challenges.allow(now) {
            self.counters.challenges += 1;
            self.ack.at_once();
        }
    }

    /// Something came that can only be the peer's.
    fn heard(&mut self, header: &Header, now: Duration) {
        self.probes.answered();
        self.answered_probe(header.window == 0, now);
        self.start_keep_alive(now);
    }

    /// Sixth step: the urgent pointer, which points behind the last urgent octet (RFC 6093 section 6). The program is
    /// told when it moves ahead, also ahead of the octets it speaks of (RFC 9293 section 3.8.5, MUST-32).
    fn urgent_pointer(&mut self, end: Position) {
        if let Some(receive) = &mut self.receive {
            self.pending.urgent |= self.state.may_receive() && receive.set_urgent(end);
        }
    }

    /// Seventh step: the data.
    fn data(&mut self, start: Position, payload: usize, push: bool, now: Duration) {
        if !self.state.may_receive() {
            return;
        }
        if self.detached && self.send.finished && self.is_beyond(start + payload as u64) {
            // Nobody will ever read it (RFC 1122 section 4.2.2.13).
            self.due.reset = true;
            self.end(Reason::Aborted);
            return;
        }
        // What a full segment of the peer holds: its options are as long as ours.
        let mss = u64::from(u32::from(self.config.mss()).saturating_sub(self.send.option_len));
        let Some(receive) = &mut self.receive else {
            return;
        };
        let arrival = receive.data(start, payload, &mut self.placements);
        let octets: usize = self
            .placements
            .iter()
            .map(|placement| placement.octets.len())
            .sum();
        self.counters.octets_received += octets as u64;
        self.counters.max_holes = self.counters.max_holes.max(receive.holes());
        self.counters.max_out_of_order = self.counters.max_out_of_order.max(receive.out_of_order());
        if arrival.advanced {
            self.pending.delivered = true;
            self.progress = Some(now);
        } else {
            self.counters.octets_behind_holes += octets as u64;
        }
        match self.ack.data(&arrival, payload as u64, push, mss) {
            super::super::ack::Due::Now => {}
            super::super::ack::Due::After(delay) => {
                if !self.timers.runs(Timer::Acknowledge) {
                    self.timers.set(Timer::Acknowledge, now + delay);
                }
            }
        }
    }

    /// Octets before `offset` of the stream that are missing are waited for no more, as far as octets behind them are
    /// there: they are acknowledged as if they had come, so that the peer does not send them again, and count as
    /// delivered. Gives how many they are. Whoever takes the octets has to know that these are none.
    ///
    /// The wire stays TCP: to the peer the acknowledgement is one like all others. It is for streams whose octets are
    /// of no use after some time, such as datagrams of a player.
    pub fn forgive(&mut self, offset: u64, now: Duration) -> u64 {
        let Some(receive) = self.receive.as_mut().filter(|_| self.state.may_receive()) else {
            return 0;
        };
        let missing = receive.forgive(offset.saturating_add(FIRST_OCTET));
        if missing > 0 {
            self.pending.delivered = true;
            self.progress = Some(now);
            self.ack.at_once();
            self.take_fin(now);
        }
        missing
    }

    fn is_beyond(&self, end: Position) -> bool {
        self.receive
            .as_ref()
            .is_some_and(|receive| end > receive.next())
    }

    /// Eighth step: the FIN.
    fn fin(&mut self, at: Position) {
        let Some(receive) = &mut self.receive else {
            return;
        };
        if receive.finished() {
            self.ack.at_once();
            return;
        }
        if at >= FIRST_OCTET && receive.fin(at) {
            self.peer_finished = true;
        }
        self.ack.at_once();
    }

    /// The FIN counts as soon as all before it is there, be it in an earlier segment or in this one.
    fn take_fin(&mut self, now: Duration) {
        let Some(receive) = &mut self.receive else {
            return;
        };
        if receive.take_fin() {
            self.peer_finished = true;
        }
        if core::mem::take(&mut self.peer_finished) {
            self.ack.at_once();
            self.pending.peer_finished = true;
            self.step(Cause::Fin, now);
        }
    }
}
