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
/// Time until a larger MTU is tried again (RFC 1191 section 6.3, RFC 4821 section 7.3).
pub const RETRY: Duration = Duration::from_secs(600);

/// What is known of the path.
#[derive(Clone, Debug)]
pub struct PathMtu {
    current: u32,
    /// The link's; never exceeded.
    link: u32,
    floor: u32,
    /// Nothing above this works, as far as known.
    ceiling: u32,
    probe: Option<Probe>,
    probing: bool,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    size: u32,
    /// End of the probe in the stream.
    end: u64,
}

impl PathMtu {
    /// A path that begins with a link of `link` octets. With `probing` it starts at a size that is safe and searches.
    pub fn new(link: u32, ipv6: bool, probing: bool) -> PathMtu {
        let floor = if ipv6 { MIN_IPV6 } else { MIN_IPV4 }.min(link);
        let safe = if ipv6 { 1280 } else { 1064 }.min(link);
        PathMtu {
            current: if probing { safe } else { link },
            link,
            floor,
            ceiling: link,
            probe: None,
            probing,
        }
    }

    /// Octets of the largest IP packet to send.
    pub fn current(&self) -> u32 {
        self.current
    }

    /// A router said that packets may have `mtu` octets at most. Says whether that changed anything. Never below the
    /// least MTU of the protocol (RFC 8201 section 4; for IPv4 a message below 576 is more likely an attack), never up.
    pub fn too_big(&mut self, mtu: u32) -> bool {
        let mtu = mtu.max(self.floor);
        self.ceiling = self.ceiling.min(mtu.max(self.floor));
        if mtu >= self.current {
            return false;
        }
        self.current = mtu;
        self.probe = None;
        true
    }

    /// The retransmission timer expired `times` in a row, and a full segment is what was sent. Says whether the size
    /// was reduced.
    pub fn timeouts(&mut self, times: u32) -> bool {
        if times < BLACK_HOLE_TIMEOUTS || self.current == self.floor {
            return false;
        }
        self.ceiling = self.current - 1;
        self.current = self.floor.max(self.current / 2);
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

    /// The path may have changed: search again up to the link's size.
    pub fn forget(&mut self) {
        self.ceiling = self.link;
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
        assert!(path.too_big(1400));
        assert!(!path.too_big(1450));
        assert!(path.too_big(68));
        assert_eq!(path.current(), MIN_IPV4);
        let mut path = PathMtu::new(1500, true, false);
        path.too_big(100);
        assert_eq!(path.current(), MIN_IPV6);
    }

    #[test]
    fn a_black_hole_is_left_after_three_timeouts() {
        let mut path = PathMtu::new(9000, false, false);
        assert!(!path.timeouts(2));
        assert!(path.timeouts(3));
        assert_eq!(path.current(), 4500);
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
