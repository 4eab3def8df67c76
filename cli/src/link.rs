//! `weft link`: an emulated link between two interfaces, in real time.

mod args;
mod show;
mod values;

pub use args::{LinkArgs, AFTER, LONG_ABOUT};

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weft_bridge::{Bridge, Running, Settings};
use weft_link::{LinkConfig, Loss, PathConfig, Reordering};

use crate::output::{complain, print};
use args::PathFlags;
use values::Queue;

/// Exit status of an emulator that ran and did not keep up.
const FELL_SHORT: u8 = 3;
/// Time from one line of counts to the next on a terminal.
const USUAL_INTERVAL: Duration = Duration::from_secs(1);
/// Signals and the end are looked for so often.
const TICK: Duration = Duration::from_millis(20);
/// A queue that nobody gave a size passes at the rate in no less than this.
const QUEUE_MIN: Duration = Duration::from_millis(10);
/// And has no fewer octets: as much as a sender's kernel hands over in one piece.
const QUEUE_MIN_OCTETS: u64 = 64 << 10;

/// Runs the command until a signal, the end of its time, or the end of an interface.
pub fn run(args: &LinkArgs) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if let Err(error) = signal_hook::flag::register(signal, stop.clone()) {
            complain(&format!("cannot handle signals: {error}"), None);
            return ExitCode::FAILURE;
        }
    }
    let settings = match settings(args) {
        Ok(settings) => settings,
        Err(wrong) => {
            complain(
                &wrong,
                Some("add --rate: what waits for it is in the queue"),
            );
            return ExitCode::FAILURE;
        }
    };
    let bridge = match Bridge::open(&args.a, &args.b, &settings) {
        Ok(bridge) => bridge,
        Err(error) => {
            complain(&error, error.advice().as_deref());
            return ExitCode::FAILURE;
        }
    };
    let running = match bridge.start() {
        Ok(running) => running,
        Err(error) => {
            complain(&format!("cannot start: {error}"), None);
            return ExitCode::FAILURE;
        }
    };
    show::say(&format!("forwarding between {} and {}", args.a, args.b));
    watch(args, &running, &stop);
    end(args, running)
}

/// Waits for the end, and prints lines of counts meanwhile.
fn watch(args: &LinkArgs, running: &Running, stop: &AtomicBool) {
    let terminal = std::io::stderr().is_terminal();
    let interval = interval(args, terminal);
    let mut counts = show::Counts::new(terminal);
    let started = Instant::now();
    let mut last = started;
    let over = |now: Instant| args.duration.is_some_and(|time| now - started >= time);
    while !stop.load(Ordering::Relaxed) && !running.has_ended() {
        let now = Instant::now();
        if over(now) {
            break;
        }
        if now - last >= interval.unwrap_or(USUAL_INTERVAL) {
            running.flush_files();
            if interval.is_some() {
                counts.show(&running.report());
            }
            last = now;
        }
        let left = args
            .duration
            .map_or(TICK, |time| time.saturating_sub(now - started));
        std::thread::sleep(left.min(TICK));
    }
    counts.end();
}

/// How often a line of counts is printed, if at all.
fn interval(args: &LinkArgs, terminal: bool) -> Option<Duration> {
    let usual = (terminal && !args.quiet).then_some(USUAL_INTERVAL);
    args.interval.or(usual)
}

/// Ends forwarding and says how it was.
fn end(args: &LinkArgs, running: Running) -> ExitCode {
    let report = running.finish();
    let text = match args.json {
        true => show::json(&report, args.seed),
        false => show::table(&report, args.seed),
    };
    let printed = print(&text);
    for shortfall in &report.shortfalls {
        complain(&format!("DID NOT KEEP UP: {shortfall}"), None);
    }
    match report.kept_up {
        true => printed,
        false => ExitCode::from(FELL_SHORT),
    }
}

/// What the options come to.
///
/// # Errors
/// Options that do nothing together.
fn settings(args: &LinkArgs) -> Result<Settings, String> {
    let general = PathFlags::default();
    let [a_to_b, b_to_a] =
        [&args.a_to_b, &args.b_to_a].map(|own| own.as_ref().unwrap_or(&general).or(&args.both));
    // A direction may have its own queue and the rate of both, so the parser cannot tell.
    if [&a_to_b, &b_to_a]
        .iter()
        .any(|of| of.queue.is_some() && of.rate.is_none())
    {
        return Err("--queue does nothing without a rate".to_owned());
    }
    let round_trip = a_to_b.delay.unwrap_or_default() + b_to_a.delay.unwrap_or_default();
    Ok(Settings {
        a_to_b: path(&a_to_b, round_trip),
        b_to_a: path(&b_to_a, round_trip),
        seed: args.seed,
        capture: args.pcap.clone(),
        holes: args.holes.clone(),
        separate: args.separate,
        late_max: args.late_max,
    })
}

