//! What ACK, SACK and window of a segment mean to the sender (RFC 9293 section 3.10.7.4, fifth step).

use super::super::options::Timestamps;
use super::super::scoreboard::Record;
use super::super::segment::{Flags, Header};
use super::super::seq::{Position, FIRST_OCTET};
use super::super::state::{Cause, State};
use super::super::timers::Timer;
use super::Connection;
use core::ops::Range;
use core::time::Duration;

/// What one segment told the sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// Octets it was not known that the peer has.
    pub delivered: u64,
    /// SND.UNA moved.
    pub advanced: bool,
    /// The peer got something twice.
    pub duplicate: bool,
    /// Nothing but the ACK number was in it, and that was known.
    pub bare: bool,
    /// The peer, which forgives, no longer waits for something that was not sent again.
    pub forgiven: bool,
    /// The round trip it told.
    pub rtt: Option<Duration>,
    /// Octets of the largest segment delivered, of those sent once only.
    largest: u64,
    /// The record delivered that was sent last, of those sent once only.
    newest: Option<Record>,
    /// A record acknowledged was sent more than once.
    repeated: bool,
    /// One of these of which the timestamp echoed says that the last transmission is what is acknowledged.
    confirmed: Option<Record>,
}

impl Connection {
    pub(super) fn una(&self) -> Position {
        self.send.una
    }

    /// What a segment acknowledges, where that is something the peer can have reason to say. All else of a segment is
    /// believed only then: who guesses where the stream is cannot guess that, too (RFC 5961 section 5.2).
    pub(super) fn acceptable_ack(
        &mut self,
        header: &Header,
        payload: usize,
        now: Duration,
    ) -> Option<Position> {
        let una = self.send.una;
        let position = header.ack.position(self.send.initial, una);
        let is_handshake = una < FIRST_OCTET;
        let known =
            position.filter(|ack| *ack <= self.send.nxt && (!is_handshake || *ack >= FIRST_OCTET));
        let Some(ack) = known else {
            self.refuse_ack(header, payload, now);
            return None;
        };
        // An ACK older than any the peer can have reason to send is an injection.
        if ack + self.send.max_window < una {
            self.challenge(now);
            return None;
        }
        Some(ack)
    }

    /// A segment at `start` acknowledges what is before `ack`.
    pub(super) fn handle_ack(
        &mut self,
        header: &Header,
        start: Position,
        ack: Position,
        payload: usize,
        now: Duration,
    ) {
        let una = self.send.una;
        if una < FIRST_OCTET {
            self.handshake_acknowledged(now);
        }
        let window_changed = self.window_update(header, start, ack);
        if ack == una && self.send.is_quiet() && header.options.sack.is_empty() {
            // Nothing is out and nothing new is said: a receiver's every segment.
            return;
        }
        let carries = payload > 0 || header.flags.contains(Flags::FIN) || window_changed;
        self.take_ack(header, ack, carries, now);
    }

    /// It acknowledges what was never sent (or, long after, what is long gone).
    fn refuse_ack(&mut self, header: &Header, payload: usize, now: Duration) {
        if self.send.una < FIRST_OCTET {
            self.stray = header.reset_for(payload);
        } else {
            self.challenge(now);
        }
    }

    /// Only segments that tell something new move the window: newer ones (RFC 9293 section 3.10.7.4), and those that
    /// acknowledge or allow more. Says whether it is another than before.
    fn window_update(&mut self, header: &Header, start: Position, ack: Position) -> bool {
        let send = &mut self.send;
        let window = u64::from(header.window) << send.shift;
        let (from_seq, from_ack) = send.window_from;
        let is_newer = start > from_seq || (start == from_seq && ack >= from_ack);
        // By the RFC's rule alone one ACK whose sequence number is ahead of the peer's (damage that the checksum does
        // not show, or an injection) would close the window for good where the peer sends no octets to catch up with.
        let says_more = ack > send.una || (ack == send.una && ack + window > send.edge);
        if !is_newer && !says_more {
            return false;
        }
        let changed = send.edge.saturating_sub(send.una) != window || ack != send.una;
        send.window_from = (start, ack);
        send.edge = (ack + window).max(ack);
        send.max_window = send.max_window.max(window);
        if send.edge > send.nxt {
            self.timers.stop(Timer::Persist);
            self.persist_backoff = 0;
        }
        changed
    }

