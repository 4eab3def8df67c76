//! The deadlines, and what follows when they pass.

use core::time::Duration;

use super::Qp;
use crate::host::Host;
use crate::qp::timers::{Close, Timer};

impl Qp {
    /// When [`Qp::handle_timeout`] has to be called at the latest, in the host's time. It may change with every call.
    #[inline]
    pub fn deadline(&self) -> Option<Duration> {
        let next = self.timers.next();
        debug_assert!(
            next.is_none() || self.stream.is_some(),
            "every deadline is of a stream"
        );
        next
    }

    /// The deadline has passed, or may have. Then the driver sends what is due; where it gives a [`Close`], the driver
    /// closes the stream and calls [`Qp::stream_ended`].
    pub fn handle_timeout(&mut self, host: &mut impl Host) -> Option<Close> {
        let now = host.now();
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Rnr => self.give_up_holding(host),
                Timer::Pause => self.pause.end(&self.rnr_queue),
                Timer::Acknowledgement => self.delayed.expire(now, &mut self.timers),
                // An empty RDMA Write places nothing: STag and TO of an empty tagged message are not checked (RFC 5041
                // section 5.2). The next pause begins when it has left.
                Timer::Probe if self.probes.are_wanted() && self.lifecycle.is_live() => {
                    self.control.queue_probe();
                }
                Timer::Probe => {}
                Timer::FirstFpdu if !self.may_send() => return Some(Close::Abort),
                Timer::FirstFpdu => {}
                Timer::Linger => return Some(Close::Linger),
            }
        }
        self.follow_rnr(host);
        None
    }
}
