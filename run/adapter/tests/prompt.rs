//! What arrives behind a hole is placed at once, by the service thread where nobody polls: nothing else comes that
//! would have it placed before the hole is filled.

#![allow(
    clippy::duplicate_mod,
    reason = "what the engine's tests are helped by has a copy in each of them"
)]

#[path = "../../engine/tests/peers/by_number.rs"]
mod by_number;
#[allow(dead_code, reason = "a part of it is used")]
mod made {
    include!("peers/made.rs");
}

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use by_number::{ordered, HERE};
use weft_adapter::link::ReceivedFrame;
use weft_adapter::{cable, Link};
use weft_engine::mem::Registered;
use weft_engine::settings::{Settings, TransportRules};
use weft_engine::types::{Access, Payload, SendFlags, SendOp, SendRequest, Sge};
use weft_os::device::Batch;

/// How long is waited for what has to come.
const LIMIT: Duration = Duration::from_secs(10);
/// Octets of the Write.
const OCTETS: usize = 1 << 20;
/// An octet behind the longest frame, which is of 62,636 octets here, and in the one that follows.
const BEHIND: u64 = 80_000;
/// Whether the links lose what they are to lose.
static ARMED: AtomicBool = AtomicBool::new(false);

/// A link that loses the first long frame for good: whatever begins with the same octet of the stream.
#[derive(Debug)]
struct Hole {
    link: cable::End,
    /// Sequence number of the frame.
    lost: OnceLock<[u8; 4]>,
}

/// The sequence number of a TCP segment over IPv4, if the frame is one of so many octets that it has data.
fn sequence(octets: &[u8]) -> Option<[u8; 4]> {
    let is_data = octets.len() > 1000 && octets[12..14] == [8, 0] && octets[23] == 6;
    is_data.then(|| octets[38..42].try_into().unwrap())
}

impl Link for Hole {
    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&ReceivedFrame<'_>),
    ) -> io::Result<usize> {
        let lost = &self.lost;
        self.link.receive(most, &mut |frame| {
            let Some(number) = sequence(frame.octets).filter(|_| ARMED.load(Ordering::Relaxed))
            else {
                return each(frame);
            };
            if *lost.get_or_init(|| number) != number {
                each(frame);
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

#[test]
fn what_comes_behind_a_hole_is_there_before_the_hole_is_filled() {
    // All of a window leaves at once: what a congestion control lets leave to begin with is the frame that is lost, and
    // the first segment of what is sent again is lost with it for ever.
    let rules = TransportRules::parse("none").unwrap();
    let network = made::network_of(&rules, |_, link| {
        let lost = OnceLock::new();
        Box::new(Hole { link, lost })
    });
    weft_engine::start_on(Settings::default(), network).unwrap();
    let (a, b) = ordered();
    a.receive(a.to(&b, HERE));
    b.receive(b.to(&a, HERE));
    a.send();
    b.send();
    let end = Instant::now() + LIMIT;
    while !(a.qp.is_connected() && b.qp.is_connected()) {
        assert!(Instant::now() < end, "no connection");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (source, target) = [&a, &b]
        .map(|_| Registered::allocate(OCTETS).unwrap())
        .into();
    source.write(0, &vec![7; OCTETS]).unwrap();
    let (from, to) = (source.addr(), target.addr());
    let source = a.pd.register(source, from, Access::LOCAL_WRITE).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    b.qp.modify_access(access);
    let target = b.pd.register(target, to, access).unwrap();
    ARMED.store(true, Ordering::Relaxed);
    let payload = [Sge {
        addr: from,
        length: OCTETS as u32,
        lkey: source.stag().0,
    }];
    a.qp.post_send(&SendRequest {
        wr_id: 1,
        op: SendOp::Write {
            remote_addr: to,
            rkey: target.stag(),
        },
        flags: SendFlags::default(),
        payload: Payload::Gather(&payload),
    })
    .unwrap();
    // Nobody polls.
    let mut octet = [0];
    let end = Instant::now() + LIMIT;
    while octet != [7] {
        assert!(Instant::now() < end, "nothing is placed");
        std::thread::sleep(Duration::from_millis(1));
        target.memory().read(BEHIND, &mut octet).unwrap();
    }
    target.memory().read(0, &mut octet).unwrap();
    assert_eq!(octet, [0], "the hole is there");
}
