//! What becomes of frames that a link refuses, and of those behind them.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use weft_inet::stack::{Head, Stack, StackConfig};
use weft_inet::tcp::Secret;

use super::*;
use crate::cable;
use crate::link::{Link, ReceivedFrame};

/// Octets of the longest frame that the link takes.
const FRAME_OCTETS_MAX: usize = 1514;
/// Octets of the headers of a frame here.
const HEAD_OCTETS: usize = 54;

/// What a link has seen.
#[derive(Debug, Default)]
struct Seen {
    calls: usize,
    /// Octets of the frames that it took.
    taken: Vec<usize>,
}

/// A link that takes frames as a packet socket does: those before the first that it refuses, whose error it tells
/// only where nothing is before it.
#[derive(Debug)]
struct Strict {
    link: cable::End,
    /// What it says to every frame.
    always: Option<i32>,
    seen: Arc<Mutex<Seen>>,
}

impl Link for Strict {
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        self.link.receive(most, each)
    }

    fn send(&mut self, batch: &mut Batch<'_>) -> io::Result<usize> {
        let mut seen = self.seen.lock();
        seen.calls += 1;
        let (mut sent, mut refused) = (0, None);
        let mut octets = Vec::new();
        while let Some(appended) = batch.append_frame(sent, &mut octets) {
            refused = match appended {
                Err(_) => Some(libc::EFAULT),
                Ok(_) if octets.len() > FRAME_OCTETS_MAX => Some(libc::EMSGSIZE),
                Ok(_) => self.always,
            };
            if refused.is_some() {
                break;
            }
            seen.taken.push(octets.len());
            octets.clear();
            sent += 1;
        }
        batch.empty();
        match refused {
            Some(errno) if sent == 0 => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(sent),
        }
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
}

/// A driver on such a link.
fn driver(always: Option<i32>) -> (State, Arc<Mutex<Seen>>) {
    let (link, _) = cable::pair().unwrap();
    let seen = Arc::<Mutex<Seen>>::default();
    let link = Strict {
        link,
        always,
        seen: seen.clone(),
    };
    let addresses = vec!["10.7.0.1/24".parse().unwrap()];
    let config = StackConfig::new([2, 0, 0, 0, 0, 1], addresses, Secret([7; 16]));
    (State::new(Box::new(link), Stack::new(config), 1), seen)
}

fn frame(payload: Payload) -> Frame {
    Frame {
        head: Head::new(&[0; HEAD_OCTETS]),
        payload,
        vnet: VnetHeader::default(),
        looped: false,
    }
}

/// A frame of so many octets.
fn octets(len: usize) -> Frame {
    frame(Payload::Octets(vec![0; len - HEAD_OCTETS]))
}

#[test]
fn a_refused_frame_costs_itself_alone() {
    let (mut state, seen) = driver(None);
    state.frames = [100, 3000, 101, 3000, 3000, 102].map(octets).into();
    state.send_frames();
    assert_eq!(seen.lock().taken, [100, 101, 102]);
    let counters = (state.counters.frames_out, state.counters.frames_lost);
    assert_eq!(counters, (3, 3));
}

#[test]
fn a_link_that_is_full_or_down_is_asked_once_for_all_frames() {
    for errno in [libc::EAGAIN, libc::ENETDOWN, libc::ENXIO] {
        let (mut state, seen) = driver(Some(errno));
        state.frames = (0..20).map(|_| octets(100)).collect();
        state.send_frames();
        assert_eq!(seen.lock().calls, 1);
        assert_eq!(state.counters.frames_lost, 20);
    }
}
