//! The body of the fuzz target `placing`, and of the seeds of the same name in the tests and the simulation: one
//! direction of a stream, written by a peer that does anything it is able to, arrives in any order at one queue pair
//! and in order at another.
//!
//! It panics when both do not come to the same: completions, faults, what is sent, and where nothing went wrong memory.

mod peer;
mod receiver;

pub use receiver::{Outcome, Receiver};

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use weft_iwarp::{Established, Outbound, PlacePolicy, Role};

use super::{established, Source, STEPS_MAX};
use crate::placing::{PlacingCounters, Reassembler};
use crate::types::Stag;
use peer::{WriteSegment, Writer};
use receiver::{Setup, OPEN};

/// What connects the two ends, and what the peer sends.
#[derive(Clone, Debug)]
pub struct Script {
    setup: Setup,
    /// The octets of the stream, from the first of Full Operation on.
    pub stream: Vec<u8>,
    /// Where segments end that the peer makes, the last of them at the end of the stream.
    pub cuts: Vec<usize>,
    /// Its segments that go to the open region.
    writes: Vec<WriteSegment>,
    source: Vec<u8>,
}

impl Script {
    /// What these octets tell the peer to send.
    pub fn new(octets: &[u8]) -> Script {
        let mut source = Source { octets };
        let (flags, policy) = (source.octet(), source.octet());
        let crc = flags & 1 == 0;
        let setup = Setup {
            crc,
            markers: flags & 2 != 0,
            // A peer that promises nothing and has no CRC is dull.
            aligned: !crc && flags & 4 == 0,
            unreliable: flags & 0x38 == 0x38,
            weft: flags & 0x40 != 0,
            policy: [PlacePolicy::Safe, PlacePolicy::Eager][usize::from(policy & 1)],
            calm: policy & 6 > 0,
        };
        let Receiver { program, asked, .. } = Receiver::new(setup);
        let mut writer = Writer {
            stags: program.stags,
            reads: asked,
            peer: Outbound::new(
                &Established {
                    markers_tx: setup.markers,
                    ..established(Role::Responder, setup.crc)
                },
                1448,
            ),
            markers: setup.markers,
            calm: setup.calm,
            messages: 0,
            requests: 0,
            open: None,
            stream: Vec::new(),
            cuts: Vec::new(),
            writes: Vec::new(),
            source,
        };
        if setup.aligned {
            // A Weft peer says so first (decision 0004).
            writer.write_segment(Stag::RTR, 0x5745_4654_0001_0001, true, 0);
        }
        let mut steps = 0;
        while !writer.source.octets.is_empty() && steps < STEPS_MAX {
            writer.step();
            steps += 1;
        }
        writer.cuts.push(writer.stream.len());
        writer.cuts.sort_unstable();
        writer.cuts.dedup();
        writer.cuts.retain(|cut| *cut > 0);
        Script {
            setup,
            stream: writer.stream,
            cuts: writer.cuts,
            writes: writer.writes,
            source: octets.to_vec(),
        }
    }

    /// A queue pair that this is for.
    pub fn receiver(&self) -> Receiver {
        Receiver::new(self.setup)
    }

    /// What is to be placed ahead of order.
    pub fn policy(&self) -> PlacePolicy {
        self.setup.policy
    }

    /// What comes of it in order.
    pub fn in_order(&self) -> Outcome {
        let mut receiver = self.receiver();
        let (qp, device) = receiver.parts();
        let (mut received, mut from) = (Vec::new(), 0);
        for cut in &self.cuts {
            received.extend_from_slice(&self.stream[from..*cut]);
            from = *cut;
            let done = qp.receive(&mut received, device);
            received.drain(..done.consumed);
        }
        receiver.finish()
    }

    /// What comes of it in the order that its octets draw, with what was counted; and whether all of it came.
    pub fn out_of_order(&self) -> (Outcome, PlacingCounters, bool) {
        let mut receiver = self.receiver();
        let mut reassembler = Reassembler::new(self.policy());
        for piece in self.arrivals() {
            let mut octets = self.stream[piece.clone()].to_vec();
            self.arrive(&mut receiver, &mut reassembler, piece.start, &mut octets);
        }
        let counters = *reassembler.counters();
        let all = reassembler.position() == self.stream.len() as u64;
        (
            receiver.finish(),
            counters,
            all && counters.recalled_fpdus == 0,
        )
    }

    /// Octets at the offset `at` of the stream arrive.
    ///
    /// # Panics
    /// The program sees what it was promised not to: octets outside of its regions change, or those of a message's last
    /// segment ahead of order.
    #[allow(unexpected_cfgs, reason = "the fuzzer's build sets it")]
    pub fn arrive(
        &self,
        receiver: &mut Receiver,
        reassembler: &mut Reassembler,
        at: usize,
        octets: &mut [u8],
    ) {
        let piece = at..at + octets.len();
        let is_told = self.stream.get(piece.clone()) == Some(&*octets);
        let is_ahead = at as u64 > reassembler.position() + reassembler.waiting_octets();
        let before = receiver.program.device.ever_registered(OPEN).to_vec();
        let (qp, device) = receiver.parts();
        reassembler.arrive(at as u64, octets, qp, device);
        device.check_canaries();
        assert!(reassembler.waiting_octets() <= self.stream.len() as u64);
        // A damaged header may say anything where no CRC tells.
        let is_sound = self.setup.crc && !cfg!(fuzzing);
        if is_told && is_ahead && is_sound && self.policy() == PlacePolicy::Safe {
            self.check_what_is_seen(&piece, &before, device.ever_registered(OPEN));
        }
    }

