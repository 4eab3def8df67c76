//! What a queue pair is set up with: what it keeps when it is reset.

use core::time::Duration;

use crate::host::Scope;
use crate::types::{Access, PdId, QpCap, QpNumber, SendOp};

/// How long a peer that promised a message first may keep silent, where nobody says otherwise.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Its number.
    pub number: QpNumber,
    /// Its protection domain.
    pub pd: PdId,
    /// Sizes of its queues.
    pub cap: QpCap,
    /// Every send work request is signalled.
    pub sq_sig_all: bool,
    /// Receives come from a shared receive queue.
    pub shared_receive: bool,
}

/// What a queue pair was created with, and what its program sets later.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Attributes {
    access: Access,
    unreliable: bool,
    acknowledge: bool,
    aligned: bool,
    config: QpConfig,
    start_timeout: Duration,
}

impl Attributes {
    pub(super) fn new(config: QpConfig) -> Attributes {
        let read_and_write = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
        Attributes {
            config,
            access: read_and_write.union(Access::REMOTE_ATOMIC),
            unreliable: false,
            acknowledge: true,
            aligned: false,
            start_timeout: START_TIMEOUT,
        }
    }

    #[inline]
    pub(super) fn config(&self) -> &QpConfig {
        &self.config
    }

    /// On whose behalf the queue pair reaches memory.
    #[inline]
    pub(super) fn scope(&self) -> Scope {
        Scope {
            pd: self.config.pd,
            qp: self.config.number,
        }
    }

    /// What the peer may do through it.
    #[inline]
    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// It is of type UC: messages may be lost.
    #[inline]
    pub(super) fn is_unreliable(&self) -> bool {
        self.unreliable
    }

    pub(super) fn set_unreliable(&mut self, unreliable: bool) {
        self.unreliable = unreliable;
    }

    /// Whether its requests complete when the peer has them, if the program brings it up itself.
    #[inline]
    pub(super) fn wants_acknowledgements(&self) -> bool {
        self.acknowledge && !self.unreliable
    }

    pub(super) fn set_acknowledge(&mut self, acknowledge: bool) {
        self.acknowledge = acknowledge;
    }

    /// Whether peers are promised whole FPDUs in each TCP segment.
    pub(super) fn is_aligned(&self) -> bool {
        self.aligned
    }

    pub(super) fn set_aligned(&mut self, aligned: bool) {
        self.aligned = aligned;
    }

    /// How long a peer that promised a message first may keep silent.
    pub(super) fn start_timeout(&self) -> Duration {
        self.start_timeout
    }

    pub(super) fn set_start_timeout(&mut self, timeout: Duration) {
        self.start_timeout = timeout;
    }

    /// UC has no operation that is answered (InfiniBand 9.6).
    #[inline]
    pub(super) fn type_lacks(&self, op: &SendOp) -> bool {
        self.unreliable && op.awaits_response()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::types::Stag;

    /// The attributes of a queue pair whose queues have two places.
    pub(in super::super) fn attributes(shared_receive: bool) -> Attributes {
        Attributes::new(QpConfig {
            number: QpNumber(7),
            pd: crate::simulated::PD,
            cap: QpCap {
                max_send_wr: 2,
                max_recv_wr: 2,
                max_send_sge: 3,
                max_recv_sge: 3,
                max_inline_data: 64,
            },
            sq_sig_all: false,
            shared_receive,
        })
    }

    #[test]
    fn an_unreliable_one_neither_reads_nor_waits_for_acknowledgements() {
        let mut attributes = attributes(false);
        let read = SendOp::Read {
            remote_addr: 0,
            rkey: Stag(1),
        };
        assert!(attributes.wants_acknowledgements() && !attributes.type_lacks(&read));
        attributes.set_unreliable(true);
        assert!(!attributes.wants_acknowledgements() && attributes.type_lacks(&read));
        assert!(!attributes.type_lacks(&SendOp::Send));
        attributes.set_unreliable(false);
        attributes.set_acknowledge(false);
        assert!(!attributes.wants_acknowledgements());
    }
}
