//! Queue pairs that a program walks through their states, attribute by attribute, as `ibv_modify_qp(3)` has it.

#[path = "peers/attributes.rs"]
mod attributes;
#[path = "peers/by_number.rs"]
mod by_number;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use attributes::{nothing, to};
use by_number::{exchange, wait, End};
use weft_engine::types::{Access, QpCap, QpState, WcStatus};
use weft_engine::{Context, QpAttr, QpAttrMask as A, QpInit, QpModifier, QpType, UdQp};
use QpState::{Error as Failed, Init, Reset, Rtr, Rts, Sqd, Sqe};

const TO_INIT: A = A::PKEY_INDEX.union(A::PORT).union(A::ACCESS_FLAGS);
const TO_RTR: A = A::AV
    .union(A::PATH_MTU)
    .union(A::DEST_QPN)
    .union(A::RQ_PSN)
    .union(A::MAX_DEST_RD_ATOMIC)
    .union(A::MIN_RNR_TIMER);
const TO_RTS: A = A::TIMEOUT
    .union(A::RETRY_CNT)
    .union(A::RNR_RETRY)
    .union(A::SQ_PSN)
    .union(A::MAX_QP_RD_ATOMIC);

/// A queue pair that was just made, and what its program changes it by.
struct Walker {
    end: End,
    modifier: QpModifier,
}

impl Walker {
    fn new(kind: QpType, psn: u32) -> Walker {
        Walker {
            end: End::made(psn),
            modifier: QpModifier::new(kind),
        }
    }

    fn state(&self) -> QpState {
        self.end.qp.state()
    }

    /// Whether the change is made.
    fn takes(&mut self, attr: &QpAttr) -> bool {
        self.modifier.modify(&self.end.qp, attr).is_ok()
    }

    #[track_caller]
    fn goes(&mut self, attr: &QpAttr, state: QpState) {
        self.modifier.modify(&self.end.qp, attr).unwrap();
        assert_eq!(self.state(), state);
    }

    /// What takes it to RTR, where `peer` is the other end.
    fn to_rtr(&self, peer: &Walker) -> QpAttr {
        QpAttr {
            dest_qp: peer.end.qp.number(),
            // The upper octet is not of it.
            rq_psn: peer.end.psn | 0xAB00_0000,
            ..to(Rtr, TO_RTR)
        }
    }

    fn to_rts(&self) -> QpAttr {
        QpAttr {
            sq_psn: self.end.psn,
            ..to(Rts, TO_RTS)
        }
    }
}

/// Two that are walked up to each other, as far as INIT.
fn two_in_init() -> (Walker, Walker) {
    let mut two = (Walker::new(QpType::Rc, 5), Walker::new(QpType::Rc, 6));
    for walker in [&mut two.0, &mut two.1] {
        walker.goes(&to(Init, TO_INIT), Init);
    }
    two
}

/// Two that are in RTS.
fn two() -> (Walker, Walker) {
    let (mut a, mut b) = two_in_init();
    let (a_to, b_to) = (a.to_rtr(&b), b.to_rtr(&a));
    a.goes(&a_to, Rtr);
    b.goes(&b_to, Rtr);
    for walker in [&mut a, &mut b] {
        let attr = walker.to_rts();
        walker.goes(&attr, Rts);
    }
    (a, b)
}

#[test]
fn two_queue_pairs_are_walked_up_and_talk() {
    let (mut a, b) = two();
    assert_eq!(a.end.qp.access(), Access::REMOTE_WRITE);
    exchange(&a.end, &b.end);
    // As programs do that change rights: the send direction stays as it is.
    let again = QpAttr {
        named: A::STATE | A::ACCESS_FLAGS,
        access: Access::REMOTE_READ,
        ..a.to_rts()
    };
    a.goes(&again, Rts);
    assert_eq!(a.end.qp.access(), Access::REMOTE_READ);
    exchange(&a.end, &b.end);
}

#[test]
fn without_a_state_it_stays_in_its_own() {
    let (mut a, b) = two();
    // The state that is not named is RESET.
    let access = QpAttr {
        named: A::ACCESS_FLAGS,
        access: Access::REMOTE_READ,
        ..nothing()
    };
    a.goes(&access, Rts);
    assert_eq!(a.end.qp.access(), Access::REMOTE_READ);
    let of_datagrams = QpAttr {
        named: A::QKEY,
        ..nothing()
    };
    assert!(!a.takes(&of_datagrams));
    exchange(&a.end, &b.end);
}

#[test]
fn the_state_it_is_said_to_be_in_has_to_be_right() {
    let (mut a, _b) = two();
    let said = |cur_state| QpAttr {
        cur_state,
        ..to(Rts, A::CUR_STATE)
    };
    a.goes(&said(Rts), Rts);
    assert!(!a.takes(&said(Rtr)));
}

