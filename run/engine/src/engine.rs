//! The process's one engine: what all objects share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use weft_os::mem::Registered;
use weft_verbs::mr::Regions;
use weft_verbs::types::QpNumber;

use crate::bring_up::Numbers;
use crate::cm::Id;
use crate::error::Error;
use crate::progress::Progress;
use crate::qp::Qp;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::ud::UdSocket;

/// Everything the process's verbs objects share.
#[derive(Debug)]
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) regions: RwLock<Regions<Registered>>,
    pub(crate) progress: Progress,
    pub(crate) stats: Stats,
    pub(crate) numbers: Numbers,
    queue_pairs: Mutex<HashMap<u32, Weak<Qp>>>,
    next_pd: AtomicU32,
    epoch: Instant,
}

static ENGINE: OnceLock<Result<Arc<Engine>, Error>> = OnceLock::new();

/// The process's engine, started on first use.
///
/// # Errors
/// No descriptors or no thread to be had.
pub fn engine() -> Result<Arc<Engine>, Error> {
    match ENGINE.get_or_init(Engine::start) {
        Ok(_) if weft_os::fork::is_child() => Err(Error::Forked),
        Ok(engine) => Ok(engine.clone()),
        Err(error) => Err(*error),
    }
}

impl Engine {
    fn start() -> Result<Arc<Engine>, Error> {
        let (settings, complaints) = Settings::from_env();
        crate::log::set_threshold(settings.log);
        for complaint in complaints {
            crate::warn!("{complaint}");
        }
        weft_os::fork::watch();
        let engine = Arc::new(Engine {
            regions: RwLock::new(Regions::default()),
            progress: Progress::new(settings.serve_tick)?,
            stats: Stats::new(settings.stat),
            numbers: Numbers::default(),
            queue_pairs: Mutex::new(HashMap::new()),
            next_pd: AtomicU32::new(1),
            epoch: Instant::now(),
            settings,
        });
        crate::progress::start_service(&engine)?;
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
