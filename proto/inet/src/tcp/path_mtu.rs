//! The path MTU of a connection: by ICMP (RFC 1191, RFC 8201), by noticing that large segments vanish, and by probing
//! for more (RFC 4821).

use core::time::Duration;

/// What every IPv4 path takes in practice, and a TCP may assume (RFC 9293 section 3.7.1: 536 octets of data).
pub const MIN_IPV4: u32 = 576;
/// What every IPv6 path takes (RFC 8200 section 5).
pub const MIN_IPV6: u32 = 1280;
/// Timeouts in a row of full segments after which the path is thought to swallow them (RFC 4821 section 7.7).
const BLACK_HOLE_TIMEOUTS: u32 = 3;
/// A search ends when it is known to so many octets.
const PRECISION: u32 = 32;
/// Time until a larger MTU is tried again after a router has spoken (RFC 1191 section 6.3, RFC 4821 section 7.3).
pub const RETRY: Duration = Duration::from_secs(600);
/// The same where timeouts are all there was. A peer that was stopped for two seconds looks the same as a path that
/// swallows what is large, and is much more frequent; with each such suspicion the time is twice as long, so that a
/// path that does so costs little.
const SUSPICION_RETRY: Duration = Duration::from_secs(5);

/// What is known of the path.
#[derive(Clone, Debug)]
pub struct PathMtu {
    current: u32,
    /// The link's; never exceeded.
    link: u32,
    ipv6: bool,
    floor: u32,
    /// Nothing above this works, as far as known.
    ceiling: u32,
    /// The largest packet that has arrived, as far as known.
    arrived: u32,
    /// What a router said against that.
    doubted: Option<Doubted>,
    probe: Option<Probe>,
    probing: bool,
    /// How often timeouts made the size smaller than the link's.
    suspicions: u32,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    size: u32,
    /// End of the probe in the stream.
    end: u64,
}

/// A router's word that packets are too large, of a size at which some have arrived.
#[derive(Clone, Copy, Debug)]
struct Doubted {
    mtu: u32,
    /// Where the packet that it is about begins in the stream.
    at: u64,
}

impl PathMtu {
    /// A path that begins with a link of `link` octets. With `probing` it starts at a size that is safe and searches.
    pub fn new(link: u32, ipv6: bool, probing: bool) -> PathMtu {
        let floor = if ipv6 { MIN_IPV6 } else { MIN_IPV4 }.min(link);
        let safe = if ipv6 { 1280 } else { 1064 }.min(link);
        PathMtu {
            current: if probing { safe } else { link },
            link,
            ipv6,
            floor,
            ceiling: link,
            arrived: 0,
            doubted: None,
            probe: None,
            probing,
            suspicions: 0,
        }
    }

    /// Octets of the largest IP packet to send.
    pub fn current(&self) -> u32 {
        self.current
    }

    /// A router said that packets may have `mtu` octets at most, about one that begins at `at` of the stream. Says
    /// whether that changed anything. Never up, and never below the least MTU of the protocol: of IPv6 such a message
    /// is dropped (RFC 8201 section 4), for IPv4 one below 576 is more likely an attack.
    ///
    /// Where packets of that size have arrived it is not believed before a timeout says the same
    /// ([`PathMtu::confirm_doubted`]): it may be anybody's, who has guessed a number of those that are out (RFC 5927
    /// section 7.2).
    pub fn too_big(&mut self, mtu: u32, at: u64) -> bool {
        if self.ipv6 && mtu < MIN_IPV6 {
            return false;
        }
        let mtu = mtu.max(self.floor);
        if mtu < self.arrived {
            // Of several the one that costs least.
            let mtu = self.doubted.map_or(mtu, |doubted| doubted.mtu.max(mtu));
            self.doubted = Some(Doubted { mtu, at });
            return false;
        }
        self.reduce(mtu)
    }

    /// The retransmission timer expired. Says whether that makes a router's word believed, and the size smaller.
    pub fn confirm_doubted(&mut self) -> bool {
        let Some(doubted) = self.doubted.take() else {
            return false;
        };
        self.arrived = doubted.mtu;
        self.reduce(doubted.mtu)
    }

    fn reduce(&mut self, mtu: u32) -> bool {
        self.ceiling = self.ceiling.min(mtu);
        if mtu >= self.current {
            return false;
        }
        self.current = mtu;
        self.probe = None;
        true
    }

    /// An IP packet of so many octets arrived.
    pub fn delivered(&mut self, packet: u32) {
        self.arrived = self.arrived.max(packet);
    }

    /// The retransmission timer expired `times` in a row; what was lost is an IP packet of `packet` octets. Says
    /// whether the size was reduced. One that every path takes says nothing of its size.
    pub fn timeouts(&mut self, times: u32, packet: u32) -> bool {
        if times < BLACK_HOLE_TIMEOUTS || packet <= self.floor || self.current == self.floor {
            return false;
        }
        self.suspicions += u32::from(self.current == self.link);
        self.ceiling = self.current - 1;
        self.current = self.floor.max(self.current / 2);
        self.arrived = self.arrived.min(self.current);
        self.probe = None;
        true
    }

    /// Size of the packet to probe with, when one is to be sent (RFC 4821 section 7.3).
    pub fn next_probe(&self) -> Option<u32> {
        if !self.probing || self.probe.is_some() || self.ceiling < self.current + PRECISION {
            return None;
        }
        // The link's own size first: most often it is the path's.
        let untried = self.ceiling == self.link;
        Some(if untried {
            self.link
        } else {
            self.current + (self.ceiling - self.current).div_ceil(2)
        })
    }

