//! The loop of one direction: frames in, frames out when they are due, and waiting for either.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use weft_link::{insert_vlan_tag, parse_vnet_header, Path, PathCounters, Way};
use weft_os::packet::PacketSender;
use weft_os::sched;

use crate::capture::SharedCapture;
use crate::clock::Clock;
use crate::lateness::Lateness;
use crate::open::Ends;

/// Frames taken in before it is looked what is due. A large one may become 45 that are due at once.
const TAKEN_MAX: usize = 16;
/// Frames sent by one call.
const BATCH: usize = 32;
/// A sleep ends so much before what it waits for, and the rest is spun: waking takes longer than this only where no
/// core is free.
const SPIN: Duration = Duration::from_micros(30);
/// A sleep is no longer, so that the end is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// The kernel is asked about dropped frames so often.
const DROPS_EVERY: Duration = Duration::from_millis(100);
/// What a thread that has to be on time asks of the scheduler, in nanoseconds.
const SLICE_NS: u64 = 100_000;

/// One direction, ready to run.
#[derive(Debug)]
pub(crate) struct Direction {
    ends: Ends,
    path: Path,
    clock: Clock,
    /// Number of the interface where frames arrive; the other has the other.
    from: u32,
    capture: Option<SharedCapture>,
    stop: Arc<AtomicBool>,
    tally: Arc<Tally>,
    /// Frames that are due, with the times they were due at.
    due: Vec<(Duration, Vec<u8>)>,
    /// Nothing is taken to have come before this.
    last_arrival: Duration,
    /// When all that had arrived was taken in.
    empty_at: Duration,
    drops_asked: Duration,
}

/// What a direction tells others while it runs.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) from: String,
    pub(crate) to: String,
    sums: Mutex<Sums>,
}

/// The sums of a direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) path: PathCounters,
    pub(crate) lateness: Lateness,
    /// Frames that the kernel dropped before they were taken in, because the ring was full.
    pub(crate) overrun: u64,
    /// Frames that came too long for the ring.
    pub(crate) truncated: u64,
    /// Frames that the interface did not take.
    pub(crate) not_sent: u64,
    /// Frames longer than the interface's MTU.
    pub(crate) too_long: u64,
    /// Why the direction ended before it was told to.
    pub(crate) ended: Option<String>,
}

impl Tally {
    pub(crate) fn new(from: String, to: String) -> Tally {
        Tally {
            from,
            to,
            sums: Mutex::default(),
        }
    }