fn path(flags: &PathFlags, round_trip: Duration) -> PathConfig {
    let bursts = flags.burst_loss.map(|burst| Loss::GilbertElliott {
        to_bad: burst.to_bad(),
        to_good: burst.to_good(),
        good: 0.0,
        bad: burst.within,
    });
    let loss = flags.loss.map(Loss::Random);
    let reorder = flags.reorder.map(|reorder| Reordering {
        probability: reorder.share,
        extra: reorder.extra,
    });
    PathConfig {
        link: LinkConfig {
            delay: flags.delay.unwrap_or_default(),
            jitter: flags.jitter.unwrap_or_default(),
            rate: flags.rate,
            queue: flags.rate.map(|rate| queue(flags.queue, rate, round_trip)),
            loss: bursts.or(loss).unwrap_or_default(),
            reordering: reorder.unwrap_or_default(),
            duplication: flags.duplicate.unwrap_or_default(),
            corruption: flags.corrupt.unwrap_or_default(),
            held_octets_max: None,
        },
        mtu: flags.mtu,
        resegment: flags.resegment,
    }
}

/// Octets that may wait for the rate.
fn queue(asked: Option<Queue>, rate: u64, round_trip: Duration) -> usize {
    let in_time = |time: Duration| (rate as f64 / 8.0 * time.as_secs_f64()) as u64;
    let octets = match asked {
        Some(Queue::Octets(octets)) => octets,
        Some(Queue::Time(time)) => in_time(time),
        None => in_time(round_trip.max(QUEUE_MIN)).max(QUEUE_MIN_OCTETS),
    };
    octets as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn of(words: &[&str]) -> LinkArgs {
        let words = ["weft", "link", "a", "b"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Link(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_reach_both_directions_and_single_ones_change_one() {
        let args = of(&[
            "--delay",
            "10ms",
            "--rate",
            "1Gbit",
            "--loss",
            "1%",
            "--b-to-a",
            "delay=40ms,mtu=1300",
        ]);
        let settings = settings(&args).unwrap();
        let (one, other) = (settings.a_to_b, settings.b_to_a);
        assert_eq!(one.link.delay, Duration::from_millis(10));
        assert_eq!(other.link.delay, Duration::from_millis(40));
        assert_eq!((one.mtu, other.mtu), (None, Some(1300)));
        assert_eq!(one.link.loss, Loss::Random(0.01));
        assert_eq!(one.link.loss, other.link.loss);
        // A round trip of 50 ms at 1 Gbit/s.
        assert_eq!(one.link.queue, Some(6_250_000));
        assert_eq!(settings.seed, 1);
    }

    #[test]
    fn a_queue_without_a_rate_is_refused() {
        assert!(settings(&of(&["--queue", "20ms"])).is_err());
        assert!(settings(&of(&["--a-to-b", "queue=20ms", "--rate", "1Gbit"])).is_ok());
        assert!(settings(&of(&["--queue", "20ms", "--a-to-b", "rate=1Gbit"])).is_err());
    }

    #[test]
    fn a_queue_has_a_size_that_suits_the_rate() {
        let ms = Duration::from_millis;
        assert_eq!(queue(None, 1_000_000_000, ms(0)), 1_250_000);
        assert_eq!(queue(None, 1_000_000, ms(0)), 65_536);
        assert_eq!(queue(Some(Queue::Time(ms(20))), 8_000_000, ms(900)), 20_000);
        assert_eq!(queue(Some(Queue::Octets(5)), 8_000_000, ms(900)), 5);
        assert_eq!(path(&PathFlags::default(), ms(1)).link.queue, None);
    }

    #[test]
    fn counts_are_for_terminals_or_who_asks() {
        assert_eq!(interval(&of(&[]), true), Some(USUAL_INTERVAL));
        assert_eq!(interval(&of(&[]), false), None);
        assert_eq!(interval(&of(&["--quiet"]), true), None);
        let asked = of(&["--interval", "5s"]);
        assert_eq!(interval(&asked, false), Some(Duration::from_secs(5)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for words in [
            &["weft", "link", "a"][..],
            &[
                "weft",
                "link",
                "a",
                "b",
                "--loss",
                "1%",
                "--burst-loss",
                "1%:3",
            ],
            &["weft", "link", "a", "b", "--quiet", "--interval", "1s"],
            &["weft", "link", "a", "b", "--interval", "1ms"],
            &["weft", "link", "a", "b", "--mtu", "40"],
            &["weft", "link", "a", "b", "--delay", "50"],
        ] {
            assert!(Cli::try_parse_from(words).is_err(), "{words:?}");
        }
    }
}
