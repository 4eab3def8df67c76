//! The process's one engine: what all objects share.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use weft_os::fork::{Generation, PerProcess};
use weft_os::mem::Registered;
use weft_verbs::iwarp::mpa::crc::crc32c;
use weft_verbs::mr::Regions;
use weft_verbs::types::QpNumber;

use crate::bring_up::Numbers;
use crate::cm::{HalfOpen, Id};
use crate::error::Error;
use crate::progress::{Progress, Token};
use crate::qp::Qp;
use crate::settings::Settings;
use crate::stats::{Refused, Stats, Total};
use crate::suspects::{Admission, Noted, Standing, Suspects, Ticket, Whom, THIS_MACHINE};
use crate::ud::UdSocket;

/// Everything the process's verbs objects share.
pub struct Engine {
    /// The process that it serves.
    generation: Generation,
    pub(crate) settings: Settings,
    pub(crate) regions: RwLock<Regions<Registered>>,
    pub(crate) progress: Progress,
    pub(crate) stats: Stats,
    pub(crate) numbers: Numbers,
    /// Connections accepted whose MPA Request is not there yet.
    pub(crate) half_open: Mutex<HalfOpen<Weak<Id>>>,
    /// Held while one connection is taken, from the look for room to the entry in `half_open`.
    pub(crate) accepting: Mutex<()>,
    suspects: Mutex<Suspects<Token>>,
    whom: Mutex<Whom>,
    pub(crate) queue_pairs: Mutex<HashMap<u32, Weak<Qp>>>,
    next_pd: AtomicU32,
    epoch: Instant,
}

/// Every object leads to the engine, and the engine to every object.
impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// A forked child starts one of its own; its parent's goes on serving the parent alone (decision 0017).
static ENGINE: PerProcess<Result<Arc<Engine>, Error>> = PerProcess::new();

/// The process's engine, started on first use.
///
/// # Errors
/// No descriptors or no thread to be had.
pub fn engine() -> Result<Arc<Engine>, Error> {
    ENGINE.get_or_init(Engine::from_env).clone()
}

/// The process's engine, if it runs.
pub(crate) fn started() -> Option<Arc<Engine>> {
    ENGINE.get()?.as_ref().ok().cloned()
}

/// Starts the process's engine with settings of the program's own, whatever the environment says.
///
/// # Errors
/// It runs already; or no descriptors or no thread are to be had.
pub fn start_with(settings: Settings) -> Result<Arc<Engine>, Error> {
    let mut settings = Some(settings);
    let started = ENGINE.get_or_init(|| {
        let settings = settings.take().unwrap_or_default();
        crate::log::set_threshold(settings.log);
        Engine::start(settings)
    });
    match settings {
        None => started.clone(),
        Some(_) => Err(Error::State("a process whose engine does not run yet")),
    }
}

impl Engine {
    fn from_env() -> Result<Arc<Engine>, Error> {
        let (settings, complaints) = Settings::from_env();
        crate::log::set_threshold(settings.log);
        for complaint in complaints {
            crate::warn!("{complaint}");
        }
        Engine::start(settings)
    }

    /// Says in words what a program can only see as an error number, and prints at most as "failed to open device".
    fn start(settings: Settings) -> Result<Arc<Engine>, Error> {
        Engine::begin(settings)
            .inspect_err(|error| crate::error!("the device cannot be opened: {error}"))
    }

    fn begin(settings: Settings) -> Result<Arc<Engine>, Error> {
        // What the CPU can do is found out at the first CRC, behind a lock of the library that computes it. A child that was
        // forked meanwhile would wait for good, so that happens before there are threads of ours.
        std::hint::black_box(crc32c(b"weft"));
        let engine = Arc::new(Engine {
            generation: Generation::now(),
            regions: RwLock::new(Regions::default()),
            progress: Progress::new(settings.serve_tick)?,
            stats: Stats::new(settings.stat),
            numbers: Numbers::default(),
            half_open: Mutex::default(),
            accepting: Mutex::new(()),
            suspects: Mutex::new(Suspects::new(settings.refused_access_limit)),
            whom: Mutex::default(),
            queue_pairs: Mutex::new(HashMap::new()),
            next_pd: AtomicU32::new(1),
            epoch: Instant::now(),
            settings,
        });
        crate::progress::start_service(&engine)?;
        crate::leaving::watch_exit();
        Ok(engine)
    }

