//! Filter groups side by side, among which units of work are shared.
//!
//! Each group is one whole pipeline. A unit of work goes to the group that has the fewest under way, so that a group
//! that is quicker is given more: the same rule that units of data follow between copies of filters, one level up. A
//! group has at most a window of units of work under way; while all have as many, nothing is handed out.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};

use anyhow::{bail, ensure, Context, Result};
use clap::Args;

use super::input::{wait, Arrived, Wait};
use super::{Group, Joints};
use crate::net::listen;

/// How units of work are shared among groups.
#[derive(Args, Clone, Debug)]
pub struct Beside {
    /// Filter groups; each listens for results at a port of its own, the next behind the one before
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub groups: u32,
    /// Units of work that a group may have under way
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub works: u32,
}

/// Filter groups, as whoever hands out the units of work has them.
#[derive(Debug)]
pub struct Groups {
    groups: Vec<Member>,
    /// Units of work that a group may have under way.
    window: usize,
    /// Whose results are looked at first.
    turn: usize,
}

/// What came of a unit of work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came<'a> {
    /// A part of its results.
    Unit(&'a [u8]),
    /// All of them have come.
    End,
}

#[derive(Debug)]
struct Member {
    group: Group,
    /// Numbers of the units of work that it was given and has not ended, the oldest first.
    under_way: VecDeque<u64>,
    /// How many it has ended.
    ended: u64,
}

impl Groups {
    /// Has so many groups: each one's last copies connect first, as its first filter's listen last. The groups listen
    /// for results at ports one behind the other, from the joints' own on; of the copies to connect to each group has
    /// an equal part.
    ///
    /// # Errors
    /// A copy is not there, or the copies cannot be shared out like that.
    pub fn join(joints: &Joints, beside: &Beside) -> Result<Groups> {
        let number = beside.groups;
        let copies = joints.to.len();
        ensure!(
            number > 0 && copies.is_multiple_of(number as usize),
            "{copies} copies of the first filter cannot be shared out to {number} groups"
        );
        // All listen before the first is waited for: whose copies start first is nobody's business.
        let listeners: Vec<TcpListener> = (0..number)
            .map(|group| listen(listens_at(joints.listen, group)?))
            .collect::<Result<_>>()?;
        let firsts = joints.to.chunks(copies / number as usize);
        let member = |(listener, to): (&TcpListener, &[SocketAddr])| -> Result<Member> {
            let joints = Joints {
                to: to.to_vec(),
                ..joints.clone()
            };
            Ok(Member {
                group: Group::join(listener, &joints)?,
                under_way: VecDeque::new(),
                ended: 0,
            })
        };
        Ok(Groups {
            groups: listeners
                .iter()
                .zip(firsts)
                .map(member)
                .collect::<Result<_>>()?,
            window: beside.works as usize,
            turn: 0,
        })
    }

    /// How many there are.
    pub(super) fn number(&self) -> usize {
        self.groups.len()
    }

    /// How many units of work each group has ended.
    pub(super) fn ended(&self) -> impl Iterator<Item = u64> + '_ {
        self.groups.iter().map(|member| member.ended)
    }

    /// The group, counted from 0, that has the fewest units of work under way; none while all have as many as they may.
    pub(super) fn with_room(&self) -> Option<usize> {
        let under_way = |at: &usize| self.groups[*at].under_way.len();
        let fewest = (0..self.groups.len()).min_by_key(under_way)?;
        (under_way(&fewest) < self.window).then_some(fewest)
    }

    /// Hands a unit of work to a group, whatever it has under way.
    ///
    /// # Errors
    /// A copy of the group is gone.
    pub(super) fn hand_to(&mut self, group: usize, number: u64, work: &[u8]) -> Result<()> {
        let member = &mut self.groups[group];
        member.under_way.push_back(number);
        let ordered = member.group.order(work);
        ordered.with_context(|| name(group))
    }

    /// Waits until results come from any group, and hands some to `take`, with the number of the unit of work.
    ///
    /// # Errors
    /// A group has ended or says what makes no sense, or `take` fails.
    pub(super) fn next(&mut self, mut take: impl FnMut(u64, Came) -> Result<()>) -> Result<()> {
        let number = self.groups.len();
        loop {
            for at in (0..number).map(|i| (self.turn + i) % number) {
                let came = self.groups[at].next_there(&mut take);
                if came.with_context(|| name(at))? {
                    // The other groups have their turn.
                    self.turn = at + 1;
                    return Ok(());
                }
            }
            wait(self.groups.iter().map(|member| &member.group.results))?;
            for (at, member) in self.groups.iter_mut().enumerate() {
                let read = member.group.results.read(Wait::No);
                read.with_context(|| name(at))?;
            }
        }
    }
}

impl Member {
    /// Hands to `take` what was read already. Says whether anything was.
    fn next_there(&mut self, take: &mut impl FnMut(u64, Came) -> Result<()>) -> Result<bool> {
        let Member {
            group,
            under_way,
            ended,
        } = self;
        let came = group.results.there(&mut |arrived| {
            let oldest = under_way.front().copied();
            let oldest = oldest.context("it has results of what it was not given")?;
            match arrived {
                Arrived::Begin(_) => Ok(()),
                Arrived::Unit(unit) => take(oldest, Came::Unit(unit)),
                Arrived::End => {
                    under_way.pop_front();
                    *ended += 1;
                    take(oldest, Came::End)
                }
            }
        })?;
        match came {
            None => Ok(false),
            Some(true) => Ok(true),
            Some(false) => bail!(
                "it has ended, and {} of its units of work have not",
                under_way.len()
            ),
        }
    }
}

/// Where results of a group are waited for, of which there are several.
pub(super) fn listens_at(first: SocketAddr, group: u32) -> Result<SocketAddr> {
    let port = u32::from(first.port()) + group;
    let port = port
        .try_into()
        .with_context(|| format!("there is no port {port} for filter group {}", group + 1))?;
    Ok(SocketAddr::new(first.ip(), port))
}

fn name(group: usize) -> String {
    format!("filter group {}", group + 1)
}
