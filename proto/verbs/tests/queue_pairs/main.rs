//! Two queue pairs in memory on virtual time: scenarios, and random work by seed.

mod acknowledged;
mod draining;
mod empty_segments;
mod extended;
mod foreign;
mod holding;
mod pair;
mod random_work;
mod scenarios;
mod unreliable;
