//! The datagram service of the connection manager, on loopback: who serves datagrams at a port is asked, answered and
//! refused.

#[path = "peers/lookups.rs"]
mod lookups;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use lookups::{expect, listener, listener_on, queue_pair, towards};
use weft_engine::cm::{EventKind, Id, UdPeer, QKEY, REPLY_OCTETS_MAX, REQUEST_OCTETS_MAX};
use weft_engine::types::QpState;
use weft_engine::Error;

const REJECTED: i32 = 2;
const UNSUPPORTED: i32 = 1;

fn has(address: &str) -> bool {
    let found = UdpSocket::bind((address, 0)).is_ok();
    if !found {
        eprintln!("skipped: this machine has no {address}");
    }
    found
}

#[test]
fn a_lookup_tells_both_programs_what_the_other_said_and_the_client_where_to_send() {
    for host in ["127.0.0.1", "::1"].into_iter().filter(|host| has(host)) {
        let address: IpAddr = host.parse().unwrap();
        let any = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        for bound in [SocketAddr::new(address, 0).to_string(), any.into()] {
            let (listens, listener) = listener_on(&bound, 8);
            let at = SocketAddr::new(address, listener.local_addr().unwrap().port());
            let (channel, id) = towards(at);
            id.look_up(&[3; REQUEST_OCTETS_MAX]).unwrap();
            let request = expect(&listens, EventKind::ConnectRequest);
            assert_eq!(request.private_data, [3; REQUEST_OCTETS_MAX]);
            assert!(Arc::ptr_eq(request.listener.as_ref().unwrap(), &listener));
            assert_eq!(request.id.local_addr(), Some(at));
            let qp = queue_pair();
            request.id.attach_ud_qp(&qp).unwrap();
            request.id.accept_lookup(0, &[4; REPLY_OCTETS_MAX]).unwrap();
            let answer = expect(&channel, EventKind::Established);
            assert_eq!(
                (answer.status, answer.private_data),
                (0, vec![4; REPLY_OCTETS_MAX])
            );
            let peer = UdPeer {
                number: qp.number(),
                qkey: QKEY,
                local: address,
                peer: address,
                tos: 0,
            };
            assert_eq!(answer.datagrams, Some(peer));
            assert_eq!(request.id.peer_addr(), id.local_addr());
            // It is answered.
            assert!(request.id.accept_lookup(1, b"").is_err());
            assert!(request.id.reject(b"").is_err());
            for id in [&request.id, &listener, &id] {
                id.destroy();
            }
            qp.destroy();
        }
    }
}

#[test]
fn the_program_may_name_its_queue_pair_by_number() {
    let (listens, listener, at) = listener();
    let (channel, id) = towards(at);
    id.look_up(b"").unwrap();
    let request = expect(&listens, EventKind::ConnectRequest);
    for number in [0, 1 << 24] {
        assert!(request.id.accept_lookup(number, b"").is_err());
    }
    assert!(request
        .id
        .accept_lookup(7, &[0; REPLY_OCTETS_MAX + 1])
        .is_err());
    request.id.accept_lookup(0x12_3456, b"").unwrap();
    let answer = expect(&channel, EventKind::Established);
    assert_eq!(answer.datagrams.map(|peer| peer.number), Some(0x12_3456));
    listener.destroy();
}

#[test]
fn a_client_hears_that_it_is_not_served() {
    let (listens, listener, at) = listener();
    let (channel, id) = towards(at);
    id.look_up(b"").unwrap();
    let request = expect(&listens, EventKind::ConnectRequest);
    request.id.reject(b"not you").unwrap();
    let answer = expect(&channel, EventKind::Unreachable);
    assert_eq!(
        (answer.status, &answer.private_data[..]),
        (REJECTED, &b"not you"[..])
    );

    // An id that is ended without an answer answers so too.
    let (channel, id) = towards(at);
    id.look_up(b"").unwrap();
    expect(&listens, EventKind::ConnectRequest).id.destroy();
    assert_eq!(expect(&channel, EventKind::Unreachable).status, REJECTED);

    listener.destroy();

    // Its port is nobody's then.
    let (channel, id) = towards(at);
    id.look_up(b"").unwrap();
    assert_eq!(expect(&channel, EventKind::Unreachable).status, UNSUPPORTED);
}

#[test]
fn calls_in_the_wrong_place_are_refused() {
    let qp = queue_pair();
    let connections = Id::new(None, 0).unwrap();
    assert!(connections.attach_ud_qp(&qp).is_err());
    let (_channel, id) = towards("127.0.0.1:9".parse().unwrap());
    id.attach_ud_qp(&qp).unwrap();
    assert!(id.attach_ud_qp(&qp).is_err());
    assert!(id.look_up(&[0; REQUEST_OCTETS_MAX + 1]).is_err());
    assert!(id.accept_lookup(1, b"").is_err());
    assert!(id.listen(1).is_err());
    let unresolved = Id::for_datagrams(None, 0).unwrap();
    assert!(unresolved.look_up(b"").is_err());
    assert!(unresolved.disconnect().is_err());
    // The end of a service is that of its queue pair.
    id.disconnect().unwrap();
    assert_eq!(qp.state(), QpState::Error);
    let (_, _listener, at) = listener();
    let second = Id::for_datagrams(None, 0).unwrap();
    const EADDRINUSE: i32 = 98;
    assert_eq!(second.bind(at), Err(Error::Os(EADDRINUSE)));
}
