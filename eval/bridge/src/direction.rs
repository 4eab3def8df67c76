//! The loop of one direction: frames in, frames out when they are due, and waiting for either.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use weft_link::{insert_vlan_tag, parse_vnet_header, Holes, Path, Way};
use weft_os::sched;

use crate::clock::Clock;
use crate::leaving::{is_gone, send, Failures};
use crate::open::Ends;
use crate::tally::Tally;
use crate::Manner;

/// Frames taken in before it is looked what is due. A large one may become 45 that are due at once.
const TAKEN_MAX: usize = 16;
/// Frames that leave together at most. Joined they are several calls' worth.
const BATCH: usize = 64;
/// A sleep ends so much before what it waits for, and the rest is spun: waking takes longer than this only where no
/// core is free.
const SPIN: Duration = Duration::from_micros(30);
/// Where frames are many they may be so much later as a part of the delay: looking after each by itself takes a core.
const QUANTUM_SHARE: u32 = 8;
/// And no more than this.
const QUANTUM_MAX: Duration = Duration::from_micros(250);
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
    manner: Manner,
    /// Where a file wants to know of them.
    holes: Option<Holes>,
    stop: Arc<AtomicBool>,
    tally: Arc<Tally>,
    /// Frames that are due, with the times they were due at.
    due: Vec<(Duration, Vec<u8>)>,
    /// Nothing is taken to have come before this.
    last_arrival: Duration,
    /// When all that had arrived was taken in.
    empty_at: Duration,
    drops_asked: Duration,
    /// When frames left last.
    sent_at: Option<Duration>,
}

/// For how long frames of a path with this delay may be left alone where they are many.
pub(crate) fn quantum(delay: Duration) -> Duration {
    (delay / QUANTUM_SHARE).min(QUANTUM_MAX)
}

impl Direction {
    pub(crate) fn new(
        ends: Ends,
        path: Path,
        clock: Clock,
        from: u32,
        manner: Manner,
        stop: Arc<AtomicBool>,
    ) -> Direction {
        let tally = Arc::new(Tally::new(ends.from.clone(), ends.to.clone()));
        Direction {
            ends,
            path,
            clock,
            from,
            holes: manner.files.holes.as_ref().map(|_| Holes::default()),
            manner,
            stop,
            tally,
            due: Vec::with_capacity(BATCH),
            last_arrival: Duration::ZERO,
            empty_at: Duration::ZERO,
            drops_asked: Duration::ZERO,
            sent_at: None,
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
        if let (Some(file), Some(holes)) = (&self.manner.files.holes, &self.holes) {
            holes.ends().for_each(|(stream, end)| file.end(stream, end));
        }
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
            manner,
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
                if let Some(capture) = &manner.files.capture {
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
            send(&self.ends.back, &[&answer], false, &mut failures)?;
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
        let frames = &frames[..due.len()];
        // A receiver on another core may be done with a frame before the call that sends it comes back.
        let began = self.clock.now();
        send(&self.ends.out, frames, self.manner.joins, &mut failures)?;
        let sent_at = self.clock.now();
        self.sent_at = Some(sent_at);
        self.note_holes(frames, began);
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

    /// Writes which holes these frames filled.
    fn note_holes(&mut self, frames: &[&[u8]], at: Duration) {
        let (Some(file), Some(holes)) = (&self.manner.files.holes, &mut self.holes) else {
            return;
        };
        let filled = frames.iter().filter_map(|frame| holes.handle_frame(frame));
        filled.for_each(|filled| file.filled(&filled, self.clock.on_calendar(at)));
    }

    /// Writes a frame that left by an interface into the capture.
    fn record(&self, interface: u32, at: Duration, frame: &[u8]) {
        if let Some(capture) = &self.manner.files.capture {
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
        // Where frames are many, one that arrives meanwhile is taken in later than it came and still before it is due.
        let quantum = self.manner.quantum;
        let many = |sent_at| now < sent_at + 2 * quantum;
        if quantum > SPIN && until <= quantum && self.sent_at.is_some_and(many) {
            std::thread::sleep(quantum);
            return Ok(());
        }
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
