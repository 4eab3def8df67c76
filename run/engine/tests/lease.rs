//! A program that polls for the acknowledgement of each Write, and then does not.

#[path = "peers/by_number.rs"]
mod by_number;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use by_number::{wait, End, HERE};
use weft_engine::bring_up::Destination;
use weft_engine::types::{Access, Payload, SendFlags, SendOp, SendRequest, Sge, Stag, WcStatus};
use weft_engine::Mr;

/// Several times what makes the engine expect the next poll.
const POLLED_FOR: u8 = 200;
const LAST: u8 = POLLED_FOR + 3;
const PSN: u32 = 11;
/// Where the child finds what it has to know of its parent, and what its own line begins with.
const PARENT: &str = "TEST_PARENT";
const TELLS: &str = "child: ";

/// The peer's memory.
struct Target {
    stag: u32,
    addr: u64,
}

fn memory(end: &End) -> Arc<Mr> {
    let memory = weft_engine::mem::Registered::allocate(8).unwrap();
    let iova = memory.addr();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    end.pd.register(memory, iova, access).unwrap()
}

fn write(from: &End, source: &Mr, target: &Target, value: u8) {
    source.memory().write(0, &[value; 8]).unwrap();
    let gather = [Sge {
        addr: source.memory().addr(),
        length: 8,
        lkey: source.stag().0,
    }];
    let op = SendOp::Write {
        rkey: Stag(target.stag),
        remote_addr: target.addr,
    };
    from.qp
        .post_send(&SendRequest {
            wr_id: u64::from(value),
            op,
            flags: SendFlags::default(),
            payload: Payload::Gather(&gather),
        })
        .unwrap();
}

/// Looks at memory alone, as a program does that spins on it.
fn see(memory: &Mr, value: u8) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut octets = [0; 8];
    while octets != [value; 8] {
        memory.memory().read(0, &mut octets).unwrap();
        assert!(
            Instant::now() < deadline,
            "{value} did not come: {octets:?}"
        );
        std::thread::yield_now();
    }
}

fn connect(end: &End, peer_qp: u32) {
    let address = HERE.parse().unwrap();
    end.receive(Destination {
        local: address,
        peer: address,
        peer_qp,
        rq_psn: PSN,
    });
    end.send();
}

/// What the peer has to know of an end.
fn told(end: &End, target: &Mr) -> String {
    let (stag, addr) = (target.stag().0, target.memory().addr());
    format!("{} {stag} {addr}", end.qp.number())
}

/// The queue pair's number, and the memory that it takes Writes in.
fn heard(line: &str) -> (u32, Target) {
    let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap());
    let mut next = || numbers.next().unwrap();
    let (qp, stag, addr) = (next() as u32, next() as u32, next());
    (qp, Target { stag, addr })
}

/// The child: answers each Write with one, and polls for the acknowledgement of its own.
#[test]
fn child_that_answers() {
    let Ok(parent) = std::env::var(PARENT) else {
        return;
    };
    let end = End::new(PSN);
    let (source, own) = (memory(&end), memory(&end));
    println!("\n{TELLS}{}", told(&end, &own));
    let (qp, target) = heard(&parent);
    connect(&end, qp);
    for value in 1..=LAST {
        see(&own, value);
        write(&end, &source, &target, value);
        assert_eq!(wait(&end.cq).status, WcStatus::Success);
    }
}

fn start_child(parent: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_that_answers", "--exact", "--nocapture"])
        .env(PARENT, parent)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines
        .find_map(|line| Some(line.unwrap().strip_prefix(TELLS)?.to_owned()))
        .expect("what the child tells");
    // It goes on to write there.
    std::thread::spawn(move || lines.count());
    (child, line)
}

/// The set does not wait for what a connection receives while its program is expected to poll. One that does not, for
/// the first time, has what its peer writes all the same.
#[test]
fn what_the_peer_writes_comes_though_nobody_polls_as_expected() {
    let end = End::new(PSN);
    let (source, own) = (memory(&end), memory(&end));
    let (mut child, line) = start_child(&told(&end, &own));
    let (qp, target) = heard(&line);
    connect(&end, qp);
    for value in 1..=POLLED_FOR {
        write(&end, &source, &target, value);
        assert_eq!(wait(&end.cq).status, WcStatus::Success);
        see(&own, value);
    }
    for value in POLLED_FOR + 1..=LAST {
        write(&end, &source, &target, value);
        see(&own, value);
    }
    assert!(child.wait().unwrap().success());
}
