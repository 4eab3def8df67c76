//! A cable in memory: two ends that carry frames to each other, for tests of everything above a device.
//!
//! It loses nothing as long as the other end looks: an end keeps [`WAITING_FRAMES_MAX`] frames, as the receive ring of
//! a packet socket does, and drops more.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_os::device::Batch;
use weft_os::packet::{ReceivedFrame, OFFLOAD_LEN};
use weft_os::poll::Waker;

use crate::link::Link;

/// Frames that wait at an end at most.
pub const WAITING_FRAMES_MAX: usize = 240;

/// What is on its way to one end.
#[derive(Debug)]
struct Inbox {
    frames: Mutex<VecDeque<([u8; OFFLOAD_LEN], Vec<u8>)>>,
    /// A hint: there are frames.
    any: AtomicBool,
    /// Frames for which there was no room, since somebody asked.
    dropped: AtomicU64,
    /// Set while there are frames, or the cable is cut.
    waker: Waker,
    cut: AtomicBool,
}

/// One end of a cable.
#[derive(Debug)]
pub struct End {
    own: Arc<Inbox>,
    other: Arc<Inbox>,
}

/// Cuts the cable.
#[derive(Clone, Debug)]
pub struct Cutter(Arc<Inbox>, Arc<Inbox>);

/// A cable.
///
/// # Errors
/// No descriptors are left.
pub fn pair() -> io::Result<(End, End)> {
    let inbox = || -> io::Result<Arc<Inbox>> {
        Ok(Arc::new(Inbox {
            frames: Mutex::default(),
            any: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            waker: Waker::new()?,
            cut: AtomicBool::new(false),
        }))
    };
    let (one, other) = (inbox()?, inbox()?);
    let ends = |own: &Arc<Inbox>, other: &Arc<Inbox>| End {
        own: own.clone(),
        other: other.clone(),
    };
    Ok((ends(&one, &other), ends(&other, &one)))
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ENXIO)
}

impl End {
    /// What takes the interface away, at both ends.
    pub fn cutter(&self) -> Cutter {
        Cutter(self.own.clone(), self.other.clone())
    }

    fn is_cut(&self) -> bool {
        self.own.cut.load(Ordering::Acquire)
    }
}

impl Cutter {
    /// From now on both ends say that their interface is gone.
    pub fn cut(&self) {
        for inbox in [&self.0, &self.1] {
            inbox.cut.store(true, Ordering::Release);
            inbox.any.store(true, Ordering::Release);
            inbox.waker.wake();
        }
    }
}

impl Link for End {
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        for count in 0..most {
            if self.is_cut() {
                return Err(gone());
            }
            let frame = {
                let mut frames = self.own.frames.lock();
                let frame = frames.pop_front();
                if frames.is_empty() {
                    self.own.any.store(false, Ordering::Release);
                    self.own.waker.clear();
                }
                frame
            };
            let Some((offload, octets)) = frame else {
                return Ok(count);
            };
            each(&ReceivedFrame {
                octets: &octets,
                missing: 0,
                offload,
                vlan: None,
                at: Duration::ZERO,
            });
        }
        Ok(most)
    }

    fn send(&mut self, batch: &mut Batch<'_>) -> io::Result<usize> {
        if self.is_cut() {
            batch.empty();
            return Err(gone());
        }
        let mut sent = 0;
        let mut frames = self.other.frames.lock();
        let mut octets = Vec::new();
        while let Some(appended) = batch.append_frame(sent, &mut octets) {
            let Ok(offload) = appended else {
                batch.empty();
                return match sent {
                    0 => Err(io::Error::from_raw_os_error(libc::EFAULT)),
                    sent => Ok(sent),
                };
            };
            let octets = std::mem::take(&mut octets);
            if frames.len() < WAITING_FRAMES_MAX {
                frames.push_back((offload, octets));
            } else {
                self.other.dropped.fetch_add(1, Ordering::Relaxed);
            }
            sent += 1;
        }
        batch.empty();
        if !frames.is_empty() {
            self.other.any.store(true, Ordering::Release);
            self.other.waker.wake();
        }
        Ok(sent)
    }

    #[inline]
    fn may_have_frame(&self) -> bool {
        self.own.any.load(Ordering::Acquire)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let end = Instant::now() + timeout;
        loop {
            if self.is_cut() {
                return Err(gone());
            }
            if self.may_have_frame() {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(100).min(timeout));
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.own.waker.as_fd()
    }

    fn waiting_frames_max(&self) -> usize {
        WAITING_FRAMES_MAX
    }

    fn take_drops(&mut self) -> u64 {
        self.own.dropped.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(link: &mut End, octets: &[u8]) -> io::Result<usize> {
        let mut batch = Batch::default();
        assert!(batch.frame(&[7; OFFLOAD_LEN]) && batch.push(octets));
        link.send(&mut batch)
    }

    #[test]
    fn frames_come_in_order_until_an_end_is_full() {
        let (mut one, mut other) = pair().unwrap();
        assert!(!other.may_have_frame());
        for number in 0..WAITING_FRAMES_MAX + 3 {
            assert_eq!(frame(&mut one, &[number as u8, 1]).unwrap(), 1);
        }
        let mut came = Vec::new();
        let count = other.receive(1000, &mut |frame| came.push(frame.octets[0]));
        assert_eq!(count.unwrap(), WAITING_FRAMES_MAX);
        assert!(came
            .iter()
            .enumerate()
            .all(|(at, first)| at as u8 == *first));
        assert!(!other.may_have_frame());
        assert_eq!((other.take_drops(), other.take_drops()), (3, 0));
    }

    #[test]
    fn a_cable_that_is_cut_is_gone_at_both_ends() {
        let (mut one, mut other) = pair().unwrap();
        one.cutter().cut();
        for end in [&mut one, &mut other] {
            let error = frame(end, b"x").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
            assert!(end.wait(Duration::ZERO).is_err() && end.receive(1, &mut |_| ()).is_err());
        }
    }
}
