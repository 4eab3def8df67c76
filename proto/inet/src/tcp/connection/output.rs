//! What leaves next.

use super::super::options::Options;
use super::super::scoreboard::Record;
use super::super::segment::{Flags, Header, MIN_HEADER_LEN};
use super::super::seq::{Position, FIRST_OCTET};
use super::super::state::State;
use super::super::timers::Timer;
use super::cut::Cut;
use super::sender::Phase;
use super::{Connection, Transmit};
use core::ops::Range;
use core::time::Duration;

impl Connection {
    /// The next segment to send, if one may leave now. Call it until it gives none.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Transmit> {
        if self.has_nothing_to_send() {
            self.paced = false;
            return None;
        }
        if let Some(header) = self.stray.take() {
            return Some(bare(header));
        }
        if core::mem::take(&mut self.due.reset) {
            return Some(bare(self.reset_header()));
        }
        if core::mem::take(&mut self.due.syn) && self.state != State::Closed {
            return Some(self.send_syn(now));
        }
        if self.state == State::Closed || self.send.una < FIRST_OCTET {
            return None;
        }
        // An ACK that names ranges travels alone: options would take room from the data, and cuts would move.
        if self.ack.is_due()
            && self
                .receive
                .as_ref()
                .is_some_and(|receive| receive.has_sack())
        {
            return Some(self.pure_ack(now));
        }
        if core::mem::take(&mut self.due.window_probe) {
            return Some(self.probe(now));
        }
        let data = self.next_data(now);
        if data.is_some() {
            return data;
        }
        self.ack.is_due().then(|| self.pure_ack(now))
    }

    /// Nothing waits to leave, whatever the windows say: polling would give nothing.
    #[inline]
    pub fn has_nothing_to_send(&self) -> bool {
        let due = &self.due;
        let owes = due.syn | due.reset | due.window_probe | due.loss_probe | self.ack.is_due();
        !owes && self.stray.is_none() && !self.send.has_new() && !self.send.board.has_lost()
    }

    fn next_data(&mut self, now: Duration) -> Option<Transmit> {
        if self.state == State::TimeWait {
            return None;
        }
        if core::mem::take(&mut self.due.loss_probe) {
            if let Some(probe) = self.loss_probe(now) {
                return Some(probe);
            }
        }
        self.paced = self.is_paced(now);
        if self.paced {
            return None;
        }
        self.lost_data(now).or_else(|| self.new_data(now))
    }

    /// Something waits to be sent, and pacing says not yet.
    fn is_paced(&self, now: Duration) -> bool {
        let waits = self.send.board.has_lost() || self.send.has_new();
        waits && self.send.rate().is_some() && self.send.pacer.next() > now
    }

    fn send_syn(&mut self, now: Duration) -> Transmit {
        let header = self.syn(now);
        self.syn_left = (self.send.rtt.backoffs() == 0).then_some(now);
        self.timers
            .set(Timer::Retransmit, now + self.send.rtt.rto());
        self.counters.segments_sent += 1;
        bare(header)
    }

    fn reset_header(&self) -> Header {
        let ack = self.receive.as_ref().map(|receive| receive.next_seq());
        Header {
            seq: self.seq_of(self.send.nxt),
            ack: ack.unwrap_or_default(),
            flags: Flags::RST
                | if ack.is_some() {
                    Flags::ACK
                } else {
                    Flags::empty()
                },
            ..Header::default()
        }
    }

    /// Header of a segment with an ACK: window, timestamps. What it acknowledges is no longer owed.
    fn header(&mut self, at: Position, flags: Flags, now: Duration) -> Header {
        let mss = u64::from(self.config.mss());
        let shift = self.shift;
        let (ack, window) = match &mut self.receive {
            Some(receive) => (receive.next_seq(), receive.offer(mss, shift)),
            None => Default::default(),
        };
        self.ack.sent();
        self.timers.stop(Timer::Acknowledge);
        self.last_ack_sent = ack;
        Header {
            seq: self.seq_of(at),
            ack,
            flags: flags | Flags::ACK,
            window,
            options: Options {
                timestamps: self.clock.as_ref().map(|clock| clock.option(now)),
                ..Options::default()
            },
            ..Header::default()
        }
    }

    fn pure_ack(&mut self, now: Duration) -> Transmit {
        let mut header = self.header(self.send.nxt, Flags::ACK, now);
        let room = if self.clock.is_some() { 3 } else { 4 };
        if let Some(receive) = self.receive.as_mut().filter(|_| self.sack) {
            header.options.sack = receive.take_sack(room);
        }
        self.counters.pure_acks += 1;
        self.counters.segments_sent += 1;
        bare(header)
    }

    /// Keep-alive or window probe: a number that was acknowledged long ago, without data.
    fn probe(&mut self, now: Duration) -> Transmit {
        let header = self.header(self.send.una - 1, Flags::ACK, now);
        self.probes.sent(now);
        self.counters.segments_sent += 1;
        bare(header)
    }

    /// One segment to make the peer speak: new data when there is some and the peer has room, else the last segment
    /// again (RFC 8985 section 7.3).
    fn loss_probe(&mut self, now: Duration) -> Option<Transmit> {
        let mss = self.send.mss();
        if !self.send.probes_tail() {
            return self.repair_probe(mss, now);
        }
        let window = self.send.edge.saturating_sub(self.send.nxt);
        let unsent = self.send.unsent().min(window);
        self.counters.loss_probes += 1;
        let (probe, again) = if unsent > 0 {
            let cut = self.send.next_frame(self.send.nxt, unsent, u64::from(mss));
            (
                self.send_new(
                    Cut {
                        len: cut.len.min(u64::from(mss)),
                        ..cut
                    },
                    now,
                ),
                false,
            )
        } else {
            let record = self.send.board.tail(mss)?;
            (Some(self.send_again(&record, now)), true)
        };
        self.send.tlp.sent(self.send.nxt, again);
        self.arm_probe(now);
        self.timers
            .set(Timer::Retransmit, now + self.send.rtt.rto());
        probe
    }

    /// The first segment that is missing once more, when a recovery has fallen silent (see [`super::super::tlp`]). The
    /// retransmission timer goes on as it was.
    fn repair_probe(&mut self, mss: u32, now: Duration) -> Option<Transmit> {
        let record = self.send.board.head(mss)?;
        self.counters.loss_probes += 1;
        self.send.tlp.repaired();
        let probe = self.send_again(&record, now);
        self.arm_probe(now);
        Some(probe)
    }

    fn lost_data(&mut self, now: Duration) -> Option<Transmit> {
        if !self.send.board.has_lost() {
            return None;
        }
        let mss = self.send.mss();
        let record = self.send.board.next_lost(mss)?;
        let idle = self.send.board.in_flight() == 0;
        if !(self.send.forced || idle || record.len() <= self.send.room()) {
            self.send.limited = true;
            return None;
        }
        self.send.forced = false;
        let again = self.send_again(&record, now);
        if !self.send.control.reduces() {
            self.arm_probe(now);
        }
        Some(again)
    }

    fn send_again(&mut self, record: &Record, now: Duration) -> Transmit {
        self.send.board.sent_again(record.start, now);
        self.counters.retransmissions += 1;
        self.emit(record.start..record.end, record.segment, now)
    }

    fn new_data(&mut self, now: Duration) -> Option<Transmit> {
        if !self.send.has_new() {
            return None;
        }
        if self.send.unsent() == 0 {
            // A FIN alone needs no room in any window.
            return self.send_new(
                Cut {
                    len: 0,
                    segment: 1,
                    whole: true,
                },
                now,
            );
        }
        self.send.after_idle(now);
        if let Some(probe) = self.mtu_probe(now) {
            return Some(probe);
        }
        let cut = self.permitted(now)?;
        self.send.forced = false;
        self.send_new(cut, now)
    }

    /// What both windows, Nagle and the avoidance of silly windows let leave (RFC 9293 sections 3.7.4 and 3.8.6.2.1).
    fn permitted(&mut self, now: Duration) -> Option<Cut> {
        let send = &self.send;
        let mss = u64::from(send.mss());
        let unsent = send.unsent();
        let window = send.edge.saturating_sub(send.nxt);
        let idle = send.board.is_empty();
        let mut room = send.room();
        if send.board.in_flight() == 0 || send.forced {
            room = room.max(mss);
        }
        let frame = u64::from(self.config.max_frame).min(send.burst());
        let mut cut = send.next_frame(send.nxt, unsent.min(window), frame);
        if cut.len == 0 && window > 0 && (idle || send.forced) {
            // The peer's window is smaller than what belongs together, and no ACK will come that opens it.
            cut = send.least_frame(send.nxt, unsent.min(window));
        }
        let full = cut.len >= mss || cut.whole || send.forced;
        let last = cut.len == unsent && (self.config.no_delay || idle || send.finished);
        let half = cut.len > 0 && cut.len >= send.max_window / 2;
        if cut.len == 0 || !(full || last || half) {
            self.wait_for_window(window < unsent && idle, now);
            return None;
        }
        if cut.len <= room {
            return Some(cut);
        }
        // The congestion window has no room for all of it: as many whole segments as it has room for.
        self.send.limited = true;
        let cut = self
            .send
            .next_frame(self.send.nxt, unsent.min(window).min(room), frame);
        (cut.len > 0 && (cut.len >= mss || cut.whole)).then_some(cut)
    }

    /// The peer's window is what stops everything: probe it before long (RFC 9293 section 3.8.6.1).
    fn wait_for_window(&mut self, closed: bool, now: Duration) {
        if closed && !self.timers.runs(Timer::Persist) {
            self.timers
                .set(Timer::Persist, now + self.persist_interval());
            self.start_user_timer(now);
        }
    }

    /// One segment larger than the path is known to take, when there is enough to fill it (RFC 4821 section 7.4).
    fn mtu_probe(&mut self, now: Duration) -> Option<Transmit> {
        let send = &self.send;
        let size = send.path.next_probe()?;
        let headers = send.ip_header + send.option_len + MIN_HEADER_LEN as u32;
        let len = size
            .checked_sub(headers)?
            .min(send.peer_mss.saturating_sub(send.option_len));
        let window = send.edge.saturating_sub(send.nxt);
        let enough = u64::from(len + 3 * send.mss());
        let calm = matches!(send.phase, Phase::Open) && send.cuts.is_empty();
        if len <= send.mss() || !calm || send.unsent() < enough || window.min(send.room()) < enough
        {
            return None;
        }
        let sent = self.send_new(
            Cut {
                len: u64::from(len),
                segment: len,
                whole: true,
            },
            now,
        );
        self.send.path.probe_sent(size, self.send.nxt);
        sent
    }

    /// Sends what was never sent, and the FIN behind it when that is all.
    fn send_new(&mut self, cut: Cut, now: Duration) -> Option<Transmit> {
        let send = &mut self.send;
        let from = send.nxt;
        let to = from + cut.len;
        let with_fin = send.finished && to == send.end;
        let to = to + u64::from(with_fin);
        if from == to {
            return None;
        }
        send.nxt = to;
        if send.board.is_empty() {
            // What waited for the peer's window has it now, and its own time from here on.
            self.timers.stop(Timer::User);
        }
        send.board.sent(from..to, cut.segment, now);
        self.arm_probe(now);
        Some(self.emit(from..to, cut.segment, now))
    }

    fn emit(&mut self, range: Range<Position>, segment: u32, now: Duration) -> Transmit {
        let fin = self.send.finished && range.end > self.send.end;
        let payload_end = range.end - u64::from(fin);
        let len = payload_end - range.start;
        let mut flags = Flags::ACK;
        if fin {
            flags |= Flags::FIN;
        }
        if payload_end == self.send.end && len > 0 {
            // RFC 9293 section 3.9.1.2: the last segment of what was given.
            flags |= Flags::PSH;
        }
        let segments = len.div_ceil(u64::from(segment.max(1))).max(1);
        self.account(len, segments, now);
        Transmit {
            header: self.header(range.start, flags, now),
            payload: range.start - FIRST_OCTET..payload_end - FIRST_OCTET,
            segment_size: (segments > 1).then_some(segment as u16),
        }
    }

    fn account(&mut self, len: u64, segments: u64, now: Duration) {
        self.counters.segments_sent += segments;
        self.counters.octets_sent += len;
        self.send.sent_at = Some(now);
        let headers = self.send.packet_len(0) * segments;
        if let Some(rate) = self.send.rate() {
            self.send.pacer.sent(len + headers, rate, now);
        }
        if let Phase::Recovery { prr, .. } = &mut self.send.phase {
            prr.sent(len);
        }
        if !self.timers.runs(Timer::Retransmit) {
            self.timers
                .set(Timer::Retransmit, now + self.send.rtt.rto());
        }
        self.start_user_timer(now);
    }
}

fn bare(header: Header) -> Transmit {
    Transmit {
        header,
        payload: 0..0,
        segment_size: None,
    }
}
