//! Losses: when a recovery begins, what may be sent during it, when it ends (RFC 8985, RFC 9937, RFC 6675).

use super::super::congestion::Acknowledged;
use super::super::prr::Prr;
use super::super::timers::Timer;
use super::super::tlp::{Tlp, Verdict};
use super::acknowledge::News;
use super::sender::Phase;
use super::Connection;
use core::time::Duration;

/// Repeated ACKs that stand for a loss where the peer has no SACK (RFC 5681 section 3.2).
const DUP_THRESH: u32 = 3;

impl Connection {
    /// An ACK was taken in: looks for losses, and lets window and probes follow.
    pub(super) fn repair(&mut self, news: &News, now: Duration) {
        let was_out = self.send.tlp.is_out();
        let verdict = self
            .send
            .tlp
            .acknowledged(self.send.una, news.duplicate, news.bare);
        if news.advanced {
            self.end_phase(now);
        }
        let unseen = verdict == Verdict::Repaired || self.takes_forgiven_for_lost(news);
        if unseen && matches!(self.send.phase, Phase::Open) {
            let flight = self.flight();
            self.send.control.congestion(flight, now);
            self.send.control.recovered(now);
        }
        let lost = self.look_for_losses(news, now);
        if lost > 0 && matches!(self.send.phase, Phase::Open) {
            self.begin_recovery(now);
        }
        self.follow(news, lost, now);
        if news.delivered > 0 {
            self.send.tlp.progress();
        }
        if news.delivered > 0 || was_out != self.send.tlp.is_out() {
            self.arm_probe(now);
        }
    }

    /// What the peer forgave was lost on the way, or late: it counts as a sign of congestion, once a round trip.
    fn takes_forgiven_for_lost(&mut self, news: &News) -> bool {
        let is_next_round = self.send.una >= self.send.forgiven_round;
        if news.forgiven && is_next_round && self.send.control.reduces() {
            self.send.forgiven_round = self.send.nxt;
            return true;
        }
        false
    }

    /// FlightSize of RFC 5681.
    pub(super) fn flight(&self) -> u64 {
        self.send.nxt - self.send.una
    }

    fn end_phase(&mut self, now: Duration) {
        let una = self.send.una;
        match &self.send.phase {
            Phase::Recovery { point, .. } if una >= *point => {
                if self.send.control.reduces() {
                    self.send.control.recovered(now);
                }
                self.send.rack.recovered();
                self.send.phase = Phase::Open;
            }
            Phase::Loss { point } if una >= *point => {
                self.send.rack.recovered();
                self.send.phase = Phase::Open;
            }
            _ => {}
        }
    }

    /// Counts losses; returns octets that are a sign of congestion.
    fn look_for_losses(&mut self, news: &News, now: Duration) -> u64 {
        if !self.sack {
            return self.count_repeats(news);
        }
        if self.send.board.is_empty() {
            // Nothing is out that could be lost.
            self.timers.stop(Timer::Reorder);
            return 0;
        }
        self.detect(now)
    }

    /// RACK's step 5, and the timer that repeats it.
    pub(super) fn detect(&mut self, now: Duration) -> u64 {
        let conditions = self.send.conditions();
        let send = &mut self.send;
        let (mut lost, again) = send.rack.detect(&mut send.board, &conditions, now);
        match again {
            Some(at) => self.timers.set(Timer::Reorder, at),
            None => self.timers.stop(Timer::Reorder),
        }
        if lost > 0 && self.send.path.is_probing() {
            lost = lost.saturating_sub(self.lost_mtu_probe());
        }
        lost
    }

    /// Octets of a path MTU probe among what was just counted lost: no sign of congestion (RFC 4821 section 7.6.2).
    fn lost_mtu_probe(&mut self) -> u64 {
        let send = &mut self.send;
        let Some(end) = send.path.probe_end() else {
            return 0;
        };
        match send.board.lost_before(end) {
            Some(record) if send.path.lost(end) => record.len(),
            _ => 0,
        }
    }

    /// Without SACK: three repeated ACKs, and in a recovery each ACK that does not end it, stand for the loss of the
    /// first segment (RFC 5681 section 3.2, RFC 6582 section 3.2).
    fn count_repeats(&mut self, news: &News) -> u64 {
        let in_recovery = !matches!(self.send.phase, Phase::Open);
        let partial = in_recovery && news.advanced;
        if partial || (self.send.repeats == DUP_THRESH && !in_recovery) {
            return self.send.board.lose_first();
        }
        0
    }

    pub(super) fn begin_recovery(&mut self, now: Duration) {
        let flight = self.flight();
        let point = self.send.nxt;
        let send = &mut self.send;
        send.control.congestion(flight, now);
        let threshold = send.control.threshold();
        send.phase = Phase::Recovery {
            point,
            prr: Prr::new(flight, threshold),
            window: send.board.in_flight() + u64::from(send.mss()),
        };
        send.tlp.cancel();
        self.timers.stop(Timer::Probe);
        self.counters.recoveries += 1;
    }

    /// The window follows what was delivered.
    fn follow(&mut self, news: &News, lost: u64, now: Duration) {
        let mss = u64::from(self.send.mss());
        let send = &mut self.send;
        // What a peer without SACK repeats has left the network, only one does not know which octets.
        let left = u64::from(send.repeats) * mss;
        let pipe = send.board.in_flight().saturating_sub(left);
        let reduces = send.control.reduces();
        if let Phase::Recovery { prr, window, .. } = &mut send.phase {
            if reduces {
                let repeated = if send.repeats > 0 { mss } else { 0 };
                let octets = news.delivered.max(repeated);
                *window = prr.acknowledged(octets, pipe, mss, news.advanced && lost == 0) + left;
                return;
            }
        }
        if news.delivered > 0 {
            send.control.acknowledged(&Acknowledged {
                octets: news.delivered,
                srtt: send.rtt.smoothed().unwrap_or(Duration::ZERO),
                min_rtt: send.rtt.minimum().unwrap_or(Duration::ZERO),
                rtt: news.rtt,
                una: send.una,
                nxt: send.nxt,
                limited: send.limited,
                now,
            });
            send.limited = false;
        }
        if let Phase::Recovery { window, .. } = &mut send.phase {
            *window = send.control.window();
        }
    }

    /// Sets the timer of the tail loss probe, where one may be sent (RFC 8985 section 7.2).
    pub(super) fn arm_probe(&mut self, now: Duration) {
        let send = &self.send;
        let wait = if !self.sack || send.board.is_empty() {
            None
        } else if send.probes_tail() {
            let one = send.board.len() == 1 && self.flight() <= u64::from(send.mss());
            Some(Tlp::timeout(send.rtt.smoothed(), one))
        } else {
            // What is lost leaves as soon as its turn comes: no need to ask.
            (!send.control.reduces() && !send.board.has_lost())
                .then(|| send.tlp.repair_timeout(send.rtt.smoothed()))
        };
        let Some(wait) = wait else {
            self.timers.stop(Timer::Probe);
            return;
        };
        let rto = now + send.rtt.rto();
        self.timers.set(Timer::Probe, (now + wait).min(rto));
        if !self.timers.runs(Timer::Retransmit) {
            self.timers.set(Timer::Retransmit, rto);
        }
    }
}
