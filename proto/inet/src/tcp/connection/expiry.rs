//! What an expired timer means.

use super::super::path_mtu::RETRY;
use super::super::seq::FIRST_OCTET;
use super::super::state::State;
use super::super::timers::Timer;
use super::sender::Phase;
use super::{Connection, Reason};
use core::time::Duration;

/// The longest time between probes of a closed window.
const MAX_PERSIST: Duration = Duration::from_secs(60);

impl Connection {
    /// Time has come to `now`. Cheap when no timer has expired.
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some(timer) = self.timers.expired(now) {
            match timer {
                Timer::Probe => self.probe_timeout(now),
                Timer::Retransmit if self.send.una < FIRST_OCTET => self.syn_timeout(),
                Timer::Retransmit => self.retransmission_timeout(now),
                Timer::Reorder => self.reorder_timeout(now),
                Timer::Persist => self.persist_timeout(now),
                Timer::Acknowledge => self.ack.at_once(),
                Timer::KeepAlive => self.keep_alive_timeout(now),
                Timer::User => self.give_up(),
                Timer::Linger => self.end(Reason::Finished),
                Timer::PathMtu => self.retry_path_mtu(),
            }
        }
    }

    /// The tail loss probe is due. When the retransmission timer is too, the probe goes in its place (RFC 8985 section
    /// 7.2).
    fn probe_timeout(&mut self, now: Duration) {
        self.due.loss_probe = true;
        if self.send.probes_tail() {
            self.timers
                .set(Timer::Retransmit, now + self.send.rtt.rto());
        }
    }

    /// The SYN was not answered (RFC 6298 section 5.5).
    fn syn_timeout(&mut self) {
        if self.send.rtt.backoffs() >= self.config.syn_retries {
            self.end(Reason::TimedOut);
            return;
        }
        self.send.rtt.back_off();
        self.counters.timeouts += 1;
        self.due.syn = matches!(
            self.state,
            State::SynSent | State::SynReceived | State::FinWait1
        );
    }

    /// RFC 6298 section 5.4 to 5.6, RFC 8985 section 6.3.
    fn retransmission_timeout(&mut self, now: Duration) {
        if self.send.board.is_empty() {
            return;
        }
        let first = self.send.rtt.backoffs() == 0;
        let flight = self.flight();
        let conditions = self.send.conditions();
        self.counters.timeouts += 1;
        self.reconsider_path_mtu(now);
        let send = &mut self.send;
        send.control.timeout(flight, first, now);
        send.rtt.back_off();
        send.tlp.cancel();
        send.tlp.progress();
        send.repeats = 0;
        if send.board.peer_reneged() {
            send.board.lose_all(true);
        } else if self.sack && first {
            send.rack.timeout(&mut send.board, &conditions, now);
        } else {
            send.board.lose_all(false);
        }
        send.phase = Phase::Loss { point: send.nxt };
        send.forced = true;
        self.timers.stop(Timer::Probe);
        self.timers
            .set(Timer::Retransmit, now + self.send.rtt.rto());
    }

    /// Timeouts in a row may be the path's, which swallows what is large; one is enough where a router has said so.
    fn reconsider_path_mtu(&mut self, now: Duration) {
        let send = &mut self.send;
        if send.path.confirm_doubted() {
            send.control.set_mss(u64::from(send.mss()));
            self.timers.set(Timer::PathMtu, now + RETRY);
            return;
        }
        let first = send.board.first();
        let octets = first.map_or(0, |first| first.len().min(u64::from(first.segment)));
        let packet = send.packet_len(octets) as u32;
        if send.path.timeouts(send.rtt.backoffs() + 1, packet) {
            send.control.set_mss(u64::from(send.mss()));
            let retry = send.path.suspicion_retry();
            self.timers.set(Timer::PathMtu, now + retry);
        }
    }

    fn retry_path_mtu(&mut self) {
        let send = &mut self.send;
        if send.path.forget() {
            send.control.set_mss(u64::from(send.mss()));
        }
    }

    fn reorder_timeout(&mut self, now: Duration) {
        let lost = self.detect(now);
        if lost > 0 && matches!(self.send.phase, Phase::Open) {
            self.begin_recovery(now);
        }
    }

    fn persist_timeout(&mut self, now: Duration) {
        if self.send.edge > self.send.nxt {
            // A window too small to be worth a segment: after this long it is (RFC 9293 section 3.8.6.2.1).
            self.send.forced = true;
            return;
        }
        self.due.window_probe = true;
        self.persist_backoff += 1;
        self.timers
            .set(Timer::Persist, now + self.persist_interval());
    }

    /// Time until the next window probe: the timeout, then longer each time (RFC 9293 section 3.8.6.1, SHLD-29, 30).
    pub(super) fn persist_interval(&self) -> Duration {
        let factor = 2u32.pow(self.persist_backoff.min(16));
        (self.send.rtt.rto() * factor).min(MAX_PERSIST)
    }

    fn keep_alive_timeout(&mut self, now: Duration) {
        let Some(keep_alive) = self.config.keep_alive else {
            return;
        };
        if !self.send.board.is_empty() {
            self.start_keep_alive(now);
            return;
        }
        if self.probes.unanswered() >= keep_alive.count {
            self.give_up();
            return;
        }
        self.due.window_probe = true;
        self.timers.set(Timer::KeepAlive, now + keep_alive.interval);
    }

    /// The peer is gone as far as one can tell. It gets a reset in case it is not.
    fn give_up(&mut self) {
        self.due.reset = self.state.is_synchronized();
        self.end(Reason::TimedOut);
    }

    /// Counts idle time from now.
    pub(super) fn start_keep_alive(&mut self, now: Duration) {
        if let Some(keep_alive) = self.config.keep_alive {
            self.timers.set(Timer::KeepAlive, now + keep_alive.idle);
        }
    }

    /// Counts time without progress, if that is not being done.
    pub(super) fn start_user_timer(&mut self, now: Duration) {
        if let Some(timeout) = self.config.user_timeout {
            if !self.timers.runs(Timer::User) {
                self.timers.set(Timer::User, now + timeout);
            }
        }
    }

    /// A peer whose window is closed, and who answers the probes of it, is there: the program's patience begins anew.
    /// The same where it dropped what it had let in and answers that with a window of nothing (`is_shut`).
    ///
    /// Where the program has gone only progress counts. Whoever answers and takes nothing would otherwise hold what is
    /// to be sent, and its memory, as long as it likes.
    pub(super) fn answered_probe(&mut self, is_shut: bool, now: Duration) {
        let waits_for_window = self.send.board.is_empty() || is_shut;
        if !self.detached && waits_for_window && self.timers.runs(Timer::User) {
            self.timers.stop(Timer::User);
            self.start_user_timer(now);
        }
    }
}