    pub(crate) fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Direction {
    pub(crate) fn new(
        ends: Ends,
        path: Path,
        clock: Clock,
        from: u32,
        capture: Option<SharedCapture>,
        stop: Arc<AtomicBool>,
    ) -> Direction {
        let tally = Arc::new(Tally::new(ends.from.clone(), ends.to.clone()));
        Direction {
            ends,
            path,
            clock,
            from,
            capture,
            stop,
            tally,
            due: Vec::with_capacity(BATCH),
            last_arrival: Duration::ZERO,
            empty_at: Duration::ZERO,
            drops_asked: Duration::ZERO,
        }
    }

    /// What it will tell.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }

    /// Forwards until it is told to stop, or until an interface is gone.
    pub(crate) fn run(mut self) {
        // Else the sums of a direction that panicked would look like those of one that had nothing to do.
        self.tally.sums().ended = Some("the emulator failed".to_owned());
        sched::prefer_short_slices(SLICE_NS);
        sched::sharpen_timers();
        let ended = self.forward().err().map(|error| self.reason(&error));
        let overrun = self.ends.receiver.take_drops().unwrap_or_default();
        let mut sums = self.tally.sums();
        sums.path = self.path.counters();
        sums.overrun += overrun;
        sums.ended = ended;
    }

    fn forward(&mut self) -> io::Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let taken = self.take_in();
            self.send_answers()?;
            let sent = self.send_due()?;
            if taken + sent == 0 {
                self.wait()?;
            }
            self.ask_for_drops()?;
        }
        Ok(())
    }

    /// Takes in what has arrived. Returns how many frames.
    fn take_in(&mut self) -> usize {
        let reading = self.clock.read();
        let Direction {
            ends,
            path,
            clock,
            from,
            capture,
            tally,
            last_arrival,
            empty_at,
            ..
        } = self;
        let mut truncated = 0;
        let taken = ends.receiver.receive(TAKEN_MAX, |frame| {
            if frame.missing > 0 {
                truncated += 1;
                return;
            }
            // As the kernel noted, and never before the one in front of it.
            let at = reading.arrival(frame.at, *empty_at).max(*last_arrival);
            *last_arrival = at;
            let mut vnet = parse_vnet_header(frame.offload);
            let mut octets = Cow::Borrowed(frame.octets);
            if let Some(tag) = frame.vlan {
                insert_vlan_tag(octets.to_mut(), &mut vnet, tag.protocol, tag.control);
            }
            path.handle_frame(&octets, &vnet, at, |octets| {
                if let Some(capture) = capture {
                    capture.frame(*from, Way::Inbound, clock.on_calendar(at), octets);
                }
            });
        });
        if taken < TAKEN_MAX {
            *empty_at = reading.now();
        }
        if truncated > 0 {
            tally.sums().truncated += truncated;
        }
        taken
    }

    /// Sends what routers answer back to where frames came from.
    fn send_answers(&mut self) -> io::Result<()> {
        while let Some(answer) = self.path.poll_answer() {
            self.record(self.from, self.clock.now(), &answer);
            let mut failures = Failures::default();
            send(&self.ends.back, &[&answer], &mut failures)?;
            failures.add_to(&self.tally);
        }
        Ok(())
    }

    /// Sends all that is due, and returns how many frames. Nothing more is taken in before: where sending is too slow
    /// it is the ring that overflows, and not the memory.
    fn send_due(&mut self) -> io::Result<usize> {
        let now = self.clock.now();
        self.path.handle_timeout(now);
        let mut sent = 0;
        loop {
            match self.send_batch(now)? {
                0 => return Ok(sent),
                batch => sent += batch,
            }
        }
    }

    fn send_batch(&mut self, now: Duration) -> io::Result<usize> {
        let mut due = std::mem::take(&mut self.due);
        while due.len() < BATCH {
            let Some(arrived) = self.path.poll_transmit(now) else {
                break;
            };
            due.push(arrived);
        }
        if due.is_empty() {
            self.due = due;
            return Ok(0);
        }
        let frames: [&[u8]; BATCH] = std::array::from_fn(|at| match due.get(at) {
            Some((_, frame)) => frame.as_slice(),
            None => &[],
        });
        let mut failures = Failures::default();
        send(&self.ends.out, &frames[..due.len()], &mut failures)?;
        let sent_at = self.clock.now();
        due.iter()
            .for_each(|(_, frame)| self.record(1 - self.from, sent_at, frame));
        self.note(&due, sent_at, failures);
        let sent = due.len();
        due.clear();
        self.due = due;
        Ok(sent)
    }

    /// Puts what was sent into the sums.
    fn note(&self, due: &[(Duration, Vec<u8>)], sent_at: Duration, failures: Failures) {
        let mut sums = self.tally.sums();
        for (at, _) in due {
            sums.lateness.add(sent_at.saturating_sub(*at));
        }
        sums.path = self.path.counters();
        drop(sums);
        failures.add_to(&self.tally);
    }

    /// Writes a frame that left by an interface into the capture.
    fn record(&self, interface: u32, at: Duration, frame: &[u8]) {
        if let Some(capture) = &self.capture {
            let at = self.clock.on_calendar(at);
            capture.frame(interface, Way::Outbound, at, frame);
        }
    }

    /// Waits until a frame arrives or is due.
    fn wait(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let until = self
            .path
            .deadline()
            .map_or(SLEEP_MAX, |due| due.saturating_sub(now));
        if until <= SPIN {
            std::hint::spin_loop();
            return Ok(());
        }
        let waited = self.ends.receiver.wait((until - SPIN).min(SLEEP_MAX));
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            waited => waited,
        }
    }

    fn ask_for_drops(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        if now >= self.drops_asked + DROPS_EVERY {
            self.drops_asked = now;
            let overrun = self.ends.receiver.take_drops()?;
            let mut sums = self.tally.sums();
            sums.overrun += overrun;
            sums.path = self.path.counters();
        }
        Ok(())
    }

    fn reason(&self, error: &io::Error) -> String {
        let (from, to) = (&self.ends.from, &self.ends.to);
        match is_gone(error) {
            true => format!("{from} or {to} went down or away"),
            false => format!("from {from} to {to}: {error}"),
        }
    }
}

/// Frames that an interface did not take.
#[derive(Clone, Copy, Default)]
struct Failures {
    not_sent: u64,
    too_long: u64,
}

impl Failures {
    fn add_to(self, tally: &Tally) {
        if self.not_sent + self.too_long > 0 {
            let mut sums = tally.sums();
            sums.not_sent += self.not_sent;
            sums.too_long += self.too_long;
        }
    }
}

/// Sends frames in order. One that the interface does not take is counted and left out.
fn send(sender: &PacketSender, mut frames: &[&[u8]], failures: &mut Failures) -> io::Result<()> {
    while !frames.is_empty() {
        let gone = match sender.send(frames) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) if is_gone(&error) => return Err(error),
            Err(error) => {
                match Errno::from_io_error(&error) {
                    Some(Errno::MSGSIZE) => failures.too_long += 1,
                    _ => failures.not_sent += 1,
                }
                1
            }
        };
        frames = &frames[gone..];
    }
    Ok(())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV)
    )
}
