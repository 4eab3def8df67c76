//! Workloads, measurement, report: `weft bench`.
//!
//! Four steps, each of its own and each usable without the others:
//!
//! 1. **Measure.** [`plan`] lays out rows (a workload on a path) and the stacks that serve each;
//!    [`runner`] runs the cells of a row in turn, repetition after repetition, through an
//!    [`exec::Executor`].
//! 2. **Raw data.** Every sample goes into a [`record::Run`], written as JSON before anything is
//!    computed from it.
//! 3. **Estimates.** [`summary`] and [`targets`] turn a record into medians, spreads, ratios and
//!    verdicts.
//! 4. **Report.** [`report`] draws them for the terminal, as markdown, as CSV or as a page with pictures, and tells
//!    what changed from one run to another.
//!
//! A stack is whatever moves octets from one process to another: TCP as a program would write it,
//! iperf3, Weft under perftest, libfabric, UCX. To add one, implement [`stack::Stack`] and list it
//! in [`stack::all`].

#![forbid(unsafe_code)]
// `print!` panics when its reader goes away: `weft_os::stdout` does not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod architecture;
pub mod axis;
pub mod beside;
pub mod build;
pub mod cli;
pub mod comparison;
pub mod cost;
pub mod ended;
pub mod environment;
pub mod exec;
pub mod far;
mod installed;
pub mod instructions;
pub mod job;
pub mod metric;
pub mod native;
pub mod offloads;
pub mod pairs;
pub mod path;
pub mod plan;
pub mod probe;
pub mod raw;
pub mod record;
pub mod report;
pub mod runner;
pub mod sample;
pub mod stack;
pub mod stats;
pub mod summary;
pub mod targets;
pub mod verbs;
pub mod workload;
