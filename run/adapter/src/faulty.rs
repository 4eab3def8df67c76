//! A link that loses, doubles and reorders what arrives, as a seed says: for tests.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use weft_os::device::Batch;
use weft_os::packet::{ReceivedFrame, OFFLOAD_LEN};

use crate::link::Link;

/// Of a thousand frames so many are lost, come twice, and come behind the one that follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Frames that are lost.
    pub lost: u64,
    /// Frames that come twice.
    pub doubled: u64,
    /// Frames that come behind the next one.
    pub late: u64,
}

/// Another link, with faults.
#[derive(Debug)]
pub struct Faulty<L> {
    link: L,
    faults: Faults,
    /// State of the generator.
    seed: u64,
    /// All frames are lost.
    mute: Arc<AtomicBool>,
    /// What waits for the next frame.
    late: Option<([u8; OFFLOAD_LEN], Vec<u8>)>,
}

impl<L: Link> Faulty<L> {
    /// One whose faults follow from a seed.
    pub fn new(link: L, faults: Faults, seed: u64) -> Faulty<L> {
        Faulty {
            link,
            faults,
            seed,
            mute: Arc::default(),
            late: None,
        }
    }

    /// While this is set all frames are lost.
    pub fn mute(&self) -> Arc<AtomicBool> {
        self.mute.clone()
    }
}

/// The next number below 1000 of a generator with a state of 64 bits (splitmix64).
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *seed;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)) % 1000
}

impl<L: Link> Link for Faulty<L> {
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        let mute = self.mute.load(Ordering::Relaxed);
        let (faults, seed, late) = (self.faults, &mut self.seed, &mut self.late);
        self.link.receive(most, &mut |frame| {
            if mute {
                return;
            }
            let draw = next(seed);
            let doubled = faults.lost + faults.doubled;
            match draw {
                draw if draw < faults.lost => return,
                draw if draw < doubled => each(frame),
                draw if draw < doubled + faults.late && late.is_none() => {
                    *late = Some((frame.offload, frame.octets.to_vec()));
                    return;
                }
                _ => {}
            }
            each(frame);
            if let Some((offload, octets)) = late.take() {
                each(&ReceivedFrame {
                    octets: &octets,
                    offload,
                    ..*frame
                });
            }
        })
    }

    fn send(&mut self, batch: &mut Batch<'_>) -> io::Result<usize> {
        self.link.send(batch)
    }

    fn may_have_frame(&self) -> bool {
        self.link.may_have_frame()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        self.link.wait(timeout)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    fn waiting_frames_max(&self) -> usize {
        self.link.waiting_frames_max()
    }

    fn take_drops(&mut self) -> u64 {
        self.link.take_drops()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cable;

    /// Numbers of the frames that come of a hundred.
    fn come(faults: Faults, seed: u64) -> Vec<u8> {
        let (mut one, other) = cable::pair().unwrap();
        let mut other = Faulty::new(other, faults, seed);
        for number in 0..100 {
            let octets = [number];
            let mut batch = Batch::default();
            assert!(batch.frame(&[0; OFFLOAD_LEN]) && batch.push(&octets));
            assert_eq!(one.send(&mut batch).unwrap(), 1);
        }
        let mut came = Vec::new();
        other
            .receive(200, &mut |frame| came.push(frame.octets[0]))
            .unwrap();
        came
    }

    #[test]
    fn frames_are_lost_doubled_and_late_as_the_seed_says() {
        let [mut lost, mut doubled, mut late] = [Faults::default(); 3];
        let all: Vec<u8> = (0..100).collect();
        assert_eq!(come(lost, 1), all);
        (lost.lost, doubled.doubled, late.late) = (100, 100, 100);
        assert!((70..99).contains(&come(lost, 1).len()));
        assert!((101..130).contains(&come(doubled, 1).len()));
        let came = come(late, 1);
        assert_ne!(came, all);
        assert!(came
            .iter()
            .zip(&all)
            .all(|(came, at)| came.abs_diff(*at) <= 1));
        assert_ne!(come(lost, 1), come(lost, 2));
        assert_eq!(come(lost, 1), come(lost, 1));
    }
}