    fn take_ack(&mut self, header: &Header, ack: Position, carries: bool, now: Duration) {
        let mut news = News {
            advanced: ack > self.send.una,
            ..News::default()
        };
        self.take_cumulative(ack, header.options.timestamps, &mut news, now);
        if self.sack {
            if !header.options.sack.is_empty() {
                self.take_blocks(header, ack, &mut news, now);
            }
        } else if !news.advanced && !carries && !self.send.board.is_empty() {
            self.send.repeats += 1;
        }
        if news.largest > 0 {
            let packet = self.send.packet_len(news.largest);
            self.send.path.delivered(packet as u32);
        }
        news.bare = !carries && !news.advanced && header.options.sack.is_empty();
        if let Some(record) = news.newest.or(news.confirmed) {
            let rtt = now.saturating_sub(record.sent);
            self.send.rtt.sample(rtt, now);
            news.rtt = Some(rtt);
        }
        if news.advanced {
            self.advanced(ack, now);
        }
        self.repair(&news, now);
        if self.send.fin_acknowledged() {
            self.step(Cause::FinAcknowledged, now);
        }
    }

    fn take_cumulative(
        &mut self,
        ack: Position,
        timestamps: Option<Timestamps>,
        news: &mut News,
        now: Duration,
    ) {
        let send = &mut self.send;
        let (board, rack) = (&mut send.board, &mut send.rack);
        let min_rtt = send.rtt.minimum().unwrap_or(Duration::ZERO);
        let clock = self.clock.as_ref();
        let stamped = clock.is_some() && timestamps.is_some();
        let forgives = send.peer_forgives;
        board.acknowledge(ack, |record| {
            news.forgiven |= forgives && rack.was_overtaken(record);
            let spurious = is_spurious(clock, timestamps, record);
            rack.delivered(record, now, min_rtt, spurious);
            news.note(record, stamped && !spurious);
        });
        if news.repeated {
            // What stands behind a segment that was sent again may have waited for it at the peer.
            news.newest = None;
        }
    }

    /// SACK blocks (RFC 2018), the first of which may report a duplicate (RFC 2883 section 4). What lies outside of the
    /// octets that are out is not believed.
    fn take_blocks(&mut self, header: &Header, ack: Position, news: &mut News, now: Duration) {
        let send = &mut self.send;
        let position = |seq: super::super::seq::Seq| seq.position(send.initial, ack);
        let mut blocks: [Option<Range<Position>>; 4] = [const { None }; 4];
        for (slot, (left, right)) in blocks.iter_mut().zip(header.options.sack.as_slice()) {
            if let (Some(left), Some(right)) = (position(*left), position(*right)) {
                *slot = (left < right && right <= send.nxt).then_some(left..right);
            }
        }
        news.duplicate = is_duplicate(&blocks, ack);
        if news.duplicate {
            send.rack.duplicate(ack, send.nxt);
        }
        let min_rtt = send.rtt.minimum().unwrap_or(Duration::ZERO);
        let clock = self.clock.as_ref();
        let (board, rack) = (&mut send.board, &mut send.rack);
        for block in blocks
            .into_iter()
            .flatten()
            .filter(|block| block.start >= ack)
        {
            board.sack(block, |record| {
                let spurious = is_spurious(clock, header.options.timestamps, record);
                rack.delivered(record, now, min_rtt, spurious);
                news.note(record, false);
            });
        }
    }

