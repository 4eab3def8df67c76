//! Proofs of addresses, and other datagrams of Weft's own: sent by the sockets of programs, and heard.

use std::net::SocketAddr;

use weft_os::beside::socket_name;
use weft_os::dgram::{self, get_int};
use weft_uoe::proof::Proof;
use weft_uoe::End;

use super::Service;
use crate::offload::now;
use crate::port::Held;

impl Service {
    /// Sends a proof by UDP, from the socket that has that end.
    pub(super) fn prove(&mut self, at: usize, proof: Proof, from: End, to: End) {
        let side = &mut self.sides[at];
        // Who has asked for it may be killed since, and its port be that of a process that does not know it.
        if side.wire.is_ended_there() {
            return;
        }
        let of_own = side.own_channels.values();
        let own = of_own
            .filter(|channel| channel.source == from && End::from(channel.wanted.to) == to)
            .map(|channel| (channel.wanted.port, channel.wanted.to));
        let of_peer = side.peer_channels.values();
        let peer = of_peer
            .filter(|channel| channel.target == from)
            .map(|channel| (channel.port, to.to_socket_addr()));
        if let Some((port, to)) = own.chain(peer).find(|(port, _)| port.is_alive()) {
            port.with_fd(|fd| send_to(fd, to, &proof));
        }
    }

    /// A datagram of Weft's own came to this socket. At another one than it is meant for it proves nothing: whoever
    /// sends there is heard by somebody else.
    pub(crate) fn handle_own(&mut self, port: Held, proof: Proof, from: SocketAddr) {
        let (from, now) = (End::from(from), now());
        for side in &mut self.sides {
            let of_own = side.own_channels.values();
            let own = of_own
                .filter(|channel| channel.nonce == proof.nonce && channel.wanted.port == port);
            let of_peer = side.peer_channels.values();
            let peer =
                of_peer.filter(|channel| channel.nonce == proof.nonce && channel.port == port);
            let to = own.map(|channel| channel.source);
            let to = to.chain(peer.map(|channel| channel.target)).next();
            if let Some(to) = to {
                side.carrier.handle_proof(proof, to, from, now);
                return;
            }
        }
        self.ended.handle_mark(port, proof, from);
    }

    /// A socket whose program does not receive: the proof that a channel waits for is looked for.
    pub(crate) fn look_for_proofs(&mut self) {
        let sides = self.sides.iter();
        let channels = sides.flat_map(|side| side.own_channels.values());
        let opening = channels.filter(|channel| !channel.is_open);
        let ports: Vec<Held> = opening.map(|channel| channel.wanted.port).collect();
        for port in ports.into_iter().filter(Held::is_alive) {
            port.with_fd(|fd| self.offload.has_plain(port.port, fd));
        }
    }
}

fn send_to(fd: i32, to: SocketAddr, proof: &Proof) {
    let is_v6 = get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_INET6);
    let (name, len) = socket_name(to, is_v6);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // One that is lost is sent again.
    let _ = dgram::send(fd, &name[..len], &proof.to_octets(), None, flags);
}
