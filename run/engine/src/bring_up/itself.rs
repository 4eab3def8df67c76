//! A queue pair that is connected to itself: what it sends it receives. Its socket is connected to
//! itself too, and start-up is left out, since it would be with nobody else.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_os::net::{BoundSocket, SocketOptions};
use weft_os::poll::Interest;
use weft_verbs::iwarp::{Established, Role};
use weft_verbs::types::MAX_RD_ATOMIC;

use super::Destination;
use crate::cm::Id;
use crate::engine::{Endpoint, Engine};
use crate::error::Error;
use crate::qp::Qp;

impl Qp {
    /// Whether the program named the queue pair as its own peer.
    pub(super) fn is_itself(&self, to: &Destination) -> bool {
        to.peer_qp == self.number() && to.peer == to.local
    }

    pub(super) fn connect_to_itself(
        self: &Arc<Self>,
        address: IpAddr,
        engine: &Arc<Engine>,
    ) -> Result<(), Error> {
        let bound = BoundSocket::bind(SocketAddr::new(address, 0), &SocketOptions::default())?;
        let own = bound.local_addr();
        let socket = bound.connect(own)?;
        let endpoint = Endpoint::Stream(self.clone());
        let token = engine.progress.add(&socket, endpoint, Interest::Read)?;
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
        self.attach(
            socket,
            token,
            &established,
            &[],
            &Id::for_bring_up(engine),
            None,
        )?;
        self.inner.lock().machine.meet_weft();
        Ok(())
    }
}
