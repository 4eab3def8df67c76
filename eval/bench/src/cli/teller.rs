//! What the bench says while it measures, and the text that it prints at the end.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weft_os::stderr;
use weft_os::stdout::{self, Reader};

use crate::sample::Told;

/// Without a terminal the time that is left is said at most so often.
const SAY_LEFT_EVERY: Duration = Duration::from_secs(30);

/// Says on standard error how the run goes on: under a bar on a terminal, line by line elsewhere.
pub(super) struct Teller {
    interrupted: Arc<AtomicBool>,
    bar: Option<ProgressBar>,
    plan: RefCell<Plan>,
}

/// How far a plan has come, in the seconds that it has for each part.
#[derive(Debug)]
struct Plan {
    whole: f64,
    done: f64,
    began: Instant,
    said: Instant,
}

impl Teller {
    /// `interrupted` is what a signal sets to end the run.
    pub(super) fn new(interrupted: Arc<AtomicBool>) -> Teller {
        let now = Instant::now();
        Teller {
            interrupted,
            bar: None,
            plan: RefCell::new(Plan {
                whole: 0.0,
                done: 0.0,
                began: now,
                said: now,
            }),
        }
    }

    /// Begins a plan of so much time.
    pub(super) fn begin(&mut self, whole: Duration) {
        let now = Instant::now();
        self.plan.replace(Plan {
            whole: whole.as_secs_f64(),
            done: 0.0,
            began: now,
            said: now,
        });
        let bar = ProgressBar::with_draw_target(
            Some(whole.as_secs().max(1)),
            ProgressDrawTarget::stderr(),
        );
        if !bar.is_hidden() {
            // Both templates are constants, which a test of this file draws.
            bar.set_style(style());
            self.bar = Some(bar);
        }
    }

    /// Says what was taken, and how long the rest will take.
    pub(super) fn told(&self, told: Told) {
        let mut plan = self.plan.borrow_mut();
        plan.done += told.planned;
        let left = plan.left();
        match &self.bar {
            Some(bar) => {
                bar.println(told.line);
                bar.set_position(plan.done as u64);
                bar.set_message(left.map_or(String::new(), spoken));
            }
            None => {
                self.line(told.line);
                if let (Some(left), true) = (left, plan.said.elapsed() >= SAY_LEFT_EVERY) {
                    plan.said = Instant::now();
                    self.line(&format!(
                        "      {:.0} %, {}",
                        plan.part() * 100.0,
                        spoken(left)
                    ));
                }
            }
        }
    }

    /// Says a line that is about no part of the plan.
    pub(super) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => self.line(line),
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Who closes the other end (`2>&1 | head`) wants no more: the run ends as by Ctrl-C, and keeps what was measured.
    fn line(&self, line: &str) {
        if say(line) == Reader::Gone {
            self.interrupted.store(true, Ordering::Relaxed);
        }
    }
}

impl Plan {
    /// From 0 to 1.
    fn part(&self) -> f64 {
        (self.done / self.whole.max(1e-9)).min(1.0)
    }

    /// How long the rest will take if it goes on as it went; nothing before enough went.
    fn left(&self) -> Option<Duration> {
        const ENOUGH: f64 = 3.0;
        let took = self.began.elapsed().as_secs_f64();
        let rest = (self.whole - self.done).max(0.0);
        (self.done >= ENOUGH).then(|| Duration::from_secs_f64(rest * took / self.done))
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_bar} {percent} % {msg}")
        .unwrap_or(ProgressStyle::default_bar())
}

/// `about 3 min left`.
fn spoken(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..=99 => format!("about {seconds} s left"),
        seconds => format!("about {} min left", (seconds + 30) / 60),
    }
}

/// A line on standard error.
pub(super) fn say(line: &str) -> Reader {
    stderr::line(&format!("{line}\n"))
}

/// Text on standard output. Nobody has to read it to its end.
pub(super) fn print(text: &str) -> Result<()> {
    stdout::print(text).context("cannot write the report")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_learned_from_what_the_parts_took() {
        let began = Instant::now().checked_sub(Duration::from_secs(20)).unwrap();
        let plan = |done| Plan {
            whole: 100.0,
            done,
            began,
            said: began,
        };
        // What was planned for ten seconds took twenty.
        let left = plan(10.0).left().unwrap();
        assert!((180..185).contains(&left.as_secs()), "{left:?}");
        assert_eq!(plan(1.0).left(), None);
        // More was done than was planned.
        assert_eq!(
            (plan(120.0).left(), plan(120.0).part()),
            (Some(Duration::ZERO), 1.0)
        );
        assert_eq!(spoken(Duration::from_secs(5)), "about 5 s left");
        assert_eq!(spoken(Duration::from_secs(170)), "about 3 min left");
    }

    #[test]
    fn the_bar_can_be_drawn() {
        assert!(ProgressStyle::with_template("{wide_bar} {percent} % {msg}").is_ok());
        let bar = ProgressBar::with_draw_target(Some(10), ProgressDrawTarget::hidden());
        bar.set_style(style());
        bar.set_position(3);
        assert_eq!(bar.position(), 3);
    }
}