#[test]
fn what_is_missing_too_much_or_wrong_changes_nothing() {
    let mut walker = Walker::new(QpType::Rc, 5);
    let before = walker.end.qp.access();
    assert_ne!(before, nothing().access);
    let wrong = [
        to(Init, TO_INIT - A::PORT),
        to(Init, TO_INIT | A::QKEY),
        QpAttr {
            pkey_index: 1,
            ..to(Init, TO_INIT)
        },
        QpAttr {
            cur_state: Init,
            ..to(Init, TO_INIT | A::CUR_STATE)
        },
        to(Rts, TO_RTS),
        to(Sqe, A::empty()),
    ];
    for attr in wrong {
        assert!(!walker.takes(&attr), "{attr:?}");
        assert_eq!(walker.state(), Reset);
        assert_eq!(walker.end.qp.access(), before);
    }
    walker.goes(&to(Init, TO_INIT), Init);
    // It is in it already; what is not named stays as it was.
    let access = QpAttr {
        access: Access::REMOTE_READ,
        ..to(Init, A::empty())
    };
    walker.goes(&access, Init);
    assert_eq!(walker.end.qp.access(), Access::REMOTE_WRITE);
    let without_path = QpAttr {
        ends: None,
        ..to(Rtr, TO_RTR)
    };
    assert!(!walker.takes(&without_path));
    assert!(!walker.takes(&to(Rtr, TO_RTR - A::PATH_MTU)));
    assert!(!walker.takes(&to(Sqd, A::empty())), "not from INIT");
    assert_eq!(walker.state(), Init);
    walker.goes(&to(Failed, A::empty()), Failed);
    assert!(!walker.takes(&to(Rtr, TO_RTR)));
    walker.goes(&to(Reset, A::empty()), Reset);
}

#[test]
fn rts_needs_what_its_type_needs() {
    let (mut a, b) = two_in_init();
    let attr = a.to_rtr(&b);
    a.goes(&attr, Rtr);
    assert!(!a.takes(&to(Rts, TO_RTS - A::TIMEOUT)));
    assert!(!a.takes(&to(Rts, TO_RTS | A::QKEY)));
    assert_eq!(a.state(), Rtr);
    // What names no peer is the connection manager's business.
    a.goes(&to(Rtr, A::empty()), Rtr);
}

#[test]
fn the_send_queue_comes_to_rest_and_goes_on() {
    let (mut a, b) = two();
    a.goes(&to(Sqd, A::empty()), Sqd);
    a.end.post_send(3, b"later").unwrap();
    let memory = b.end.memory();
    b.end.post_recv(&memory);
    // Being there already is no change.
    a.goes(&to(Sqd, A::empty()), Sqd);
    a.goes(&to(Rts, A::empty()), Rts);
    assert_eq!(wait(&b.end.cq).byte_len, 5);
    assert_eq!(wait(&a.end.cq).wr_id, 3);
    let missing = to(Sqd, A::TIMEOUT);
    assert!(!a.takes(&missing), "nothing changes on the way to SQD");
    assert_eq!(a.state(), Rts);
}

#[test]
fn who_may_not_try_again_is_told_as_late_as_the_receiver_says() {
    let (mut a, mut b) = two_in_init();
    let (a_to, b_to) = (a.to_rtr(&b), b.to_rtr(&a));
    a.goes(&a_to, Rtr);
    let slow = QpAttr {
        min_rnr_timer: 31,
        ..b_to
    };
    b.goes(&slow, Rtr);
    let once = QpAttr {
        rnr_retry: 1,
        ..a.to_rts()
    };
    a.goes(&once, Rts);
    // What is not named stays as it was.
    a.goes(&to(Rts, A::empty()), Rts);
    let rts = b.to_rts();
    b.goes(&rts, Rts);
    let began = Instant::now();
    a.end.post_send(4, b"nobody receives").unwrap();
    assert_eq!(wait(&a.end.cq).status, WcStatus::RnrRetryExceeded);
    // The longest pause there is, 491 ms, once.
    assert!(began.elapsed() >= Duration::from_millis(450));
}

#[test]
fn what_the_connection_manager_does_is_noted() {
    let mut walker = Walker::new(QpType::Rc, 5);
    walker.goes(&to(Init, TO_INIT), Init);
    // RTR comes first, for whoever asks.
    assert!(!walker.takes(&to(Rts, A::RNR_RETRY)));
    // As `rdma_init_qp_attr(3)` names them: no path, no number of the other end.
    walker.goes(&to(Rtr, A::MAX_DEST_RD_ATOMIC), Init);
    walker.goes(&to(Rts, A::RNR_RETRY | A::ACCESS_FLAGS), Init);
    walker.goes(&to(Rtr, A::MAX_DEST_RD_ATOMIC), Init);
    walker.goes(&to(Failed, A::empty()), Failed);
    assert!(
        !walker.takes(&to(Rts, A::RNR_RETRY)),
        "a queue pair that has failed"
    );
    assert!(
        !walker.takes(&to(Rtr, A::MAX_DEST_RD_ATOMIC)),
        "a queue pair that has failed"
    );
}

