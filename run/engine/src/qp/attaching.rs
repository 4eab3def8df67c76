//! How a queue pair comes to its stream.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use weft_os::net::TcpStream;
use weft_verbs::iwarp::{Established, Role};
use weft_verbs::qp::FpduPolicy;

use super::{Inner, Qp};
use crate::bring_up::Peer;
use crate::cm::{Id, Turn};
use crate::engine::Endpoint;
use crate::error::Error;
use crate::nudges::Nudges;
use crate::progress::Token;
use crate::settings::FpduSize;
use crate::stream::Stream;

impl Qp {
    /// Puts the queue pair on a connected socket whose MPA start-up is over; `token` waits for octets. The caller, who
    /// holds the connection's lock, tells the program and then calls [`Qp::serve_attached`]. `named`: who a queue pair
    /// without a connection manager is to be connected with.
    pub(crate) fn attach(
        self: &Arc<Self>,
        socket: TcpStream,
        token: Token,
        established: &Established,
        leftover: &[u8],
        id: &Arc<Id>,
        named: Option<&Peer>,
    ) -> Result<(), Error> {
        let engine = self.pd.engine();
        let mut inner = self.inner.lock();
        let admitted = self
            .admit(&mut inner, established.role, named)
            .and_then(|()| {
                let ends = (socket.local_addr()?, socket.peer_addr()?);
                Ok((socket.emss()?, ends))
            });
        let (emss, (local, peer)) = match admitted {
            Ok(facts) => facts,
            Err(error) => {
                engine.progress.remove(&socket, token);
                return Err(error);
            }
        };
        let policy = match engine.settings.fpdu {
            FpduSize::Auto => FpduPolicy::Auto,
            FpduSize::Emss => FpduPolicy::Emss,
            FpduSize::Large => FpduPolicy::Large,
        };
        engine
            .progress
            .hand_over(token, Endpoint::Stream(self.clone()));
        let slot = engine
            .stats
            .open(self.number.0, local, peer, established.crc);
        inner.machine.attach(established, emss, policy);
        if engine.settings.speak_first && established.rtr.is_none() {
            inner.machine.speak_first();
        }
        let mut stream = Stream::new(socket, token, peer, slot, leftover);
        stream.nudges = (established.role == Role::Initiator).then(Nudges::new);
        if established.role == Role::Responder && established.peer_to_peer {
            // The peer promised a message; a peer that keeps silent keeps no queue pair.
            let at = engine.now() + engine.settings.start_timeout;
            stream.ready_by = Some(at);
            engine.progress.add_timer(at, token);
        }
        inner.stream = Some(stream);
        inner.id = Arc::downgrade(id);
        engine.progress.note_active(self);
        Ok(())
    }

    /// Whether it may have a stream now, and from whoever speaks so.
    fn admit(&self, inner: &mut Inner, role: Role, named: Option<&Peer>) -> Result<(), Error> {
        if !inner.machine.takes_stream() {
            return Err(Error::State("a queue pair that waits to be connected"));
        }
        if self.destroyed.load(Ordering::Acquire) {
            return Err(Error::State("a queue pair that exists"));
        }
        match (named, &mut inner.by_hand) {
            (Some(peer), Some(by_hand)) => by_hand.meet(self.number.0, role, peer),
            (Some(_), None) => Err(Error::State("a queue pair that waits for its peer")),
            (None, _) => Ok(()),
        }
    }

    /// The stream's turn among those of its address ends when the stream does.
    pub(crate) fn keep_turn(&self, turn: Option<Turn>) {
        if let (Some(turn), Some(stream)) = (turn, &mut self.inner.lock().stream) {
            stream.turn = Some(turn);
        }
    }

    /// Takes what came behind the Reply, as no event will say that it is in the buffer already. Without that, what is due
    /// (the ready-to-receive message) leaves with the program's first message: programs that were told of a connection
    /// post or wait next, and either sends it.
    pub(crate) fn serve_attached(self: &Arc<Self>) {
        let engine = self.pd.engine();
        let inner = self.inner.lock();
        if inner.stream.as_ref().is_some_and(Stream::has_buffered) {
            self.serve_locked(inner, engine, true);
        } else if inner.machine.wants_to_send() {
            drop(inner);
            self.defer(engine);
        }
    }
}
