//! The side that sends the Request.

use super::reader::FrameReader;
use super::{
    depth_field, own_depth, Established, Role, Rtr, StartConfig, StartError, REVISION_5044,
    REVISION_6581,
};
use crate::mpa::frame::{
    Enhanced, FrameKind, RtrSet, StartFrame, ENHANCED_LEN, MAX_PRIVATE_DATA, NOT_NEGOTIATED,
};
use crate::outbound::Outbound;
use crate::terminate::{PeerFault, Terminate};
use alloc::vec::Vec;
use core::time::Duration;

/// How an Initiator's start-up ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InitiatorEvent {
    /// The Responder accepted.
    Accepted(Established),
    /// The Responder's ULP refused.
    Rejected {
        /// What it said.
        private_data: Vec<u8>,
        /// Its IRD; [`NOT_NEGOTIATED`] when it did not tell.
        ird: u16,
        /// Its ORD, perhaps the one it would need; [`NOT_NEGOTIATED`] when it did not tell.
        ord: u16,
    },
    /// There is no connection. Send what [`Initiator::poll_transmit`] gives, then close.
    Failed(StartError),
}

/// The side that sends the Request.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: StartConfig,
    /// There until the start-up ended.
    reply: Option<FrameReader>,
    deadline: Duration,
    transmit: Option<Vec<u8>>,
    event: Option<InitiatorEvent>,
}

impl Initiator {
    /// Makes the Request. A configuration no frame can carry fails at the first [`Initiator::poll_event`].
    pub fn new(config: StartConfig, now: Duration) -> Initiator {
        let mut initiator = Initiator {
            reply: Some(FrameReader::new(FrameKind::Reply)),
            deadline: now.saturating_add(config.timeout),
            transmit: None,
            event: None,
            config,
        };
        match initiator.request() {
            Ok(octets) => initiator.transmit = Some(octets),
            Err(error) => initiator.fail(error),
        }
        initiator
    }

