//! The side that sends the Reply.

use super::reader::FrameReader;
use super::{
    depth_field, own_depth, AcceptError, Established, Role, Rtr, StartConfig, StartError,
    REVISION_5044, REVISION_6581,
};
use crate::mpa::frame::{
    Enhanced, FrameKind, RtrSet, StartFrame, ENHANCED_LEN, MAX_PRIVATE_DATA, NOT_NEGOTIATED,
};
use alloc::vec::Vec;
use core::time::Duration;

/// What the ULP decides on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerRequest {
    /// Private data without the enhanced block.
    pub private_data: Vec<u8>,
    /// The peer's IRD: as much ORD this side can have. [`NOT_NEGOTIATED`] when it did not tell.
    pub ird: u16,
    /// The peer's ORD: as much IRD it would like. [`NOT_NEGOTIATED`] when it did not tell.
    pub ord: u16,
    /// Revision of the Request.
    pub revision: u8,
    /// The Initiator will send a ready-to-receive FPDU.
    pub peer_to_peer: bool,
}

/// What a Responder's start-up came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResponderEvent {
    /// A Request that can be accepted or rejected.
    Request(PeerRequest),
    /// There is no connection; close.
    Failed(StartError),
}

#[derive(Clone, Debug)]
enum State {
    /// For the Request.
    Waiting(FrameReader),
    /// For the ULP.
    Deciding(StartFrame),
    Done,
}

/// The side that sends the Reply.
#[derive(Clone, Debug)]
pub struct Responder {
    config: StartConfig,
    state: State,
    deadline: Duration,
    transmit: Option<Vec<u8>>,
    event: Option<ResponderEvent>,
}

impl Responder {
    /// Waits for a Request.
    pub fn new(config: StartConfig, now: Duration) -> Responder {
        Responder {
            state: State::Waiting(FrameReader::new(FrameKind::Request)),
            deadline: now.saturating_add(config.timeout),
            transmit: None,
            event: None,
            config,
        }
    }

