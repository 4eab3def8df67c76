//! A seeded link emulator on a virtual clock: delay, jitter, rate, a queue with tail drop, loss, reordering,
//! duplication, corruption.
//!
//! The crate is a leaf: it knows nothing of what travels but its size and how to damage it ([`Travels`]). It obeys the
//! contract of every state machine here: items and the time go in by [`Link::send`], items come out by
//! [`Link::receive`], and [`Link::deadline`] says when to look again. Two runs with one seed are equal, to the octet.
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
mod link;
mod random;

pub use config::{LinkConfig, Loss, Reordering};
pub use link::{Counters, Link, Travels};
pub use random::Random;