    /// Octets to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transmit.take()
    }

    /// How the start-up ended, once.
    pub fn poll_event(&mut self) -> Option<InitiatorEvent> {
        self.event.take()
    }

    /// When to call [`Initiator::handle_timeout`].
    pub fn deadline(&self) -> Option<Duration> {
        self.reply.as_ref().map(|_| self.deadline)
    }

    /// Takes received octets and gives how many of them belonged to the start-up. The rest are FPDUs.
    pub fn handle_bytes(&mut self, octets: &[u8], _now: Duration) -> usize {
        let Some(reply) = &mut self.reply else {
            return 0;
        };
        match reply.take(octets) {
            Ok((taken, None)) => taken,
            Ok((taken, Some(frame))) => {
                self.reply = None;
                self.event = Some(self.conclude(frame));
                taken
            }
            Err(error) => {
                self.fail(StartError::Frame {
                    expected: FrameKind::Reply,
                    error,
                });
                octets.len()
            }
        }
    }

    /// The peer closed its direction of the stream, or the connection is lost.
    pub fn handle_eof(&mut self) {
        if let Some(reply) = &self.reply {
            self.fail(StartError::Closed {
                waiting_for: FrameKind::Reply,
                received: reply.received(),
                asked_enhanced: self.config.revision == REVISION_6581,
            });
        }
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.fail(StartError::TimedOut {
                waiting_for: FrameKind::Reply,
                timeout: self.config.timeout,
            });
        }
    }

    fn fail(&mut self, error: StartError) {
        self.reply = None;
        self.event = Some(InitiatorEvent::Failed(error));
    }

    fn request(&self) -> Result<Vec<u8>, StartError> {
        let config = &self.config;
        if !(REVISION_5044..=REVISION_6581).contains(&config.revision) {
            return Err(StartError::OwnRevision(config.revision));
        }
        let enhanced = (config.revision == REVISION_6581).then(|| self.offer());
        let frame = StartFrame {
            kind: FrameKind::Request,
            markers: config.markers,
            crc: config.crc,
            rejected: false,
            reserved: 0,
            revision: config.revision,
            enhanced,
            private_data: config.private_data.clone(),
        };
        frame.encode().ok_or(StartError::PrivateData {
            len: config.private_data.len(),
            max: MAX_PRIVATE_DATA - enhanced.map_or(0, |_| ENHANCED_LEN),
        })
    }

    /// The enhanced block of the Request.
    fn offer(&self) -> Enhanced {
        let config = &self.config;
        let field = |depth: u16, own: u16| match depth {
            NOT_NEGOTIATED => NOT_NEGOTIATED,
            _ => depth_field(own),
        };
        Enhanced {
            peer_to_peer: config.peer_to_peer,
            rtr: if config.peer_to_peer {
                config.rtr
            } else {
                RtrSet::NONE
            },
            ird: field(config.ird, self.own_ird()),
            ord: field(config.ord, self.own_ord()),
        }
    }

    fn own_ird(&self) -> u16 {
        own_depth(self.config.ird, self.config.max_ird)
    }

    /// A Read used as ready-to-receive takes one place (RFC 6581 section 9.1).
    fn own_ord(&self) -> u16 {
        let ord = own_depth(self.config.ord, self.config.max_ord);
        if self.config.peer_to_peer && self.config.rtr.read {
            ord.max(1)
        } else {
            ord
        }
    }

    /// What the Reply means.
    fn conclude(&mut self, reply: StartFrame) -> InitiatorEvent {
        let block = reply.enhanced;
        if reply.rejected {
            return InitiatorEvent::Rejected {
                private_data: reply.private_data,
                ird: block.map_or(NOT_NEGOTIATED, |b| b.ird),
                ord: block.map_or(NOT_NEGOTIATED, |b| b.ord),
            };
        }
        if let Err(error) = self.check_revision(&reply) {
            return InitiatorEvent::Failed(error);
        }
        let mut established = Established {
            role: Role::Initiator,
            crc: self.config.crc || reply.crc,
            markers_tx: reply.markers,
            markers_rx: self.config.markers,
            revision: reply.revision,
            peer_to_peer: false,
            rtr: None,
            ird: self.own_ird(),
            ord: self.own_ord(),
            peer_ird: NOT_NEGOTIATED,
            peer_ord: NOT_NEGOTIATED,
            private_data: reply.private_data,
        };
        match block.map_or(Ok(()), |block| self.negotiate(&block, &mut established)) {
            Ok(()) => InitiatorEvent::Accepted(established),
            Err((fault, error)) => {
                let mut terminate = Vec::new();
                Outbound::new(&established, 0)
                    .terminate(&Terminate::bare(fault.code()), &mut terminate);
                self.transmit = Some(terminate);
                InitiatorEvent::Failed(error)
            }
        }
    }

    /// An unenhanced Reply is what an unenhanced Request gets, and nothing else (RFC 6581 section 10).
    fn check_revision(&self, reply: &StartFrame) -> Result<(), StartError> {
        let revision = reply.revision;
        if !(REVISION_5044..=REVISION_6581).contains(&revision) {
            return Err(StartError::Revision {
                frame: FrameKind::Reply,
                revision,
                highest: self.config.revision,
            });
        }
        match (
            self.config.revision == REVISION_6581,
            reply.enhanced.is_some(),
        ) {
            (true, false) => Err(StartError::EnhancedMissing { revision }),
            (false, true) => Err(StartError::UnexpectedEnhanced),
            _ => Ok(()),
        }
    }

    /// RFC 6581 section 9. This side raises its IRD as far as it can and lowers its ORD to what the Responder holds.
    fn negotiate(
        &self,
        reply: &Enhanced,
        established: &mut Established,
    ) -> Result<(), (PeerFault, StartError)> {
        established.peer_ird = reply.ird;
        established.peer_ord = reply.ord;
        if self.config.peer_to_peer {
            let kind = choose(reply, self.config.rtr)
                .ok_or((PeerFault::NoMatchingRtr, StartError::NoMatchingRtr))?;
            established.peer_to_peer = true;
            established.rtr = Some(kind);
        }
        if reply.ird != NOT_NEGOTIATED {
            established.ord = established.ord.min(reply.ird);
        }
        if self.config.ird != NOT_NEGOTIATED && reply.ord != NOT_NEGOTIATED {
            let max_ird = self.config.max_ird;
            if reply.ord > max_ird {
                let peer_ord = reply.ord;
                let error = StartError::InsufficientIrd { peer_ord, max_ird };
                return Err((PeerFault::InsufficientIrd, error));
            }
            established.ird = established.ird.max(reply.ord);
        }
        Ok(())
    }
}

/// The kind to send, out of those the Reply selects: a Write first, since it leaves no state on either side.
fn choose(reply: &Enhanced, offered: RtrSet) -> Option<Rtr> {
    let both = reply.rtr.and(offered);
    if !reply.peer_to_peer {
        None
    } else if both.write {
        Some(Rtr::Write)
    } else if both.read {
        Some(Rtr::Read)
    } else if both.send {
        Some(Rtr::Send)
    } else {
        None
    }
}
