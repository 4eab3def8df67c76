//! One direction of a path for Ethernet frames: boxes that change packets, then a link.
//!
//! A frame goes through these, in this order: segmentation and checksum offload are undone, a box resegments TCP, a
//! router holds packets to its MTU, and the [`Link`] does the rest. A box or router that was not asked for is not
//! there.

use crate::config::LinkConfig;
use crate::link::{Counters, Link, Travels};
use crate::offload;
use crate::packet::ETHERNET_LEN;
use crate::random::Random;
use crate::resegment::{ResegmentCounters, Resegmenter};
use crate::router::{Router, RouterCounters};
use core::time::Duration;
use std::collections::VecDeque;
use weft_inet::stack::VnetHeader;

/// What stands in the seed of the resegmenting box besides that of the link, so that the two draw apart.
const BOX_SEED: u64 = 0x7265_7365_676d_656e;

/// What a path does in one direction. The default does nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PathConfig {
    /// The link.
    pub link: LinkConfig,
    /// MTU in octets of the router before the link.
    pub mtu: Option<u32>,
    /// Whether a box splits and joins TCP segments.
    pub resegment: bool,
}

/// What happened so far in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathCounters {
    /// Frames that came in, as the sender's kernel gave them.
    pub received: u64,
    /// Of these, large ones that were cut into segments or datagrams.
    pub cut: u64,
    /// Of these, dropped because they could not be cut.
    pub not_cut: u64,
    /// What the resegmenting box did.
    pub resegment: ResegmentCounters,
    /// What the router did.
    pub router: RouterCounters,
    /// What the link did.
    pub link: Counters,
    /// Frames that are on the link.
    pub on_the_way: u64,
    /// Octets of the frames that arrived.
    pub octets: u64,
}

/// One direction of a path, with what is on its way.
///
/// Frames go in by [`Path::handle_frame`] and come out by [`Path::poll_transmit`]; what the router answers to the
/// sender comes out by [`Path::poll_answer`]. [`Path::deadline`] says when to call [`Path::handle_timeout`] and look
/// again.
#[derive(Clone, Debug)]
pub struct Path {
    resegmenter: Option<Resegmenter>,
    router: Option<Router>,
    link: Link<Frame>,
    answers: VecDeque<Vec<u8>>,
    counters: PathCounters,
}

/// An Ethernet frame on a link. Damage leaves its Ethernet header whole: who it is for stays known, as the interface of
/// the receiver would else drop it without a trace, and that is loss.
#[derive(Clone, Debug)]
struct Frame(Vec<u8>);

impl Travels for Frame {
    fn wire_len(&self) -> usize {
        self.0.len()
    }

    fn corrupt(&mut self, random: &mut Random) {
        let mut behind = self.0.split_off(ETHERNET_LEN.min(self.0.len()));
        behind.corrupt(random);
        self.0.append(&mut behind);
    }
}

impl Path {
    /// A path with nothing on it. `mtu` is that of the interface where frames leave, in octets.
    pub fn new(config: &PathConfig, mtu: u32, seed: u64) -> Path {
        let largest = config.mtu.unwrap_or(mtu).min(mtu);
        let resegmenter = || Resegmenter::new(largest as usize, seed ^ BOX_SEED);
        Path {
            resegmenter: config.resegment.then(resegmenter),
            router: config.mtu.map(Router::new),
            link: Link::new(config.link, seed),
            answers: VecDeque::new(),
            counters: PathCounters::default(),
        }
    }

    /// Takes a frame that came at `now`, with what its sender left to a device. Each frame that it becomes on a wire
    /// is shown to `seen` before anything is done to it.
    pub fn handle_frame(
        &mut self,
        frame: &[u8],
        vnet: &VnetHeader,
        now: Duration,
        mut seen: impl FnMut(&[u8]),
    ) {
        self.handle_timeout(now);
        self.counters.received += 1;
        let Ok(frames) = offload::finish(frame, vnet) else {
            self.counters.not_cut += 1;
            return;
        };
        self.counters.cut += u64::from(frames.len() > 1);
        for frame in frames {
            seen(&frame);
            match &mut self.resegmenter {
                None => route(
                    &mut self.router,
                    &mut self.link,
                    &mut self.answers,
                    frame,
                    now,
                ),
                Some(resegmenter) => resegmenter.handle_frame(frame, now, &mut |frame| {
                    route(
                        &mut self.router,
                        &mut self.link,
                        &mut self.answers,
                        frame,
                        now,
                    );
                }),
            }
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        let Some(resegmenter) = &mut self.resegmenter else {
            return;
        };
        while let Some(due) = resegmenter.deadline().filter(|due| *due <= now) {
            resegmenter.handle_timeout(due, &mut |frame| {
                route(
                    &mut self.router,
                    &mut self.link,
                    &mut self.answers,
                    frame,
                    due,
                );
            });
        }
    }

    /// The next frame that arrives by `now`, with the time that it was due at.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(Duration, Vec<u8>)> {
        let due = self.link.deadline()?;
        let Frame(frame) = self.link.receive(now)?;
        self.counters.octets += frame.len() as u64;
        Some((due, frame))
    }

    /// The next frame that goes back to the sender, at once.
    pub fn poll_answer(&mut self) -> Option<Vec<u8>> {
        self.answers.pop_front()
    }

