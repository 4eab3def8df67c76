//! A seeded link emulator on a virtual clock: delay, jitter, rate, a queue with tail drop, loss, reordering,
//! duplication, corruption; and what else stands on a path for Ethernet frames.
//!
//! A [`Link`] knows nothing of what travels but its size and how to damage it ([`Travels`]). It obeys the contract of
//! every state machine here: items and the time go in by [`Link::send`], items come out by [`Link::receive`], and
//! [`Link::deadline`] says when to look again. Two runs with one seed are equal, to the octet.
//!
//! A [`Path`] is a link for Ethernet frames behind boxes that change packets. It obeys the same contract.
//!
//! | file | concern | source |
//! | --- | --- | --- |
//! | `config.rs`, `link.rs`, `random.rs` | the link | |
//! | `path.rs` | one direction of a path: what a frame goes through, in which order | |
//! | `offload.rs` | large frames cut, checksums finished | OASIS virtio 1.2 section 5.1.6 |
//! | `join.rs` | segments that leave together joined to a large frame | OASIS virtio 1.2 section 5.1.6 |
//! | `resegment.rs`, `segment.rs` | a box that splits and joins TCP segments | RFC 9293 |
//! | `router.rs`, `fragment.rs`, `too_big.rs` | a router with a smaller MTU | RFC 791, RFC 1191, RFC 4443 |
//! | `holes.rs` | when holes in TCP streams are filled | RFC 9293 |
//! | `packet.rs` | where the headers of a frame stand | |
//! | `pcapng.rs` | captures | draft-ietf-opsawg-pcapng |
//!
//! ```
//! use core::time::Duration;
//! use weft_link::{Link, LinkConfig};
//!
//! let mut link = Link::new(LinkConfig::default().delay(Duration::from_millis(5)), 1);
//! link.send(vec![1, 2, 3], Duration::ZERO);
//! assert_eq!(link.deadline(), Some(Duration::from_millis(5)));
//! assert_eq!(link.receive(Duration::from_millis(5)), Some(vec![1, 2, 3]));
//! ```

#![forbid(unsafe_code)]

mod config;
mod fragment;
mod holes;
mod join;
mod link;
mod offload;
mod packet;
mod path;
mod pcapng;
mod random;
mod resegment;
mod router;
mod segment;
mod too_big;

pub use config::{LinkConfig, Loss, Reordering};
pub use holes::{Filled, Holes, Stream};
pub use join::{join, Joined};
pub use link::{Counters, Link, Travels};
pub use offload::{insert_vlan_tag, parse_vnet_header};
pub use path::{Path, PathConfig, PathCounters};
pub use pcapng::{Capture, Way};
pub use random::Random;
pub use resegment::ResegmentCounters;
pub use router::RouterCounters;
/// What segmentation and checksum offload left to do of a frame.
pub use weft_inet::stack::VnetHeader;
