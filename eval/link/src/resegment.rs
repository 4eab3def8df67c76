//! A box that cuts a TCP stream into other segments than the sender did, as proxies and offloading devices on a way do.

use crate::packet::Layout;
use crate::random::Random;
use crate::segment::{FlowId, Segment};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// The end of a segment waits so long for the segment behind it.
const HOLD_MAX: Duration = Duration::from_millis(1);
/// Segments that one becomes at most, so that the box does not multiply the packets without bound.
const PIECES_MAX: usize = 4;
/// How likely a segment is cut once more, and its end held.
const CHANCE: f64 = 0.5;

/// What a resegmenting box did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResegmentCounters {
    /// Cuts made in segments.
    pub split: u64,
    /// Segments joined to the one before.
    pub joined: u64,
}

/// Splits and joins the segments of each TCP stream at random places. The octets and their order stay.
///
/// It obeys the contract of every state machine: what comes out is given to `forward`, [`Resegmenter::deadline`] says
/// when [`Resegmenter::handle_timeout`] has something to do.
#[derive(Clone, Debug)]
pub(crate) struct Resegmenter {
    /// Octets of the longest packet that may leave.
    mtu: usize,
    random: Random,
    /// Ends of segments that wait for what follows them, by stream.
    held: BTreeMap<FlowId, Held>,
    /// The same in the order of their deadlines. A serial that is held no more is passed over.
    deadlines: VecDeque<(Duration, u64, FlowId)>,
    serial: u64,
    /// Of the IPv4 packets made here.
    identification: u16,
    counters: ResegmentCounters,
}

#[derive(Clone, Debug)]
struct Held {
    serial: u64,
    segment: Segment,
}

impl Resegmenter {
    /// A box that makes packets of `mtu` octets at most.
    pub(crate) fn new(mtu: usize, seed: u64) -> Resegmenter {
        let mut random = Random::new(seed);
        Resegmenter {
            mtu,
            identification: random.bits() as u16,
            random,
            held: BTreeMap::new(),
            deadlines: VecDeque::new(),
            serial: 0,
            counters: ResegmentCounters::default(),
        }
    }

    pub(crate) fn counters(&self) -> ResegmentCounters {
        self.counters
    }

    /// Takes a frame at `now`.
    pub(crate) fn handle_frame(
        &mut self,
        frame: Vec<u8>,
        now: Duration,
        forward: &mut dyn FnMut(Vec<u8>),
    ) {
        let Some(layout) = Layout::parse(&frame) else {
            return forward(frame);
        };
        let Some(flow) = FlowId::of(&frame, &layout) else {
            return forward(frame);
        };
        let held = self.held.remove(&flow).map(|held| held.segment);
        match (held, Segment::parse(&frame, &layout)) {
            (Some(mut held), Some(next)) if held.can_join(&next) => {
                self.counters.joined += 1;
                held.pushes = next.pushes;
                held.payload.extend_from_slice(&next.payload);
                self.cut(held, flow, now, forward);
            }
            (held, next) => {
                // What was held comes first: the order within a stream stays.
                if let Some(held) = held {
                    self.emit(&held, forward);
                }
                match next {
                    Some(next) => self.cut(next, flow, now, forward),
                    None => forward(frame),
                }
            }
        }
    }

