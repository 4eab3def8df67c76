//! An initiator and a peer that overlooks its first FPDU, as Linux siw may: the peer here is a socket and octets.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::common::network::is_in_memory;
use super::common::{expect, End};
use weft_engine::cm::{ConnParam, EventChannel, EventKind, Id};

/// An empty RDMA Write to STag 1, TO 0, with its CRC.
const EMPTY_WRITE: [u8; 20] = [
    0x00, 0x0e, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xeb, 0xd3, 0x4c, 0x5f,
];
const REQUEST: usize = 24;

/// Takes a connection as far as an MPA Reply: CRC, peer-to-peer, ready-to-receive by Write.
fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut request = [0; REQUEST];
    stream.read_exact(&mut request).unwrap();
    let mut reply = *b"MPA ID Rep Frame\x50\x02\x00\x04\x80\x04\x80\x04";
    reply[16..18].copy_from_slice(&request[16..18]);
    stream.write_all(&reply).unwrap();
    stream
}

fn fpdu(stream: &mut TcpStream) -> std::io::Result<[u8; 20]> {
    let mut octets = [0; 20];
    stream.read_exact(&mut octets).map(|()| octets)
}

#[test]
fn a_silent_responder_is_probed_until_it_speaks() {
    if is_in_memory() {
        return; // The peer is a plain socket.
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(None, listener.local_addr().unwrap(), None)
        .unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    let active = End::new(channel, id);
    active
        .id
        .connect(ConnParam {
            private_data: b"",
            responder_resources: 4,
            initiator_depth: 4,
        })
        .unwrap();
    let mut peer = accept(&listener);
    active.expect(EventKind::Established);

    let first = fpdu(&mut peer).unwrap();
    assert_eq!(first[..8], EMPTY_WRITE[..8], "ready to receive");
    for number in 1..=3 {
        assert_eq!(fpdu(&mut peer).unwrap(), EMPTY_WRITE, "probe {number}");
    }

    peer.write_all(&EMPTY_WRITE).unwrap();
    // Three more would come, the last 5.1 s behind the one before it. One may have been on its way, and another where
    // the machine stood still.
    peer.set_read_timeout(Some(Duration::from_secs(6))).unwrap();
    let silence = (0..3).find_map(|_| fpdu(&mut peer).err());
    let silence = silence.map(|error| error.kind());
    assert!(
        matches!(silence, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut)),
        "{silence:?}"
    );
}