    /// SND.UNA moves to `ack`.
    fn advanced(&mut self, ack: Position, now: Duration) {
        let send = &mut self.send;
        send.una = ack;
        self.progress = Some(now);
        send.repeats = 0;
        send.rtt.progress();
        send.forced = false;
        while send.cuts.front().is_some_and(|cut| *cut <= ack) {
            send.cuts.pop_front();
        }
        if send.path.acknowledged(ack) {
            send.control.set_mss(u64::from(send.mss()));
        }
        self.pending.acknowledged = true;
        self.timers.stop(Timer::User);
        if self.send.board.is_empty() {
            self.timers.stop(Timer::Retransmit);
            self.timers.stop(Timer::Reorder);
        } else {
            // RFC 6298 section 5.3.
            self.timers
                .set(Timer::Retransmit, now + self.send.rtt.rto());
            self.start_user_timer(now);
        }
    }

    /// A router could not forward a packet of this connection that was larger than `mtu` and carried `seq` (RFC 1191,
    /// RFC 8201). Believed only when that number is out, and then not at once by everybody (RFC 5927 section 7; see
    /// [`super::super::path_mtu::PathMtu::too_big`]).
    pub fn handle_packet_too_big(&mut self, seq: super::super::seq::Seq, mtu: u32, now: Duration) {
        let position = seq.position(self.send.initial, self.send.una);
        let is_out = |at: &Position| self.send.una <= *at && *at < self.send.nxt;
        let Some(at) = position.filter(is_out) else {
            return;
        };
        if !self.send.path.too_big(mtu, at) {
            return;
        }
        self.timers
            .set(Timer::PathMtu, now + super::super::path_mtu::RETRY);
        let send = &mut self.send;
        send.control.set_mss(u64::from(send.mss()));
        // What is too large never arrives: send it again at once, in smaller segments, without taking it for
        // congestion.
        send.board.lose_all(false);
    }

    /// An ICMP error says that the peer cannot be reached. While the connection is not there that ends the attempt when
    /// the error is a hard one; afterwards it is only a hint (RFC 5927 section 6, RFC 9293 section 3.9.2.2).
    pub fn handle_unreachable(&mut self, seq: super::super::seq::Seq, hard: bool) {
        if hard && self.state == State::SynSent && seq == self.send.initial {
            self.end(super::Reason::Refused);
        }
    }
}

impl News {
    fn note(&mut self, record: &Record, confirmed: bool) {
        self.delivered += record.len();
        if !record.retransmitted {
            let segment = record.len().min(u64::from(record.segment));
            self.largest = self.largest.max(segment);
        }
        self.repeated |= record.retransmitted;
        if record.retransmitted && confirmed {
            self.confirmed = Some(*record);
        }
        let newer = self
            .newest
            .is_none_or(|newest| record.transmission > newest.transmission);
        // Karn: an ACK of what was sent twice tells no time (RFC 6298 section 3).
        if !record.retransmitted && newer {
            self.newest = Some(*record);
        }
    }
}

/// The timestamp echoed was sent before the record's last transmission.
fn is_spurious(
    clock: Option<&super::super::timestamps::Clock>,
    timestamps: Option<Timestamps>,
    record: &Record,
) -> bool {
    match (clock, timestamps) {
        // What was sent once has no earlier transmission.
        (Some(clock), Some(timestamps)) if record.retransmitted => {
            clock.precedes(timestamps.echo, record.sent)
        }
        _ => false,
    }
}

/// The first block lies below the ACK, or within the second (RFC 2883 section 4).
fn is_duplicate(blocks: &[Option<Range<Position>>; 4], ack: Position) -> bool {
    let Some(first) = &blocks[0] else {
        return false;
    };
    let within = |outer: &Range<Position>| outer.start <= first.start && first.end <= outer.end;
    first.end <= ack || blocks[1].as_ref().is_some_and(within)
}