    /// When something is due next.
    pub fn deadline(&mut self) -> Option<Duration> {
        let held = self.resegmenter.as_mut().and_then(Resegmenter::deadline);
        [held, self.link.deadline()].into_iter().flatten().min()
    }

    /// What happened so far.
    pub fn counters(&self) -> PathCounters {
        PathCounters {
            resegment: self
                .resegmenter
                .as_ref()
                .map_or_else(Default::default, Resegmenter::counters),
            router: self
                .router
                .as_ref()
                .map_or_else(Default::default, Router::counters),
            link: self.link.counters(),
            on_the_way: self.link.on_the_way() as u64,
            ..self.counters
        }
    }
}

/// Through the router, if there is one, onto the link.
fn route(
    router: &mut Option<Router>,
    link: &mut Link<Frame>,
    answers: &mut VecDeque<Vec<u8>>,
    frame: Vec<u8>,
    now: Duration,
) {
    match router {
        None => link.send(Frame(frame), now),
        Some(router) => {
            let answer = router.handle_frame(frame, now, |frame| link.send(Frame(frame), now));
            answers.extend(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples::{finished, ipv4, is_sound, tcp, udp, ETHERNET};
    use crate::packet::{TCP, UDP};
    use weft_inet::tcp::segment::Flags;

    const MS: Duration = Duration::from_millis(1);

    fn drain(path: &mut Path) -> Vec<(Duration, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(at) = path.deadline() {
            path.handle_timeout(at);
            while let Some(arrived) = path.poll_transmit(at) {
                all.push(arrived);
            }
        }
        all
    }

    fn send(path: &mut Path, frame: &[u8], now: Duration) {
        path.handle_frame(frame, &VnetHeader::default(), now, |_| ());
    }

    #[test]
    fn a_path_of_nothing_is_a_wire() {
        let mut path = Path::new(&PathConfig::default(), 1500, 1);
        let frame = finished(ipv4(UDP, true, &udp(b"abc")));
        send(&mut path, &frame, 3 * MS);
        assert_eq!(drain(&mut path), [(3 * MS, frame.clone())]);
        assert_eq!(path.counters().octets, frame.len() as u64);
    }

    #[test]
    fn everything_at_once_keeps_the_stream() {
        let config = PathConfig {
            link: LinkConfig::default().delay(5 * MS),
            mtu: Some(700),
            resegment: true,
        };
        let mut path = Path::new(&config, 1500, 7);
        for at in 0..20u32 {
            let segment = tcp(at * 1400, Flags::ACK.bits(), &[], &[at as u8; 1400]);
            // Without the bit that forbids fragments, lest the router drop what is too long.
            let frame = finished(ipv4(TCP, false, &segment));
            send(&mut path, &frame, at * MS / 10);
        }
        let arrived = drain(&mut path);
        assert!(arrived.iter().all(|(_, frame)| frame.len() <= 14 + 700));
        assert!(arrived.iter().all(|(_, frame)| is_sound(frame)));
        let octets: usize = arrived.iter().map(|(_, frame)| frame.len() - 54).sum();
        assert_eq!(octets, 20 * 1400);
        assert!(arrived.iter().all(|(at, _)| *at >= 5 * MS && *at <= 8 * MS));
    }

    #[test]
    fn what_is_too_big_is_answered_at_once() {
        let config = PathConfig {
            link: LinkConfig::default().delay(50 * MS),
            mtu: Some(1000),
            ..PathConfig::default()
        };
        let mut path = Path::new(&config, 1500, 1);
        send(&mut path, &ipv4(UDP, true, &udp(&[0; 1200])), MS);
        assert_eq!(path.deadline(), None);
        assert!(path.poll_answer().is_some());
        assert!(path.poll_answer().is_none());
        assert_eq!(path.counters().router.answered, 1);
    }

    #[test]
    fn a_large_frame_is_seen_in_pieces() {
        let mut path = Path::new(&PathConfig::default(), 1500, 1);
        let vnet = VnetHeader {
            gso_type: 1,
            gso_size: 1000,
            ..VnetHeader::default()
        };
        let large = ipv4(TCP, true, &tcp(0, Flags::ACK.bits(), &[], &[3; 2500]));
        let mut seen = Vec::new();
        path.handle_frame(&large, &vnet, MS, |frame| seen.push(frame.to_vec()));
        let arrived: Vec<_> = drain(&mut path).into_iter().map(|(_, f)| f).collect();
        assert_eq!(seen, arrived);
        let counters = path.counters();
        assert_eq!((counters.received, counters.cut), (1, 1));
        assert_eq!(counters.link.sent, 3);

        let broken = VnetHeader {
            gso_type: 9,
            ..vnet
        };
        path.handle_frame(&[0; 60], &broken, MS, |_| panic!("nothing to see"));
        assert_eq!(path.counters().not_cut, 1);
    }

    #[test]
    fn damage_spares_the_ethernet_header() {
        let config = PathConfig {
            link: LinkConfig::default().corruption(1.0),
            ..PathConfig::default()
        };
        let mut path = Path::new(&config, 1500, 1);
        let frame = ipv4(UDP, true, &udp(&[0; 20]));
        for _ in 0..200 {
            send(&mut path, &frame, MS);
        }
        let arrived = drain(&mut path);
        assert!(arrived.iter().all(|(_, damaged)| damaged[..12] == ETHERNET));
        assert!(
            arrived
                .iter()
                .filter(|(_, damaged)| *damaged != frame)
                .count()
                > 190
        );
    }
}
