//! Whole systems in memory, in `tests/`: many devices and hosts on simulated links and virtual time, and replays of
//! captures. The crate itself is empty.

#![forbid(unsafe_code)]
