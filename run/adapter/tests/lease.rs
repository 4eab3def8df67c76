//! A thread that polls for what its peer has to answer runs the device itself: the epoll set does not wait for the
//! device meanwhile, and does again when the answer is there or nobody polls any more.

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

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use by_number::{ordered, End, HERE};
use weft_adapter::faulty::{Faults, Faulty};
use weft_engine::mem::Registered;
use weft_engine::settings::{Settings, TransportRules};
use weft_engine::types::{Access, Payload, SendFlags, SendOp, SendRequest, WcStatus};
use weft_engine::{stats, Mr};

/// How long is waited for what has to come.
const LIMIT: Duration = Duration::from_secs(10);
/// Bits of epoll(7): there are octets.
const EPOLLIN: u32 = 1;

/// Whether an epoll set of this process waits for octets of a descriptor.
fn is_watched(fd: RawFd) -> bool {
    let files = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let lines: Vec<String> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with("tfd:"))
        .collect();
    let of_it = lines.iter().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words[1].parse() == Ok(fd);
        is_it.then(|| u32::from_str_radix(words[3], 16).unwrap())
    });
    of_it.expect("a device in the set") & EPOLLIN != 0
}

/// Whether something comes to be so.
fn comes(limit: Duration, mut so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if so() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    false
}

/// Requests of this process that are complete.
fn sends_completed() -> u64 {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_it = |path: &std::path::Path| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains(stats::NAME))
    };
    let path = files.map(|file| file.path()).find(|path| is_it(path));
    stats::read(&path.expect("statistics"))
        .unwrap()
        .totals
        .sends
}

/// Memory that an end may be written to.
struct Target(Arc<Mr>);

impl Target {
    fn of(end: &End) -> Target {
        let memory = Registered::allocate(4096).unwrap();
        let iova = memory.addr();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        end.qp.modify_access(access);
        Target(end.pd.register(memory, iova, access).unwrap())
    }

    /// Posts a Write, which is complete when the peer has said that it is placed (decision 0009).
    fn write_from(&self, end: &End) {
        end.qp
            .post_send(&SendRequest {
                wr_id: 3,
                op: SendOp::Write {
                    remote_addr: self.0.memory().addr(),
                    rkey: self.0.stag(),
                },
                flags: SendFlags::default(),
                payload: Payload::Inline(b"question"),
            })
            .unwrap();
    }
}

/// Starts the engine over two hosts; gives their devices, and what makes these deaf.
fn begin() -> (Vec<RawFd>, Vec<Arc<AtomicBool>>) {
    let mute = std::sync::Mutex::new(Vec::<Arc<AtomicBool>>::new());
    let network = made::network_of(&TransportRules::default(), |_, link| {
        let link = Faulty::new(link, Faults::default(), 1);
        mute.lock().unwrap().push(link.mute());
        Box::new(link)
    });
    let mutes = mute.into_inner().unwrap();
    let drives = network.drives();
    let devices: Vec<RawFd> = drives
        .iter()
        .map(|drive| drive.descriptor().unwrap().as_raw_fd())
        .collect();
    weft_engine::start_on(Settings::default(), network).unwrap();
    (devices, mutes)
}

#[test]
fn who_polls_for_an_answer_has_the_device_to_itself() {
    let (devices, mutes) = begin();
    let mute = |on: bool| {
        mutes
            .iter()
            .for_each(|mute| mute.store(on, Ordering::Relaxed))
    };
    let (a, b) = ordered();
    a.receive(a.to(&b, HERE));
    b.receive(b.to(&a, HERE));
    a.send();
    b.send();
    assert!(comes(LIMIT, || a.qp.is_connected() && b.qp.is_connected()));
    let watched = || devices.iter().filter(|fd| is_watched(**fd)).count();
    let targets = [Target::of(&a), Target::of(&b)];
    // Polls that find both ends busy would have pollers read neither first. So the service thread serves, and a poll
    // comes when the answer is there.
    let answers = std::cell::Cell::new(0);
    let answered = |from: &End| {
        answers.set(answers.get() + 1);
        assert!(comes(LIMIT, || sends_completed() == answers.get()));
        assert_eq!(by_number::wait(&from.cq).status, WcStatus::Success);
    };
    // Polls in vain for the answer to a Write, and says whether that leased the device of one host.
    let leases = |from: &End| {
        comes(LIMIT, || {
            (0..20).for_each(|_| assert_eq!(from.cq.poll(1, drop).unwrap(), 0));
            watched() == 1
        })
    };
    for (from, target) in [(&a, &targets[1]), (&b, &targets[0])] {
        // Now pollers read the one first that had an answer last.
        target.write_from(from);
        answered(from);
        assert!(comes(LIMIT, || watched() == 2), "nothing is outstanding");
        mute(true);
        target.write_from(from);
        assert!(leases(from), "it polls");
        assert!(comes(LIMIT, || watched() == 2), "it does no longer");
        assert!(leases(from), "and again");
        mute(false);
        answered(from);
        assert!(comes(LIMIT, || watched() == 2), "the answer is there");
    }
    // The stream may end meanwhile.
    mute(true);
    targets[0].write_from(&b);
    assert!(leases(&b));
    b.qp.destroy();
    assert!(comes(LIMIT, || watched() == 2), "the stream is gone");
}
