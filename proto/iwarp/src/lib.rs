//! MPA, DDP and RDMAP for one connection, as data.
//!
//! The crate turns octets of a TCP stream into checked iWARP messages and back. It makes no system call, owns
//! no payload and knows no clock: time is a [`core::time::Duration`] since any epoch the caller likes.
//!
//! | module | what it holds | source |
//! | --- | --- | --- |
//! | [`startup`] | MPA start-up: Request and Reply | RFC 5044 section 7.1, RFC 6581 |
//! | [`mpa`] | FPDUs, markers, CRC32c | RFC 5044 |
//! | [`ddp`] | tagged and untagged headers | RFC 5041 |
//! | [`rdmap`] | Read Request, atomic and immediate data headers | RFC 5040, RFC 7306 |
//! | [`terminate`] | what a peer can do wrong, and the Terminate that says so | RFC 5040 section 4.8 |
//! | [`inbound`] | received octets to checked DDP segments | |
//! | [`ahead`] | FPDUs that arrive before what precedes them | RFC 5044 section 5.2 |
//! | [`ledger`] | which of them are placed and await their turn | |
//! | [`outbound`] | headers and payload to FPDUs | |
//!
//! A connection begins with an [`Initiator`] or a [`Responder`]. When that gives an [`Established`], one
//! [`Inbound`] and one [`Outbound`] are made from it, one for each direction of the stream.

//!
//! ```
//! use weft_iwarp::{Header, Inbound, Initiator, InitiatorEvent, Message, Opcode, Outbound, Parse};
//! use weft_iwarp::{Responder, StartConfig, Stag, Tagged};
//! use core::time::Duration;
//!
//! // Start-up: the Request to the Responder, its Reply back.
//! let now = Duration::ZERO;
//! let mut initiator = Initiator::new(StartConfig::default(), now);
//! let mut responder = Responder::new(StartConfig::default(), now);
//! responder.handle_bytes(&initiator.poll_transmit().unwrap(), now);
//! let passive = responder.accept(b"welcome".to_vec(), 16, 16).unwrap();
//! initiator.handle_bytes(&responder.poll_transmit().unwrap(), now);
//! let Some(InitiatorEvent::Accepted(active)) = initiator.poll_event() else { panic!() };
//! assert_eq!(active.private_data, b"welcome");
//!
//! // Full Operation: an RDMA Write to the Responder.
//! let mut wire = Vec::new();
//! let mut outbound = Outbound::new(&active, 1448);
//! let write = Header::Tagged(Tagged { last: true, opcode: Opcode::WRITE, stag: Stag(0x1234), to: 64 });
//! let start = outbound.begin(&mut wire, &write, &[], 5);
//! wire.extend_from_slice(b"hello");
//! outbound.seal(&mut wire, start);
//!
//! let mut inbound = Inbound::new(&passive);
//! let Parse::Segment(segment) = inbound.parse(&mut wire).unwrap() else { panic!() };
//! assert_eq!(segment.message, Message::Write { stag: Stag(0x1234), to: 64, last: true });
//! assert_eq!(&wire[segment.payload], b"hello");
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod ahead;
pub mod ddp;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod inbound;
pub mod ledger;
pub mod mpa;
pub mod num;
pub mod outbound;
pub mod rdmap;
pub mod startup;
pub mod terminate;
mod wire;

pub use ahead::{Envelope, FpduAhead, FpdusAhead, PlacePolicy, Unplaced};
pub use ddp::{Header, Tagged, Untagged, Versions};
pub use inbound::{Continuation, Inbound, InboundConfig, Message, Parse, Segment, WholeWrite};
pub use ledger::Ledger;
pub use mpa::frame::{Enhanced, FrameError, FrameKind, RtrSet, StartFrame};
pub use num::{Msn, Opcode, QueueNumber, Stag};
pub use outbound::Outbound;
pub use rdmap::{AtomicOperation, AtomicRequest, AtomicResponse, ReadRequest};
pub use startup::{
    AcceptError, Blame, Established, Initiator, InitiatorEvent, PeerRequest, Responder,
    ResponderEvent, Role, Rtr, StartConfig, StartError,
};
pub use terminate::{Fault, PeerFault, Terminate, TerminateCode};
