//! The link emulator in real time: frames that arrive at one network interface leave by another, in both directions.
//!
//! What happens to a frame on the way is decided by [`weft_link`], which knows no clock. This crate adds the clock, the
//! sockets and the account of how late it was: [`Bridge::open`], [`Bridge::start`], and at the end [`Running::finish`].
//!
//! | file | concern |
//! | --- | --- |
//! | `open.rs` | the two interfaces, and why they may not be usable |
//! | `direction.rs` | the loop of one direction, a thread |
//! | `clock.rs` | one time for both directions, and for what the kernel noted |
//! | `capture.rs`, `holes.rs` | the files that both directions write |
//! | `leaving.rs` | frames on their way out |
//! | `tally.rs`, `lateness.rs` | sums, and how late frames were |
//! | `report.rs` | what is said at the end |

#![forbid(unsafe_code)]

mod capture;
mod clock;
mod direction;
mod holes;
mod lateness;
mod leaving;
mod open;
mod report;
mod tally;

pub use lateness::Lateness;
pub use open::OpenError;
pub use report::{DirectionReport, Report, Shortfall};

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use capture::SharedCapture;
use direction::Direction;
use holes::HolesFile;
use tally::Tally;
use weft_link::{PathConfig, Random};

/// Octets of frames that a direction holds at most, waiting and travelling: 10 Gbit/s for 400 ms. Where no rate was
/// asked for nothing else bounds them.
pub const HELD_OCTETS_MAX: usize = 512 << 20;

/// What a bridge does.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What happens to frames that arrive at the first interface and leave by the second.
    pub a_to_b: PathConfig,
    /// The other direction.
    pub b_to_a: PathConfig,
    /// Decides every random choice of both directions.
    pub seed: u64,
    /// Where to write a capture of both interfaces.
    pub capture: Option<PathBuf>,
    /// Where to write when holes in TCP streams were filled.
    pub holes: Option<PathBuf>,
    /// Each segment leaves by itself, also where several of a stream leave at one moment.
    pub separate: bool,
    /// The emulator kept up as long as no more than one frame in a hundred was later than this.
    pub late_max: Duration,
}

/// Files that both directions write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    pub(crate) capture: Option<SharedCapture>,
    pub(crate) holes: Option<HolesFile>,
}

/// How a direction goes about it.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) files: Files,
    /// Segments that leave at one moment leave as one large frame.
    pub(crate) joins: bool,
    /// Where frames are many they are looked after so often.
    pub(crate) quantum: Duration,
}

impl Files {
    fn create(settings: &Settings, names: &[String; 2]) -> Result<Files, OpenError> {
        let capture = settings.capture.as_ref();
        let holes = settings.holes.as_ref();
        Ok(Files {
            capture: capture
                .map(|file| SharedCapture::create(file, names))
                .transpose()?,
            holes: holes.map(|file| HolesFile::create(file)).transpose()?,
        })
    }

    fn flush(&self) {
        self.capture.iter().for_each(SharedCapture::flush);
        self.holes.iter().for_each(HolesFile::flush);
    }

    fn problems(&self) -> impl Iterator<Item = Shortfall> {
        let capture = self.capture.as_ref().and_then(SharedCapture::problem);
        let holes = self.holes.as_ref().and_then(HolesFile::problem);
        let capture = capture.map(Shortfall::Capture);
        capture.into_iter().chain(holes.map(Shortfall::Holes))
    }
}

/// Two interfaces, ready to be bridged.
#[derive(Debug)]
pub struct Bridge {
    late_max: Duration,
    directions: [Direction; 2],
    files: Files,
    stop: Arc<AtomicBool>,
}

/// A bridge that forwards.
#[derive(Debug)]
pub struct Running {
    late_max: Duration,
    started: Instant,
    tallies: [Arc<Tally>; 2],
    threads: Vec<JoinHandle<()>>,
    files: Files,
    stop: Arc<AtomicBool>,
}

impl Bridge {
    /// Opens both interfaces. From here on frames that arrive are kept for [`Bridge::start`].
    ///
    /// # Errors
    /// The interfaces cannot be bridged, this process may not, or the capture cannot be written.
    pub fn open(a: &str, b: &str, settings: &Settings) -> Result<Bridge, OpenError> {
        let [at_a, at_b] = open::interfaces(a, b, settings)?;
        let names = [a.to_owned(), b.to_owned()];
        let files = Files::create(settings, &names)?;
        let stop = Arc::new(AtomicBool::new(false));
        // Apart, so that the two directions do not lose the same frames.
        let mut seeds = Random::new(settings.seed);
        let clock = clock::Clock::start();
        let mut direction = |from, to, config: &PathConfig, number| {
            let ends = open::Ends::open(from, to)?;
            let path = weft_link::Path::new(&bounded(config), ends.mtu, seeds.bits());
            let manner = Manner {
                files: files.clone(),
                // What is damaged has to arrive so.
                joins: !settings.separate && config.link.corruption == 0.0,
                quantum: direction::quantum(config.link.delay),
            };
            Ok(Direction::new(
                ends,
                path,
                clock,
                number,
                manner,
                stop.clone(),
            ))
        };
        let directions = [
            direction(&at_a, &at_b, &settings.a_to_b, 0)?,
            direction(&at_b, &at_a, &settings.b_to_a, 1)?,
        ];
        Ok(Bridge {
            late_max: settings.late_max,
            directions,
            files,
            stop,
        })
    }

    /// Begins to forward, each direction in a thread of its own.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(self) -> std::io::Result<Running> {
        let tallies = self.directions.each_ref().map(Direction::tally);
        let mut running = Running {
            late_max: self.late_max,
            started: Instant::now(),
            tallies,
            threads: Vec::new(),
            files: self.files,
            stop: self.stop,
        };
        for direction in self.directions {
            let thread = std::thread::Builder::new().name("weft-link".into());
            running.threads.push(thread.spawn(move || direction.run())?);
        }
        Ok(running)
    }
}

/// The same path, holding no more than this process has memory for.
fn bounded(config: &PathConfig) -> PathConfig {
    let mut bounded = *config;
    let asked = config.link.held_octets_max.unwrap_or(HELD_OCTETS_MAX);
    bounded.link.held_octets_max = Some(asked.min(HELD_OCTETS_MAX));
    bounded
}

impl Running {
    /// Whether forwarding ended by itself, because an interface is gone.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// What happened so far.
    pub fn report(&self) -> Report {
        Report::new(
            self.started.elapsed(),
            &self.tallies,
            self.late_max,
            self.files.problems(),
        )
    }

    /// Makes sure that what was to be written so far is in its files.
    pub fn flush_files(&self) {
        self.files.flush();
    }

    /// Ends forwarding. What is still on its way is lost.
    pub fn finish(mut self) -> Report {
        self.end();
        self.flush_files();
        self.report()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said so on standard error, and its direction says that it ended.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
