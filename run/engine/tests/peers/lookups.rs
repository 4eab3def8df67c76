//! Ids of the datagram service that ask and listen, for tests.

#![allow(dead_code, reason = "each test uses some of it")]

#[path = "network.rs"]
mod network;

use std::net::SocketAddr;
use std::sync::Arc;

use weft_engine::cm::{Event, EventChannel, EventKind, Id, QKEY};
use weft_engine::types::{QpCap, QpState};
use weft_engine::{Context, QpInit, UdQp};

const CAP: QpCap = QpCap {
    max_send_wr: 4,
    max_recv_wr: 4,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 64,
};
pub fn expect(channel: &EventChannel, kind: EventKind) -> Event {
    let event = channel.get_event().unwrap();
    assert_eq!(event.kind, kind, "{event:?}");
    event
}

pub fn queue_pair() -> Arc<UdQp> {
    network::start();
    let context = Context::open().unwrap();
    let pd = context.alloc_pd();
    let cq = context.create_cq(16, None, 1).unwrap();
    let qp = pd
        .create_ud_qp(QpInit {
            send_cq: cq.clone(),
            recv_cq: cq,
            srq: None,
            cap: CAP,
            sq_sig_all: false,
            cookie: 9,
        })
        .unwrap();
    qp.set_qkey(QKEY);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.modify_state(state).unwrap();
    }
    qp
}

pub fn listener_on(addr: &str, backlog: i32) -> (Arc<EventChannel>, Arc<Id>) {
    network::start();
    let channel = EventChannel::new().unwrap();
    let id = Id::for_datagrams(Some(&channel), 0).unwrap();
    id.bind(addr.parse().unwrap()).unwrap();
    id.listen(backlog).unwrap();
    (channel, id)
}

pub fn listener() -> (Arc<EventChannel>, Arc<Id>, SocketAddr) {
    let (channel, id) = listener_on("127.0.0.1:0", 8);
    let at = id.local_addr().unwrap();
    (channel, id, at)
}

pub fn towards(peer: SocketAddr) -> (Arc<EventChannel>, Arc<Id>) {
    network::start();
    let channel = EventChannel::new().unwrap();
    let id = Id::for_datagrams(Some(&channel), 0).unwrap();
    id.resolve_addr(None, peer, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    (channel, id)
}
