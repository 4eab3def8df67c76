//! What the thread does: holds sockets for the listeners of now, and sleeps until somebody asks.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_discovery_proto::answering::Answering as Inquiries;
use weft_discovery_proto::limits::Limits;
use weft_discovery_proto::About;
use weft_os::guarded::Guarded;
use weft_os::poll::{wait_readable, WAITED_FOR_MAX};
use weft_settings::DiscoveryPort;
use zerocopy::FromZeros;

use super::colleagues::{Caller, Vote};
use super::ports::Ports;
use super::{Answering, Standing};
use crate::now;

/// How long the thread stays when the last listener is gone: another one often follows.
const LINGER: Duration = Duration::from_secs(1);

/// Runs until there has been no listener for a while, or the program confines itself.
pub(super) fn run(answering: &'static Answering) {
    let mut limits = Limits::new_zeroed();
    limits.set_seed(weft_os::random_u64());
    let mut serving = Serving {
        answering,
        inquiries: Inquiries::new(limits),
        ports: Ports::default(),
        votes: Vec::new(),
        callers: Vec::new(),
        is_told: true,
        idle_since: None,
        ignored: 0,
        window_since: now(),
        ready: [false; WAITED_FOR_MAX],
    };
    while serving.look_up() {
        serving.wait();
        serving.receive();
        serving.look_again();
        serving.answer_callers();
        serving.count_votes();
        serving.sit_floods_out();
    }
}

/// The thread, while it runs.
pub(super) struct Serving {
    pub(super) answering: &'static Answering,
    pub(super) inquiries: Inquiries,
    pub(super) ports: Ports,
    pub(super) votes: Vec<Vote>,
    pub(super) callers: Vec<Caller>,
    /// Listeners have come or gone, or a descriptor is not what it was.
    pub(super) is_told: bool,
    /// Since when there is no listener.
    idle_since: Option<Duration>,
    /// Datagrams that were ignored since the window began.
    pub(super) ignored: u32,
    pub(super) window_since: Duration,
    /// Which descriptors can be read: the waker's, then those of `numbers`.
    pub(super) ready: [bool; WAITED_FOR_MAX],
}

impl Serving {
    /// Looks at what it was told; false if it is to end.
    fn look_up(&mut self) -> bool {
        if self.is_told {
            self.is_told = false;
            self.adapt();
        }
        let is_idle = self.idle_since.is_some_and(|since| now() - since >= LINGER);
        if (is_idle || self.answering.is_confined()) && self.leave() {
            return false;
        }
        true
    }

    /// Holds the sockets that the listeners of now need.
    fn adapt(&mut self) {
        let answering = self.answering;
        let wanted: Vec<(About, u16)> = match answering.is_confined() {
            true => Vec::new(),
            false => match answering.shared() {
                Some(shared) => shared.listeners.ports().collect(),
                None => Vec::new(),
            },
        };
        self.idle_since = match wanted.is_empty() {
            true => self.idle_since.or(Some(now())),
            false => None,
        };
        let before = answering.standing();
        let adapted = self.ports.adapt(answering, &wanted);
        let standing = match adapted {
            Ok(()) if wanted.is_empty() => Standing::Idle,
            Ok(()) => Standing::Answers,
            Err(why) => why,
        };
        answering.set_standing(standing);
        // A name that a relative holds is free once that has gone, and nobody tells.
        if adapted.is_err() || self.ports.lacks_names(&wanted) {
            answering.try_again_later();
        }
        if standing != before {
            say_why(answering.port, standing);
        }
        heed(answering, 1);
    }

    /// Ends the thread, unless a listener has come meanwhile.
    fn leave(&mut self) -> bool {
        let answering = self.answering;
        {
            let Some(mut shared) = answering.shared() else {
                return false;
            };
            let is_needed = shared.listeners.ports().next().is_some();
            if is_needed && !answering.is_confined() {
                self.is_told = true;
                self.idle_since = None;
                return false;
            }
            shared.thread.runs = false;
            shared.thread.waker = None;
        }
        self.ports.close(&answering.claims);
        answering.set_standing(Standing::Idle);
        heed(answering, 2);
        true
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self) {
        // A number that is none is not waited for.
        let mut numbers = [-1; WAITED_FOR_MAX];
        if let Some(shared) = self.answering.shared() {
            numbers[0] = shared.thread.waker.as_ref().map_or(-1, Guarded::number);
        }
        let mut count = 1;
        for number in self.numbers().take(WAITED_FOR_MAX - 1) {
            numbers[count] = number;
            count += 1;
        }
        let timeout = self.deadline().map(|at| at.saturating_sub(now()));
        self.ready = [false; WAITED_FOR_MAX];
        let waited = wait_readable(&numbers[..count], &mut self.ready[..count], timeout);
        if waited.is_err() {
            // All signals are blocked here: without memory in the kernel there is nothing to do but to come again.
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.ready[0] {
            self.clear_waker();
            self.is_told = true;
        }
    }

    /// Takes the wake-up back. Where the program has closed its descriptor, another one takes its place.
    fn clear_waker(&mut self) {
        let Some(mut shared) = self.answering.shared() else {
            return;
        };
        match shared.thread.waker.as_mut().and_then(Guarded::get) {
            Some(waker) => waker.clear(),
            None => {
                shared.thread.waker = weft_os::poll::Waker::apart().ok().map(Guarded::new);
            }
        }
    }

    /// All descriptors that are waited for but the waker's: those of ports, then those of names, then others.
    fn numbers(&self) -> impl Iterator<Item = RawFd> + '_ {
        let ports = self.ports.ports.iter().map(|port| port.socket.number());
        let names = self.ports.names.iter().map(|name| name.listener.number());
        let asked = self.votes.iter().flat_map(|vote| &vote.asked);
        let callers = self.callers.iter().map(|caller| &caller.packets);
        let others = asked.chain(callers).map(Guarded::number);
        ports.chain(names).chain(others)
    }

    /// When something is to be done that nothing wakes for.
    fn deadline(&self) -> Option<Duration> {
        let votes = self.votes.iter().map(|vote| vote.over_at);
        let callers = self.callers.iter().map(|caller| caller.over_at);
        let idle = self.idle_since.map(|since| since + LINGER);
        let inquiries = self.inquiries.deadline();
        votes.chain(callers).chain(idle).chain(inquiries).min()
    }
}

/// What was told has been looked at.
fn heed(answering: &Answering, times: u32) {
    answering.heeded.fetch_add(times, Ordering::AcqRel);
}

fn say_why(port: DiscoveryPort, why: Standing) {
    match why {
        Standing::PortTaken => weft_settings::info!(
            "nobody can ask this process whether it is Weft, so that its connections are TCP: another user, or a program \
             that does not share it, has UDP port {port} (discovery-port)"
        ),
        Standing::NoSockDiag => weft_settings::info!(
            "nobody can ask this process whether it is Weft, so that its connections are TCP: the kernel does not tell \
             which connections there are (sock_diag)"
        ),
        Standing::Short => weft_settings::info!(
            "nobody can ask this process whether it is Weft, so that its connections are TCP: no descriptor, memory or \
             thread is left for that"
        ),
        Standing::Idle | Standing::Answers => {}
    }
}
