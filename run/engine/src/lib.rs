//! The host stack: iWARP in the process over kernel TCP.
//!
//! One [`Engine`] a process holds every object. Its threads are the program's own: whoever posts
//! encodes and sends, whoever polls receives and places, whoever blocks for an event serves all
//! connections meanwhile; one service thread does it when nobody else does (decision 0002).
//!
//! The verbs API in idiomatic form:
//!
//! ```no_run
//! use weft_engine::cm::{ConnParam, EventChannel, EventKind, Id};
//! # fn main() -> Result<(), weft_engine::Error> {
//! let channel = EventChannel::new()?;
//! let id = Id::new(Some(&channel), 0)?;
//! id.resolve_addr(None, "127.0.0.1:7471".parse().unwrap(), None)?;
//! assert_eq!(channel.get_event()?.kind, EventKind::AddrResolved);
//! # Ok(()) }
//! ```
//!
//! `examples/write.rs` is a whole program.

#![forbid(unsafe_code)]

pub mod bring_up;
pub mod carrier;
mod channel;
mod clock;
pub mod cm;
mod context;
mod cq;
pub mod device;
mod engine;
mod error;
mod host;
mod memory;
mod modify;
mod numbers;
mod progress;
mod qp;
mod refusals;
mod registries;
mod srq;
pub mod stats;
mod sync;
mod throttle;
pub mod ud;

pub use context::{AsyncEvent, AsyncObject, CompChannel, Context, Pd};
pub use cq::Cq;
pub use engine::{choose_network, engine, start_on, start_with, Engine, NetworkMaker};
pub use error::Error;
pub use memory::{Mr, Mw};
pub use modify::{QpAttr, QpAttrMask, QpModifier, QpType};
pub use qp::{hold_while_leaving, Qp, QpInit, SendBatch, SAME_HOST_PREFIX};
pub use srq::Srq;
pub use ud::{AddressHandle, UdBatch, UdQp, UdTarget};
pub use weft_os::shm::is_file_allowed;
pub use weft_os::{fork, mem};
pub use weft_settings::log;
pub use weft_settings::{self as settings, debug, error, info, warn, warn_of_peer};
pub use weft_verbs::types;