    /// Octets to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transmit.take()
    }

    /// What happened, once.
    pub fn poll_event(&mut self) -> Option<ResponderEvent> {
        self.event.take()
    }

    /// When to call [`Responder::handle_timeout`]. The ULP may take its time.
    pub fn deadline(&self) -> Option<Duration> {
        matches!(self.state, State::Waiting(_)).then_some(self.deadline)
    }

    /// Takes received octets and gives how many of them belonged to the start-up. Behind a decision that is none:
    /// they are FPDUs. Before it, octets behind the Request break the protocol.
    pub fn handle_bytes(&mut self, octets: &[u8], _now: Duration) -> usize {
        let behind = match &mut self.state {
            State::Done => return 0,
            State::Deciding(_) => octets.len(),
            State::Waiting(reader) => match reader.take(octets) {
                Ok((taken, None)) => octets.len() - taken,
                Ok((taken, Some(request))) => {
                    self.consider(request);
                    octets.len() - taken
                }
                Err(error) => {
                    self.fail(StartError::Frame {
                        expected: FrameKind::Request,
                        error,
                    });
                    0
                }
            },
        };
        if behind > 0 && matches!(self.state, State::Deciding(_)) {
            self.fail(StartError::EarlyOctets { octets: behind });
        }
        octets.len()
    }

    /// The peer closed its direction of the stream, or the connection is lost.
    pub fn handle_eof(&mut self) {
        let received = match &self.state {
            State::Waiting(reader) => reader.received(),
            State::Deciding(request) => request.wire_len(),
            State::Done => return,
        };
        self.fail(StartError::Closed {
            waiting_for: FrameKind::Request,
            received,
            asked_enhanced: false,
        });
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.fail(StartError::TimedOut {
                waiting_for: FrameKind::Request,
                timeout: self.config.timeout,
            });
        }
    }

    /// Accepts the Request. `ird` and `ord` are what the ULP wants; the negotiation lowers ORD to the Initiator's
    /// IRD and raises IRD to its ORD as far as the configuration allows. The Reply is then in
    /// [`Responder::poll_transmit`]. Nothing else may be sent before the first FPDU has come.
    pub fn accept(
        &mut self,
        private_data: Vec<u8>,
        ird: u16,
        ord: u16,
    ) -> Result<Established, AcceptError> {
        let State::Deciding(request) = &self.state else {
            return Err(AcceptError::NoRequest);
        };
        let block = request.enhanced;
        let mut established = Established {
            role: Role::Responder,
            crc: self.config.crc || request.crc,
            markers_tx: request.markers,
            markers_rx: self.config.markers,
            revision: request.revision.min(self.config.revision),
            peer_to_peer: false,
            rtr: None,
            ird: own_depth(ird, self.config.max_ird),
            ord: own_depth(ord, self.config.max_ord),
            peer_ird: block.map_or(NOT_NEGOTIATED, |b| b.ird),
            peer_ord: block.map_or(NOT_NEGOTIATED, |b| b.ord),
            private_data: request.private_data.clone(),
        };
        let enhanced = block.map(|request| self.negotiate(&request, &mut established));
        self.reply(StartFrame {
            kind: FrameKind::Reply,
            markers: established.markers_rx,
            crc: established.crc,
            rejected: false,
            reserved: 0,
            revision: established.revision,
            enhanced,
            private_data,
        })?;
        Ok(established)
    }

    /// Refuses the Request. The Reply that says so is then in [`Responder::poll_transmit`].
    pub fn reject(&mut self, private_data: Vec<u8>) -> Result<(), AcceptError> {
        let State::Deciding(request) = &self.state else {
            return Err(AcceptError::NoRequest);
        };
        let enhanced = request.enhanced.map(|block| Enhanced {
            peer_to_peer: block.peer_to_peer,
            rtr: self.selected(&block).map_or(RtrSet::NONE, RtrSet::from),
            ird: depth_field(own_depth(self.config.ird, self.config.max_ird)),
            ord: depth_field(own_depth(self.config.ord, self.config.max_ord)),
        });
        self.reply(StartFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc: request.crc,
            rejected: true,
            reserved: 0,
            revision: request.revision.min(self.config.revision),
            enhanced,
            private_data,
        })
    }

    fn fail(&mut self, error: StartError) {
        self.state = State::Done;
        self.event = Some(ResponderEvent::Failed(error));
    }

    /// A whole Request came.
    fn consider(&mut self, request: StartFrame) {
        let revision = request.revision;
        let known = (REVISION_5044..=REVISION_6581).contains(&revision);
        // Without the enhanced block revision 2 is the format of revision 1 (RFC 6581 section 10).
        if !known || (request.enhanced.is_some() && revision > self.config.revision) {
            self.fail(StartError::Revision {
                frame: FrameKind::Request,
                revision,
                highest: self.config.revision,
            });
            return;
        }
        self.event = Some(ResponderEvent::Request(PeerRequest {
            private_data: request.private_data.clone(),
            ird: request.enhanced.map_or(NOT_NEGOTIATED, |b| b.ird),
            ord: request.enhanced.map_or(NOT_NEGOTIATED, |b| b.ord),
            revision,
            peer_to_peer: request.enhanced.is_some_and(|b| b.peer_to_peer),
        }));
        self.state = State::Deciding(request);
    }

    /// RFC 6581 section 9: the enhanced block of the Reply, and what it means on this side.
    fn negotiate(&self, request: &Enhanced, established: &mut Established) -> Enhanced {
        established.peer_to_peer = request.peer_to_peer;
        established.rtr = self.selected(request);
        let mut reply = Enhanced {
            peer_to_peer: request.peer_to_peer,
            rtr: established.rtr.map_or(RtrSet::NONE, RtrSet::from),
            ird: NOT_NEGOTIATED,
            ord: NOT_NEGOTIATED,
        };
        if established.rtr == Some(Rtr::Read) {
            established.ird = established.ird.max(1);
        }
        if request.ord != NOT_NEGOTIATED {
            established.ird = established.ird.max(request.ord.min(self.config.max_ird));
            reply.ird = depth_field(established.ird);
        }
        if request.ird != NOT_NEGOTIATED {
            established.ord = established.ord.min(request.ird);
            reply.ord = depth_field(established.ord);
        }
        reply
    }

    /// The one kind of ready-to-receive FPDU to name. A list of several confuses some Initiators. Where none of
    /// those offered is wanted here one must be named all the same; the Initiator then ends it.
    fn selected(&self, request: &Enhanced) -> Option<Rtr> {
        let wanted = request.rtr.and(self.config.rtr);
        request.peer_to_peer.then(|| {
            preferred(wanted)
                .or(preferred(self.config.rtr))
                .unwrap_or(Rtr::Write)
        })
    }

    fn reply(&mut self, frame: StartFrame) -> Result<(), AcceptError> {
        let Some(octets) = frame.encode() else {
            return Err(AcceptError::PrivateData {
                len: frame.private_data.len(),
                max: MAX_PRIVATE_DATA - frame.enhanced.map_or(0, |_| ENHANCED_LEN),
            });
        };
        self.transmit = Some(octets);
        self.state = State::Done;
        Ok(())
    }
}

/// A Read first: it is what most RNICs are set to.
fn preferred(set: RtrSet) -> Option<Rtr> {
    if set.read {
        Some(Rtr::Read)
    } else if set.write {
        Some(Rtr::Write)
    } else if set.send {
        Some(Rtr::Send)
    } else {
        None
    }
}
