//! An honest end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use weft_engine::cm::{ConnParam, Event, EventChannel, EventKind, Id};
use weft_engine::mem::Registered;
use weft_engine::types::{Access, QpCap, QpState};
use weft_engine::{Context, Mr, Pd, Qp, QpInit};

const CAP: QpCap = QpCap {
    max_send_wr: 16,
    max_recv_wr: 16,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 64,
};

/// A queue pair in INIT, and what it takes.
pub fn queue_pair() -> (Arc<Pd>, Arc<Qp>) {
    let context = Context::open().unwrap();
    let pd = context.alloc_pd();
    let cq = context.create_cq(64, None, 1).unwrap();
    let init = QpInit {
        send_cq: cq.clone(),
        recv_cq: cq,
        srq: None,
        cap: CAP,
        sq_sig_all: true,
        cookie: 9,
    };
    let qp = pd.create_qp(init).unwrap();
    qp.modify_state(QpState::Init).unwrap();
    (pd, qp)
}

/// One end of a connection, with memory for its peer.
pub struct End {
    pub id: Arc<Id>,
    pub qp: Arc<Qp>,
    pub memory: Arc<Mr>,
}

impl End {
    pub fn new(id: Arc<Id>, octets: usize) -> End {
        let (pd, qp) = queue_pair();
        id.attach_qp(&qp).unwrap();
        let memory = Registered::allocate(octets).unwrap();
        let iova = memory.addr();
        let memory = pd
            .register(memory, iova, Access::from_bits_retain(0xF))
            .unwrap();
        End { id, qp, memory }
    }

    pub fn close(self) {
        self.id.destroy();
        self.qp.destroy();
        self.memory.deregister().unwrap();
    }
}

pub fn expect(channel: &EventChannel, kind: EventKind) -> Event {
    let event = channel.get_event().unwrap();
    assert_eq!(event.kind, kind, "{event:?}");
    event
}

/// An end that connects.
pub fn connect(to: SocketAddr) -> (Arc<EventChannel>, End) {
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(None, to, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    let end = End::new(id, 4096);
    let param = ConnParam {
        private_data: b"honest",
        ..ConnParam::default()
    };
    end.id.connect(param).unwrap();
    (channel, end)
}

/// A listener on all addresses: its channel, itself, and its addresses of both kinds.
pub fn listener(backlog: i32) -> (Arc<EventChannel>, Arc<Id>, SocketAddr, SocketAddr) {
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.set_v6_only(false);
    id.bind("[::]:0".parse().unwrap()).unwrap();
    id.listen(backlog).unwrap();
    let port = id.local_addr().unwrap().port();
    let four = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
    let six = SocketAddr::new("::1".parse().unwrap(), port);
    (channel, id, four, six)
}
