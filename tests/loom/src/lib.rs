//! The engine's locks and wake-ups under a model checker.
//!
//! `wakeups`, `deferred`, `channel`, `silent` and `protocol` are the engine's own files. They meet
//! [loom](https://docs.rs/loom)'s threads, atomics and locks in `sync` instead of the real ones, and a small engine
//! in `engine` whose epoll set is a flag and whose clock runs as fast as somebody waits for it. loom then runs each
//! model in every order that its threads can take (up to a number of preemptions) and with every value that the
//! memory order allows an atomic to have. A model ends when all of its threads do; a wake-up that is lost leaves one
//! asleep, which loom reports as a deadlock.
//!
//! How to run it longer, and that it finds what it should, is told in `README.md` beside this crate.

#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "../../../run/engine/src/channel.rs"]
mod channel;
#[cfg(test)]
#[path = "../../../run/engine/src/progress/deferred.rs"]
mod deferred;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod error;
#[cfg(test)]
mod models;
#[cfg(test)]
#[path = "../../../run/engine/src/carrier/same_host/protocol.rs"]
mod protocol;
#[cfg(test)]
mod rings;
#[cfg(test)]
#[allow(
    dead_code,
    reason = "a member that is idle needs no second thread to show"
)]
#[path = "../../../run/engine/src/progress/silent.rs"]
mod silent;
#[cfg(test)]
mod sync;
#[cfg(test)]
#[path = "../../../run/engine/src/progress/wakeups.rs"]
mod wakeups;

/// The engine's module of that name, as far as the files above use it.
#[cfg(test)]
mod progress {
    pub(crate) use crate::engine::{Engine as Progress, Lead};
}
