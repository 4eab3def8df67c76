//! A peer that is a socket and octets: no CRC, ready to receive by Write.

#![allow(dead_code, reason = "each test uses some of it")]

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weft_engine::stats::{self, Snapshot};

/// Octets of a Reply without private data.
pub const REPLY: usize = 24;
/// The ready-to-receive message: an RDMA Write of nothing.
pub const READY: [u8; 20] = write(1, 0);
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A Request for a peer-to-peer connection, with private data.
pub fn request(private_data: &[u8]) -> Vec<u8> {
    let mut octets = b"MPA ID Req Frame\x10\x02".to_vec();
    octets.extend((4 + private_data.len() as u16).to_be_bytes());
    octets.extend(b"\x80\x04\x80\x04");
    octets.extend(private_data);
    octets
}

/// An FPDU: a Write without payload.
const fn write(stag: u32, to: u64) -> [u8; 20] {
    let mut octets = [0; 20];
    octets[1] = 14;
    octets[2] = 0xC1;
    octets[3] = 0x40;
    let (stag, to) = (stag.to_be_bytes(), to.to_be_bytes());
    let mut at = 0;
    while at < 8 {
        if at < 4 {
            octets[4 + at] = stag[at];
        }
        octets[8 + at] = to[at];
        at += 1;
    }
    octets
}

/// The same of four octets.
pub fn write_of_four(stag: u32, to: u64) -> Vec<u8> {
    let mut octets = write(stag, to).to_vec();
    octets[1] = 18;
    octets.splice(16..16, *b"four");
    // No pad: 2 + 18 is a multiple of four.
    octets
}

/// A connection without a word said.
pub fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// What comes until the other end ends the stream.
pub fn drain(stream: &mut TcpStream) -> Vec<u8> {
    let mut octets = Vec::new();
    match stream.read_to_end(&mut octets) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the other end does not end it: {error}"),
    }
    octets
}

/// This process's statistics.
pub fn counts() -> Snapshot {
    let name = format!("/memfd:{} (deleted)", stats::NAME);
    let ours = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .find_map(|entry| {
            let path = entry.unwrap().path();
            let target = std::fs::read_link(&path).ok()?;
            (target.as_os_str() == name.as_str()).then_some(path)
        });
    stats::read(&ours.expect("statistics")).unwrap()
}