    /// It is of a process that this one was forked from. To be asked before any lock of it is taken: one that a
    /// thread held as the process forked is held for good.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.generation.is_over()
    }

    /// The settings the process runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Time since the engine started.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The address that stands for all that a peer has: what bounds a peer by its address counts these.
    pub(crate) fn whom(&self, peer: IpAddr) -> IpAddr {
        self.whom.lock().of(peer, self.now())
    }

    /// A peer reached for memory that it was not given, so many times.
    #[cold]
    pub(crate) fn note_refused(&self, peer: IpAddr, count: u64) {
        self.stats.add(Total::RefusedAccesses, count);
        self.suspect(peer, count);
    }

    /// A peer dialed a queue pair that waits for somebody else, or for nobody.
    #[cold]
    pub(crate) fn note_wrong_dial(&self, peer: IpAddr) {
        self.stats.add(Total::WrongDials, 1);
        self.suspect(peer, 1);
    }

    fn suspect(&self, peer: IpAddr, count: u64) {
        let peer = self.whom(peer);
        let noted = self.suspects.lock().note(peer, count, self.now());
        self.publish_suspect(&noted);
        if noted.slowed_now {
            let whose = match noted.suspect.address {
                THIS_MACHINE => "a program on this machine".to_owned(),
                other => other.to_string(),
            };
            crate::warn_of_peer!(
                "{whose} reached for memory or a queue pair that it was not given {} times: new connections from there \
                 wait from now on \
                 (setting refused-access-limit)",
                noted.suspect.refusals
            );
        }
        if noted.all_slowed_now {
            crate::warn_of_peer!(
                "many addresses reach for memory they were not given: new connections take turns from now on, \
                 by the network they come from (setting refused-access-limit)"
            );
        }
    }

    /// A connection from that address has sent its Request; `token` is its member's.
    pub(crate) fn ask_for_turn(&self, peer: IpAddr, token: Token) -> Admission {
        // Whose address it is takes longer to find out than that nobody is a suspect.
        if self.suspects.lock().is_empty() {
            return Admission::Free;
        }
        let peer = self.whom(peer);
        let (admission, noted) = self.suspects.lock().ask(peer, token, self.now());
        if admission != Admission::Free {
            self.stats.add(Total::Slowed, 1);
        }
        if let Some(noted) = noted {
            self.publish_suspect(&noted);
        }
        admission
    }

    /// How it stands with a connection that waits for its turn.
    pub(crate) fn look_at_turn(&self, peer: IpAddr, ticket: Ticket) -> Standing {
        let lot = weft_os::random_u64();
        let (peer, now) = (self.whom(peer), self.now());
        let (standing, other) = self.suspects.lock().look(peer, ticket, now, lot);
        self.wake_for_turn(other);
        standing
    }

    /// A connection in line, or behind its turn, is over.
    pub(crate) fn leave_turn(&self, peer: IpAddr, ticket: Ticket) {
        let peer = self.whom(peer);
        let other = self.suspects.lock().leave(peer, ticket, self.now());
        self.wake_for_turn(other);
    }

    fn wake_for_turn(&self, who: Option<Token>) {
        if let Some(who) = who {
            self.progress.add_timer(self.now(), who);
        }
    }

    fn publish_suspect(&self, noted: &Noted) {
        let refused = Refused {
            address: noted.suspect.address,
            accesses: noted.suspect.refusals,
            slowed: noted.suspect.slowed,
        };
        self.stats.publish_refused(noted.place, &refused);
    }

    pub(crate) fn new_pd_number(&self) -> u32 {
        self.next_pd.fetch_add(1, Ordering::Relaxed)
    }

    /// A queue pair number that no other queue pair has.
    pub(crate) fn new_qp_number(self: &Arc<Self>) -> Result<QpNumber, Error> {
        self.numbers.take(self).map(QpNumber)
    }

    pub(crate) fn remember_qp(&self, number: QpNumber, qp: &Arc<Qp>) {
        self.queue_pairs.lock().insert(number.0, Arc::downgrade(qp));
    }

    pub(crate) fn forget_qp(&self, number: QpNumber) {
        self.queue_pairs.lock().remove(&number.0);
        self.numbers.give_back(number.0);
    }

    /// The queue pair of that number.
    pub fn qp_by_number(&self, number: u32) -> Option<Arc<Qp>> {
        self.queue_pairs.lock().get(&number)?.upgrade()
    }
}

/// What a member of the engine's epoll set stands for.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    /// A listener, a connecting socket or one in MPA start-up.
    Connecting(Arc<Id>),
    /// A stream in full operation.
    Stream(Arc<Qp>),
    /// A socket for datagrams.
    Datagrams(Arc<UdSocket>),
}