    /// Of a piece ahead of order only segments are seen that are not their message's last.
    fn check_what_is_seen(&self, piece: &Range<usize>, before: &[u8], after: &[u8]) {
        let may_be_seen = |at: usize| {
            self.writes.iter().any(|write| {
                let is_there = piece.start <= write.fpdu.start && write.fpdu.end <= piece.end;
                is_there && !write.last && write.target.contains(&at)
            })
        };
        for (at, (before, after)) in before.iter().zip(after).enumerate() {
            assert!(before == after || may_be_seen(at), "seen too early: {at}");
        }
    }

    /// The segments, some of them late.
    fn arrivals(&self) -> Vec<Range<usize>> {
        let begins = [0].into_iter().chain(self.cuts.iter().copied());
        let mut drawn = self.source.iter().rev().cycle();
        let mut late = |n: usize| match drawn.next().copied().unwrap_or(0) {
            lateness @ 0..=99 => n + usize::from(lateness) % 24,
            _ => n,
        };
        let mut pieces: Vec<(usize, Range<usize>)> = begins
            .zip(self.cuts.iter().copied())
            .enumerate()
            .map(|(n, (from, to))| (late(n), from..to))
            .collect();
        pieces.sort_by_key(|(turn, _)| *turn);
        pieces.into_iter().map(|(_, piece)| piece).collect()
    }
}

/// Compares both arrivals of what `octets` tell; gives what was counted.
pub fn compare(octets: &[u8]) -> (PlacingCounters, Outcome) {
    let script = Script::new(octets);
    let expected = script.in_order();
    let (found, counters, all) = script.out_of_order();
    check(&script, &found, &expected, all, &counters);
    (counters, expected)
}

/// Both came to the same. Where the peer hid an FPDU in another one's payload, memory tells of it, and a connection may
/// end for it whose region went while its octets waited there.
///
/// # Panics
/// They did not.
pub fn check(
    script: &Script,
    found: &Outcome,
    expected: &Outcome,
    all: bool,
    counters: &PlacingCounters,
) {
    let setup = script.setup;
    if counters.lost_fpdus > 0 {
        assert!(found.has_fault(), "{setup:?}");
        return;
    }
    let memory = all && counters.recalled_fpdus == 0;
    assert_eq!(found.events, expected.events, "events, {setup:?}");
    assert_eq!(found.recvs, expected.recvs, "receives, {setup:?}");
    assert_eq!(found.sends, expected.sends, "sends, {setup:?}");
    assert_eq!(found.async_events, expected.async_events, "{setup:?}");
    if memory || expected.has_fault() {
        assert_eq!(found.sent, expected.sent, "sent, {setup:?}");
    }
    if memory && !expected.has_fault() {
        assert!(found.memory == expected.memory, "memory, {setup:?}");
    }
}

/// Fuzz target: what arrives in any order comes to what it comes to in order.
pub fn placing(octets: &[u8]) {
    compare(octets);
}

/// Octets that tell something, from a seed; about twice as many as `most` says, or less.
pub fn octets_of_seed(seed: u64, most: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0070_6c61_6369_6e67;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56
    };
    let len = 20 + draw() as usize * most / 128;
    let mut octets = vec![0; len];
    octets.iter_mut().for_each(|octet| *octet = draw() as u8);
    octets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placing::Waits;
    use std::path::Path;
    use std::{fs, println};

    #[test]
    fn what_arrives_in_any_order_comes_to_what_it_comes_to_in_order() {
        let mut sum = PlacingCounters::default();
        let (mut faults, mut sound) = (0, 0);
        for seed in 0..4000 {
            println!("seed {seed}");
            let (counters, outcome) = compare(&octets_of_seed(seed, 256));
            sum.placed_fpdus += counters.placed_fpdus;
            sum.recalled_fpdus += counters.recalled_fpdus;
            sum.lost_fpdus += counters.lost_fpdus;
            (0..sum.waits.len()).for_each(|n| sum.waits[n] += counters.waits[n]);
            faults += u32::from(outcome.has_fault());
            sound += u32::from(!outcome.has_fault() && counters.placed_fpdus > 0);
        }
        println!("{sum:?} faults {faults} sound {sound}");
        // The seeds are about something.
        assert!(sum.placed_fpdus > 1000 && sum.recalled_fpdus > 10);
        assert!(faults > 500 && sound > 500);
        for why in Waits::ALL {
            let never = [Waits::Policy, Waits::Window, Waits::LedgerFull].contains(&why);
            assert!(never || sum.waited(why) > 0, "{why:?}");
        }
    }

    #[test]
    fn the_corpus_keeps_its_promises() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/placing");
        let mut inputs = 0;
        for entry in fs::read_dir(folder).expect("the corpus") {
            placing(&fs::read(entry.expect("an entry").path()).expect("an input"));
            inputs += 1;
        }
        assert!(inputs >= 20, "{inputs} inputs");
    }
}
