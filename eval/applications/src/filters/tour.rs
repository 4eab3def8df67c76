//! The last filter of a program: has one unit of work done after another, and says how long they took.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use super::figures::{print, Figures};
use super::{Group, Joints};
use crate::net::listen;

/// Which part of what is there a copy of the first filter has.
#[derive(Args, Clone, Debug)]
pub struct Share {
    /// Which of the copies it is, from 0
    #[arg(long)]
    pub copy: u32,
    /// How many there are
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub copies: u32,
}

impl Share {
    /// Whether what has this number is this copy's.
    pub fn has(&self, number: usize) -> bool {
        number % self.copies as usize == self.copy as usize
    }
}

/// How long to look.
#[derive(Args, Clone, Debug)]
pub struct Look {
    /// Seconds
    #[arg(long)]
    pub seconds: u32,
}

/// The units of work of a program, one after another.
pub struct Tour {
    group: Group,
}

impl Tour {
    /// Joins the copies of the other filters.
    ///
    /// # Errors
    /// One is not there.
    pub fn begin(joints: &Joints) -> Result<Tour> {
        let group = Group::join(&listen(joints.listen)?, joints)?;
        Ok(Tour { group })
    }

    /// Has `see` look at each of `works`, again and again, and prints how long that took. Not counted is the first
    /// time, in which programs come to have what they need. `see` says how much it was shown.
    ///
    /// # Errors
    /// Those of `see`.
    pub fn look<T>(
        &mut self,
        look: &Look,
        works: &[T],
        mut see: impl FnMut(&mut Group, &T) -> Result<u64>,
    ) -> Result<()> {
        for work in works {
            see(&mut self.group, work)?;
        }
        let (start, time) = (Instant::now(), Duration::from_secs(look.seconds.into()));
        let (mut took, mut shown) = (Vec::new(), 0);
        for work in works.iter().cycle() {
            let asked = Instant::now();
            shown += see(&mut self.group, work)?;
            took.push(asked.elapsed());
            if start.elapsed() >= time {
                break;
            }
        }
        print(&Figures::of(took, start.elapsed(), shown))
    }
}
