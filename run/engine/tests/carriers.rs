//! What a carrier may do that the kernel's TCP does not: refer to the program's memory until the other end receives, so
//! that octets are *taken* first and *released* later and a completion says the latter; and change its EMSS.

mod common;
#[path = "peers/raw.rs"]
mod raw;

use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use common::{pair, sge, End, ALL};
use weft_engine::carrier::memory::Memory;
use weft_engine::settings::{FpduSize, Settings};
use weft_engine::types::{
    Access, Payload, RecvRequest, SendFlags, SendOp, SendRequest, WcOpcode, WcStatus,
};
use weft_engine::Mr;

/// More than a receiver without receives holds, which is 1 MiB, and than it reads in one call beside that.
const LEN: usize = 6 << 20;
/// The end of a message that no receive was posted for: it stays with the sender's network.
const UNREAD: usize = 1 << 20;

/// This program's network.
fn network() -> &'static Memory {
    static NETWORK: OnceLock<Memory> = OnceLock::new();
    NETWORK.get_or_init(|| {
        let network = Memory::by_reference();
        // Without CRC payload goes by reference.
        let settings = Settings {
            crc: false,
            fpdu: FpduSize::Emss,
            ..Settings::default()
        };
        weft_engine::start_on(settings, Arc::new(network.clone())).unwrap();
        network
    })
}

/// The EMSS is the network's, for all tests: who changes it has the network alone, as short FPDUs are copied.
static EMSS: RwLock<()> = RwLock::new(());

fn same_emss() -> RwLockReadGuard<'static, ()> {
    EMSS.read().unwrap_or_else(PoisonError::into_inner)
}

fn ends() -> (End, End) {
    network();
    pair()
}

/// A Send of which the receiver has read as much as it holds.
fn send_half(from: &End) -> Arc<Mr> {
    let source = from.memory(LEN, Access::NONE);
    source.memory().write(0, &vec![1; LEN]).unwrap();
    from.qp
        .post_send(&SendRequest {
            wr_id: 7,
            op: SendOp::Send,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload: Payload::Gather(&[sge(&source, 0, LEN as u32)]),
        })
        .unwrap();
    source
}

/// Overwrites the end of the message, as a program does that has its memory back.
fn overwrite(source: &Mr) {
    let at = (LEN - UNREAD) as u64;
    source.memory().write(at, &vec![2; UNREAD]).unwrap();
}

/// Receives the message, and gives its octets.
fn receive(end: &End) -> Vec<u8> {
    let target = end.memory(LEN, ALL);
    end.qp
        .post_recv(&RecvRequest {
            wr_id: 9,
            scatter: &[sge(&target, 0, LEN as u32)],
        })
        .unwrap();
    let received = end.wait_recv();
    assert_eq!(received.status, WcStatus::Success);
    let mut octets = vec![0; LEN];
    target.memory().read(0, &mut octets).unwrap();
    octets
}

fn is_complete(end: &End) -> bool {
    end.send_cq.poll(1, drop).unwrap() > 0
}

#[test]
fn a_send_is_complete_when_its_memory_is_released() {
    let _emss = same_emss();
    let (a, b) = ends();
    let source = send_half(&a);
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        assert!(!is_complete(&a), "its end is not read");
    }
    // The program must not do this yet; it shows that the network had no copy.
    overwrite(&source);
    let octets = receive(&b);
    // Not the last octet: a last FPDU that is short is copied when it is framed.
    assert_eq!((octets[0], octets[LEN - UNREAD]), (1, 2));
    let completion = a.wait_send();
    assert_eq!(
        (completion.wr_id, completion.status, completion.opcode),
        (7, WcStatus::Success, WcOpcode::Send)
    );
}

#[test]
fn memory_that_is_deregistered_is_referred_to_no_more() {
    let _emss = same_emss();
    let (a, b) = ends();
    let source = send_half(&a);
    source.deregister().unwrap();
    overwrite(&source);
    assert_eq!(a.wait_send().status, WcStatus::Success, "it is copied");
    assert!(receive(&b) == vec![1; LEN]);
}

#[test]
fn a_flushed_send_is_the_programs_again_and_arrives_all_the_same() {
    let _emss = same_emss();
    let (a, b) = ends();
    let source = send_half(&a);
    a.id.disconnect().unwrap();
    assert_eq!(a.wait_send().status, WcStatus::Flushed, "it may or may not");
    overwrite(&source);
    assert!(receive(&b) == vec![1; LEN]);
}

#[test]
fn a_queue_pair_that_is_destroyed_leaves_copies() {
    let _emss = same_emss();
    let (a, b) = ends();
    let source = send_half(&a);
    a.id.disconnect().unwrap();
    a.qp.destroy();
    a.id.destroy();
    overwrite(&source);
    assert!(receive(&b) == vec![1; LEN]);
}

/// The path changes under a stream that is up, with nothing on its way.
#[test]
fn fpdus_follow_the_emss_of_their_carrier() {
    let _alone = EMSS.write().unwrap_or_else(PoisonError::into_inner);
    let (a, _b) = ends();
    for (emss, mulpdu) in [(1000, 994), (9000, 8994)] {
        network().set_emss(emss);
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut of_a = raw::counts().connections.into_iter();
        while of_a.all(|one| one.qp != u64::from(a.qp.number()) || one.mulpdu != mulpdu) {
            assert!(Instant::now() < deadline, "it stayed");
            std::thread::sleep(Duration::from_millis(1));
            of_a = raw::counts().connections.into_iter();
        }
    }
}
