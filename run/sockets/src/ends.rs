//! The addresses of a socket's two ends, which rules look at.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_os::beside;
use weft_os::dgram::{self, NAME_LEN};

/// The two ends of a socket, as far as they have addresses.
pub struct Ends {
    ends: [SocketAddr; 2],
    count: usize,
}

impl Ends {
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.ends[..self.count]
    }

    fn push(&mut self, end: Option<SocketAddr>) {
        if let Some(end) = end {
            self.ends[self.count] = end;
            self.count += 1;
        }
    }
}

/// The socket's own address, and `peer` or, if that is empty, the one it is connected to.
pub fn ends(fd: i32, peer: &[u8]) -> Ends {
    let none = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let mut ends = Ends {
        ends: [none; 2],
        count: 0,
    };
    let mut name = [0; NAME_LEN];
    let len = dgram::local_name(fd, &mut name);
    ends.push(beside::written_addr(&name[..len]));
    if peer.is_empty() {
        let len = dgram::peer_name(fd, &mut name);
        ends.push(beside::written_addr(&name[..len]));
    } else {
        ends.push(beside::written_addr(peer));
    }
    ends
}
