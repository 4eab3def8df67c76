//! The source of units of work for filter groups, and where their results are merged: in the order of the units of
//! work, whichever group is ready first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::figures::{print, Figures};
use super::groups::{Came, Groups};
use super::Look;

/// Units of work that are handed out beyond the oldest that is not merged, at most: their results wait in memory.
const AHEAD: u64 = 64;

/// Units of work, and what becomes of their results. They are counted from 0.
pub trait Works {
    /// What the results of one are put together in.
    type Whole;

    /// How many different ones there are, one at least; then they come again.
    fn number(&self) -> u64;

    /// What is to be done, as the filters have it.
    fn order(&self, work: u64) -> Vec<u8>;

    /// A whole of which nothing has come.
    fn begin(&self, work: u64) -> Self::Whole;

    /// A unit of its results came.
    ///
    /// # Errors
    /// The octets are no such unit.
    fn take(&self, whole: &mut Self::Whole, unit: &[u8]) -> Result<()>;

    /// All of it came, and all units of work before it have ended. Says how much it was shown.
    ///
    /// # Errors
    /// It is not what it should be.
    fn end(&self, work: u64, whole: Self::Whole) -> Result<u64>;
}

/// A source of units of work whose results are merged in order.
pub struct Merge<'w, W: Works> {
    works: &'w W,
    groups: Groups,
    /// By number, those that were handed out and are not merged.
    waiting: BTreeMap<u64, Waiting<W::Whole>>,
    /// Number of the next one to be handed out.
    next: u64,
    took: Vec<Duration>,
    shown: u64,
}

struct Waiting<T> {
    whole: T,
    asked: Instant,
    is_whole: bool,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Shared {
    #[serde(flatten)]
    figures: Figures,
    /// Units of work of the group that had the fewest, and of the one that had the most.
    group_least: u64,
    group_most: u64,
}

impl<'w, W: Works> Merge<'w, W> {
    /// Nothing is handed out yet.
    pub fn of(works: &'w W, groups: Groups) -> Merge<'w, W> {
        Merge {
            works,
            groups,
            waiting: BTreeMap::new(),
            next: 0,
            took: Vec::new(),
            shown: 0,
        }
    }

    /// Hands out units of work for a time, and prints how long they took. Not counted is that each group has each of
    /// them once before, in which programs come to have what they need.
    ///
    /// # Errors
    /// A group has ended or says what makes no sense, or a result is wrong.
    pub fn run(mut self, look: &Look) -> Result<()> {
        self.warm_up()?;
        let before = self.ended();
        let (start, time) = (Instant::now(), Duration::from_secs(look.seconds.into()));
        self.share(|| start.elapsed() < time)?;
        let whole = start.elapsed();
        let shares = self.ended().into_iter().zip(before);
        let shares: Vec<u64> = shares.map(|(now, before)| now - before).collect();
        print(&Shared {
            figures: Figures::of(self.took, whole, self.shown),
            group_least: shares.iter().copied().min().unwrap_or_default(),
            group_most: shares.iter().copied().max().unwrap_or_default(),
        })
    }

    /// How many units of work each group has ended.
    pub(super) fn ended(&self) -> Vec<u64> {
        self.groups.ended().collect()
    }

    /// Has each group do each unit of work, all groups at once.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        for group in 0..self.groups.number() {
            for _ in 0..self.works.number() {
                while self.waiting.len() as u64 >= AHEAD {
                    self.take()?;
                }
                self.hand_to(group)?;
            }
        }
        while !self.waiting.is_empty() {
            self.take()?;
        }
        (self.took, self.shown) = (Vec::new(), 0);
        Ok(())
    }

    /// Hands out one unit of work, and others while `goes_on` says so, and merges all their results.
    pub(super) fn share(&mut self, goes_on: impl Fn() -> bool) -> Result<()> {
        let first = self.next;
        loop {
            while (self.next == first || goes_on()) && self.hand_out()? {}
            if self.waiting.is_empty() {
                return Ok(());
            }
            self.take()?;
        }
    }

    /// Hands out the next unit of work. Says false, and hands out nothing, while there is no room for it.
    fn hand_out(&mut self) -> Result<bool> {
        let oldest = self.waiting.keys().next();
        if oldest.is_some_and(|oldest| self.next - oldest >= AHEAD) {
            return Ok(false);
        }
        let Some(group) = self.groups.with_room() else {
            return Ok(false);
        };
        self.hand_to(group)?;
        Ok(true)
    }

    /// Hands the next unit of work to a group.
    fn hand_to(&mut self, group: usize) -> Result<()> {
        let work = self.next % self.works.number();
        let waiting = Waiting {
            whole: self.works.begin(work),
            asked: Instant::now(),
            is_whole: false,
        };
        self.waiting.insert(self.next, waiting);
        let order = self.works.order(work);
        self.groups.hand_to(group, self.next, &order)?;
        self.next += 1;
        Ok(())
    }

    /// Takes some results, and merges what is whole and next.
    fn take(&mut self) -> Result<()> {
        let (works, waiting) = (self.works, &mut self.waiting);
        self.groups.next(|number, came| {
            let one = waiting.get_mut(&number);
            let one = one.context("results of a unit of work that was merged")?;
            match came {
                Came::Unit(unit) => works.take(&mut one.whole, unit)?,
                Came::End => one.is_whole = true,
            }
            Ok(())
        })?;
        while let Some(oldest) = self.waiting.first_entry() {
            if !oldest.get().is_whole {
                break;
            }
            let (number, one) = oldest.remove_entry();
            self.shown += self.works.end(number % self.works.number(), one.whole)?;
            self.took.push(one.asked.elapsed());
        }
        Ok(())
    }
}
