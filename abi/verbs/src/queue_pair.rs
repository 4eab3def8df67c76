//! What stands behind a queue pair that a program has.

use std::sync::{Arc, Mutex};

use weft_engine::types::{QpCap, QpState};
use weft_engine::{QpModifier, UdQp};

use crate::entry::{invalid, Outcome};
use crate::event_references::Acks;
use crate::handle::{Handle, Object};
use crate::layout::{ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr};
use crate::request_builder::Builder;

/// The engine's side of a queue pair.
pub enum Engine {
    /// RC and UC.
    Connected(Arc<weft_engine::Qp>),
    /// UD.
    Datagrams(Arc<UdQp>),
}

impl Engine {
    /// Its number.
    pub fn number(&self) -> u32 {
        match self {
            Engine::Connected(qp) => qp.number(),
            Engine::Datagrams(qp) => qp.number(),
        }
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        match self {
            Engine::Connected(qp) => qp.state(),
            Engine::Datagrams(qp) => qp.state(),
        }
    }

    /// Sizes of its queues.
    pub fn cap(&self) -> QpCap {
        match self {
            Engine::Connected(qp) => qp.cap(),
            Engine::Datagrams(qp) => qp.cap(),
        }
    }

    /// Ends it.
    pub fn destroy(&self) {
        match self {
            Engine::Connected(qp) => qp.destroy(),
            Engine::Datagrams(qp) => qp.destroy(),
        }
    }
}

/// A queue pair.
pub struct Pair {
    /// The engine's side of it.
    pub engine: Engine,
    /// Receives come from a shared queue.
    pub shared_receives: bool,
    /// Names it in events.
    pub number: u64,
    pub acks: Arc<Acks>,
    /// What the program set and may ask for again, and what changes it.
    pub set: Mutex<Set>,
    /// What it was made with.
    pub init: ibv_qp_init_attr,
    /// Requests that are being built through `ibv_wr_*`, if it was made for them.
    pub building: Option<Builder>,
}

/// What the program set and may ask for again.
pub struct Set {
    pub modifier: QpModifier,
    pub attr: ibv_qp_attr,
}

impl Object for Pair {
    type Public = ibv_qp_ex;
    type Pointee = ibv_qp;
    const MAGIC: u32 = 0x7170_3030;
}

impl Pair {
    /// Acknowledges an event of the queue pair.
    pub fn acknowledge(&self) {
        self.acks.acknowledge(1);
    }

    /// The engine's queue pair of one that is connected.
    ///
    /// # Errors
    /// `EINVAL`: it sends datagrams.
    #[inline]
    pub fn connected(&self) -> Outcome<&Arc<weft_engine::Qp>> {
        match &self.engine {
            Engine::Connected(qp) => Ok(qp),
            Engine::Datagrams(_) => invalid(),
        }
    }
}

impl Handle<Pair> {
    /// The part that every queue pair has.
    pub fn base(&self) -> *mut ibv_qp {
        self.public().cast()
    }
}
