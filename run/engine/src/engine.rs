//! The process's one engine: what all objects share.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use weft_os::mem::Registered;
use weft_verbs::mr::Regions;
use weft_verbs::types::QpNumber;

use crate::bring_up::Numbers;
use crate::cm::{HalfOpen, Id};
use crate::error::Error;
use crate::progress::Progress;
use crate::qp::Qp;
use crate::settings::Settings;
use crate::stats::{Refused, Stats, Total};
use crate::suspects::{Admission, Noted, Suspects};
use crate::ud::UdSocket;

/// Everything the process's verbs objects share.
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) regions: RwLock<Regions<Registered>>,
    pub(crate) progress: Progress,
    pub(crate) stats: Stats,
    pub(crate) numbers: Numbers,
    /// Connections accepted whose MPA Request is not there yet.
    pub(crate) half_open: Mutex<HalfOpen<Weak<Id>>>,
    /// Held while one connection is taken, from the look for room to the entry in `half_open`.
    pub(crate) accepting: Mutex<()>,
    suspects: Mutex<Suspects>,
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

static ENGINE: OnceLock<Result<Arc<Engine>, Error>> = OnceLock::new();

/// The process's engine, started on first use.
///
/// # Errors
/// No descriptors or no thread to be had.
pub fn engine() -> Result<Arc<Engine>, Error> {
    match ENGINE.get_or_init(Engine::from_env) {
        Ok(_) if weft_os::fork::is_child() => Err(Error::Forked),
        Ok(engine) => Ok(engine.clone()),
        Err(error) => Err(*error),
    }
}

/// The engine, if it runs and is this process's own.
pub(crate) fn started() -> Option<Arc<Engine>> {
    let engine = ENGINE.get()?.as_ref().ok()?;
    (!weft_os::fork::is_child()).then(|| engine.clone())
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

    fn start(settings: Settings) -> Result<Arc<Engine>, Error> {
        weft_os::fork::watch();
        let engine = Arc::new(Engine {
            regions: RwLock::new(Regions::default()),
            progress: Progress::new(settings.serve_tick)?,
            stats: Stats::new(settings.stat),
            numbers: Numbers::default(),
            half_open: Mutex::new(HalfOpen::new(settings.half_open_limit)),
            accepting: Mutex::new(()),
            suspects: Mutex::new(Suspects::new(settings.refused_access_limit)),
            queue_pairs: Mutex::new(HashMap::new()),
            next_pd: AtomicU32::new(1),
            epoch: Instant::now(),
            settings,
        });
        crate::progress::start_service(&engine)?;
        crate::leaving::watch_exit();
        Ok(engine)
    }

    /// The settings the process runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Time since the engine started.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// A peer reached for memory that it was not given, so many times.
    #[cold]
    pub(crate) fn note_refused(&self, peer: IpAddr, count: u64) {
        let noted = self.suspects.lock().note(peer, count, self.now());
        self.stats.add(Total::RefusedAccesses, count);
        self.publish_suspect(&noted);
        if noted.slowed_now {
            crate::warn_of_peer!(
                "{} reached for memory it was not given {} times: its new connections wait from now on \
                 (setting refused-access-limit)",
                noted.suspect.address,
                noted.suspect.refusals
            );
        }
    }

    /// Whether a connection from that address may begin its start-up.
    pub(crate) fn admit(&self, peer: IpAddr) -> Admission {
        let (admission, noted) = self.suspects.lock().admit(peer, self.now());
        if let Some(noted) = noted {
            self.stats.add(Total::Slowed, 1);
            self.publish_suspect(&noted);
        }
        admission
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
