//! The last filter of a program: has one piece of work done after another, and says how long they took.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

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

/// The pieces of work of a program, one after another.
pub struct Tour {
    group: Group,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Figures {
    requests_per_s: f64,
    /// The median piece.
    request_us: f64,
    p99_us: f64,
    operations: u64,
    /// What the pieces came to, as the program counts it.
    shown: u64,
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

    /// Has `see` look at each of `pieces`, again and again, and prints how long that took. Not counted is the first
    /// time, in which programs come to have what they need. `see` says how much it was shown.
    ///
    /// # Errors
    /// Those of `see`.
    pub fn look<T>(
        &mut self,
        look: &Look,
        pieces: &[T],
        mut see: impl FnMut(&mut Group, &T) -> Result<u64>,
    ) -> Result<()> {
        for piece in pieces {
            see(&mut self.group, piece)?;
        }
        let (start, time) = (Instant::now(), Duration::from_secs(look.seconds.into()));
        let (mut took, mut shown) = (Vec::new(), 0);
        for piece in pieces.iter().cycle() {
            let asked = Instant::now();
            shown += see(&mut self.group, piece)?;
            took.push(asked.elapsed().as_secs_f64() * 1e6);
            if start.elapsed() >= time {
                break;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        took.sort_by(f64::total_cmp);
        let figures = Figures {
            requests_per_s: took.len() as f64 / seconds,
            request_us: took[took.len() / 2],
            p99_us: took[took.len() * 99 / 100],
            operations: took.len() as u64,
            shown,
        };
        let figures = serde_json::to_string(&figures)? + "\n";
        weft_os::stdout::print(&figures).context("cannot print the figures")?;
        Ok(())
    }
}