    /// A probe of `size` left; its data ends at `end`.
    pub fn probe_sent(&mut self, size: u32, end: u64) {
        self.probe = Some(Probe { size, end });
    }

    /// Everything before `ack` arrived. Says whether that makes the size larger.
    pub fn acknowledged(&mut self, ack: u64) -> bool {
        // The packet that a router was said to have dropped.
        self.doubted.take_if(|doubted| doubted.at < ack);
        let Some(probe) = self.probe.filter(|probe| ack >= probe.end) else {
            return false;
        };
        self.probe = None;
        self.current = probe.size;
        true
    }

    /// The segment that ends at `end` was lost. When it is the probe, that tells about its size and not about
    /// congestion (RFC 4821 section 7.6.2); returns whether it was.
    pub fn lost(&mut self, end: u64) -> bool {
        let Some(probe) = self.probe.filter(|probe| probe.end == end) else {
            return false;
        };
        self.probe = None;
        self.ceiling = probe.size - 1;
        true
    }

    /// Where the probe that is out ends in the stream.
    pub fn probe_end(&self) -> Option<u64> {
        self.probe.map(|probe| probe.end)
    }

    /// A probe is out.
    pub fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Time until a larger size is tried again, where timeouts made it smaller.
    pub fn suspicion_retry(&self) -> Duration {
        let factor = 2u32.pow(self.suspicions.saturating_sub(1).min(16));
        (SUSPICION_RETRY * factor).min(RETRY)
    }

    /// The path may have changed. Whoever probes searches again up to the link's size; others try that at once (RFC
    /// 1191 section 6.3), as nothing else would ever make it larger. Says whether the size has changed.
    pub fn forget(&mut self) -> bool {
        self.ceiling = self.link;
        if self.probing {
            return false;
        }
        core::mem::replace(&mut self.current, self.link) != self.link
    }

    /// The search found less than the link's size.
    pub fn is_below_link(&self) -> bool {
        self.current < self.link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_are_believed_downwards_to_the_least() {
        let mut path = PathMtu::new(1500, false, false);
        assert!(path.too_big(1400, 0));
        assert!(!path.too_big(1450, 0));
        assert!(path.too_big(68, 0));
        assert_eq!(path.current(), MIN_IPV4);
        let mut path = PathMtu::new(1500, true, false);
        // What no path of IPv6 has is no router's word.
        assert!(!path.too_big(100, 0));
        assert_eq!(path.current(), 1500);
        assert!(path.too_big(MIN_IPV6, 0));
        assert_eq!(path.current(), MIN_IPV6);
    }

    #[test]
    fn a_word_against_what_has_arrived_waits_for_a_timeout() {
        let mut path = PathMtu::new(1500, false, false);
        path.delivered(1200);
        assert!(path.too_big(1300, 0), "nothing of that size has arrived");
        assert!(!path.too_big(600, 5000));
        assert!(!path.too_big(700, 5000));
        assert_eq!(path.current(), 1300);
        // What it was about arrives.
        assert!(!path.acknowledged(5001));
        assert!(!path.confirm_doubted());
        assert!(!path.too_big(700, 9000));
        assert!(!path.too_big(600, 9000));
        assert!(!path.acknowledged(9000));
        assert!(path.confirm_doubted());
        assert_eq!(path.current(), 700);
        assert!(!path.confirm_doubted());
    }

    #[test]
    fn a_black_hole_is_left_after_three_timeouts() {
        let mut path = PathMtu::new(9000, false, false);
        assert!(!path.timeouts(2, 9000));
        assert!(path.timeouts(3, 9000));
        assert_eq!(path.current(), 4500);
    }

    #[test]
    fn a_loss_of_what_every_path_takes_says_nothing_of_the_size() {
        let mut path = PathMtu::new(9000, false, false);
        assert!(!path.timeouts(3, MIN_IPV4));
        assert_eq!(path.current(), 9000);
        assert!(path.timeouts(3, MIN_IPV4 + 1));
    }

    #[test]
    fn a_suspicion_is_looked_into_soon_and_later_each_time() {
        let mut path = PathMtu::new(1500, false, false);
        for seconds in [5, 10, 20, 40, 80, 160, 320, 600, 600] {
            while path.timeouts(3, 1500) {}
            assert_eq!(path.current(), MIN_IPV4);
            assert_eq!(path.suspicion_retry(), Duration::from_secs(seconds));
            assert!(path.forget());
            assert_eq!(path.current(), 1500);
            assert!(!path.forget());
        }
    }

    #[test]
    fn who_probes_goes_up_by_probes_alone() {
        let mut path = PathMtu::new(1500, false, true);
        assert!(!path.forget());
        assert!(path.current() < 1500);
    }

    #[test]
    fn the_search_ends_at_the_paths_size() {
        let mut path = PathMtu::new(9000, false, true);
        let real = 4321;
        let mut probes = 0;
        while let Some(size) = path.next_probe() {
            path.probe_sent(size, 100);
            if size <= real {
                assert!(path.acknowledged(100));
            } else {
                assert!(path.lost(100));
            }
            probes += 1;
        }
        assert!(
            path.current() <= real && path.current() + PRECISION > real,
            "{path:?}"
        );
        assert!(probes < 12);
    }
}
