//! Congestion control, chosen for each connection, behind one trait.
//!
//! | module | what it does | source |
//! | --- | --- | --- |
//! | [`cubic`] | the standard | RFC 9438 |
//! | [`hystart`] | how its first slow start ends | RFC 9406 |
//! | [`reno`] | the classic | RFC 5681 |
//! | [`fixed_rate`] | sends at a rate the program gives, whatever is lost | |
//! | [`unlimited`] | sends whatever the peer's window takes | |
//!
//! The last two are for dedicated links, where a loss is no sign of congestion; they never wait for ACKs within rate
//! times RTT.

pub mod cubic;
pub mod fixed_rate;
pub mod hystart;
pub mod reno;
pub mod unlimited;

use super::seq::Position;
use alloc::boxed::Box;
use core::fmt::Debug;
use core::time::Duration;

/// What an ACK outside of recovery told.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    /// Octets that are known to be delivered since the last call.
    pub octets: u64,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Least round-trip time.
    pub min_rtt: Duration,
    /// The round trip this ACK told, if it told one.
    pub rtt: Option<Duration>,
    /// SND.UNA.
    pub una: Position,
    /// SND.NXT.
    pub nxt: Position,
    /// The window was what kept the sender from sending more (RFC 5681 section 4.3 and RFC 7661: a window that was not
    /// used proves nothing and does not grow).
    pub limited: bool,
    /// Now.
    pub now: Duration,
}

/// How many octets may be in flight.
///
/// All sizes are in octets. The connection keeps count of what is in flight and repairs losses; an algorithm only
/// decides on the window and, if it likes, on a rate.
pub trait Control: Debug + Send {
    /// Its name, for statistics.
    fn name(&self) -> &'static str;
    /// Octets that may be in flight.
    fn window(&self) -> u64;
    /// Window at which slow start ends, and at which a recovery ends.
    fn threshold(&self) -> u64;
    /// Octets per second at which to send, where it paces.
    fn rate(&self) -> Option<u64> {
        None
    }
    /// A loss calls for fewer octets in flight. Where it does not, recovery repairs and changes nothing else.
    fn reduces(&self) -> bool {
        true
    }
    /// Data was delivered, outside of recovery.
    fn acknowledged(&mut self, news: &Acknowledged);
    /// A recovery begins, with `flight` octets outstanding.
    fn congestion(&mut self, flight: u64, now: Duration);
    /// A recovery ended.
    fn recovered(&mut self, now: Duration);
    /// The retransmission timer expired, for the first time since there was progress or again (RFC 5681 section 3.1
    /// equation 4 holds for the first only).
    fn timeout(&mut self, flight: u64, first: bool, now: Duration);
    /// Nothing was sent for longer than the retransmission timeout (RFC 5681 section 4.1).
    fn idle(&mut self) {}
    /// The size of a full segment changed.
    fn set_mss(&mut self, mss: u64);
}

/// Which algorithm a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// CUBIC.
    #[default]
    Cubic,
    /// Reno.
    Reno,
    /// A fixed rate with pacing.
    FixedRate {
        /// Octets of IP packets per second.
        rate: u64,
    },
    /// None: the peer's window is the limit.
    Unlimited,
}

impl Algorithm {
    /// A fresh instance for a connection whose full segments have `mss` octets.
    pub fn build(self, mss: u64) -> Box<dyn Control> {
        match self {
            Algorithm::Cubic => Box::new(cubic::Cubic::new(mss)),
            Algorithm::Reno => Box::new(reno::Reno::new(mss)),
            Algorithm::FixedRate { rate } => Box::new(fixed_rate::FixedRate::new(rate)),
            Algorithm::Unlimited => Box::new(unlimited::Unlimited),
        }
    }
}

/// The initial window (RFC 6928 section 2).
fn initial_window(mss: u64) -> u64 {
    (10 * mss).min((2 * mss).max(14_600))
}
