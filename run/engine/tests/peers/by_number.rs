//! An end that is brought up by address and number.

#![allow(dead_code, reason = "each test uses some of it")]

#[path = "network.rs"]
mod network;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_engine::bring_up::Destination;
use weft_engine::types::{
    Access, Completion, Payload, PostError, QpCap, QpState, RecvRequest, SendFlags, SendOp,
    SendRequest, Sge, WcStatus,
};
use weft_engine::{Context, Cq, Mr, Pd, Qp, QpInit};

pub const HERE: &str = "127.0.0.1";
pub const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

const CAP: QpCap = QpCap {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 64,
};

pub fn wait(cq: &Cq) -> Completion {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut found = None;
        cq.poll(1, |c| found = Some(c)).unwrap();
        if let Some(completion) = found {
            return completion;
        }
        assert!(Instant::now() < deadline, "no completion");
    }
}

pub struct End {
    pub pd: Arc<Pd>,
    pub cq: Arc<Cq>,
    pub qp: Arc<Qp>,
    pub psn: u32,
}

impl End {
    /// A queue pair in INIT, that peers can find.
    pub fn new(psn: u32) -> End {
        let end = End::made(psn);
        end.init();
        end
    }

    /// A queue pair that was just made.
    pub fn made(psn: u32) -> End {
        network::start();
        let context = Context::open().unwrap();
        let pd = context.alloc_pd();
        let cq = context.create_cq(512, None, 1).unwrap();
        let qp = pd
            .create_qp(QpInit {
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                cap: CAP,
                sq_sig_all: true,
                cookie: 9,
            })
            .unwrap();
        End { pd, cq, qp, psn }
    }

    pub fn init(&self) {
        self.qp.listen_for_bring_up().unwrap();
        self.qp.modify_state(QpState::Init).unwrap();
    }

    pub fn to(&self, peer: &End, address: &str) -> Destination {
        let address: IpAddr = address.parse().unwrap();
        Destination {
            local: address,
            peer: address,
            peer_qp: peer.qp.number(),
            rq_psn: peer.psn,
        }
    }

    pub fn receive(&self, to: Destination) {
        self.qp.ready_to_receive(to).unwrap();
    }

    pub fn send(&self) {
        self.qp.ready_to_send(Some(self.psn), TIMEOUT).unwrap();
    }

    pub fn memory(&self) -> Arc<Mr> {
        let memory = weft_engine::mem::Registered::allocate(4096).unwrap();
        let iova = memory.addr();
        self.pd.register(memory, iova, Access::LOCAL_WRITE).unwrap()
    }

    pub fn post_send(&self, wr_id: u64, octets: &[u8]) -> Result<(), PostError> {
        self.qp.post_send(&SendRequest {
            wr_id,
            op: SendOp::Send,
            flags: SendFlags::default(),
            payload: Payload::Inline(octets),
        })
    }

    pub fn post_recv(&self, memory: &Mr) {
        let scatter = [Sge {
            addr: memory.memory().addr(),
            length: 4096,
            lkey: memory.stag().0,
        }];
        self.qp
            .post_recv(&RecvRequest {
                wr_id: 1,
                scatter: &scatter,
            })
            .unwrap();
    }
}

/// Sends a message from each end to the other and looks at what arrives.
pub fn exchange(a: &End, b: &End) {
    for (from, to) in [(a, b), (b, a)] {
        let memory = to.memory();
        to.post_recv(&memory);
        from.post_send(7, b"over the same wire").unwrap();
        let sent = wait(&from.cq);
        assert_eq!((sent.wr_id, sent.status), (7, WcStatus::Success));
        let received = wait(&to.cq);
        assert_eq!(
            (received.status, received.byte_len),
            (WcStatus::Success, 18)
        );
        let mut back = [0; 18];
        memory.memory().read(0, &mut back).unwrap();
        assert_eq!(&back, b"over the same wire");
    }
}

pub fn pair() -> (End, End) {
    (End::new(11), End::new(22))
}

/// The active end, and the passive one.
pub fn ordered() -> (End, End) {
    let (a, b) = pair();
    if a.qp.number() < b.qp.number() {
        (a, b)
    } else {
        (b, a)
    }
}
