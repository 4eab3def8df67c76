//! What becomes of frames that a link refuses, and of those behind them.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use weft_engine::carrier::Gather;
use weft_inet::stack::{Head, Stack, StackConfig};
use weft_inet::tcp::Secret;
use weft_os::testing::unmapped;

use super::*;
use crate::cable;
use crate::driver::copies::Pool;
use crate::driver::Key;
use crate::link::{Link, ReceivedFrame};
use weft_engine::carrier::SocketOptions;

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

    fn take_drops(&mut self) -> u64 {
        self.link.take_drops()
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

/// A connection that sends a page of memory that is not mapped, as it began.
fn sends_what_is_gone(state: &mut State) -> (Key, Frame) {
    let [local, peer] = ["10.7.0.1:0", "10.7.0.2:7471"].map(|text| text.parse().unwrap());
    let (key, _) = state
        .connect(local, peer, &SocketOptions::default())
        .unwrap();
    let gone = unmapped(4096);
    let mut list = Gather::default();
    list.push_registered(&gone, 0, 4096);
    let conn = state.table.get_mut(key).unwrap();
    let pushed = conn
        .outgoing
        .push_list(&list, usize::MAX, 0, &mut Pool::default());
    assert_eq!(pushed, Ok(4096));
    let stream = frame(Payload::Stream {
        connection: conn.id.unwrap(),
        range: 0..1000,
    });
    (key, stream)
}

#[test]
fn memory_that_is_gone_ends_its_connection_and_nothing_else() {
    let (mut state, seen) = driver(None);
    let (key, stream) = sends_what_is_gone(&mut state);
    seen.lock().taken.clear();
    state.frames = vec![octets(100), stream, octets(101)];
    state.send_frames();
    assert_eq!(seen.lock().taken, [100, 101]);
    let closed = state.table.get(key).unwrap().closed;
    assert_eq!(closed, Some(Closed::NoMemory));
}

/// What waits to be sent may be megabytes, and a device is busy often: its memory is not looked at then.
#[test]
fn a_busy_device_is_no_reason_to_look_at_memory() {
    for errno in [libc::ENOBUFS, libc::EAGAIN, libc::ENETDOWN] {
        let (mut state, _) = driver(Some(errno));
        let (key, _) = sends_what_is_gone(&mut state);
        let connection = state.table.get(key).unwrap().id.unwrap();
        // Of its headers alone: the link does not come to the memory.
        state.frames = vec![frame(Payload::Stream {
            connection,
            range: 0..0,
        })];
        state.send_frames();
        assert_eq!(state.table.get(key).unwrap().closed, None);
    }
}