#[test]
fn a_queue_pair_that_failed_since_rtr_is_not_noted_as_in_rts() {
    let mut walker = Walker::new(QpType::Rc, 5);
    walker.goes(&to(Init, TO_INIT), Init);
    walker.goes(&to(Rtr, A::MAX_DEST_RD_ATOMIC), Init);
    // Not by the modifier: as the end of a connection does.
    walker.end.qp.modify_state(Failed).unwrap();
    assert!(!walker.takes(&to(Rts, A::RNR_RETRY)));
}

fn datagrams() -> (Arc<UdQp>, QpModifier) {
    let context = Context::open().unwrap();
    let cq = context.create_cq(8, None, 1).unwrap();
    let made = context.alloc_pd().create_ud_qp(QpInit {
        send_cq: cq.clone(),
        recv_cq: cq,
        srq: None,
        cap: QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        sq_sig_all: true,
        cookie: 9,
    });
    (made.unwrap(), QpModifier::new(QpType::Ud))
}

#[test]
fn datagrams_walk_with_a_q_key() {
    let (qp, mut modifier) = datagrams();
    let to_init = A::PKEY_INDEX | A::PORT | A::QKEY;
    let init = QpAttr {
        qkey: 0x1234,
        ..to(Init, to_init)
    };
    for wrong in [
        to(Init, to_init - A::QKEY),
        to(Init, to_init | A::ACCESS_FLAGS),
        QpAttr {
            cur_state: Rts,
            ..to(Init, to_init | A::CUR_STATE)
        },
        QpAttr { port: 2, ..init },
    ] {
        assert!(modifier.modify_datagrams(&qp, &wrong).is_err());
        assert_eq!((qp.state(), qp.qkey()), (Reset, 0));
    }
    modifier.modify_datagrams(&qp, &init).unwrap();
    assert_eq!((qp.state(), qp.qkey()), (Init, 0x1234));
    for (state, named) in [(Rtr, A::empty()), (Rts, A::SQ_PSN)] {
        modifier.modify_datagrams(&qp, &to(state, named)).unwrap();
        assert_eq!((qp.state(), qp.qkey()), (state, 0x1234));
    }
    // Without a state it stays in its own.
    let key = QpAttr {
        named: A::QKEY,
        qkey: 0x4321,
        ..nothing()
    };
    modifier.modify_datagrams(&qp, &key).unwrap();
    assert_eq!((qp.state(), qp.qkey()), (Rts, 0x4321));
    let reset = to(Reset, A::empty());
    modifier.modify_datagrams(&qp, &reset).unwrap();
    assert_eq!(qp.state(), Reset);
    assert!(
        modifier.modify_datagrams(&qp, &key).is_err(),
        "not in RESET"
    );
}

/// What is the other test's work, in a process whose device says that it is iWARP.
#[test]
fn a_device_of_iwarp_compares_no_table() {
    const FACE: &str = "WEFT_FACE";
    if std::env::var_os(FACE).is_none() {
        let own = std::env::current_exe().unwrap();
        let output = Command::new(own)
            .args(["--exact", "a_device_of_iwarp_compares_no_table"])
            .env(FACE, "iwarp")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return;
    }
    let mut walker = Walker::new(QpType::Rc, 5);
    walker.goes(&to(Init, A::empty()), Init);
    walker.goes(&to(Rtr, A::empty()), Init);
    walker.goes(&to(Rts, A::empty()), Init);
    // Such a device has no queue that drains: SQD is a state like others.
    assert!(!walker.takes(&to(Sqd, A::empty())));
    walker.goes(&to(Failed, A::empty()), Failed);
    assert!(!walker.takes(&to(Init, A::empty())));
    let (mut a, mut b) = two_in_init();
    let (a_to, b_to) = (a.to_rtr(&b), b.to_rtr(&a));
    a.goes(&a_to, Rtr);
    b.goes(&b_to, Rtr);
    // How to send has to be said all the same.
    assert!(!a.takes(&to(Rts, TO_RTS - A::TIMEOUT)));
    for walker in [&mut a, &mut b] {
        let attr = walker.to_rts();
        walker.goes(&attr, Rts);
    }
    exchange(&a.end, &b.end);
    // There SQD ends the connection.
    assert!(a.takes(&to(Sqd, A::empty())));
    let deadline = Instant::now() + Duration::from_secs(10);
    while b.end.qp.is_connected() {
        assert!(Instant::now() < deadline, "it goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}