    /// When the next held end leaves, whatever comes.
    pub(crate) fn deadline(&mut self) -> Option<Duration> {
        while let Some((deadline, serial, flow)) = self.deadlines.front() {
            if self
                .held
                .get(flow)
                .is_some_and(|held| held.serial == *serial)
            {
                return Some(*deadline);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Sends on the end whose deadline has come, one for a call.
    pub(crate) fn handle_timeout(&mut self, now: Duration, forward: &mut dyn FnMut(Vec<u8>)) {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        let due = self.deadlines.pop_front();
        if let Some(held) = due.and_then(|(_, _, flow)| self.held.remove(&flow)) {
            self.emit(&held.segment, forward);
        }
    }

    /// Cuts a segment at random places. Its end may be held, for what follows to be joined to it; not when it is
    /// pushed, as then nothing may follow for long.
    fn cut(
        &mut self,
        mut rest: Segment,
        flow: FlowId,
        now: Duration,
        forward: &mut dyn FnMut(Vec<u8>),
    ) {
        let room = rest.room(self.mtu);
        for pieces in 1.. {
            let len = rest.payload.len();
            let wanted = pieces < PIECES_MAX && len > 1 && self.random.chance(CHANCE);
            if len <= room && !wanted {
                break;
            }
            let most = room.min(len - 1);
            let at = match pieces < PIECES_MAX {
                true => 1 + self.random.below(most as u64) as usize,
                false => most,
            };
            self.counters.split += 1;
            let head = rest.split_off_head(at);
            self.emit(&head, forward);
        }
        if rest.pushes || !self.random.chance(CHANCE) {
            return self.emit(&rest, forward);
        }
        self.serial += 1;
        let serial = self.serial;
        self.deadlines
            .push_back((now + HOLD_MAX, serial, flow.clone()));
        let segment = rest;
        self.held.insert(flow, Held { serial, segment });
    }

    fn emit(&mut self, segment: &Segment, forward: &mut dyn FnMut(Vec<u8>)) {
        self.identification = self.identification.wrapping_add(1);
        forward(segment.encode(Some(self.identification)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples::{finished, ipv4, ipv6, is_sound, tcp, udp};
    use crate::packet::{u32_at, TCP, UDP};
    use proptest::prelude::*;
    use weft_inet::tcp::segment::Flags;

    const ACK: u8 = Flags::ACK.bits();
    const MTU: usize = 600;

    fn part(frame: &[u8]) -> (u32, u8, Vec<u8>) {
        let layout = Layout::parse(frame).unwrap();
        let at = layout.transport;
        let head = at + usize::from(frame[at + 12] >> 4) * 4;
        (
            u32_at(frame, at + 4).unwrap(),
            frame[at + 13],
            frame[head..layout.end].to_vec(),
        )
    }

    /// The stream that segments in order carry; the places where one is pushed.
    fn stream(frames: &[Vec<u8>], first: u32) -> (Vec<u8>, Vec<usize>) {
        let (mut octets, mut pushed) = (Vec::new(), Vec::new());
        for frame in frames {
            assert!(is_sound(frame));
            let (sequence, flags, payload) = part(frame);
            assert_eq!(
                sequence,
                first.wrapping_add(octets.len() as u32),
                "in order"
            );
            octets.extend(payload);
            if flags & Flags::PSH.bits() != 0 {
                pushed.push(octets.len());
            }
        }
        (octets, pushed)
    }

    fn frame(six: bool, segment: &[u8]) -> Vec<u8> {
        finished(match six {
            true => ipv6(TCP, segment),
            false => ipv4(TCP, true, segment),
        })
    }

    /// Everything that comes out for these frames, 100 us apart, and then for nothing.
    fn through(box_: &mut Resegmenter, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut now = Duration::ZERO;
        for frame in frames {
            now += Duration::from_micros(100);
            while box_.deadline().is_some_and(|deadline| deadline <= now) {
                box_.handle_timeout(now, &mut |frame| out.push(frame));
            }
            box_.handle_frame(frame.clone(), now, &mut |frame| out.push(frame));
        }
        while let Some(deadline) = box_.deadline() {
            assert!(deadline <= now + HOLD_MAX);
            box_.handle_timeout(deadline, &mut |frame| out.push(frame));
        }
        assert!(box_.held.is_empty());
        out
    }

    proptest! {
        #[test]
        fn the_stream_is_the_same_to_the_octet(
            sizes in proptest::collection::vec(1usize..550, 1..60),
            pushes in proptest::collection::vec(any::<bool>(), 60),
            first: u32,
            seed: u64,
            six: bool,
        ) {
            let (mut sent, mut frames, mut pushed) = (Vec::new(), Vec::new(), Vec::new());
            for (size, push) in sizes.iter().zip(&pushes) {
                let sequence = first.wrapping_add(sent.len() as u32);
                let payload: Vec<u8> = (0..*size).map(|at| (sent.len() + at * 3) as u8).collect();
                let flags = if *push { ACK | Flags::PSH.bits() } else { ACK };
                frames.push(frame(six, &tcp(sequence, flags, &[], &payload)));
                sent.extend(payload);
                if *push {
                    pushed.push(sent.len());
                }
            }
            let mut box_ = Resegmenter::new(MTU, seed);
            let out = through(&mut box_, &frames);
            prop_assert!(out.iter().all(|frame| frame.len() <= 14 + MTU));
            prop_assert_eq!(stream(&out, first), (sent, pushed));
            let counters = box_.counters();
            let change = counters.split as i64 - counters.joined as i64;
            prop_assert_eq!(out.len() as i64, frames.len() as i64 + change);
        }
    }

    #[test]
    fn a_long_stream_is_split_and_joined() {
        let frames: Vec<_> = (0..200u32)
            .map(|at| frame(false, &tcp(at * 500, ACK, &[], &[at as u8; 500])))
            .collect();
        let mut box_ = Resegmenter::new(MTU, 1);
        let out = through(&mut box_, &frames);
        let ResegmentCounters { split, joined } = box_.counters();
        assert!(split > 50 && joined > 50, "{split} {joined}");
        assert!(out.iter().any(|frame| part(frame).2.len() > 500));
        let again = through(&mut Resegmenter::new(MTU, 1), &frames);
        assert_eq!(out, again, "one seed, one run");
        assert_ne!(out, through(&mut Resegmenter::new(MTU, 2), &frames));
    }

    #[test]
    fn what_ends_or_acknowledges_a_stream_stays_behind_its_octets() {
        for seed in 0..50 {
            let last = frame(false, &tcp(1500, ACK | Flags::FIN.bits(), &[], &[9; 10]));
            let frames: Vec<_> = (0..3u32)
                .map(|at| frame(false, &tcp(at * 500, ACK, &[], &[at as u8; 500])))
                .chain([last.clone()])
                .collect();
            let out = through(&mut Resegmenter::new(MTU, seed), &frames);
            assert_eq!(stream(&out, 0).0.len(), 1510);
            assert_eq!(out.last(), Some(&last), "untouched and last");
        }
    }

    #[test]
    fn other_protocols_pass() {
        let datagram = finished(ipv4(UDP, true, &udp(b"abc")));
        let strange = vec![7; 40];
        let out = through(
            &mut Resegmenter::new(MTU, 1),
            &[datagram.clone(), strange.clone()],
        );
        assert_eq!(out, [datagram, strange]);
    }
}
