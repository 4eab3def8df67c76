//! A queue pair that is connected to itself: what it sends it receives. Its socket is connected to
//! itself too, and start-up is left out, since it would be with nobody else.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_os::poll::Interest;
use weft_verbs::iwarp::{Established, Role};
use weft_verbs::types::MAX_RD_ATOMIC;

use super::Destination;
use crate::carrier::SocketOptions;
use crate::error::Error;
use crate::qp::{Owner, Qp, Start};

/// Nobody is told what becomes of the stream.
#[derive(Debug)]
struct Nobody;

impl Owner for Nobody {
    fn on_first_fpdu(&self) {}

    fn on_stream_ended(&self, _was_up: bool) {}
}

impl Qp {
    /// Whether the program named the queue pair as its own peer.
    pub(super) fn is_itself(&self, to: &Destination) -> bool {
        to.peer_qp == self.number() && to.peer == to.local
    }

    pub(super) fn connect_to_itself(self: &Arc<Self>, address: IpAddr) -> Result<(), Error> {
        let engine = self.pd().engine();
        let any_port = SocketAddr::new(address, 0);
        let bound = engine.network.bind(any_port, &SocketOptions::default())?;
        let own = bound.local_addr();
        let carrier = bound.connect(own)?;
        let token = engine
            .progress
            .add_source(&*carrier, self.clone(), Interest::Read)?;
        let established = Established {
            role: Role::Initiator,
            crc: engine.settings.crc,
            markers_tx: false,
            markers_rx: false,
            revision: 2,
            peer_to_peer: true,
            rtr: None,
            ird: MAX_RD_ATOMIC,
            ord: MAX_RD_ATOMIC,
            peer_ird: MAX_RD_ATOMIC,
            peer_ord: MAX_RD_ATOMIC,
            private_data: Vec::new(),
        };
        self.attach(Start {
            carrier,
            token,
            established: &established,
            leftover: &[],
            admission: None,
            owner: Arc::new(Nobody),
        })?;
        self.lock().machine.set_peer_is_weft();
        Ok(())
    }
}
