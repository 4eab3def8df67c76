//! A runtime for programs that are pipelines of filters over streams, in the manner of DataCutter.
//!
//! A *filter* takes units of data and gives units of data. Several *copies* of it may run, each a process; a filter
//! *group* is a chain of filters. What one filter gives another is one logical *stream*, however many copies there are
//! at its ends: a unit goes to the copy that has the fewest under way, and each copy has at most a *window* of units
//! that it has not taken. What is to be done comes in *units of work*: all copies hear when one begins, and what it is;
//! it ends for a copy when all copies before it have ended it. A unit without more words is one of data.
//!
//! Whoever wants the results sends what is to be done to the copies of the group's first filter, as a stream of units
//! of work without units of data.
//!
//! ```text
//!                    ┌── copy of the first ──┐   ┌── copy of the second ──┐
//!  units of work ───>┤                       ├──>┤                        ├──> the last: results
//!                    └── copy of the first ──┘   └── copy of the second ──┘
//! ```
//!
//! Several groups may stand side by side ([`Groups`]): each unit of work is one group's, the one that has the fewest
//! under way, and the results are merged in the order of the units of work.

mod figures;
mod frame;
mod groups;
mod input;
mod merge;
mod output;
#[cfg(test)]
pub(crate) mod testing;
mod tour;

use std::net::{SocketAddr, TcpListener};

use anyhow::Result;
use clap::Args;

use crate::net::listen;

pub use groups::{Beside, Groups};
pub use input::{Arrived, Input};
pub use merge::{Merge, Works};
pub use output::Output;
pub use tour::{Look, Share, Tour};

/// Octets of the shortest and of the longest unit that can be asked for.
const UNIT_MIN: i64 = 8 << 10;
const UNIT_MAX: i64 = 256 << 10;

/// A part of a pipeline.
pub trait Filter {
    /// A unit of work begins. What is given here goes on.
    ///
    /// # Errors
    /// The octets say nothing that could be done, or a peer is gone.
    fn begin(&mut self, work: &[u8], output: &mut Output) -> Result<()>;

    /// A unit of it came.
    ///
    /// # Errors
    /// The octets are no unit of this work, or a peer is gone.
    fn take(&mut self, unit: &[u8], output: &mut Output) -> Result<()>;

    /// Everything of it came.
    ///
    /// # Errors
    /// Something is missing, or a peer is gone.
    fn end(&mut self, output: &mut Output) -> Result<()>;
}

/// How a copy of a filter is joined to those before and behind it.
#[derive(Args, Clone, Debug)]
pub struct Joints {
    /// Where the copies before this one connect to
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// How many of them there are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub before: u32,
    /// Where the copies behind this one listen
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', required = true)]
    pub to: Vec<SocketAddr>,
    /// Units that a copy behind this one may have that it has not taken
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub window: u32,
    /// Octets of a unit that it gives, at most
    #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(UNIT_MIN..=UNIT_MAX))]
    pub unit: u32,
}

/// Runs a copy of a filter until those before it have nothing more for it.
///
/// # Errors
/// A peer is not there or ends amid a unit of work, sends what is no frame, or the filter fails.
pub fn run(filter: &mut dyn Filter, joints: &Joints) -> Result<()> {
    let listener = listen(joints.listen)?;
    let mut output = Output::connect(joints)?;
    let mut input = Input::accept(&listener, joints.before)?;
    while input.next(|arrived| match arrived {
        Arrived::Begin(work) => {
            output.begin(work)?;
            filter.begin(work, &mut output)
        }
        Arrived::Unit(unit) => filter.take(unit, &mut output),
        Arrived::End => {
            filter.end(&mut output)?;
            output.end()
        }
    })? {}
    output.finish();
    Ok(())
}

/// A filter group, as whoever wants its results has it: where to send what is to be done, and where the results come
/// from.
#[derive(Debug)]
pub struct Group {
    orders: Output,
    results: Input,
}

impl Group {
    /// Has the group: the copies before this one connect first, as the first filter's listen last.
    ///
    /// # Errors
    /// A copy is not there.
    pub fn join(listener: &TcpListener, joints: &Joints) -> Result<Group> {
        let results = Input::accept(listener, joints.before)?;
        let orders = Output::connect(joints)?;
        Ok(Group { orders, results })
    }

    /// Orders a unit of work.
    ///
    /// # Errors
    /// A copy is gone.
    pub fn order(&mut self, work: &[u8]) -> Result<()> {
        self.orders.begin(work)?;
        self.orders.end()
    }

    /// Hands each unit of the next unit of work to `take`, until its end.
    ///
    /// # Errors
    /// A copy is gone, or `take` fails.
    pub fn results(&mut self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut is_over = false;
        while !is_over {
            let goes_on = self.results.next(|arrived| {
                match arrived {
                    Arrived::Begin(_) => {}
                    Arrived::Unit(unit) => take(unit)?,
                    Arrived::End => is_over = true,
                }
                Ok(())
            })?;
            anyhow::ensure!(goes_on, "the copies before this one have ended");
        }
        Ok(())
    }
}

#[cfg(test)]
mod groups_tests;
#[cfg(test)]
mod tests;
