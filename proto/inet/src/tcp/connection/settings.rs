//! What the program may change while a connection is under way.

use super::super::ack::AckPolicy;
use super::super::config::shift_for;
use super::super::congestion::Algorithm;
use super::super::keepalive::KeepAlive;
use super::super::timers::Timer;
use super::Connection;
use core::time::Duration;

impl Connection {
    /// Changes how ACKs are thinned.
    pub fn set_ack_policy(&mut self, policy: AckPolicy) {
        self.ack.set_policy(policy);
    }

    /// Changes the congestion control, keeping what is in flight.
    pub fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.config.algorithm = algorithm;
        self.send.control = algorithm.build(u64::from(self.send.mss()));
    }

    /// Changes how many octets of data the largest frame has that is handed out to be cut; less than two segments:
    /// every segment is a frame.
    pub fn set_max_frame(&mut self, octets: u32) {
        self.config.max_frame = octets;
    }

    /// The peer acknowledges what it no longer waits for ([`Connection::forgive`]): what it so skips counts as lost for
    /// the congestion control, which would not hear of it else.
    pub fn set_peer_forgives(&mut self) {
        self.send.peer_forgives = true;
    }

    /// Small segments leave at once, or wait for an ACK as John Nagle has it (RFC 9293 section 3.7.4).
    pub fn set_no_delay(&mut self, no_delay: bool) {
        self.config.no_delay = no_delay;
    }

    /// Probes an idle connection from now on, or does no longer. The idle time counts from `now`.
    pub fn set_keep_alive(&mut self, keep_alive: Option<KeepAlive>, now: Duration) {
        self.config.keep_alive = keep_alive;
        self.probes.answered();
        self.timers.stop(Timer::KeepAlive);
        if self.state.is_synchronized() {
            self.start_keep_alive(now);
        }
    }

    /// Changes how long data and probes may go unanswered; none: for ever. Where something is out already the new time
    /// counts from `now` (RFC 5482 section 3.1 leaves it to the program when).
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>, now: Duration) {
        self.config.user_timeout = timeout;
        let unanswered = !self.send.board.is_empty() || self.timers.runs(Timer::Persist);
        if unanswered || self.timers.runs(Timer::User) {
            self.timers.stop(Timer::User);
            self.start_user_timer(now);
        }
    }

    /// Changes how many octets the peer may send before the program takes any. Before the SYN leaves any window may be
    /// had; afterwards at most what the scaling that it offered can say. A smaller one leaves the scaling as it is, so
    /// that the window may grow again, and takes nothing back that was offered (RFC 9293 section 3.8.6). Returns the
    /// window it has now.
    pub fn set_receive_window(&mut self, octets: u64) -> u64 {
        let Some(receive) = &mut self.receive else {
            if self.send.nxt == 0 {
                self.offered_shift = self.offered_shift.max(shift_for(octets));
            }
            let octets = octets.min(65_535 << self.offered_shift);
            self.config.receive_window = octets;
            return octets;
        };
        let octets = octets.min(65_535 << self.shift);
        self.config.receive_window = octets;
        receive.set_capacity(octets, self.config.ranges());
        if receive.window_grew(u64::from(self.config.mss())) && self.state.may_receive() {
            self.ack.at_once();
        }
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::isn::{Secret, Tuple};
    use super::super::super::Config;
    use super::*;
    use core::net::SocketAddr;

    #[test]
    fn a_window_is_what_the_scaling_of_the_syn_can_say() {
        let tuple = Tuple {
            local: SocketAddr::from(([10, 0, 0, 1], 1)),
            remote: SocketAddr::from(([10, 0, 0, 2], 2)),
        };
        let secrets = Secret([1; 16]).for_connection(&tuple, Duration::ZERO);
        let mut connection = Connection::connect(Config::default(), secrets, Duration::ZERO);
        let most = |shift: u32| 65_535u64 << shift;
        assert_eq!(connection.set_receive_window(10 << 20), 10 << 20);
        assert_eq!(connection.set_receive_window(1000), 1000);
        let syn = connection.poll_transmit(Duration::ZERO).expect("a SYN");
        assert_eq!(
            syn.header.options.window_scale,
            Some(8),
            "for the largest so far"
        );
        assert_eq!(
            connection.set_receive_window(1 << 40),
            most(8),
            "the SYN has left"
        );
    }
}
