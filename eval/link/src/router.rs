//! A router whose next link has a smaller MTU.

use crate::fragment::fragments;
use crate::packet::{u16_at, Layout, Version};
use crate::too_big;
use core::time::Duration;

/// Every link carries IPv6 packets of so many octets (RFC 8200 section 5).
const IPV6_LEAST_MTU: u32 = 1280;
/// In the field of the fragment offset of IPv4.
const DONT_FRAGMENT: u16 = 0x4000;
/// Answers in one second at most: a router limits them (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).
const ANSWERS_PER_SECOND: u32 = 100;

/// What a router did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterCounters {
    /// Packets that were fragmented.
    pub fragmented: u64,
    /// Packets dropped because they were too big and must not, or cannot, be fragmented.
    pub too_big: u64,
    /// Of these, answered with an ICMP message.
    pub answered: u64,
}

/// A router that sends on what fits, fragments what may be fragmented, and answers the rest.
///
/// It is a router in nothing else: it takes no hop off and has no address.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    mtu: u32,
    counters: RouterCounters,
    /// The second that `answers` were sent in.
    second: u64,
    answers: u32,
}

impl Router {
    /// A router before a link of `mtu` octets.
    pub(crate) fn new(mtu: u32) -> Router {
        Router {
            mtu,
            counters: RouterCounters::default(),
            second: 0,
            answers: 0,
        }
    }

    pub(crate) fn counters(&self) -> RouterCounters {
        self.counters
    }

    /// Takes a frame at `now`: what goes on is given to `forward`; returned is the answer to the sender, if any.
    pub(crate) fn handle_frame(
        &mut self,
        frame: Vec<u8>,
        now: Duration,
        mut forward: impl FnMut(Vec<u8>),
    ) -> Option<Vec<u8>> {
        let too_long = Layout::parse(&frame).and_then(|layout| {
            let mtu = self.mtu_of(layout.version);
            (layout.packet_len() > mtu as usize).then_some((layout, mtu))
        });
        let Some((layout, mtu)) = too_long else {
            forward(frame);
            return None;
        };
        let field = u16_at(&frame, layout.network + 6).unwrap_or_default();
        if layout.version == Version::V4 && field & DONT_FRAGMENT == 0 {
            match fragments(&frame, &layout, mtu as usize) {
                Some(parts) => {
                    self.counters.fragmented += 1;
                    parts.into_iter().for_each(forward);
                }
                // The header alone fills the MTU. Nobody who may fragment could do better, so nobody is told.
                None => self.counters.too_big += 1,
            }
            return None;
        }
        self.counters.too_big += 1;
        let answer = too_big::answer(&frame, &layout, mtu).filter(|_| self.may_answer(now));
        self.counters.answered += u64::from(answer.is_some());
        answer
    }

    fn mtu_of(&self, version: Version) -> u32 {
        match version {
            Version::V4 => self.mtu,
            Version::V6 => self.mtu.max(IPV6_LEAST_MTU),
        }
    }

    fn may_answer(&mut self, now: Duration) -> bool {
        if self.second != now.as_secs() {
            self.second = now.as_secs();
            self.answers = 0;
        }
        self.answers += 1;
        self.answers <= ANSWERS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::reassembled;
    use crate::packet::{samples, u32_at, UDP};

    fn through(router: &mut Router, frame: &[u8]) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let mut forwarded = Vec::new();
        let answer = router.handle_frame(frame.to_vec(), Duration::ZERO, |frame| {
            forwarded.push(frame);
        });
        (forwarded, answer)
    }

    #[test]
    fn what_fits_goes_on_untouched() {
        let mut router = Router::new(600);
        for frame in [
            samples::ipv4(UDP, true, &[1; 580]),
            samples::ipv6(UDP, &[1; 1240]),
            vec![0; 2000],
        ] {
            assert_eq!(through(&mut router, &frame), (vec![frame], None));
        }
        assert_eq!(router.counters(), RouterCounters::default());
    }

    #[test]
    fn without_dont_fragment_a_packet_is_fragmented_and_with_it_answered() {
        let mut router = Router::new(600);
        let octets: Vec<u8> = (0..1400).map(|at| at as u8).collect();
        let (parts, answer) = through(&mut router, &samples::ipv4(UDP, false, &octets));
        assert_eq!((parts.len(), answer), (3, None));
        assert_eq!(reassembled(&parts), octets);
        let (parts, answer) = through(&mut router, &samples::ipv4(UDP, true, &octets));
        assert_eq!(parts.len(), 0);
        assert_eq!(u16_at(&answer.unwrap(), 40), Some(600));
        let (parts, answer) = through(&mut router, &samples::ipv6(UDP, &octets));
        assert_eq!(parts.len(), 0);
        assert_eq!(u32_at(&answer.unwrap(), 58), Some(1280));
        let expected = RouterCounters {
            fragmented: 1,
            too_big: 2,
            answered: 2,
        };
        assert_eq!(router.counters(), expected);
    }

    #[test]
    fn answers_are_limited_in_each_second() {
        let mut router = Router::new(600);
        let frame = samples::ipv4(UDP, true, &[0; 1000]);
        let mut answers = |second| {
            (0..300)
                .filter(|_| {
                    let now = Duration::from_secs(second);
                    router
                        .handle_frame(frame.clone(), now, |_| panic!("too big"))
                        .is_some()
                })
                .count()
        };
        assert_eq!((answers(0), answers(1)), (100, 100));
    }
}
