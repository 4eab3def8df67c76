//! Two queue pairs in memory on virtual time: scenarios, and random work by seed.

mod acknowledged;
mod at_once;
mod between_parts;
mod draining;
mod empty_segments;
mod extended;
mod foreign;
mod foreign_peer;
mod local_faults;
mod on_the_wire;
mod out_of_band;
mod pair;
mod placing;
mod random_work;
mod rnr_queue;
mod scenarios;
mod states;
mod taking;
mod terminates;
mod timers;
mod unreliable;
mod withheld;
