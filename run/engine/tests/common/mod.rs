//! Two connected queue pairs in one process, over loopback.

#[path = "../peers/network.rs"]
pub mod network;

use std::sync::Arc;

use weft_engine::cm::{ConnParam, Event, EventChannel, EventKind, Id};
use weft_engine::mem::Registered;
use weft_engine::types::{Access, Completion, QpCap, Sge};
use weft_engine::{Context, Cq, Mr, Pd, Qp, QpInit};

use network::start;

pub const CAP: QpCap = QpCap {
    max_send_wr: 256,
    max_recv_wr: 256,
    max_send_sge: 16,
    max_recv_sge: 16,
    max_inline_data: 256,
};

pub const ALL: Access = Access::from_bits_retain(0xF);

/// One end of a connection.
pub struct End {
    pub channel: Arc<EventChannel>,
    pub id: Arc<Id>,
    pub pd: Arc<Pd>,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub qp: Arc<Qp>,
}

impl End {
    pub fn new(channel: Arc<EventChannel>, id: Arc<Id>) -> End {
        start();
        let context = Context::open().unwrap();
        let pd = context.alloc_pd();
        let send_cq = context.create_cq(512, None, 1).unwrap();
        let recv_cq = context.create_cq(512, None, 2).unwrap();
        let qp = pd
            .create_qp(QpInit {
                send_cq: send_cq.clone(),
                recv_cq: recv_cq.clone(),
                srq: None,
                cap: CAP,
                sq_sig_all: false,
                cookie: 9,
            })
            .unwrap();
        qp.modify_state(weft_engine::types::QpState::Init).unwrap();
        id.attach_qp(&qp).unwrap();
        End {
            channel,
            id,
            pd,
            send_cq,
            recv_cq,
            qp,
        }
    }

    pub fn expect(&self, kind: EventKind) -> Event {
        expect(&self.channel, kind)
    }

    pub fn memory(&self, octets: usize, access: Access) -> Arc<Mr> {
        let memory = Registered::allocate(octets).unwrap();
        let iova = memory.addr();
        self.pd.register(memory, iova, access).unwrap()
    }

    pub fn wait_send(&self) -> Completion {
        wait(&self.send_cq)
    }

    pub fn wait_recv(&self) -> Completion {
        wait(&self.recv_cq)
    }
}

pub fn expect(channel: &EventChannel, kind: EventKind) -> Event {
    let event = channel.get_event().unwrap();
    assert_eq!(event.kind, kind, "{event:?}");
    event
}

pub fn wait(cq: &Cq) -> Completion {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let mut found = None;
        cq.poll(1, |c| found = Some(c)).unwrap();
        if let Some(completion) = found {
            return completion;
        }
        assert!(std::time::Instant::now() < deadline, "no completion");
    }
}

/// The element that covers `len` octets of a region from `offset` on.
pub fn sge(mr: &Mr, offset: u64, len: u32) -> Sge {
    Sge {
        addr: mr.memory().addr() + offset,
        length: len,
        lkey: mr.stag().0,
    }
}

/// A listener on an ephemeral port of `host`, and its address.
pub fn listener(host: &str) -> (Arc<EventChannel>, Arc<Id>, std::net::SocketAddr) {
    start();
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.bind(format!("{host}:0").parse().unwrap()).unwrap();
    id.listen(8).unwrap();
    let addr = id.local_addr().unwrap();
    (channel, id, addr)
}

/// Two connected ends: the active and the passive one.
pub fn pair_on(host: &str) -> (End, End) {
    let (listen_channel, listen_id, addr) = listener(host);
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(None, addr, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    let active = End::new(channel, id);
    let param = ConnParam {
        private_data: b"from the active side",
        responder_resources: 4,
        initiator_depth: 4,
    };
    active.id.connect(param).unwrap();
    let request = expect(&listen_channel, EventKind::ConnectRequest);
    assert_eq!(request.private_data, b"from the active side");
    let passive = End::new(listen_channel, request.id);
    let param = ConnParam {
        private_data: b"from the passive side",
        ..param
    };
    passive.id.accept(param).unwrap();
    let established = active.expect(EventKind::Established);
    assert_eq!(established.private_data, b"from the passive side");
    passive.expect(EventKind::Established);
    listen_id.destroy();
    (active, passive)
}

pub fn pair() -> (End, End) {
    pair_on("127.0.0.1")
}
